import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

const make = async (workspace: TestWorkspace, externalId: string, fields = {}): Promise<string> =>
  (await workspace.post('identities.createIdentity', { externalId, ...fields })).identityId
const auditOf = async ({ workspaceId }: TestWorkspace) => {
  const rows = await server.server.deps.sql<{ event: string }[]>`
    select event from audit_events
     where workspace_id = ${workspaceId} and (event like 'identity.%' or event like 'ratelimit.%') order by event`
  return rows.map(({ event }) => event)
}
const requests = { name: 'requests', limit: 10, duration: 60_000 }
const tokens = { name: 'tokens', limit: 1000, duration: 1000 }

describe('identities.createIdentity', () => {
  const messageOf = async (body: object) => {
    const answer = await server.post('identities.createIdentity', body)
    return answer.status === 400 ? answer.body.error.message : answer.body.error.code
  }

  /** The texts are contract: clients compare them. */
  test.each(['', 'ab'])('the externalId %p is too short', async (externalId) => {
    expect(await messageOf({ externalId })).toBe('externalId: String must contain at least 3 character(s)')
  })

  test('every bound allows its value and refuses one more', async () => {
    expect(await messageOf({})).toBe('externalId: Required')
    expect(await messageOf({ externalId: 'a'.repeat(256) })).toBe('UNAUTHORIZED') // passes, lacks a root key
    expect(await messageOf({ externalId: 'a'.repeat(257) })).toBe(
      'externalId: String must contain at most 256 character(s)',
    )
    const withLimit = (change: object) =>
      messageOf({ externalId: 'user_1', ratelimits: [{ ...requests, ...change }] })
    expect(await withLimit({ limit: 0 })).toBe(
      'ratelimits.0.limit: Number must be greater than or equal to 1',
    )
    expect(await withLimit({ limit: Number.MAX_SAFE_INTEGER })).toBe('UNAUTHORIZED')
    expect(await withLimit({ limit: 2 ** 53 })).toBe(
      'ratelimits.0.limit: Number must be less than or equal to 9007199254740991',
    )
    expect(await withLimit({ limit: '5' })).toBe('ratelimits.0.limit: Expected number, received string')
    expect(await withLimit({ limit: 1.5 })).toBe('ratelimits.0.limit: Expected integer, received float')
    expect(await withLimit({ duration: 999 })).toBe(
      'ratelimits.0.duration: Number must be greater than or equal to 1000',
    )
    expect(await withLimit({ duration: 3_155_760_000_000 })).toBe('UNAUTHORIZED')
    expect(await withLimit({ duration: 3_155_760_000_001 })).toBe(
      'ratelimits.0.duration: Number must be less than or equal to 3155760000000',
    )
    expect(await withLimit({ name: '' })).toBe(
      'ratelimits.0.name: String must contain at least 1 character(s)',
    )
    expect(await withLimit({ name: 'a'.repeat(257) })).toBe(
      'ratelimits.0.name: String must contain at most 256 character(s)',
    )
    const many = Array.from({ length: 101 }, (_, i) => ({ ...requests, name: `limit_${i}` }))
    expect(await messageOf({ externalId: 'user_1', ratelimits: many.slice(1) })).toBe('UNAUTHORIZED')
    expect(await messageOf({ externalId: 'user_1', ratelimits: many })).toBe(
      'ratelimits: Array must contain at most 100 element(s)',
    )
    expect(await messageOf({ externalId: 'user_1', meta: [] })).toBe('meta: Expected object, received array')
    expect(await messageOf({ externalId: 'user_1', meta: null })).toBe('meta: Expected object, received null')
  })

  test('the given values are stored: meta unchanged, limits with name, limit and duration', async () => {
    const workspace = await server.workspace()
    const meta = { plan: 'pro', seats: [1, 2, { nested: null }], größe: true }
    const identityId = await make(workspace, 'user_1', { meta, ratelimits: [tokens, requests] })
    expect(identityId).toMatch(/^id_[1-9A-HJ-NP-Za-km-z]+$/)
    expect(await workspace.get('identities.getIdentity', { identityId })).toEqual({
      id: identityId,
      externalId: 'user_1',
      meta,
      ratelimits: [tokens, requests],
    })
    expect(await auditOf(workspace)).toEqual(['identity.create', 'ratelimit.create', 'ratelimit.create'])
  })

  test('an existing externalId is a conflict that names it, and another workspace may use it too', async () => {
    const workspace = await server.workspace()
    await make(workspace, 'user_1')
    const { status, body } = await server.post(
      'identities.createIdentity',
      { externalId: 'user_1', ratelimits: [requests] },
      workspace.rootKey,
    )
    expect([status, body.error.code]).toEqual([409, 'CONFLICT'])
    expect(body.error.message).toContain('user_1')
    await make(workspace, 'User_1')
    await make(await server.workspace(), 'user_1')
    expect((await workspace.get('identities.listIdentities')).total).toBe(2)
  })

  test('of two concurrent calls for one externalId, one creates it and the other is a conflict', async () => {
    const { rootKey } = await server.workspace()
    const answers = await Promise.all(
      [1, 2, 3].map(() => server.post('identities.createIdentity', { externalId: 'user_1' }, rootKey)),
    )
    expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 409, 409])
  })

  test('a repeated limit name is a conflict that names it, and nothing is stored', async () => {
    const workspace = await server.workspace()
    const { status, body } = await server.post(
      'identities.createIdentity',
      { externalId: 'user_1', ratelimits: [requests, tokens, { ...requests, limit: 3 }] },
      workspace.rootKey,
    )
    expect([status, body.error.code]).toEqual([409, 'CONFLICT'])
    expect(body.error.message).toContain('requests')
    expect((await workspace.get('identities.listIdentities')).total).toBe(0)
  })

  test('meta may have 64 000 characters as JSON and not one more', async () => {
    const workspace = await server.workspace()
    const metaOf = (characters: number) => ({ a: 'x'.repeat(characters - '{"a":""}'.length) })
    const identityId = await make(workspace, 'user_1', { meta: metaOf(64_000) })
    expect((await workspace.get('identities.getIdentity', { identityId })).meta).toEqual(metaOf(64_000))
    for (const [method, body] of [
      ['createIdentity', { externalId: 'user_2' }],
      ['updateIdentity', { identityId }],
    ] as const) {
      const answer = await server.post(
        `identities.${method}`,
        { ...body, meta: metaOf(64_001) },
        workspace.rootKey,
      )
      expect([answer.status, answer.body.error.code]).toEqual([400, 'BAD_REQUEST'])
      expect(answer.body.error.message).toStartWith('meta: ')
    }
  })
})

describe('identities.getIdentity', () => {
  test('finds an identity by id, by externalId, and by id when both are given', async () => {
    const workspace = await server.workspace()
    const identityId = await make(workspace, 'user_1')
    await make(workspace, 'user_2')
    const shown = { id: identityId, externalId: 'user_1', meta: {}, ratelimits: [] }
    expect(await workspace.get('identities.getIdentity', { identityId })).toEqual(shown)
    expect(await workspace.get('identities.getIdentity', { externalId: 'user_1' })).toEqual(shown)
    expect(await workspace.get('identities.getIdentity', { identityId, externalId: 'user_2' })).toEqual(shown)
  })

  test('a request with neither id is a 400 before the root key is checked', async () => {
    const { status, body } = await server.get('identities.getIdentity')
    expect([status, body.error.code]).toEqual([400, 'BAD_REQUEST'])
    expect(body.error.message).toContain('identityId')
    expect(body.error.message).toContain('externalId')
    const empty = await server.get('identities.getIdentity', { identityId: '' })
    expect(empty.body.error.message).toBe('identityId: String must contain at least 1 character(s)')
  })

  test('an unknown identity and one of another workspace are a 404 that names the requested id', async () => {
    const [workspace, other] = [await server.workspace(), await server.workspace()]
    const foreign = await make(other, 'user_foreign')
    for (const [query, named] of [
      [{ identityId: 'id_none' }, 'id_none'],
      [{ identityId: foreign }, foreign],
      [{ externalId: 'user_foreign' }, 'user_foreign'],
    ] as const) {
      const { status, body } = await server.get('identities.getIdentity', query, workspace.rootKey)
      expect([status, body.error.message]).toEqual([404, `identity ${named} not found`])
    }
  })

  /** Stored in another way than by this API, whose minimum is a second. */
  test('a stored limit of 100 ms is shown unchanged', async () => {
    const workspace = await server.workspace()
    const identityId = await make(workspace, 'user_1', { ratelimits: [requests] })
    await server.server.deps.sql`update ratelimits set duration_ms = 100 where identity_id = ${identityId}`
    const { ratelimits } = await workspace.get('identities.getIdentity', { identityId })
    expect(ratelimits).toEqual([{ ...requests, duration: 100 }])
  })

  /** The counters that verifications of all its keys take from; asking must not be a use. */
  test('with counters it tells how far each shared limit is used up, and takes nothing', async () => {
    const workspace = await server.workspace()
    const identityId = await make(workspace, 'user_1', { ratelimits: [requests, tokens] })
    const { apiId } = await workspace.post('apis.createApi', { name: 'an API' })
    for (const cost of [1, 3]) {
      const { key } = await workspace.post('keys.createKey', { apiId, externalId: 'user_1' })
      await server.post('keys.verifyKey', { key, ratelimits: [{ name: 'requests', cost }] })
    }
    for (let time = 0; time < 3; time++) {
      const { ratelimits } = await workspace.get('identities.getIdentity', { identityId, counters: true })
      expect(ratelimits).toEqual([
        { ...requests, remaining: 6, reset: expect.any(Number) },
        { ...tokens, remaining: 1000, reset: expect.any(Number) },
      ])
      expect(ratelimits[0].reset).toBeGreaterThan(Date.now())
    }
    const plain = await workspace.get('identities.getIdentity', { externalId: 'user_1' })
    expect(plain.ratelimits).toEqual([requests, tokens])
    const asked = { identityId, counters: 'perhaps' }
    expect((await server.get('identities.getIdentity', asked, workspace.rootKey)).status).toBe(400)
  })

  test('*, the general right and the right on this identity are enough, by either name; other rights are not', async () => {
    const workspace = await server.workspace()
    const identityId = await make(workspace, 'user_1')
    const answer = async (query: object, ...rights: string[]) => {
      const rootKey = await workspace.rootKeyWith(...rights)
      const { body } = await server.get('identities.getIdentity', { ...query }, rootKey)
      return body.error?.code ?? body.id
    }
    for (const query of [{ identityId }, { externalId: 'user_1' }]) {
      expect(await answer(query, 'identity.*.read_identity', 'another')).toBe(identityId)
      expect(await answer(query, `identity.${identityId}.read_identity`)).toBe(identityId)
      expect(await answer(query)).toBe('INSUFFICIENT_PERMISSIONS')
      expect(await answer(query, 'identity.id_other.read_identity')).toBe('INSUFFICIENT_PERMISSIONS')
      expect(await answer(query, 'identity.*.update_identity')).toBe('INSUFFICIENT_PERMISSIONS')
    }
  })
})

describe('identities.listIdentities', () => {
  test('pages follow each other without gap or repetition, and only the last has no cursor', async () => {
    const workspace = await server.workspace()
    const ids: string[] = []
    for (let i = 0; i < 10; i++)
      ids.push(await make(workspace, `user_${i}`, { ratelimits: [requests], meta: { i } }))
    await make(await server.workspace(), 'user_foreign')
    const all = await workspace.get('identities.listIdentities')
    expect(all.total).toBe(10)
    expect(all).not.toHaveProperty('cursor')
    expect(all.identities.map(({ id }: { id: string }) => id)).toEqual(ids.toSorted())
    expect(all.identities[0]).toEqual({
      id: expect.any(String),
      externalId: expect.any(String),
      ratelimits: [requests],
    })
    const first = await workspace.get('identities.listIdentities', { limit: 2 })
    expect([first.identities.length, first.total]).toEqual([2, 10])
    const second = await workspace.get('identities.listIdentities', { limit: 3, cursor: first.cursor })
    const seen = [...first.identities, ...second.identities].map(({ id }) => id)
    expect(seen).toEqual(ids.toSorted().slice(0, 5))
    const rest = await workspace.get('identities.listIdentities', { limit: 5, cursor: second.cursor })
    expect(rest.identities).toHaveLength(5)
    expect(rest).not.toHaveProperty('cursor')
  })

  test('a search finds those whose external id begins with a text, in pages by external id', async () => {
    const workspace = await server.workspace()
    const ids = ['user_1', 'user_10', 'user_2', 'User_3', 'us%r_4', 'tenant_1', 'user_\u{10000}', 'user_ü']
    for (const externalId of ids.toReversed()) await make(workspace, externalId, { ratelimits: [requests] })
    await make(await server.workspace(), 'user_1_foreign')
    const found = async (search: string, limit = 100) => {
      const all: string[] = []
      let cursor: string | undefined
      do {
        const query = { search, limit, ...(cursor === undefined ? {} : { cursor }) }
        const page = await workspace.get('identities.listIdentities', query)
        expect(page.identities.length).toBeLessThanOrEqual(limit)
        all.push(...page.identities.map(({ externalId }: { externalId: string }) => externalId))
        cursor = page.cursor
        if (cursor === undefined) expect(page.total).toBe(all.length)
      } while (cursor !== undefined)
      return all
    }
    for (const limit of [1, 2, 100])
      expect(await found('user_', limit)).toEqual(['user_1', 'user_10', 'user_2', 'user_ü', 'user_\u{10000}'])
    expect(await found('user_1')).toEqual(['user_1', 'user_10'])
    expect(await found('us%')).toEqual(['us%r_4'])
    expect(await found('nobody')).toEqual([])
    expect(await found('')).toHaveLength(ids.length)
    const [first] = (await workspace.get('identities.listIdentities', { search: 'tenant' })).identities
    expect(first.ratelimits).toEqual([requests])
  })

  test('an empty workspace has an empty page', async () => {
    const { get } = await server.workspace()
    expect(await get('identities.listIdentities')).toEqual({ identities: [], total: 0 })
  })

  test('limit is 1 to 100', async () => {
    const message = async (limit: unknown) =>
      (await server.get('identities.listIdentities', { limit })).body.error.message
    expect(await message(0)).toBe('limit: Number must be greater than or equal to 1')
    expect(await message('')).toBe('limit: Number must be greater than or equal to 1')
    expect(await message(1)).toBe('key required')
    expect(await message(100)).toBe('key required')
    expect(await message(101)).toBe('limit: Number must be less than or equal to 100')
    expect(await message('ten')).toBe('limit: Expected number, received nan')
  })

  /** The specification calls it unused, and all identities created by the API have `default`. */
  test('environment changes neither the list nor the needed right', async () => {
    const workspace = await server.workspace()
    const identityId = await make(workspace, 'user_1')
    expect((await workspace.get('identities.listIdentities', { environment: 'other' })).total).toBe(1)
    const answer = async (right: string, environment: string) => {
      const rootKey = await workspace.rootKeyWith(right)
      return (await server.get('identities.listIdentities', { environment }, rootKey)).status
    }
    expect(await answer('identity.*.read_identity', 'default')).toBe(200)
    expect(await answer('identity.default.read_identity', 'other')).toBe(200)
    // The right on one identity is not the right on all, whatever the parameter.
    expect(await answer(`identity.${identityId}.read_identity`, identityId)).toBe(403)
  })
})

describe('identities.deleteIdentity', () => {
  test('its keys stay valid, lose the identity at once, and keep their ownerId', async () => {
    const workspace = await server.workspace()
    const { apiId } = await workspace.post('apis.createApi', { name: 'my api' })
    const identityId = await make(workspace, 'user_1', { ratelimits: [requests] })
    const { key } = await workspace.post('keys.createKey', { apiId, externalId: 'user_1' })
    const verify = async () => (await server.post('keys.verifyKey', { key })).body
    expect(await verify()).toMatchObject({ valid: true, identity: { id: identityId } })
    expect(await workspace.post('identities.deleteIdentity', { identityId })).toEqual({})
    const after = await verify()
    expect(after).toMatchObject({ valid: true, ownerId: 'user_1' })
    expect(after).not.toHaveProperty('identity')
    expect((await workspace.get('identities.listIdentities')).total).toBe(0)
    const [row] = await server.server.deps.sql`
      select count(*)::integer as limits from ratelimits where identity_id = ${identityId}`
    expect(row).toEqual({ limits: 0 })
    expect(await auditOf(workspace)).toEqual([
      'identity.create',
      'identity.delete',
      'ratelimit.create',
      'ratelimit.delete',
    ])
    await make(workspace, 'user_1') // the name is free again
  })

  test('an unknown or deleted identity and one of another workspace are a 404 that names it', async () => {
    const [workspace, other] = [await server.workspace(), await server.workspace()]
    const foreign = await make(other, 'user_1')
    const deleted = await make(workspace, 'user_1')
    await workspace.post('identities.deleteIdentity', { identityId: deleted })
    for (const identityId of ['id_none', foreign, deleted]) {
      const { status, body } = await server.post(
        'identities.deleteIdentity',
        { identityId },
        workspace.rootKey,
      )
      expect([status, body.error.message]).toEqual([404, `identity ${identityId} not found`])
    }
    expect((await other.get('identities.listIdentities')).total).toBe(1)
    const { body } = await server.post('identities.deleteIdentity', { identityId: '' })
    expect(body.error.message).toBe('identityId: String must contain at least 1 character(s)')
  })

  test('the general right and the right on this identity are enough; the right on another is not', async () => {
    const workspace = await server.workspace()
    const answer = async (identityId: string, right: string) => {
      const rootKey = await workspace.rootKeyWith(right)
      const { body } = await server.post('identities.deleteIdentity', { identityId }, rootKey)
      return body.error?.code ?? body
    }
    const [one, two] = [await make(workspace, 'user_1'), await make(workspace, 'user_2')]
    expect(await answer(one, `identity.${two}.delete_identity`)).toBe('INSUFFICIENT_PERMISSIONS')
    expect(await answer(one, 'identity.*.update_identity')).toBe('INSUFFICIENT_PERMISSIONS')
    expect(await answer(one, `identity.${one}.delete_identity`)).toEqual({})
    expect(await answer(two, 'identity.*.delete_identity')).toEqual({})
    expect((await workspace.get('identities.listIdentities')).total).toBe(0)
  })

  /** Both lock the keys in the order of their ids. */
  test('spending credits of its keys at the same time neither fails nor loses one', async () => {
    const workspace = await server.workspace()
    const { apiId } = await workspace.post('apis.createApi', { name: 'my api' })
    const identityId = await make(workspace, 'user_1')
    const keys: string[] = await Promise.all(
      Array.from({ length: 20 }, async () => {
        const made = await workspace.post('keys.createKey', { apiId, externalId: 'user_1', remaining: 10 })
        return made.key
      }),
    )
    const spend = () =>
      Promise.all(
        keys.toReversed().map(async (key) => (await server.post('keys.verifyKey', { key })).body.code),
      )
    const [first, , second] = await Promise.all([
      spend(),
      workspace.post('identities.deleteIdentity', { identityId }),
      spend(),
    ])
    expect(new Set([...first, ...second])).toEqual(new Set(['VALID']))
    const left = await Promise.all(
      keys.map(async (key) => {
        const { body } = await server.post('keys.verifyKey', { key, remaining: { cost: 0 } })
        return body.remaining
      }),
    )
    expect(left).toEqual(Array(20).fill(8))
  })
})
