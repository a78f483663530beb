import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { openTestDatabase, TEST_DATABASE_URL, type TestDatabase } from '../support/database.ts'
import { type ServerProcess, spawnServer } from '../support/process.ts'
import { type Json, OPERATOR_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { openWire } from '../support/wire.ts'

setDefaultTimeout(2 * SLOW_MS)

const linesOf = (server: ServerProcess): Json[] =>
  server
    .output()
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line))
const countOf = (lines: Json[], event: string) => lines.filter((line) => line.event === event).length

/** Each line for the beginning of a problem has one for its end. */
const PAIRS = [
  ['database_unavailable', 'database_available'],
  ['window_flush_failing', 'window_flush_recovered'],
  ['usage_flush_failing', 'usage_flush_recovered'],
  ['key_import_waiting', 'key_import_resumed'],
  ['changes_unheard', 'changes_heard'],
] as const

/** Only a Postgres of the test's own can be stopped alone. */
describe.if(TEST_DATABASE_URL !== null)('an outage of Postgres', () => {
  let database: TestDatabase
  beforeAll(async () => {
    database = await openTestDatabase()
  })
  afterAll(() => database[Symbol.asyncDispose]())

  test('has one line at its beginning and one at its end over all threads, and none for a refused call', async () => {
    await using wire = await openWire({ kind: 'url', url: database.databaseUrl ?? '' })
    if (wire.address.kind !== 'url') throw new Error('this test needs a real Postgres')
    await using server = await spawnServer({
      TOLLGATE_DATA_DIR: database.dataDir,
      DATABASE_URL: wire.address.url,
      TOLLGATE_FLUSH_MS: '100',
      TOLLGATE_HTTP_THREADS: '3',
      TOLLGATE_SHARDS: '2',
      TOLLGATE_SLOW_MS: '0',
    })
    const limit = (identifier: string) =>
      server.post(
        'ratelimits.limit',
        { namespace: 'outage', identifier, limit: 9, duration: 86_400_000 * 365 },
        OPERATOR_KEY,
      )
    await Promise.all(Array.from({ length: 20 }, (_, i) => limit(`before ${i}`)))
    let refused = 0
    const refuse = async (i: number) => {
      // Each on its own connection, so that all threads get some.
      const { status } = await server.post('keys.verifyKey', { key: `unknown ${i}` }, null, {
        connection: 'close',
      })
      expect(status).toBe(500)
      refused++
    }

    await wire.cut()
    await Promise.all(Array.from({ length: 60 }, (_, i) => refuse(i)))
    while (countOf(linesOf(server), 'database_unavailable') === 0) await Bun.sleep(20)
    for (let round = 0; round < 20; round++) {
      await Promise.all(Array.from({ length: 20 }, (_, i) => refuse(100 * round + i)))
      await limit(`during ${round}`)
    }
    await Bun.sleep(1500) // longer than the period of every check

    const during = linesOf(server)
    expect(during.filter(({ level }) => level === 'error' || level === 'warn').length).toBeLessThanOrEqual(
      PAIRS.length,
    )
    await wire.open()
    const isOver = (lines: Json[]) =>
      PAIRS.every(([begin, end]) => countOf(lines, begin) === countOf(lines, end))
    for (const endMs = performance.now() + 30_000; performance.now() < endMs; await Bun.sleep(50))
      if (isOver(linesOf(server)) && countOf(linesOf(server), 'database_available') > 0) break

    expect(await server.end('SIGTERM')).toBe(0)
    const lines = linesOf(server)
    const seen = PAIRS.map(([begin, end]) => [begin, countOf(lines, begin), countOf(lines, end)])
    expect(seen.filter(([, began, ended]) => began !== ended || Number(began) > 1)).toEqual([])
    expect(countOf(lines, 'database_unavailable')).toBe(1)
    const over = lines.find(({ event }) => event === 'database_available')
    expect(over.refused).toBe(refused)
    expect(over.awayMs).toBeGreaterThan(1000)
    for (const event of ['request_failed', 'requests_failing', 'unhandled_rejection'])
      expect([event, countOf(lines, event)]).toEqual([event, 0])
    for (const line of lines) expect(line.message).toEqual(expect.any(String))
  })
})
