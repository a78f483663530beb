import { expect, setDefaultTimeout, test } from 'bun:test'
import { readConfig } from '../../src/config.ts'
import { HOUR_MS } from '../../src/lib/clock.ts'
import { startServer } from '../../src/server/server.ts'
import { Columns, expectHealthy } from '../support/columns.ts'
import { openTestDatabase } from '../support/database.ts'
import { callsTo, OPERATOR_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

/** In the middle of an hour, so that a jump of an hour is another hour of usage, and no minute ends during the test. */
const NOON = Date.UTC(2030, 5, 15, 12, 30)

test('a clock that jumps an hour ahead and back, also over a restart, grants nothing extra and loses nothing', async () => {
  await using database = await openTestDatabase()
  let now = NOON
  const config = readConfig({
    PORT: '0',
    DATABASE_URL: database.databaseUrl ?? '',
    TOLLGATE_DATA_DIR: database.dataDir,
    TOLLGATE_ROOT_KEY: OPERATOR_KEY,
    TOLLGATE_FLUSH_MS: '50',
    TOLLGATE_SHARDS: '1',
    TOLLGATE_HTTP_THREADS: '1',
  })
  const start = () => startServer(config, { clock: () => now })
  const first = await start()
  let calls = callsTo(first.url)
  const columns = await Columns.open(calls, { stock: 30 })
  columns.usageRange = { start: NOON - HOUR_MS, end: NOON + 2 * HOUR_MS }
  const take = async () => {
    const body = { namespace: 'clock', identifier: 'x', limit: 3, duration: 60_000 }
    return (await calls.post('ratelimits.limit', body, OPERATOR_KEY)).body.success
  }
  const { body: api } = await calls.post('apis.createApi', { name: 'clock' }, OPERATOR_KEY)
  const short = { apiId: api.apiId, expires: NOON + HOUR_MS / 2 }
  const { body: made } = await calls.post('keys.createKey', short, OPERATOR_KEY)
  const expiring = async () => (await calls.post('keys.verifyKey', { key: made.key })).body.code

  expect([await take(), await take(), await take(), await take()]).toEqual([true, true, true, false])
  expect(await expiring()).toBe('VALID')
  expectHealthy(await columns.askAll())

  now = NOON + HOUR_MS
  expect([await take(), await take(), await take(), await take()]).toEqual([true, true, true, false])
  expect(await expiring()).toBe('EXPIRED')
  expectHealthy(await columns.askAll())

  // Back: the process keeps the later time until the clock reaches it.
  now = NOON
  expect(await take()).toBe(false)
  expect(await expiring()).toBe('EXPIRED')
  expectHealthy(await columns.askAll())
  await columns.expectAllCounted()
  await first.stop()

  // Restarted with the earlier time: an open window keeps its count.
  await using second = await start()
  calls = callsTo(second.url)
  columns.calls = calls
  expect(await take()).toBe(false)
  expectHealthy(await columns.askAll())
  await columns.expectAllCounted()
})
