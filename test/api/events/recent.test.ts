import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { makeApi, makeKey, refusalOf } from '../../support/fixtures.ts'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
let workspace: TestWorkspace
beforeAll(async () => {
  // Two threads answer, so what the other remembers must be found too.
  server = await startTestServer({ env: { TOLLGATE_HTTP_THREADS: '2' } })
})
afterAll(() => server[Symbol.asyncDispose]())

const limitOf = (fields: Json = {}) => ({
  namespace: 'email.send',
  identifier: 'user_1',
  limit: 2,
  duration: 3_600_000,
  ...fields,
})

/** What is remembered is of one server, which says who it is. */
const own = () => server.server.deps.self.nodeId

/** Calls on connections of their own, so that both threads get some. */
async function limitOften(times: number, fields: Json = {}): Promise<void> {
  const init = (body: Json) => ({
    method: 'POST',
    body: JSON.stringify(body),
    headers: {
      'content-type': 'application/json',
      authorization: `Bearer ${workspace.rootKey}`,
      connection: 'close',
    },
  })
  for (let i = 0; i < times; i++) {
    const answer = await fetch(`${server.url}/v1/ratelimits.limit`, init(limitOf(fields)))
    expect(answer.status).toBe(200)
  }
}

describe('events', () => {
  beforeAll(async () => {
    workspace = await server.workspace()
  })

  test('a refused verification is found by its request id, of v1, v2 and a proxy', async () => {
    const apiId = await makeApi(workspace)
    const identity = { externalId: 'user_7' }
    await workspace.post('identities.createIdentity', identity)
    const { key, keyId } = await makeKey(workspace, apiId, {
      name: 'web checkout',
      externalId: 'user_7',
      ratelimit: { type: 'fast', limit: 1, refillRate: 1, refillInterval: 3_600_000 },
    })
    await server.post('keys.verifyKey', { key })
    const v1 = await server.post('keys.verifyKey', { key, tags: ['eu'] })
    const v2 = await server.post('/v2/keys.verifyKey', { key }, workspace.rootKey)
    const proxied = await server.get('auth.forward', {}, key)
    expect([v1.body.code, v2.body.data.code, proxied.status]).toEqual(['RATE_LIMITED', 'RATE_LIMITED', 429])
    for (const requestId of [v1.body.requestId, v2.body.meta.requestId, proxied.body.error.requestId]) {
      const {
        events,
        isComplete,
        server: answering,
      } = await workspace.get('events.listRecent', { requestId })
      expect([isComplete, answering]).toEqual([true, own()])
      expect(events).toMatchObject([
        {
          requestId,
          outcome: 'RATE_LIMITED',
          key: { id: keyId, name: 'web checkout', apiId },
          identity: { externalId: 'user_7' },
          ratelimit: { name: 'default', limit: 1, duration: 3_600_000, remaining: 0 },
          cost: 1,
          address: '127.0.0.1',
        },
      ])
    }
    const [event] = (await workspace.get('events.listRecent', { requestId: v1.body.requestId })).events
    expect(event.tags).toEqual(['eu'])
    const found = await workspace.get('events.listRecent', { identity: 'user_7', outcome: 'all', limit: 3 })
    expect(found.events).toHaveLength(3)
    const { cursor } = found
    const rest = await workspace.get('events.listRecent', { identity: 'user_7', outcome: 'all', cursor })
    expect(rest.events.map(({ outcome }: Json) => outcome)).toEqual(['VALID'])
    expect(rest.cursor).toBeUndefined()
  })

  test('rate limit decisions of both APIs and all threads are listed, and root keys of callers are not', async () => {
    await limitOften(12, { identifier: 'many' })
    const v2 = limitOf({ identifier: 'v2', limit: 1 })
    await server.post('/v2/ratelimit.limit', v2, workspace.rootKey)
    await server.post('/v2/ratelimit.limit', v2, workspace.rootKey)
    await server.post('/v2/ratelimit.multiLimit', [v2], workspace.rootKey)
    await workspace.post('ratelimits.multiLimit', [limitOf({ identifier: 'multi', limit: 1, cost: 2 })])
    await workspace.post('ratelimits.limit', limitOf({ identifier: 'looked at', cost: 0 }))
    const of = async (identifier: string) =>
      (await workspace.get('events.listRecent', { identifier, outcome: 'all' })).events
    const many = await of('many')
    expect(many.filter(({ outcome }: Json) => outcome === 'PASSED')).toHaveLength(2)
    expect(many).toHaveLength(12)
    const threads = new Set(many.map(({ id }: Json) => id.split('.')[0]))
    expect([...threads].sort()).toEqual(['0', '1'])
    expect((await of('v2')).map(({ outcome }: Json) => outcome)).toEqual([
      'RATE_LIMITED',
      'RATE_LIMITED',
      'PASSED',
    ])
    expect(await of('multi')).toMatchObject([
      { outcome: 'RATE_LIMITED', cost: 2, namespace: { name: 'email.send' } },
    ])
    expect(await of('looked at')).toEqual([])
    const { events, passed, refused, refusedMost } = await workspace.get('events.listRecent', {
      outcome: 'all',
      limit: 1000,
      top: 1,
    })
    expect(events.every(({ key, namespace }: Json) => key !== undefined || namespace !== undefined)).toBe(
      true,
    )
    expect(passed + refused).toBe(events.length)
    expect(refusedMost).toMatchObject([{ identifier: 'many', outcome: 'RATE_LIMITED', count: 10 }])
  })

  test('a watch keeps what passes too, of every thread, until it is ended', async () => {
    const { namespaces } = await workspace.get('ratelimits.listNamespaces')
    const watched = { identifier: 'watched', namespaceName: 'email.send' }
    const { id, endsAt, startedAt, namespace } = await workspace.post('events.watch', watched)
    expect([endsAt - startedAt, namespace.id]).toEqual([900_000, namespaces[0].id])
    await limitOften(12, { identifier: 'watched' })
    await limitOften(1, { identifier: 'not watched' })
    const query = { watchId: id, outcome: 'all' }
    const { events } = await workspace.get('events.listRecent', query)
    expect(events).toHaveLength(12)
    expect(
      events.every(({ identifier, address }: Json) => identifier === 'watched' && address !== undefined),
    ).toBe(true)
    expect(await workspace.get('events.listWatches')).toMatchObject({
      watches: [{ id, kept: 12, missed: 0 }],
    })
    await workspace.post('events.unwatch', { watchId: id })
    expect(await workspace.get('events.listWatches')).toEqual({ watches: [], server: own() })
    expect(refusalOf(await server.get('events.listRecent', query, workspace.rootKey))).toEqual({
      status: 404,
      code: 'NOT_FOUND',
      message: `watch ${id} not found`,
    })
    await workspace.post('events.unwatch', { watchId: id })
  })

  test('another workspace sees nothing of it', async () => {
    const foreign = await server.workspace()
    const { id } = await workspace.post('events.watch', { identifier: 'own', namespaceName: 'email.send' })
    const { events, passed, refused, refusedMost } = await foreign.get('events.listRecent', {
      outcome: 'all',
      top: 20,
    })
    expect({ events, passed, refused, refusedMost }).toEqual({
      events: [],
      passed: 0,
      refused: 0,
      refusedMost: [],
    })
    expect(await foreign.get('events.listWatches')).toEqual({ watches: [], server: own() })
    const { keyId } = await makeKey(workspace, await makeApi(workspace))
    expect((await server.post('events.watch', { keyId }, foreign.rootKey)).status).toBe(404)
    await foreign.post('events.unwatch', { watchId: id })
    expect((await workspace.get('events.listWatches')).watches).toHaveLength(1)
    expect((await foreign.get('ratelimits.listNearLimit')).identifiers).toEqual([])
    await workspace.post('events.unwatch', { watchId: id })
  })

  test('a watch of nothing, of two things, of an unknown namespace, or too many are refused', async () => {
    const refused = async (body: Json) =>
      refusalOf(await server.post('events.watch', body, workspace.rootKey))
    const message = 'one of keyId, identity and identifier is required'
    for (const body of [{}, { keyId: 'key_1', identity: 'id_1' }])
      expect(await refused(body)).toEqual({ status: 400, code: 'BAD_REQUEST', message })
    expect(await refused({ identifier: 'a' })).toMatchObject({ status: 400 })
    for (const body of [
      { identifier: 'a', namespaceName: 'none' },
      { keyId: 'key_1' },
      { identity: 'nobody' },
    ])
      expect(await refused(body)).toMatchObject({ status: 404, code: 'NOT_FOUND' })
    const named = (i: number) => ({ identifier: `user_${i}`, namespaceName: 'email.send' })
    const ids: string[] = []
    for (let i = 0; i < 10; i++) ids.push((await workspace.post('events.watch', named(i))).id)
    // The same again is the watch that runs.
    expect((await workspace.post('events.watch', named(3))).id).toBe(ids[3])
    expect(await refused(named(10))).toMatchObject({ status: 412, code: 'PRECONDITION_FAILED' })
    for (const watchId of ids) await workspace.post('events.unwatch', { watchId })
    expect(
      refusalOf(await server.get('events.listRecent', { cursor: 'x' }, workspace.rootKey)),
    ).toMatchObject({
      status: 400,
      message: 'cursor: must be the cursor of a previous page',
    })
  })
})

describe('windows', () => {
  beforeAll(async () => {
    workspace = await server.workspace()
  })

  test('of an identifier are those that the namespace was asked for, and reading them takes and counts nothing', async () => {
    await limitOften(8, { limit: 100, identifier: 'a' })
    await limitOften(3, { limit: 5, duration: 86_400_000, identifier: 'a' })
    await limitOften(1, { limit: 100, identifier: 'b' })
    await server.post('/v2/ratelimit.limit', limitOf({ identifier: 'a', limit: 7 }), workspace.rootKey)
    const ask = (identifier: string) =>
      workspace.get('ratelimits.getWindows', { namespaceName: 'email.send', identifier })
    const { windows, override } = await ask('a')
    expect(override).toBeUndefined()
    const shown = (list: Json[]) =>
      list.map(({ limit, duration, used, remaining, isShared }) => [
        limit,
        duration,
        used,
        remaining,
        isShared,
      ])
    expect(shown(windows).sort()).toEqual(
      [
        [100, 3_600_000, 8, 92, false],
        [5, 86_400_000, 3, 2, false],
        [7, 3_600_000, 1, 6, true],
      ].sort(),
    )
    expect(windows.every(({ reset }: Json) => reset > Date.now())).toBe(true)
    const namespace = { id: expect.any(String), name: 'email.send', scope: null, outage: null }
    expect(await ask('a')).toEqual({ namespace, server: own(), windows })
    expect((await ask('nobody')).windows.map(({ used }: Json) => used)).toEqual([0, 0, 0])
    const { passed, refused } = await workspace.get('events.listRecent')
    expect(passed + refused).toBe(13)
  })

  test('follow an override, which is named to who may read overrides', async () => {
    await workspace.post('ratelimits.setOverride', {
      namespaceName: 'email.send',
      identifier: 'vip_*',
      limit: 1000,
      duration: 60_000,
    })
    await limitOften(2, { limit: 100, identifier: 'vip_1' })
    const query = { namespaceName: 'email.send', identifier: 'vip_1' }
    const { windows, override } = await workspace.get('ratelimits.getWindows', query)
    expect(override).toMatchObject({ identifier: 'vip_*', limit: 1000, duration: 60_000 })
    expect(windows[0]).toMatchObject({ limit: 1000, duration: 60_000, used: 2, askedLimit: 100 })
    const rootKey = await workspace.rootKeyWith('ratelimit.*.read_namespace')
    const { body } = await server.get('ratelimits.getWindows', query, rootKey)
    expect([body.override, body.windows[0].limit]).toEqual([undefined, 1000])
  })

  test('near their limit are listed with what was refused, over all threads', async () => {
    await limitOften(11, { identifier: 'busy', limit: 5 })
    await limitOften(9, { identifier: 'close', limit: 10 })
    await limitOften(1, { identifier: 'calm', limit: 10 })
    const { identifiers } = await workspace.get('ratelimits.listNearLimit')
    const of = (name: string) => identifiers.find(({ identifier }: Json) => identifier === name)
    expect(identifiers[0]).toMatchObject({
      identifier: 'busy',
      limit: 5,
      used: 5,
      remaining: 0,
      refused: 6,
      namespace: { name: 'email.send' },
    })
    expect(of('close')).toMatchObject({ used: 9, remaining: 1, refused: 0 })
    expect(of('calm')).toBeUndefined()
    const { namespaceId } = await workspace.post('ratelimits.createNamespace', { name: 'other' })
    expect(await workspace.get('ratelimits.listNearLimit', { namespaceId })).toEqual({
      identifiers: [],
      server: own(),
    })
    const rootKey = await workspace.rootKeyWith(`ratelimit.${namespaceId}.read_namespace`)
    expect((await server.get('ratelimits.listNearLimit', {}, rootKey)).status).toBe(403)
    expect((await server.get('ratelimits.listNearLimit', { namespaceId }, rootKey)).status).toBe(200)
  })
})

test('without a dashboard nothing is remembered, and all else works', async () => {
  await using off = await startTestServer({ env: { TOLLGATE_DASHBOARD: 'off' } })
  const other = await off.workspace()
  expect(await other.post('ratelimits.limit', limitOf())).toMatchObject({ success: true, remaining: 1 })
  for (const [method, query] of [
    ['events.listRecent', {}],
    ['events.listWatches', {}],
    ['ratelimits.listNearLimit', {}],
    ['ratelimits.getWindows', { namespaceName: 'email.send', identifier: 'user_1' }],
  ] as const)
    expect(refusalOf(await off.get(method, query, other.rootKey))).toEqual({
      status: 412,
      code: 'PRECONDITION_FAILED',
      message: 'this server remembers no events: TOLLGATE_DASHBOARD is off',
    })
})
