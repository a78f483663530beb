import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../../support/server.ts'
import { SLOW_MS } from '../../../support/timeout.ts'
import { callV2, commonCases, dataOf, refusalOf } from '../common-cases.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
let mine: TestWorkspace
beforeAll(async () => {
  server = await startTestServer()
  mine = await server.workspace()
})
afterAll(async () => await server[Symbol.asyncDispose]())

const call = (name: string, body: unknown, rootKey: string | null = mine.rootKey) =>
  callV2(server, `ratelimit.${name}`, body, rootKey)
const rootKeyWith = async (...permissions: string[]): Promise<string> =>
  (await mine.post('rootKeys.createRootKey', { permissions })).rootKey
const made = async (): Promise<{ name: string; id: string }> => {
  const name = `name ${crypto.randomUUID()}`
  return { name, id: (await mine.post('ratelimits.createNamespace', { name })).namespaceId }
}
const override = (namespace: string, more: Json = {}) => ({
  namespace,
  identifier: 'user_1',
  limit: 5,
  duration: 60_000,
  ...more,
})
const set = async (namespace: string, more: Json = {}): Promise<string> =>
  (await dataOf(call('setOverride', override(namespace, more)))).overrideId
const get = (namespace: string, identifier: string) => dataOf(call('getOverride', { namespace, identifier }))

const FORBIDDEN: [number, string] = [403, 'unkey/authorization/insufficient_permissions']
const INVALID: [number, string] = [400, 'unkey/application/invalid_input']
const NO_NAMESPACE: [number, string] = [404, 'unkey/data/ratelimit_namespace_not_found']
const NO_OVERRIDE: [number, string] = [404, 'unkey/data/ratelimit_override_not_found']

const OPERATIONS: [name: string, right: string, body: (namespace: string) => Json][] = [
  ['setOverride', 'set_override', (namespace) => override(namespace)],
  ['getOverride', 'read_override', (namespace) => ({ namespace, identifier: 'user_1' })],
  ['listOverrides', 'read_override', (namespace) => ({ namespace })],
  ['deleteOverride', 'delete_override', (namespace) => ({ namespace, identifier: 'user_1' })],
]

describe.each(OPERATIONS)('ratelimit.%s', (name, right, bodyOf) => {
  let namespace = { name: '', id: '' }
  const ready = async () => {
    namespace = namespace.id === '' ? await made() : namespace
    await set(namespace.name)
    return bodyOf(namespace.name)
  }

  commonCases(() => ({
    server,
    name: `ratelimit.${name}`,
    rootKey: mine.rootKey,
    permissions: [`ratelimit.*.${right}`],
    body: ready,
    ...(name === 'getOverride' ? { hiddenAs: { status: NO_OVERRIDE[0], type: NO_OVERRIDE[1] } } : {}),
  }))

  test('the namespace is named by name or id, with the right on it alone', async () => {
    await ready()
    const rootKey = await rootKeyWith(`ratelimit.${namespace.id}.${right}`)
    await dataOf(call(name, bodyOf(namespace.id), rootKey))
    await ready()
    await dataOf(call(name, bodyOf(namespace.name), rootKey))
  })

  test('a namespace that is unknown, deleted or of another workspace: 404, with and without the right', async () => {
    const deleted = await made()
    await set(deleted.name)
    await mine.post('ratelimits.deleteNamespace', { namespaceId: deleted.id })
    const theirs = await server.workspace()
    const { namespaceId } = await theirs.post('ratelimits.createNamespace', { name: 'theirs' })
    const other = await rootKeyWith('rbac.*.something_else')
    for (const unknown of ['unknown', 'rlns_unknown', deleted.name, deleted.id, 'theirs', namespaceId])
      for (const rootKey of [mine.rootKey, other])
        expect(await refusalOf(call(name, bodyOf(unknown), rootKey))).toEqual(NO_NAMESPACE)
  })

  test('a namespace is required, of 1 to 512 characters, and unknown fields are refused', async () => {
    const body = await ready()
    for (const wrong of [
      { namespace: undefined },
      { namespace: '' },
      { namespace: 'x'.repeat(513) },
      { async: true },
    ])
      expect(await refusalOf(call(name, { ...body, ...wrong }))).toEqual(INVALID)
  })
})

describe('ratelimit.setOverride', () => {
  test('an override of the identifier keeps its id and gets the new values, also after it was deleted', async () => {
    const { name, id } = await made()
    const first = await set(name)
    expect(await set(id, { limit: 6, duration: 1_000 })).toBe(first)
    expect(await get(name, 'user_1')).toEqual({
      overrideId: first,
      identifier: 'user_1',
      limit: 6,
      duration: 1_000,
    })
    await dataOf(call('deleteOverride', { namespace: name, identifier: 'user_1' }))
    expect(await set(name, { limit: 7 })).toBe(first)
    expect((await get(name, 'user_1')).limit).toBe(7)
  })

  test('fields are bounded', async () => {
    const { name } = await made()
    for (const wrong of [
      { identifier: undefined },
      { identifier: '' },
      { identifier: 'x'.repeat(513) },
      { limit: -1 },
      { limit: 2 ** 53 },
      { limit: undefined },
      { duration: -1 },
      { duration: 999 },
      { duration: 1_000.5 },
    ])
      expect([wrong, await refusalOf(call('setOverride', override(name, wrong)))]).toEqual([wrong, INVALID])
    await set(name, { identifier: 'x', limit: 0 })
    await set(name, { identifier: 'x'.repeat(512), limit: Number.MAX_SAFE_INTEGER })
  })

  test('v1 shows and changes the same override', async () => {
    const { name, id } = await made()
    const overrideId = await set(name, { identifier: 'shared' })
    expect(await mine.get('ratelimits.getOverride', { namespaceId: id, identifier: 'shared' })).toMatchObject(
      {
        id: overrideId,
        limit: 5,
        duration: 60_000,
      },
    )
  })
})

describe('ratelimit.getOverride', () => {
  test('it is the one that a limit would get: the exact one first, then the longest pattern', async () => {
    const { name } = await made()
    const [exact, long, short] = [
      await set(name, { identifier: 'bo@example.com' }),
      await set(name, { identifier: '*@example.com' }),
      await set(name, { identifier: '*' }),
    ]
    expect((await get(name, 'bo@example.com')).overrideId).toBe(exact)
    expect(await get(name, 'al@example.com')).toMatchObject({ overrideId: long, identifier: '*@example.com' })
    expect(await get(name, 'al')).toMatchObject({ overrideId: short, identifier: '*' })
    expect(await get(name, '*@example.com')).toMatchObject({ overrideId: long })
  })

  test('an unknown identifier, and any identifier without the right: the same answer', async () => {
    const { name } = await made()
    await set(name)
    const answer = await call('getOverride', { namespace: name, identifier: 'unknown' })
    expect(await refusalOf(answer)).toEqual(NO_OVERRIDE)
    const other = await rootKeyWith('ratelimit.*.set_override')
    const hidden = await call('getOverride', { namespace: name, identifier: 'unknown' }, other)
    const known = await call('getOverride', { namespace: name, identifier: 'user_1' }, other)
    expect(hidden.body.error).toEqual(answer.body.error)
    expect(known.body.error).toEqual({
      ...answer.body.error,
      detail: answer.body.error.detail.replace('unknown', 'user_1'),
    })
  })
})

describe('ratelimit.deleteOverride', () => {
  test('only the exact text is deleted, and a second time there is none', async () => {
    const { name } = await made()
    await set(name, { identifier: 'team_*' })
    const remove = (identifier: string) => call('deleteOverride', { namespace: name, identifier })
    expect(await refusalOf(remove('team_1'))).toEqual(NO_OVERRIDE)
    expect(await dataOf(remove('team_*'))).toEqual({})
    expect(await refusalOf(remove('team_*'))).toEqual(NO_OVERRIDE)
  })

  test('who may not delete is refused, whether or not there is an override', async () => {
    const { name } = await made()
    await set(name)
    const other = await rootKeyWith('ratelimit.*.set_override')
    for (const identifier of ['user_1', 'unknown'])
      expect(await refusalOf(call('deleteOverride', { namespace: name, identifier }, other))).toEqual(
        FORBIDDEN,
      )
    expect((await get(name, 'user_1')).limit).toBe(5)
  })
})

describe('ratelimit.listOverrides', () => {
  const listed = (body: Json) => call('listOverrides', body)

  test('pages neither overlap nor skip, and the last has no cursor', async () => {
    const { name } = await made()
    const ids: string[] = []
    for (let i = 0; i < 5; i++) ids.push(await set(name, { identifier: `user_${i}` }))
    const seen: string[] = []
    let cursor: string | undefined
    for (let page = 0; page < 3; page++) {
      const { status, body } = await listed({ namespace: name, limit: 2, ...(cursor ? { cursor } : {}) })
      expect(status).toBe(200)
      seen.push(...body.data.map(({ overrideId }: Json) => overrideId))
      expect(body.pagination.hasMore).toBe(page < 2)
      cursor = body.pagination.cursor
      expect(cursor === undefined).toBe(page === 2)
    }
    expect(seen).toEqual(ids.sort())
  })

  test('a page has 50 unless it is asked for another size, of 1 to 100', async () => {
    const { name } = await made()
    for (let i = 0; i < 51; i++) await set(name, { identifier: `user_${i}` })
    expect((await listed({ namespace: name })).body.data.length).toBe(50)
    expect((await listed({ namespace: name, limit: 100 })).body.data.length).toBe(51)
    for (const limit of [0, -1, 101, 200])
      expect(await refusalOf(listed({ namespace: name, limit }))).toEqual(INVALID)
  })

  test('a namespace without overrides has an empty list', async () => {
    const { name } = await made()
    const { body } = await listed({ namespace: name })
    expect([body.data, body.pagination]).toEqual([[], { hasMore: false }])
  })
})
