import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { DURATION_MS_MAX } from '../../../../src/lib/bounds.ts'
import { META_CHARACTERS_MAX } from '../../../../src/lib/meta.ts'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../../support/server.ts'
import { SLOW_MS } from '../../../support/timeout.ts'
import { callV2, commonCases, dataOf, refusalOf } from '../common-cases.ts'
import { listCases } from '../list-cases.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
let mine: TestWorkspace
beforeAll(async () => {
  server = await startTestServer()
  mine = await server.workspace()
})
afterAll(async () => await server[Symbol.asyncDispose]())

const INVALID: [number, string] = [400, 'unkey/application/invalid_input']
const NOT_FOUND: [number, string] = [404, 'unkey/data/identity_not_found']
const FORBIDDEN: [number, string] = [403, 'unkey/authorization/insufficient_permissions']

const call = (name: string, body: unknown, rootKey: string | null = mine.rootKey) =>
  callV2(server, `identities.${name}`, body, rootKey)
let count = 0
const newName = () => `user_${++count}`
const newIdentity = async (fields: Json = {}): Promise<{ externalId: string; identityId: string }> => {
  const externalId = newName()
  return { externalId, ...(await dataOf(call('createIdentity', { externalId, ...fields }))) }
}
const read = (identity: string) => dataOf(call('getIdentity', { identity }))
const requests = { name: 'requests', limit: 10, duration: 60_000, autoApply: false }
const tokens = { name: 'tokens', limit: 1000, duration: 3_600_000, autoApply: true }
const eventsOf = async (workspaceId: string) => {
  const rows = await server.server.deps.sql<{ event: string; count: number }[]>`
    select event, count(*)::integer as count from audit_events
     where workspace_id = ${workspaceId} and event ~ '^(identity|ratelimit)[.]' group by event order by event`
  return Object.fromEntries(rows.map((row) => [row.event, row.count]))
}

describe('createIdentity', () => {
  commonCases(() => ({
    server,
    name: 'identities.createIdentity',
    rootKey: mine.rootKey,
    permissions: ['identity.*.create_identity'],
    body: () => ({ externalId: newName() }),
  }))

  test('with nothing else, with meta, with limits and with both', async () => {
    const meta = {
      text: 'ü',
      number: 1.5,
      yes: true,
      list: [1, null],
      nested: { deep: { x: null } },
      none: null,
    }
    for (const fields of [{}, { meta }, { ratelimits: [requests, tokens] }, { meta, ratelimits: [tokens] }]) {
      const { identityId, externalId } = await newIdentity(fields)
      expect(identityId).toStartWith('id_')
      const shown = await read(identityId)
      const expected = 'ratelimits' in fields ? { ...fields, ratelimits: fields.ratelimits } : fields
      const withoutIds = shown.ratelimits?.map(({ id, ...limit }: { id: string }) => {
        expect(id).toStartWith('rl_')
        return limit
      })
      expect({ ...shown, ...(withoutIds === undefined ? {} : { ratelimits: withoutIds }) }).toEqual({
        id: identityId,
        externalId,
        ...expected,
      })
    }
  })

  test('empty meta and empty limits are absent, and unknown fields are dropped', async () => {
    const { identityId, externalId } = await newIdentity({ meta: {}, ratelimits: [], unknown: 1 })
    expect(await read(identityId)).toEqual({ id: identityId, externalId })
  })

  test('an external id has 1 to 255 letters, digits, dots, underscores and hyphens', async () => {
    const { rootKey } = await server.workspace()
    const create = async (externalId: unknown) =>
      (await call('createIdentity', { externalId }, rootKey)).status
    for (const externalId of ['x', 'a_B.c-9', 'x'.repeat(255)]) expect(await create(externalId)).toBe(200)
    for (const externalId of [undefined, null, '', 'x'.repeat(256), 'a b', 'a@b', 'ü', 'a/b'])
      expect(await create(externalId)).toBe(400)
  })

  test('limits have names of 3 to 128 characters, a limit from 1 and a duration of a second to a century', async () => {
    const create = async (limit: Json) => {
      const body = { externalId: newName(), ratelimits: [{ ...requests, ...limit }] }
      return (await call('createIdentity', body)).status
    }
    for (const wrong of [
      { limit: 0 },
      { limit: -1 },
      { duration: 999 },
      { name: undefined },
      { name: 'ab' },
      { limit: 2 ** 53 },
      { duration: DURATION_MS_MAX + 1 },
      { autoApply: null },
    ])
      expect([wrong, await create(wrong)]).toEqual([wrong, 400])
    expect(await create({ limit: 2 ** 53 - 1, duration: DURATION_MS_MAX })).toBe(200)
    const many = (length: number) => Array.from({ length }, (_, n) => ({ ...requests, name: `limit_${n}` }))
    const statusOf = async (length: number) =>
      (await call('createIdentity', { externalId: newName(), ratelimits: many(length) })).status
    expect([await statusOf(50), await statusOf(51)]).toEqual([200, 400])
  })

  test('without autoApply a limit has none, and other fields of a limit are dropped', async () => {
    const { autoApply: _, ...plain } = requests
    const { identityId } = await newIdentity({ ratelimits: [{ ...plain, unknown: 1 }] })
    expect((await read(identityId)).ratelimits).toEqual([{ id: expect.any(String), ...requests }])
  })

  test('two limits of one name are a 400 that names it', async () => {
    const externalId = newName()
    const answer = await call('createIdentity', { externalId, ratelimits: [requests, tokens, requests] })
    expect(await refusalOf(answer)).toEqual(INVALID)
    expect(answer.body.error.detail).toContain('requests')
    expect(await refusalOf(call('getIdentity', { identity: externalId }))).toEqual(NOT_FOUND)
  })

  test('meta is bounded: the refusal says too large, with both sizes; 100 properties at most', async () => {
    const size = META_CHARACTERS_MAX - '{"a":""}'.length
    const { identityId } = await newIdentity({ meta: { a: 'x'.repeat(size) } })
    expect((await read(identityId)).meta.a).toHaveLength(size)
    const answer = await call('createIdentity', { externalId: newName(), meta: { a: 'x'.repeat(size + 1) } })
    expect(await refusalOf(answer)).toEqual(INVALID)
    expect(answer.body.error.detail).toContain('too large')
    expect(answer.body.error.detail).toContain(String(META_CHARACTERS_MAX))
    expect(answer.body.error.detail).toContain(String(META_CHARACTERS_MAX + 1))
    const properties = (length: number) => Object.fromEntries(Array.from({ length }, (_, n) => [`p${n}`, n]))
    const statusOf = async (length: number) =>
      (await call('createIdentity', { externalId: newName(), meta: properties(length) })).status
    expect([await statusOf(100), await statusOf(101)]).toEqual([200, 400])
  })

  test('an external id that exists is a 409 that names it, also at the same moment, but not in another workspace', async () => {
    const externalId = newName()
    const answers = await Promise.all([1, 2, 3].map(() => call('createIdentity', { externalId })))
    expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 409, 409])
    const again = await call('createIdentity', { externalId })
    expect(await refusalOf(again)).toEqual([409, 'unkey/data/identity_already_exists'])
    expect(again.body.error.title).toBe('Conflicting Resource')
    expect(again.body.error.detail).toContain(externalId)
    const other = await server.workspace()
    expect((await call('createIdentity', { externalId }, other.rootKey)).status).toBe(200)
  })

  test('the permission is asked for before anything else', async () => {
    const rootKey = await mine.rootKeyWith('identity.*.read_identity')
    const { externalId } = await newIdentity()
    for (const body of [{ externalId }, { externalId: newName(), meta: { a: 'x'.repeat(70_000) } }])
      expect(await refusalOf(call('createIdentity', body, rootKey))).toEqual(FORBIDDEN)
  })

  test('the identity and each limit are audited', async () => {
    const { rootKey, workspaceId } = await server.workspace()
    await dataOf(call('createIdentity', { externalId: 'x', ratelimits: [requests, tokens] }, rootKey))
    expect(await eventsOf(workspaceId)).toEqual({ 'identity.create': 1, 'ratelimit.create': 2 })
  })
})

describe('getIdentity', () => {
  commonCases(async () => {
    const { identityId, externalId } = await newIdentity()
    return {
      server,
      name: 'identities.getIdentity',
      rootKey: mine.rootKey,
      permissions: [`identity.${identityId}.read_identity`],
      body: () => ({ identity: externalId }),
    }
  })

  test('by id and by external id it is the same answer', async () => {
    const { identityId, externalId } = await newIdentity({ meta: { plan: 'pro' }, ratelimits: [tokens] })
    const shown = await read(identityId)
    expect(shown).toMatchObject({ id: identityId, externalId, meta: { plan: 'pro' }, ratelimits: [tokens] })
    expect(await read(externalId)).toEqual(shown)
  })

  test('where a text is the id of one and the external id of another, the id wins', async () => {
    const { identityId } = await newIdentity({ meta: { mine: true } })
    await dataOf(call('createIdentity', { externalId: identityId, meta: { mine: false } }))
    expect((await read(identityId)).meta).toEqual({ mine: true })
    const updated = await dataOf(call('updateIdentity', { identity: identityId, meta: { mine: 'still' } }))
    expect(updated.id).toBe(identityId)
    await dataOf(call('deleteIdentity', { identity: identityId }))
    expect((await read(identityId)).meta).toEqual({ mine: false })
  })

  test('an unknown, a deleted and a foreign one are not found, and the detail names it', async () => {
    const gone = await newIdentity()
    await dataOf(call('deleteIdentity', { identity: gone.identityId }))
    const other = await server.workspace()
    const foreign = await dataOf(call('createIdentity', { externalId: 'foreign' }, other.rootKey))
    for (const identity of [
      'nobody',
      gone.identityId,
      gone.externalId,
      foreign.identityId,
      'foreign',
      'a b ü',
    ]) {
      const answer = await call('getIdentity', { identity })
      expect(await refusalOf(answer)).toEqual(NOT_FOUND)
      expect(answer.body.error.title).toBe('Not Found')
      expect(answer.body.error.detail).toContain(identity)
    }
    for (const identity of ['', null, undefined, 5])
      expect((await call('getIdentity', { identity })).status).toBe(400)
  })

  test('the permission names the id: of another identity, or with the external id, it is refused', async () => {
    const { identityId, externalId } = await newIdentity()
    const other = await newIdentity()
    for (const identity of [identityId, externalId]) {
      const answerWith = async (right: string) =>
        await call('getIdentity', { identity }, await mine.rootKeyWith(right))
      expect((await answerWith('identity.*.read_identity')).status).toBe(200)
      expect((await answerWith(`identity.${identityId}.read_identity`)).status).toBe(200)
      for (const right of [
        `identity.${externalId}.read_identity`,
        `identity.${other.identityId}.read_identity`,
        `identity.${identityId}.update_identity`,
      ])
        expect(await refusalOf(answerWith(right))).toEqual(FORBIDDEN)
    }
  })

  /** It would tell which of a customer's users exist. */
  test('a root key without any permission to read identities does not learn whether one exists', async () => {
    const { externalId } = await newIdentity()
    const rootKey = await mine.rootKeyWith('identity.*.create_identity')
    const answers = await Promise.all(
      [externalId, 'nobody'].map((identity) => call('getIdentity', { identity }, rootKey)),
    )
    const [one, other] = answers.map(({ status, body }) => ({ status, error: body.error }))
    expect(one).toEqual(other)
    expect(one?.status).toBe(403)
  })
})

describe('listIdentities', () => {
  commonCases(() => ({
    server,
    name: 'identities.listIdentities',
    rootKey: mine.rootKey,
    permissions: ['identity.*.read_identity'],
    body: () => ({ limit: 1 }),
  }))

  listCases(() => ({
    server,
    name: 'identities.listIdentities',
    create: async ({ rootKey }, externalId) =>
      (await dataOf(call('createIdentity', { externalId }, rootKey))).identityId,
  }))

  test('each has meta of any text and limits, and deleted ones are left out', async () => {
    const { rootKey } = await server.workspace()
    const meta = { name: 'Zoë 🔑 مرحبا' }
    const made = await dataOf(
      call('createIdentity', { externalId: 'full', meta, ratelimits: [tokens] }, rootKey),
    )
    const gone = await dataOf(call('createIdentity', { externalId: 'gone' }, rootKey))
    await dataOf(call('deleteIdentity', { identity: gone.identityId }, rootKey))
    const { body } = await call('listIdentities', {}, rootKey)
    expect(body.data).toEqual([
      { id: made.identityId, externalId: 'full', meta, ratelimits: [{ id: expect.any(String), ...tokens }] },
    ])
    expect(body.pagination).toEqual({ hasMore: false })
  })

  test('with permission on some identities, a page of these alone is answered', async () => {
    const workspace = await server.workspace()
    const create = async (externalId: string) =>
      (await dataOf(call('createIdentity', { externalId }, workspace.rootKey))).identityId
    const [one] = [await create('one'), await create('two')]
    const rootKey = await workspace.rootKeyWith(`identity.${one}.read_identity`)
    const { body } = await call('listIdentities', { search: 'one' }, rootKey)
    expect(body.data.map(({ id }: { id: string }) => id)).toEqual([one])
    expect(await refusalOf(call('listIdentities', {}, rootKey))).toEqual(FORBIDDEN)
    expect(await dataOf(call('listIdentities', { search: 'nobody' }, rootKey))).toEqual([])
  })

  test('without permission on any identity, an empty page is refused too', async () => {
    const workspace = await server.workspace()
    const rootKey = await workspace.rootKeyWith('identity.*.create_identity')
    expect(await refusalOf(call('listIdentities', {}, rootKey))).toEqual(FORBIDDEN)
  })

  /** Pages hold the thread while they are written. */
  test('a page of long meta ends early, and the next one goes on', async () => {
    const { rootKey } = await server.workspace()
    const meta = { text: 'x'.repeat(60_000) }
    for (let n = 0; n < 12; n++)
      await dataOf(call('createIdentity', { externalId: `user_${n}`, meta }, rootKey))
    const first = (await call('listIdentities', {}, rootKey)).body
    expect([first.data.length, first.pagination.hasMore]).toEqual([9, true])
    const { cursor } = first.pagination
    const last = (await call('listIdentities', { cursor }, rootKey)).body
    expect([last.data.length, last.pagination]).toEqual([3, { hasMore: false }])
  })
})

describe('deleteIdentity', () => {
  commonCases(() => ({
    server,
    name: 'identities.deleteIdentity',
    rootKey: mine.rootKey,
    permissions: ['identity.*.delete_identity'],
    body: async () => ({ identity: (await newIdentity()).identityId }),
  }))

  test('by id and by external id, once', async () => {
    const { identityId, externalId } = await newIdentity({ ratelimits: [tokens] })
    const other = await newIdentity()
    await dataOf(call('deleteIdentity', { identity: externalId }))
    await dataOf(call('deleteIdentity', { identity: other.identityId }))
    for (const identity of [identityId, externalId, other.identityId, other.externalId])
      expect(await refusalOf(call('deleteIdentity', { identity }))).toEqual(NOT_FOUND)
  })

  test('the permission comes before the look-up, and has to be the general one', async () => {
    const { identityId } = await newIdentity()
    const rootKey = await mine.rootKeyWith(`identity.${identityId}.delete_identity`)
    for (const identity of [identityId, 'nobody'])
      expect(await refusalOf(call('deleteIdentity', { identity }, rootKey))).toEqual(FORBIDDEN)
  })

  test('an over-long or odd text is not found', async () => {
    for (const identity of ['x'.repeat(1000), "' or 1=1 --", '%', 'ü 🔑'])
      expect(await refusalOf(call('deleteIdentity', { identity }))).toEqual(NOT_FOUND)
  })

  test('its keys stay valid without identity and without its limits, and the external id is free again', async () => {
    const externalId = newName()
    const { identityId } = await dataOf(
      call('createIdentity', { externalId, ratelimits: [{ ...tokens, limit: 1 }] }),
    )
    const { apiId } = await mine.post('apis.createApi', { name: 'my api' })
    const { key } = await mine.post('keys.createKey', { apiId, externalId })
    const verify = () => mine.post('keys.verifyKey', { key })
    expect([(await verify()).code, (await verify()).code]).toEqual(['VALID', 'RATE_LIMITED'])
    await dataOf(call('deleteIdentity', { identity: externalId }))
    const verified = await verify()
    expect([verified.code, verified.identity]).toEqual(['VALID', undefined])
    for (let round = 0; round < 2; round++) {
      const again = await dataOf(call('createIdentity', { externalId, ratelimits: [requests] }))
      expect(again.identityId).not.toBe(identityId)
      expect((await verify()).identity).toBeUndefined()
      await dataOf(call('deleteIdentity', { identity: externalId }))
    }
  })

  test('the identity and each limit are audited', async () => {
    const { rootKey, workspaceId } = await server.workspace()
    await dataOf(call('createIdentity', { externalId: 'x', ratelimits: [requests, tokens] }, rootKey))
    await dataOf(call('deleteIdentity', { identity: 'x' }, rootKey))
    expect(await eventsOf(workspaceId)).toEqual({
      'identity.create': 1,
      'identity.delete': 1,
      'ratelimit.create': 2,
      'ratelimit.delete': 2,
    })
  })
})
