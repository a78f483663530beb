import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { SAMPLE_MS, SAMPLES_MAX, StatusHistory } from '../../../src/api/server/status-history.ts'
import { type Json, OPERATOR_KEY, startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer({ env: { TOLLGATE_HTTP_THREADS: '2' } })
})
afterAll(async () => await server[Symbol.asyncDispose]())

const history = async (query: object = {}) =>
  (await server.get('server.getHistory', { ...query }, OPERATOR_KEY)).body

/** Counters of one method: calls by bound of their time in seconds, and how many failed. */
const metrics = (buckets: Record<string, number>, { failed = 0, route = '/v1/a' } = {}) =>
  [
    ...Object.entries(buckets).map(
      ([le, calls]) => `tollgate_http_request_duration_seconds_bucket{route="${route}",le="${le}"} ${calls}`,
    ),
    `tollgate_http_request_duration_seconds_count{route="${route}"} ${buckets['+Inf']}`,
    `tollgate_http_requests_total{route="${route}",status="500"} ${failed}`,
    'tollgate_usage_flush_lag_seconds 0.4',
    'tollgate_limiter_flush_lag_seconds{shard="0"} 1.5',
    'tollgate_cache_hits_total{cache="keys"} 7',
    'tollgate_cache_misses_total{cache="keys"} 3',
    'tollgate_connections 5',
  ].join('\n')

function kept(texts: string[]) {
  let now = 1_000_000
  let run = () => {}
  const made = new StatusHistory(async () => texts.shift() ?? '', {
    clock: () => now,
    timers: {
      now: () => now,
      after: () => () => {},
      soon: () => {},
      every: (ms, each) => {
        expect(ms).toBe(SAMPLE_MS)
        run = each
        return () => {}
      },
    },
  })
  made.start()
  const minute = async () => {
    now += SAMPLE_MS
    run()
    await Bun.sleep(0)
  }
  return { samples: made.samples, minute }
}

test('a sample has the calls of its minute and how long these took, not those since the start', async () => {
  const { samples, minute } = kept([
    metrics({ '0.001': 90, '0.01': 100, '1.0': 100, '+Inf': 100 }),
    metrics({ '0.001': 90, '0.01': 100, '1.0': 108, '+Inf': 110 }, { failed: 2 }),
    metrics({ '0.001': 90, '0.01': 100, '1.0': 108, '+Inf': 110 }, { failed: 2 }),
    // A thread was restarted, and took its counts with it.
    metrics({ '0.001': 1, '0.01': 1, '1.0': 1, '+Inf': 1 }),
  ])
  for (let index = 0; index < 4; index++) await minute()
  expect(samples.map(({ all }) => all)).toEqual([
    { calls: 100, failed: 0, p50Ms: 1, p99Ms: 10 },
    { calls: 10, failed: 2, p50Ms: 1000, p99Ms: null },
    { calls: 0, failed: 0, p50Ms: null, p99Ms: null },
    { calls: 0, failed: 0, p50Ms: null, p99Ms: null },
  ])
  expect(samples[0]).toMatchObject({
    at: 1_060_000,
    lengthMs: 60_000,
    flushLagMs: 1500,
    connections: 5,
    cacheHits: 7,
    cacheMisses: 3,
  })
  expect(samples[1]).toMatchObject({ cacheHits: 0, cacheMisses: 0 })
  expect(samples[2]?.methods).toEqual([])
})

test('three hours are kept and no more', async () => {
  const { samples, minute } = kept([])
  for (let index = 0; index < SAMPLES_MAX + 5; index++) await minute()
  expect(samples).toHaveLength(SAMPLES_MAX)
  expect(samples.at(-1)?.at).toBe(1_000_000 + (SAMPLES_MAX + 5) * SAMPLE_MS)
})

test('an operator reads the minutes of all threads, of all methods or of one, from any thread', async () => {
  const workspace = await server.workspace()
  const limit = { namespace: 'a', identifier: 'b', limit: 5, duration: 60_000 }
  for (let index = 0; index < 20; index++) await workspace.post('ratelimits.limit', limit)
  await server.server.history.sample()
  // New connections go to either thread.
  const answers: Json[] = await Promise.all(Array.from({ length: 12 }, () => history()))
  for (const { samples, methods } of answers) {
    expect(samples).toHaveLength(1)
    expect(samples[0].calls).toBeGreaterThan(20)
    expect(samples[0].lengthMs).toBeGreaterThan(0)
    expect(methods).toContain('/v1/ratelimits.limit')
  }
  expect((await history({ path: '/v1/ratelimits.limit' })).samples[0]).toMatchObject({ calls: 20, failed: 0 })
  expect((await history({ path: '/v1/nothing' })).samples[0]).toMatchObject({ calls: 0, p50Ms: null })
  await server.server.history.sample()
  expect((await history({ path: '/v1/ratelimits.limit' })).samples[1]).toMatchObject({ calls: 0 })
})

test('without a dashboard no history is kept', async () => {
  await using without = await startTestServer({ env: { TOLLGATE_DASHBOARD: 'off' } })
  const { status, body } = await without.get('server.getHistory', {}, OPERATOR_KEY)
  expect([status, body.error.code]).toEqual([412, 'PRECONDITION_FAILED'])
})
