import { expect, setDefaultTimeout, test } from 'bun:test'
import { startTestServer } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(2 * SLOW_MS)

/** Several times as many as there is room for. */
const ASKED = 1_500_000

/** Findings 3.3: new identifiers of everybody with limit 1 were denied until a restart. */
test('a workspace that floods the limiter over-counts its own identifiers, and the metrics say whose flood it is', async () => {
  await using server = await startTestServer({
    env: { TOLLGATE_LIMITER_MEMORY_MIB: '8', TOLLGATE_SHARDS: '1' },
  })
  const [flooder, neighbour] = [await server.workspace(), await server.workspace()]
  const { apiId } = await flooder.post('apis.createApi', { name: 'flood' })
  const { key } = await flooder.post('keys.createKey', { apiId })
  const duration = 366 * 24 * 3_600_000
  const limits = (from: number) =>
    Array.from({ length: 100 }, (_, i) => ({ name: `limit ${from + i}`, limit: 1, duration }))
  // As `ratelimits.limit` asks, without the time that HTTP takes for so many of them.
  const { limiter } = server.server.deps
  let refused = 0
  for (let from = 0; from < ASKED; from += 10_000) {
    const takes = Array.from({ length: 10_000 }, (_, i) => ({
      counter: `flood ${from + i}`,
      workspaceId: flooder.workspaceId,
      limit: 1,
      durationMs: duration,
      cost: 1,
    }))
    for (const { passed } of await limiter.submitAll(takes)) if (!passed) refused++
  }
  expect(refused).toBeGreaterThan(1_000) // the flooder meets itself
  for (let from = 0; from < 2_000; from += 100)
    await server.post('keys.verifyKey', { key, ratelimits: limits(from) })

  const users = Array.from({ length: 1_000 }, (_, i) => ({ identifier: `user ${i}`, limit: 1, duration }))
  const first = await neighbour.post('ratelimits.multiLimit', users)
  expect(first.filter(({ success }: { success: boolean }) => !success)).toEqual([])
  const second = await neighbour.post('ratelimits.multiLimit', users)
  expect(second.filter(({ success }: { success: boolean }) => success)).toEqual([])

  const lines = (await (await fetch(`${server.url}/metrics`)).text()).split('\n')
  const sampleOf = (name: string, workspaceId: string) =>
    Number(
      lines
        .find((line) => line.startsWith(`${name}{workspace="${workspaceId}"}`))
        ?.split(' ')
        .at(-1),
    )
  const bytes = 'tollgate_limiter_workspace_bytes'
  expect(sampleOf(bytes, flooder.workspaceId)).toBeGreaterThan(2_000_000)
  expect(sampleOf(bytes, neighbour.workspaceId)).toBe(40 * 1_000)
  const charges = 'tollgate_limiter_workspace_over_budget_charges_total'
  expect(sampleOf(charges, flooder.workspaceId)).toBeGreaterThan(100_000)
  expect(sampleOf(charges, neighbour.workspaceId)).toBe(0)
})

test('a window that only the request defines lasts a year at most; configured ones may last longer', async () => {
  await using server = await startTestServer()
  const { post, rootKey } = await server.workspace()
  const year = 366 * 24 * 3_600_000
  const century = 3_155_760_000_000
  const messageOf = async (method: string, body: object) =>
    (await server.post(method, body, rootKey)).body.error?.message
  const limit = (duration: number) => ({ namespace: 'long', identifier: 'user_1', limit: 10, duration })
  expect(await messageOf('ratelimits.limit', limit(year))).toBeUndefined()
  const most = `duration: Number must be less than or equal to ${year}`
  expect(await messageOf('ratelimits.limit', limit(year + 1))).toBe(`${most}; only an override may be longer`)
  expect(await messageOf('ratelimits.multiLimit', [limit(year), limit(century)])).toStartWith(`1.${most}`)
  await post('ratelimits.setOverride', {
    namespaceName: 'long',
    identifier: 'user_1',
    limit: 5,
    duration: century,
  })
  expect((await post('ratelimits.limit', limit(century))).limit).toBe(5)

  const { apiId } = await post('apis.createApi', { name: 'long' })
  await post('identities.createIdentity', {
    externalId: 'user_1',
    ratelimits: [{ name: 'life', limit: 1, duration: century }],
  })
  const { key } = await post('keys.createKey', { apiId, externalId: 'user_1' })
  const verify = (duration: number) => ({ key, ratelimits: [{ name: 'ad hoc', limit: 1, duration }] })
  expect(await messageOf('keys.verifyKey', verify(year))).toBeUndefined()
  expect(await messageOf('keys.verifyKey', verify(year + 1))).toStartWith(`ratelimits.0.${most}`)
  expect((await server.post('keys.verifyKey', { key, ratelimits: [{ name: 'life' }] })).body.valid).toBe(true)
  expect((await server.post('keys.verifyKey', { key, ratelimits: [{ name: 'life' }] })).body.valid).toBe(
    false,
  )
  const forwarded = async (duration: number) => {
    const query = { ratelimit: `ad hoc,limit=1,duration=${duration}` }
    return (await server.get('auth.forward', query, key)).body.error?.message ?? ''
  }
  expect(await forwarded(year)).not.toContain('duration')
  expect(await forwarded(century)).toContain(`ratelimit.0: duration must be at most ${year}`)

  await using generous = await startTestServer({ env: { TOLLGATE_WINDOW_DAYS_MAX: '36525' } })
  const workspace = await generous.workspace()
  expect((await generous.post('ratelimits.limit', limit(century), workspace.rootKey)).status).toBe(200)
})
