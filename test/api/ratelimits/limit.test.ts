import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { startTestServer, type TestServer } from '../../support/server.ts'
import { listStatements } from '../../support/statements.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
/** The server's time. Tests only move it forward. */
let now = Date.parse('2026-06-01T12:00:00.000Z')
beforeAll(async () => {
  server = await startTestServer({ clock: () => now })
})
afterAll(() => server[Symbol.asyncDispose]())

const limitOf = (overrides: object = {}) => ({
  identifier: 'user_1',
  limit: 10,
  duration: 10_000,
  ...overrides,
})

/** The product's promise: not one call more, however many arrive at once. */
test('of a thousand concurrent calls on a limit of a hundred exactly a hundred pass', async () => {
  const { post } = await server.workspace()
  const body = { namespace: 'crowd', identifier: 'everyone', limit: 100, duration: 60_000 }
  const answers = await Promise.all(Array.from({ length: 1000 }, () => post('ratelimits.limit', body)))
  expect(answers.filter(({ success }) => success)).toHaveLength(100)
  expect(answers.every(({ success, remaining }) => success || remaining === 0)).toBe(true)
})

test('a window is aligned to the epoch, ends at reset, and the next one starts empty at that moment', async () => {
  const { post } = await server.workspace()
  now = Math.ceil(now / 10_000) * 10_000 + 3_000
  const first = await post('ratelimits.limit', limitOf({ limit: 1 }))
  expect(first).toEqual({ success: true, limit: 1, remaining: 0, reset: now + 7_000 })
  now = first.reset - 1
  expect(await post('ratelimits.limit', limitOf({ limit: 1 }))).toMatchObject({
    success: false,
    reset: first.reset,
  })
  now = first.reset
  expect(await post('ratelimits.limit', limitOf({ limit: 1 }))).toMatchObject({
    success: true,
    reset: first.reset + 10_000,
  })
})

test('a refused cost takes nothing, and the answer shows what is left', async () => {
  const { post } = await server.workspace()
  expect(await post('ratelimits.limit', limitOf({ cost: 7 }))).toMatchObject({ success: true, remaining: 3 })
  expect(await post('ratelimits.limit', limitOf({ cost: 4 }))).toMatchObject({ success: false, remaining: 3 })
  expect(await post('ratelimits.limit', limitOf({ cost: 11 }))).toMatchObject({
    success: false,
    remaining: 3,
  })
  expect(await post('ratelimits.limit', limitOf({ cost: 3 }))).toMatchObject({ success: true, remaining: 0 })
})

test('cost 0 takes nothing, and succeeds even when nothing is left', async () => {
  const { post } = await server.workspace()
  for (let i = 0; i < 5; i++)
    expect(await post('ratelimits.limit', limitOf({ cost: 0 }))).toMatchObject({
      success: true,
      remaining: 10,
    })
  await post('ratelimits.limit', limitOf({ cost: 10 }))
  expect(await post('ratelimits.limit', limitOf({ cost: 0 }))).toMatchObject({ success: true, remaining: 0 })
})

test('identifiers, namespaces, limits, durations and workspaces are counted separately', async () => {
  const one = await server.workspace()
  const other = await server.workspace()
  const left = async (workspace: typeof one, body: object) =>
    (await workspace.post('ratelimits.limit', limitOf(body))).remaining
  expect(await left(one, {})).toBe(9)
  expect(await left(one, {})).toBe(8)
  expect(await left(one, { identifier: 'user_2' })).toBe(9)
  expect(await left(one, { namespace: 'other' })).toBe(9)
  expect(await left(one, { limit: 20 })).toBe(19)
  expect(await left(one, { duration: 20_000 })).toBe(9)
  expect(await left(other, {})).toBe(9)
  expect(await left(one, {})).toBe(7)
  expect(await left(one, { namespace: 'default' })).toBe(6) // the default is that name
})

test('an async call is answered at once and charged afterwards', async () => {
  const { post } = await server.workspace()
  expect(await post('ratelimits.limit', limitOf({ async: true }))).toMatchObject({ success: true, limit: 10 })
  expect((await post('ratelimits.limit', limitOf({ cost: 0 }))).remaining).toBe(9) // same counter as sync
})

test('an audit event has the identifier and the resources, and nothing of the call’s meta', async () => {
  const workspace = await server.workspace()
  const resources = [{ type: 'document', id: 'doc_1', meta: { size: 1 } }]
  const meta = { identifier: 'user_2', email: 'someone@example.com' }
  await workspace.post('ratelimits.limit', limitOf({ meta, resources }))
  const { events } = await workspace.get('audit.listEvents', { event: 'ratelimit.success' })
  expect(events.map((event: { resources: object[] }) => event.resources)).toEqual([
    [expect.objectContaining({ type: 'ratelimitNamespace', meta: { identifier: 'user_1' } }), ...resources],
  ])
})

describe('bounds', () => {
  const refused: [string, object, string][] = [
    ['no identifier', { identifier: undefined }, 'identifier: Required'],
    [
      'identifier of 1025 characters',
      { identifier: 'x'.repeat(1025) },
      'identifier: String must contain at most 1024 character(s)',
    ],
    ['limit 0', { limit: 0 }, 'limit: Number must be greater than 0'],
    [
      'limit beyond 2^53 - 1',
      { limit: 2 ** 53 },
      'limit: Number must be less than or equal to 9007199254740991',
    ],
    [
      'cost beyond 2^53 - 1',
      { cost: 2 ** 53 },
      'cost: Number must be less than or equal to 9007199254740991',
    ],
    ['limit as text', { limit: '10' }, 'limit: Expected number, received string'],
    ['limit with a fraction', { limit: 1.5 }, 'limit: Expected integer, received float'],
    ['duration 999', { duration: 999 }, 'duration: Number must be greater than or equal to 1000'],
    ['cost -1', { cost: -1 }, 'cost: Number must be greater than or equal to 0'],
    ['async as text', { async: 'true' }, 'async: Expected boolean, received string'],
    ['meta as list', { meta: [] }, 'meta: Expected object, received array'],
    ['a resource without id', { resources: [{ type: 't' }] }, 'resources.0.id: Required'],
    ['NUL in identifier', { identifier: 'a\0b' }, 'identifier: String must not contain NUL characters'],
    ['a lone surrogate', { identifier: '\ud800' }, 'identifier: String must not contain lone surrogates'],
  ]
  for (const [what, body, message] of refused)
    test(`${what} is a 400 that names the field`, async () => {
      const { rootKey } = await server.workspace()
      const answer = await server.post('ratelimits.limit', limitOf(body), rootKey)
      expect(answer.status).toBe(400)
      expect(answer.body.error).toMatchObject({ code: 'BAD_REQUEST', message })
    })

  const accepted: [string, object][] = [
    ['identifier empty', { identifier: '' }],
    ['identifier of 1024 characters', { identifier: '€'.repeat(1024) }],
    ['limit 1', { limit: 1 }],
    ['limit of 53 bits', { limit: Number.MAX_SAFE_INTEGER, cost: Number.MAX_SAFE_INTEGER }],
    ['duration 1000', { duration: 1000 }],
    ['meta with anything inside', { meta: { a: { b: [1, null] } } }],
  ]
  for (const [what, body] of accepted)
    test(`${what} is accepted`, async () => {
      const { post } = await server.workspace()
      expect(await post('ratelimits.limit', limitOf(body))).toMatchObject({ success: true })
    })
})

describe('permissions', () => {
  test('an unknown namespace is created by a root key with the right, and is not found for one without', async () => {
    const workspace = await server.workspace()
    const may = await workspace.rootKeyWith('ratelimit.*.limit', 'ratelimit.*.create_namespace')
    const mayNot = await workspace.rootKeyWith('ratelimit.*.limit')
    const refused = await server.post('ratelimits.limit', limitOf({ namespace: 'new' }), mayNot)
    expect(refused).toMatchObject({
      status: 404,
      body: { error: { code: 'NOT_FOUND', message: 'namespace new not found' } },
    })
    expect((await server.post('ratelimits.limit', limitOf({ namespace: 'new' }), may)).status).toBe(200)
    expect((await server.post('ratelimits.limit', limitOf({ namespace: 'new' }), mayNot)).status).toBe(200)
  })

  /** The v1 API created the namespace before it checked the right to limit. */
  test('a root key that may create namespaces but not limit is refused, and creates none', async () => {
    const workspace = await server.workspace()
    const maker = await workspace.rootKeyWith('ratelimit.*.create_namespace')
    const answer = await server.post('ratelimits.limit', limitOf({ namespace: 'none' }), maker)
    expect(answer).toMatchObject({ status: 403, body: { error: { code: 'INSUFFICIENT_PERMISSIONS' } } })
    const limiter = await workspace.rootKeyWith('ratelimit.*.limit')
    expect((await server.post('ratelimits.limit', limitOf({ namespace: 'none' }), limiter)).status).toBe(404)
  })

  test('a refused call creates no namespace', async () => {
    const { post, get, rootKey } = await server.workspace()
    const tooLong = limitOf({ namespace: 'none', duration: 400 * 86_400_000 })
    const tooMuch = limitOf({
      namespace: 'none',
      resources: [{ type: 't', id: 'i', meta: { text: 'x'.repeat(64_000) } }],
    })
    for (const bad of [tooLong, tooMuch]) {
      expect((await server.post('ratelimits.limit', bad, rootKey)).status).toBe(400)
      const many = [limitOf({ namespace: 'none too' }), bad]
      expect((await server.post('ratelimits.multiLimit', many, rootKey)).status).toBe(400)
    }
    expect((await get('ratelimits.listNamespaces')).namespaces).toEqual([])
    await post('ratelimits.multiLimit', [limitOf({ namespace: 'none' }), limitOf({ namespace: 'none too' })])
    expect((await get('ratelimits.listNamespaces')).namespaces).toHaveLength(2)
  })

  test('concurrent first uses of a namespace create one, and all calls count in it', async () => {
    const { post } = await server.workspace()
    const answers = await firstUses(post, { namespace: 'at once', limit: 100 }, 20)
    expect(answers.map(({ remaining }) => remaining).toSorted((a, b) => a - b)).toEqual(
      Array.from({ length: 20 }, (_, i) => 80 + i),
    )
  })

  /** Bug: each had a transaction of its own, so after a deployment all callers waited for all of them. */
  test('concurrent first uses make as many statements as one', async () => {
    const { post } = await server.workspace()
    await post('ratelimits.limit', limitOf()) // caches the root key
    const one = await listStatements(server, () => firstUses(post, { namespace: 'by one' }, 1))
    const many = await listStatements(server, () => firstUses(post, { namespace: 'by many' }, 20))
    expect(one.filter((text) => text.includes('insert into ratelimit_namespaces'))).toHaveLength(1)
    expect(many.toSorted()).toEqual(one.toSorted())
  })

  /** Bug: it read the namespace again, so on a slow machine first uses ran one after the other. */
  test('a call for a namespace that is being created waits for it', async () => {
    const { post, workspaceId } = await server.workspace()
    await post('ratelimits.limit', limitOf()) // caches the root key
    const one = await listStatements(server, () => firstUses(post, { namespace: 'by one' }, 1))
    const { namespaces } = server.server.deps
    let late: ReturnType<typeof namespaces.find> = null
    const stopListening = server.onStatement((text) => {
      if (text.includes('insert into ratelimit_namespaces')) late = namespaces.find(workspaceId, 'by two')
    })
    const two = await listStatements(server, () => firstUses(post, { namespace: 'by two' }, 1))
    stopListening()
    expect(await late).toMatchObject({ name: 'by two' })
    expect(two.toSorted()).toEqual(one.toSorted())
  })

  test('a call for a namespace whose creation fails is told that it does not exist', async () => {
    const { workspaceId } = await server.workspace()
    const { namespaces } = server.server.deps
    const { promise, reject } = Promise.withResolvers<void>()
    const making = namespaces.makeOnce(workspaceId, ['not made'], () => promise)
    const late = namespaces.find(workspaceId, 'not made')
    reject(new Error('no database'))
    await expect(making).rejects.toThrow('no database')
    expect(await late).toBeNull()
  })
})

type Post = Awaited<ReturnType<TestServer['workspace']>>['post']
const firstUses = (post: Post, body: object, calls: number) =>
  Promise.all(Array.from({ length: calls }, () => post('ratelimits.limit', limitOf(body))))
