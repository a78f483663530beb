import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { hostname } from 'node:os'
import { OPERATOR_KEY, startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer({ env: { TOLLGATE_METRICS_PORT: '0' } })
})
afterAll(async () => await server[Symbol.asyncDispose]())

const status = async () => (await server.get('server.getStatus', {}, OPERATOR_KEY)).body

/** From the same figures as the metrics, also where these have a port of their own. */
test('an operator reads the figures of all threads of the server that answers', async () => {
  const workspace = await server.workspace()
  const take = () =>
    workspace.post('ratelimits.limit', { namespace: 'a', identifier: 'b', limit: 5, duration: 60_000 })
  for (let index = 0; index < 3; index++) await take()
  const read = await status()
  expect(read).toMatchObject({ id: expect.stringMatching(/^node_/), host: hostname() })
  expect(read).toMatchObject({ state: 'ready', database: 'ok', disk: { freeBytes: expect.any(Number) } })
  expect(read.threads.map(({ name, isUp }: { name: string; isUp: boolean }) => [name, isUp])).toEqual([
    ['http-0', true],
    ['shard-0', true],
    ['shard-1', true],
  ])
  expect(read.limiter.windows).toBe(1)
  expect(read.limiter.bytes).toBeLessThan(read.limiter.bytesMax)
  expect(Math.abs(Date.now() - read.startedAt)).toBeLessThan(10 * 60_000)
  const limit = read.methods.find(({ path }: { path: string }) => path === '/v1/ratelimits.limit')
  expect(limit).toMatchObject({ calls: 3, failed: 0 })
  // Null is longer than the largest bound that is measured.
  expect(limit.p99Ms ?? Number.POSITIVE_INFINITY).toBeGreaterThanOrEqual(limit.p50Ms ?? 0)
  await take()
  const after = (await status()).methods.find(({ path }: { path: string }) => path === limit.path)
  expect(after.calls).toBe(4)
})

test('whoever is no operator learns nothing of the server', async () => {
  const { rootKey } = await server.workspace()
  for (const method of ['getStatus', 'getHistory', 'getSettings', 'listServers']) {
    const { status: code, body } = await server.get(`server.${method}`, {}, rootKey)
    expect([code, body.error.code]).toEqual([403, 'INSUFFICIENT_PERMISSIONS'])
  }
})
