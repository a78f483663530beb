import { expect, setDefaultTimeout, test } from 'bun:test'
import { readConfig } from '../../src/config.ts'
import { limitEndpoint } from '../../src/doors/v1/ratelimits/limit.ts'
import { type Server, startServer } from '../../src/server/server.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { callsTo, OPERATOR_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

/** An event belongs to the hour of its decision, whatever clock its process has and whenever it is written. */

const HOUR = 3_600_000
const at = (text: string) => Date.parse(`${text}Z`)

/** A server whose time is what the test says; it flushes when told, and at its stop. */
const start = (database: TestDatabase, clock: () => number): Promise<Server> =>
  startServer(
    readConfig({
      PORT: '0',
      DATABASE_URL: database.databaseUrl ?? '',
      TOLLGATE_DATA_DIR: database.dataDir,
      TOLLGATE_ROOT_KEY: OPERATOR_KEY,
      TOLLGATE_FLUSH_MS: '60000',
      TOLLGATE_SHARDS: '1',
      TOLLGATE_HTTP_THREADS: '1',
    }),
    { clock },
  )

/** An API with one key: verify it some times, and ask what was counted by hour. */
async function makeKey({ url }: Server) {
  const post = async (method: string, body: unknown) =>
    (await callsTo(url).post(method, body, OPERATOR_KEY)).body
  const { apiId } = await post('apis.createApi', { name: 'hours' })
  const { key, keyId } = await post('keys.createKey', { apiId })
  const { rootKey } = await post('rootKeys.createRootKey', {
    permissions: ['api.*.read_api', 'api.*.read_key'],
  })
  return {
    verify: async (server: Server, times: number) => {
      for (let i = 0; i < times; i++)
        expect((await callsTo(server.url).post('keys.verifyKey', { key })).body.code).toBe('VALID')
    },
    /** Hours with verifications, from everything there is: by the hours of the API and by those of the key. */
    counted: async (server: Server) => {
      await server.deps.usage.flush()
      const ask = async (query: Record<string, unknown>) => {
        const range = { apiId, start: at('2026-01-01T00:00'), end: at('2026-12-31T23:00'), groupBy: 'hour' }
        const { body } = await callsTo(server.url).get(
          'analytics.getVerifications',
          { ...range, ...query },
          rootKey,
        )
        return Object.fromEntries(
          body
            .filter(({ total }: { total: number }) => total > 0)
            .map(({ time, total }: { time: number; total: number }) => [
              new Date(time).toISOString().slice(5, 13),
              total,
            ]),
        )
      }
      const hours = await ask({})
      expect(await ask({ keyId })).toEqual(hours)
      return hours
    },
    days: async (server: Server, range: { start: number; end: number }) =>
      (await callsTo(server.url).get('keys.getVerifications', { keyId, ...range }, rootKey)).body
        .verifications,
  }
}

test('usage that is flushed an hour, a month or two restarts later counts in the hour of the decision', async () => {
  await using database = await openTestDatabase()
  let now = at('2026-03-31T22:59:59.999')
  const first = await start(database, () => now)
  const key = await makeKey(first)
  await key.verify(first, 1)
  now += 1
  await key.verify(first, 2)
  now = at('2026-04-01T00:00')
  await key.verify(first, 4)
  now += HOUR + 5
  expect(await key.counted(first)).toEqual({ '03-31T22': 1, '03-31T23': 2, '04-01T00': 4 })
  await key.verify(first, 8)
  now = at('2026-05-02T10:00')
  await first.stop() // flushes a month later

  await using second = await start(database, () => now)
  expect(await key.counted(second)).toEqual({ '03-31T22': 1, '03-31T23': 2, '04-01T00': 4, '04-01T01': 8 })
  const march = { time: at('2026-03-31T00:00'), success: 3, rateLimited: 0, usageExceeded: 0 }
  const april = { time: at('2026-04-01T00:00'), success: 12, rateLimited: 0, usageExceeded: 0 }
  expect(await key.days(second, { start: at('2026-03-01T00:00'), end: now })).toEqual([march, april])
})

/** Within a process time stands still until it is reached again: a decision is never older than the one before it. */
test('a clock that steps back or forward moves nothing that was counted', async () => {
  await using database = await openTestDatabase()
  let now = at('2026-06-10T12:30')
  await using server = await start(database, () => now)
  const key = await makeKey(server)
  await key.verify(server, 1)
  now -= 2 * HOUR
  await key.verify(server, 2)
  expect(await key.counted(server)).toEqual({ '06-10T12': 3 })
  now = at('2026-06-10T13:10') // goes on
  await key.verify(server, 4)
  now = at('2026-06-11T09:00') // a step forward, by mistake
  await key.verify(server, 8)
  now = at('2026-06-10T13:20') // and back: the process stays where it was
  await key.verify(server, 16)
  expect(await key.counted(server)).toEqual({ '06-10T12': 3, '06-10T13': 4, '06-11T09': 24 })
})

test('a process with another clock adds to the hours of its own decisions', async () => {
  await using database = await openTestDatabase()
  const noon = at('2026-06-10T12:30')
  const first = await start(database, () => noon)
  const key = await makeKey(first)
  await key.verify(first, 1)
  await first.stop()
  for (const [hours, times] of [
    [-3, 2],
    [50, 4],
    [0, 8],
  ] as const) {
    await using next = await start(database, () => noon + hours * HOUR)
    await key.verify(next, times)
  }
  await using last = await start(database, () => noon)
  expect(await key.counted(last)).toEqual({ '06-10T09': 2, '06-10T12': 9, '06-12T14': 4 })
})

test('a rate limit counts in the hour it was decided in, though its answer comes in the next', async () => {
  await using database = await openTestDatabase()
  let now = at('2026-03-01T10:59:59.999')
  await using server = await start(database, () => now)
  const body = { namespace: 'late', identifier: 'user_1', limit: 10, duration: 10_000 }
  await callsTo(server.url).post('ratelimits.limit', body, OPERATOR_KEY)
  const call = {
    requestId: 'req_of_the_test',
    authorization: `Bearer ${OPERATOR_KEY}`,
    userAgent: null,
    header: () => null,
    clientAddress: () => null,
    headers: {},
  }
  const asked = limitEndpoint(server.deps, call, body)
  now = at('2026-03-01T11:00')
  expect(await asked).toMatchObject({ success: true, remaining: 8 })
  await server.deps.usage.flush()
  const rows = await server.deps.sql`select hour, passed from usage_ratelimits`
  expect(rows.map(({ hour, passed }) => [new Date(hour).toISOString().slice(5, 13), Number(passed)])).toEqual(
    [['03-01T10', 2]],
  )
})
