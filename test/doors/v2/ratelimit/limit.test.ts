import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../../support/server.ts'
import { SLOW_MS } from '../../../support/timeout.ts'
import { callV2, commonCases, dataOf, refusalOf } from '../common-cases.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
let mine: TestWorkspace
beforeAll(async () => {
  server = await startTestServer({ env: { TOLLGATE_SHARDS: '2' } })
  mine = await server.workspace()
})
afterAll(async () => await server[Symbol.asyncDispose]())

const MONTH = 2_592_000_000
const call = (name: string, body: unknown, rootKey: string | null = mine.rootKey) =>
  callV2(server, `ratelimit.${name}`, body, rootKey)
const newName = () => `name ${crypto.randomUUID()}`
const limitOf = (more: Json = {}) => ({ identifier: 'user_1', limit: 10, duration: MONTH, ...more })
const limit = (more: Json, rootKey?: string) => dataOf(call('limit', limitOf(more), rootKey))
const rootKeyWith = async (...permissions: string[]): Promise<string> =>
  (await mine.post('rootKeys.createRootKey', { permissions })).rootKey
const idOf = async (name: string): Promise<string> => {
  const { namespaces } = await mine.get('ratelimits.listNamespaces', { limit: '100' })
  return namespaces.find((each: { name: string }) => each.name === name)?.id ?? ''
}
const made = async (): Promise<{ name: string; id: string }> => {
  const name = newName()
  const { namespaceId } = await mine.post('ratelimits.createNamespace', { name })
  return { name, id: namespaceId }
}
const FORBIDDEN: [number, string] = [403, 'unkey/authorization/insufficient_permissions']
const GONE: [number, string] = [410, 'unkey/data/ratelimit_namespace_gone']
const INVALID: [number, string] = [400, 'unkey/application/invalid_input']

describe('ratelimit.limit', () => {
  commonCases(async () => {
    const { name } = await made()
    return {
      server,
      name: 'ratelimit.limit',
      rootKey: mine.rootKey,
      permissions: ['ratelimit.*.limit'],
      body: () => limitOf({ namespace: name, limit: 1_000 }),
    }
  })

  test('tokens are taken until none are left', async () => {
    const namespace = newName()
    const answers: Json[] = []
    for (let i = 0; i < 4; i++) answers.push(await limit({ namespace, limit: 3 }))
    expect(answers.map(({ success, remaining }) => [success, remaining])).toEqual([
      [true, 2],
      [true, 1],
      [true, 0],
      [false, 0],
    ])
    expect(answers[3]).toEqual({ success: false, limit: 3, remaining: 0, reset: answers[0]?.reset })
    expect(answers[0]?.reset % MONTH).toBe(0)
  })

  test('cost is how many; a refused cost takes nothing, and cost 0 only looks', async () => {
    const namespace = newName()
    expect((await limit({ namespace, limit: 100, cost: 5 })).remaining).toBe(95)
    expect(await limit({ namespace, limit: 100, cost: 96 })).toMatchObject({ success: false, remaining: 95 })
    expect(await limit({ namespace, limit: 100, cost: 0 })).toMatchObject({ success: true, remaining: 95 })
  })

  test('fields are bounded, and others than its own are refused', async () => {
    const namespace = newName()
    for (const wrong of [
      { namespace: undefined },
      { namespace: '' },
      { namespace: '🔑'.repeat(513) },
      { identifier: '' },
      { limit: 0 },
      { limit: 2 ** 53 },
      { duration: 999 },
      { duration: MONTH + 1 },
      { cost: -1 },
      { cost: 1.5 },
      { async: true },
      { meta: {} },
      { resources: [] },
    ])
      expect([wrong, await refusalOf(call('limit', limitOf({ namespace, ...wrong })))]).toEqual([
        wrong,
        INVALID,
      ])
    const most = Number.MAX_SAFE_INTEGER
    expect(await limit({ namespace: '🔑'.repeat(512), limit: most, cost: most })).toMatchObject({
      success: true,
      limit: most,
      remaining: 0,
    })
  })

  test('a counter is the same whatever limit is asked for, and another than that of v1', async () => {
    const namespace = newName()
    await limit({ namespace, limit: 10, cost: 8 })
    expect((await limit({ namespace, limit: 100 })).remaining).toBe(91)
    expect(await limit({ namespace, limit: 10, cost: 2 })).toMatchObject({ success: false, remaining: 1 })
    expect((await limit({ namespace, duration: 1_000_000_000 })).remaining).toBe(9)
    const v1 = await mine.post('ratelimits.limit', { namespace, ...limitOf({ limit: 10 }) })
    expect(v1.remaining).toBe(9)
    // No identifier makes one of the other.
    expect((await limit({ namespace, duration: 5_000, identifier: `${MONTH}\nx` })).remaining).toBe(9)
    const other = { namespace, limit: 5_000, duration: MONTH, identifier: 'x' }
    expect((await mine.post('ratelimits.limit', other)).remaining).toBe(4_999)
  })

  test('a namespace is made on first use, once, with an audit event', async () => {
    const namespace = newName()
    const rootKey = await rootKeyWith('ratelimit.*.create_namespace', 'ratelimit.*.limit')
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => limit({ namespace, limit: 20 }, rootKey)),
    )
    expect(answers.filter(({ success }) => success).length).toBe(20)
    const rows = await server.server.deps.sql<{ id: string }[]>`
      select id from ratelimit_namespaces where workspace_id = ${mine.workspaceId} and name = ${namespace}`
    expect(rows.length).toBe(1)
    const events = await server.server.deps.sql`
      select 1 from audit_events where workspace_id = ${mine.workspaceId} and event = 'ratelimitNamespace.create'
         and resources::text like ${`%${rows[0]?.id}%`}`
    expect(events.length).toBe(1)
  })

  test('without the right to create, or to limit in all, it is refused and not made', async () => {
    const namespace = newName()
    for (const right of ['ratelimit.*.limit', 'ratelimit.*.create_namespace']) {
      const answer = await call('limit', limitOf({ namespace }), await rootKeyWith(right))
      expect(await refusalOf(answer)).toEqual(FORBIDDEN)
    }
    const limiter = await rootKeyWith('ratelimit.*.limit')
    const { body } = await call('limit', limitOf({ namespace }), limiter)
    expect(body.error.detail).toContain('create_namespace')
    expect(await idOf(namespace)).toBe('')
  })

  test('a namespace is named by its name or its id, with the right on it', async () => {
    const { name, id } = await made()
    const rootKey = await rootKeyWith(`ratelimit.${id}.limit`)
    expect((await limit({ namespace: name }, rootKey)).remaining).toBe(9)
    expect((await limit({ namespace: id }, rootKey)).remaining).toBe(8)
    expect((await limit({ namespace: name }, rootKey)).remaining).toBe(7)
    const other = await rootKeyWith(`ratelimit.${(await made()).id}.limit`)
    for (const namespace of [name, id])
      expect(await refusalOf(call('limit', limitOf({ namespace }), other))).toEqual(FORBIDDEN)
  })

  test('a name that is another namespace’s id names that namespace; one of that form may still be made', async () => {
    const { id } = await made()
    await mine.post('ratelimits.createNamespace', { name: id })
    await limit({ namespace: id, cost: 4 })
    await dataOf(call('setOverride', { namespace: id, identifier: 'user_1', limit: 7, duration: MONTH }))
    const stored = await server.server.deps.sql<{ namespace_id: string }[]>`
      select namespace_id from ratelimit_overrides where workspace_id = ${mine.workspaceId} and "limit" = 7`
    expect(stored.map((row) => row.namespace_id)).toEqual([id])
    expect(await limit({ namespace: id })).toMatchObject({ limit: 7, remaining: 2 })
    const like = 'rlns_looksLikeAnId1'
    expect((await limit({ namespace: like })).remaining).toBe(9)
    expect((await limit({ namespace: like })).remaining).toBe(8)
  })

  test('a deleted namespace is gone, by name and by id, until v1 makes one of its name', async () => {
    const { name, id } = await made()
    await limit({ namespace: id })
    await limit({ namespace: name })
    await mine.post('ratelimits.deleteNamespace', { namespaceId: id })
    for (const namespace of [name, id])
      expect(await refusalOf(call('limit', limitOf({ namespace })))).toEqual(GONE)
    const { body } = await call('limit', limitOf({ namespace: name }))
    expect(body.error.title).toBe('Resource Gone')
    // Who may not limit there does not learn that it was there.
    const other = await rootKeyWith('ratelimit.*.create_namespace')
    expect(await refusalOf(call('limit', limitOf({ namespace: name }), other))).toEqual(FORBIDDEN)
    const owner = await rootKeyWith(`ratelimit.${id}.limit`)
    expect(await refusalOf(call('limit', limitOf({ namespace: name }), owner))).toEqual(GONE)
    await mine.post('ratelimits.limit', { namespace: name, ...limitOf() })
    expect((await limit({ namespace: name })).remaining).toBe(9)
    expect(await refusalOf(call('limit', limitOf({ namespace: id })))).toEqual(GONE)
  })

  test('the namespace of another workspace is not seen, and a new one is made', async () => {
    const { name } = await made()
    const theirs = await server.workspace()
    await limit({ namespace: name })
    expect((await limit({ namespace: name }, theirs.rootKey)).remaining).toBe(9)
  })

  test('an override applies while there is one, with its id', async () => {
    const { name } = await made()
    const set = async (identifier: string, more: Json) =>
      (await dataOf(call('setOverride', { namespace: name, identifier, duration: MONTH, ...more })))
        .overrideId
    const exact = await set('user_1', { limit: 3 })
    const pattern = await set('*@example.com', { limit: 5 })
    expect(await limit({ namespace: name })).toMatchObject({ limit: 3, remaining: 2, overrideId: exact })
    const matched = await limit({ namespace: name, identifier: 'bo@example.com' })
    expect(matched).toMatchObject({ limit: 5, remaining: 4, overrideId: pattern })
    expect(await limit({ namespace: name, identifier: 'other' })).not.toHaveProperty('overrideId')
    await dataOf(call('deleteOverride', { namespace: name, identifier: 'user_1' }))
    const own = await limit({ namespace: name })
    expect(own).toMatchObject({ limit: 10, remaining: 8 })
    expect(own).not.toHaveProperty('overrideId')
  })

  test('an override of 0 refuses every call', async () => {
    const { name } = await made()
    await dataOf(call('setOverride', { namespace: name, identifier: 'user_1', limit: 0, duration: MONTH }))
    expect(await limit({ namespace: name })).toMatchObject({ success: false, limit: 0, remaining: 0 })
  })

  test('an override may have a window longer than any life', async () => {
    const { name } = await made()
    const duration = Number.MAX_SAFE_INTEGER
    await dataOf(call('setOverride', { namespace: name, identifier: 'user_1', limit: 2, duration }))
    expect([(await limit({ namespace: name })).success, (await limit({ namespace: name })).success]).toEqual([
      true,
      true,
    ])
    expect(await limit({ namespace: name })).toMatchObject({ success: false, remaining: 0 })
    expect(await dataOf(call('getOverride', { namespace: name, identifier: 'user_1' }))).toMatchObject({
      duration,
    })
  })
})

describe('ratelimit.multiLimit', () => {
  commonCases(async () => {
    const { name } = await made()
    return {
      server,
      name: 'ratelimit.multiLimit',
      rootKey: mine.rootKey,
      permissions: ['ratelimit.*.limit'],
      body: () => [limitOf({ namespace: name, limit: 1_000 })],
    }
  })

  const multi = (limits: Json[], rootKey?: string) => dataOf(call('multiLimit', limits, rootKey))

  test('the answer has every limit in the order of the request', async () => {
    const [first, second] = [newName(), await made()]
    const { passed, limits } = await multi([
      limitOf({ namespace: first, cost: 3 }),
      limitOf({ namespace: second.id, limit: 5 }),
    ])
    expect(passed).toBe(true)
    const { reset } = limits[0]
    expect(limits).toEqual([
      { namespace: first, identifier: 'user_1', limit: 10, remaining: 7, reset, passed: true },
      { namespace: second.id, identifier: 'user_1', limit: 5, remaining: 4, reset, passed: true },
    ])
    expect(await idOf(first)).toStartWith('rlns_')
  })

  test('where one refuses, none is charged', async () => {
    const { name } = await made()
    // Enough of them to be on both shards.
    const free = Array.from({ length: 12 }, (_, i) => limitOf({ namespace: name, identifier: `free ${i}` }))
    const usedUp = limitOf({ namespace: name, identifier: 'used up', limit: 1 })
    await multi([...free, usedUp])
    for (let round = 0; round < 3; round++) {
      const { passed, limits } = await multi([...free.slice(0, 6), usedUp, ...free.slice(6)])
      expect(passed).toBe(false)
      expect(limits.map((each: Json) => [each.passed, each.remaining])).toEqual([
        ...Array(6).fill([true, 9]),
        [false, 0],
        ...Array(6).fill([true, 9]),
      ])
    }
    for (const { identifier } of free)
      expect((await limit({ namespace: name, identifier, cost: 0 })).remaining).toBe(9)
  })

  test('the same counter twice is charged in order', async () => {
    const { name } = await made()
    const twice = [limitOf({ namespace: name, cost: 4 }), limitOf({ namespace: name, cost: 4 })]
    expect((await multi(twice)).limits.map(({ remaining }: Json) => remaining)).toEqual([6, 2])
    const third = await multi([limitOf({ namespace: name, cost: 2 }), limitOf({ namespace: name })])
    expect([third.passed, ...third.limits.map((each: Json) => [each.passed, each.remaining])]).toEqual([
      false,
      [true, 2],
      [false, 2],
    ])
  })

  test('overrides apply, exact and by pattern, with their ids', async () => {
    const { name } = await made()
    const set = async (identifier: string, most: number) =>
      (await dataOf(call('setOverride', { namespace: name, identifier, limit: most, duration: MONTH })))
        .overrideId
    const [exact, pattern] = [await set('user_1', 3), await set('team_*', 4)]
    const { limits } = await multi([
      limitOf({ namespace: name }),
      limitOf({ namespace: name, identifier: 'team_1' }),
      limitOf({ namespace: name, identifier: 'nobody' }),
    ])
    expect(limits.map((each: Json) => [each.limit, each.overrideId])).toEqual([
      [3, exact],
      [4, pattern],
      [10, undefined],
    ])
  })

  test('1 to 100 limits, no other fields', async () => {
    const { name } = await made()
    const many = (count: number) =>
      Array.from({ length: count }, (_, i) => limitOf({ namespace: name, identifier: `many ${i}` }))
    expect((await multi(many(100))).limits.length).toBe(100)
    for (const wrong of [[], many(101), {}, [limitOf({ namespace: name, async: true })], [limitOf()]])
      expect(await refusalOf(call('multiLimit', wrong))).toEqual(INVALID)
  })

  test('it needs the right in every namespace, and makes none and charges nothing without it', async () => {
    const [first, second] = [await made(), await made()]
    const body = [limitOf({ namespace: first.name }), limitOf({ namespace: second.id })]
    const one = await rootKeyWith(`ratelimit.${first.id}.limit`)
    expect(await refusalOf(call('multiLimit', body, one))).toEqual(FORBIDDEN)
    expect((await limit({ namespace: first.name, cost: 0 })).remaining).toBe(10)
    const both = await rootKeyWith(`ratelimit.${first.id}.limit`, `ratelimit.${second.id}.limit`)
    expect((await multi(body, both)).passed).toBe(true)
    const missing = newName()
    const withMissing = [...body, limitOf({ namespace: missing })]
    const all = await rootKeyWith('ratelimit.*.limit')
    for (const rootKey of [both, all])
      expect(await refusalOf(call('multiLimit', withMissing, rootKey))).toEqual(FORBIDDEN)
    expect(await idOf(missing)).toBe('')
  })

  test('a deleted namespace is gone, and nothing is charged or made', async () => {
    const [alive, deleted, missing] = [await made(), await made(), newName()]
    await mine.post('ratelimits.deleteNamespace', { namespaceId: deleted.id })
    const body = [alive.name, missing, deleted.name].map((namespace) => limitOf({ namespace }))
    expect(await refusalOf(call('multiLimit', body))).toEqual(GONE)
    expect((await limit({ namespace: alive.name, cost: 0 })).remaining).toBe(10)
    expect(await idOf(missing)).toBe('')
  })
})

test('decisions of both are counted as usage, those of cost 0 are not', async () => {
  using recording = recordUsage()
  const { name, id } = await made()
  await limit({ namespace: name })
  await limit({ namespace: name, cost: 0 })
  await limit({ namespace: name, cost: 11 })
  await dataOf(
    call('multiLimit', [
      limitOf({ namespace: name }),
      limitOf({ namespace: name, identifier: 'other', cost: 11 }),
    ]),
  )
  const { recorded } = recording
  expect(recorded.map(({ namespaceId, identifier, passed }) => [namespaceId, identifier, passed])).toEqual([
    [id, 'user_1', true],
    [id, 'user_1', false],
    [id, 'user_1', true],
    [id, 'other', false],
  ])
})

/** What is recorded for usage from now on. */
function recordUsage() {
  const { usage } = server.server.deps
  const { recordRatelimit } = usage
  const recorded: Parameters<typeof recordRatelimit>[0][] = []
  usage.recordRatelimit = (event) => {
    recorded.push(event)
    recordRatelimit.call(usage, event)
  }
  return {
    recorded,
    [Symbol.dispose]() {
      usage.recordRatelimit = recordRatelimit
    },
  }
}
