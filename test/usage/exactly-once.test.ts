import { expect, setDefaultTimeout, test } from 'bun:test'
import { existsSync, readdirSync } from 'node:fs'
import { openTestDatabase, TEST_DATABASE_URL, type TestDatabase } from '../support/database.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { type ServerProcess, spawnServer } from '../support/process.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { openWire } from '../support/wire.ts'
import {
  CALLS_AT_ONCE,
  countByKind,
  countedEvents,
  expectExactly,
  makeTraffic,
  type Traffic,
} from './traffic.ts'

/**
 * Verifications over HTTP with random keys, tags and outcomes, counted beside the server in the plainest way, while the
 * server and its database are treated badly. What is said afterwards must be what was answered, in every grouping.
 */

setDefaultTimeout(2 * SLOW_MS)

const HOUR = 3_600_000
const now = () => Date.now()

const envOf = (database: TestDatabase, changes: Record<string, string> = {}): Record<string, string> => ({
  TOLLGATE_DATA_DIR: database.dataDir,
  TOLLGATE_HTTP_THREADS: '2',
  TOLLGATE_SHARDS: '1',
  TOLLGATE_FLUSH_MS: '200',
  ...(database.databaseUrl !== null && { DATABASE_URL: database.databaseUrl }),
  ...changes,
})

/** These servers have the true time: what the oracle counts must not fall to both sides of a full hour. */
async function stayWithinTheHour(): Promise<void> {
  const left = HOUR - (now() % HOUR)
  if (left < 30_000) await Bun.sleep(left)
}

/** A phase of it has all outcomes, tags and keys mixed; more only takes longer to compare. */
const EVENTS = 150

/** Traffic until so many more are answered, and then a little at a time until the rest is true. */
async function runUntil(
  traffic: Traffic,
  server: ServerProcess,
  options: { events?: number; isTrue?: () => boolean } = {},
): Promise<void> {
  const { events = EVENTS, isTrue = () => true } = options
  let enough = traffic.events.length + events
  await traffic.run(server, () => traffic.events.length >= enough)
  while (!isTrue()) {
    await Bun.sleep(10)
    enough = traffic.events.length + CALLS_AT_ONCE
    await traffic.run(server, () => traffic.events.length >= enough)
  }
}

/** Whether the last line about its flushes says that they fail. */
const isFailing = (server: ServerProcess): boolean =>
  server.output().lastIndexOf('"usage_flush_failing"') >
  server.output().lastIndexOf('"usage_flush_recovered"')

/** A server sends what an earlier one left after its first flush; a file goes once it is counted. */
async function spillsAreSent({ dataDir }: TestDatabase): Promise<void> {
  const folder = `${dataDir}/spill`
  while (existsSync(folder) && readdirSync(folder).length > 0) await Bun.sleep(20)
}

/** Traffic until both threads have every key in their caches: from then on they need no database. */
async function warm(traffic: Traffic, server: ServerProcess): Promise<void> {
  const misses = async () => {
    const text = await (await fetch(`${server.url}/metrics`)).text()
    return text.match(/^tollgate_cache_misses_total\{.*/gm)
  }
  let before: unknown
  for (let now = await misses(); !Bun.deepEquals(now, before); now = await misses()) {
    before = now
    await runUntil(traffic, server, { events: 2 * EVENTS })
  }
}

test.if(IS_NIGHTLY)('a clean stop loses nothing, also when no flush came before it', async () => {
  await stayWithinTheHour()
  await using database = await openTestDatabase()
  // Only the stop flushes.
  const env = envOf(database, { TOLLGATE_FLUSH_MS: '60000' })
  await using first = await spawnServer(env)
  const traffic = await makeTraffic(first, { seed: 1, now, withCredits: true })
  const outcomes = () => new Set(traffic.events.map(({ outcome }) => outcome)).size
  await traffic.run(first, () => traffic.events.length >= 4 * EVENTS && outcomes() === 7)
  expect(await first.end('SIGTERM')).toBe(0)
  expect(traffic.unknown).toEqual([])

  await using second = await spawnServer(env)
  await expectExactly(second, traffic, traffic.events, now())
  await runUntil(traffic, second)
  expect(await second.end('SIGTERM')).toBe(0)
  await using third = await spawnServer(env)
  await expectExactly(third, traffic, traffic.events, now())
})

test('kill −9 costs at most the last flush interval, counts nothing twice, and all groupings have the same sum', async () => {
  await stayWithinTheHour()
  await using database = await openTestDatabase()
  const flushMs = 100
  /** What a flush takes at most, on a machine that runs other tests meanwhile. */
  const flushTookMs = 900
  const env = envOf(database, { TOLLGATE_FLUSH_MS: String(flushMs) })
  await using closing = new AsyncDisposableStack()
  let server = closing.use(await spawnServer(env))
  for (let round = 0; round < (IS_NIGHTLY ? 3 : 1); round++) {
    const traffic = await makeTraffic(server, { seed: 10 + round, now, withCredits: false })
    let isKilled = false
    const running = traffic.run(server, () => isKilled, { restMs: 5 })
    while (traffic.events.length < 100) await Bun.sleep(10)
    await Bun.sleep(flushMs + flushTookMs + 100 + 130 * round)
    const killedAt = performance.now()
    isKilled = true
    await server.end('SIGKILL')
    await running

    server = closing.use(await spawnServer(env))
    const counted = await countedEvents(server, traffic, now())
    const ofCounted = countByKind(counted)
    // The flush under way at the kill may be lost with the interval before it.
    const safeUntil = killedAt - flushMs - flushTookMs
    const safe = traffic.events.filter((_, i) => (traffic.answeredAt[i] ?? 0) < safeUntil)
    expect(safe.length).toBeGreaterThanOrEqual(100)
    const missing = [...countByKind(safe)].filter(([kind, count]) => (ofCounted.get(kind) ?? 0) < count)
    expect(missing).toEqual([])
    const ofAnswered = countByKind(traffic.events)
    let surplus = 0
    for (const [kind, count] of ofCounted) surplus += Math.max(0, count - (ofAnswered.get(kind) ?? 0))
    // A call cut off may have been counted without its answer.
    expect(surplus).toBeLessThanOrEqual(CALLS_AT_ONCE)
    await expectExactly(server, traffic, counted, now())
  }
})

/** Only a Postgres of its own can go away alone: the embedded one lives and dies with its server. */
test.if(TEST_DATABASE_URL !== null)(
  'with Postgres away and back, again and again, every answer is counted once',
  async () => {
    await stayWithinTheHour()
    await using database = await openTestDatabase()
    await using wire = await openWire({ kind: 'url', url: database.databaseUrl ?? '' })
    if (wire.address.kind !== 'url') throw new Error('a real Postgres')
    const env = envOf(database, { DATABASE_URL: wire.address.url })
    await using server = await spawnServer(env)
    const traffic = await makeTraffic(server, { seed: 20, now, withCredits: false })
    await warm(traffic, server)
    for (let round = 0; round < (IS_NIGHTLY ? 3 : 1); round++) {
      await wire.cut()
      await runUntil(traffic, server, { isTrue: () => isFailing(server) })
      await wire.open()
      await runUntil(traffic, server, { isTrue: () => !isFailing(server) })
    }
    await wire.cut()
    await runUntil(traffic, server)
    expect(await server.end('SIGTERM')).toBe(0)
    expect(readdirSync(`${database.dataDir}/spill`).length).toBeGreaterThan(0)
    await wire.open()
    await using next = await spawnServer(env)
    expect(traffic.unknown).toEqual([])
    await spillsAreSent(database)
    await expectExactly(next, traffic, traffic.events, now())
    await next.end('SIGTERM')
  },
)

/** The database has counted, and nobody knows: sent again it must not count again. */
test.if(TEST_DATABASE_URL !== null)(
  'with commits cut off between the commit and its answer, every answer is counted once',
  async () => {
    await stayWithinTheHour()
    await using database = await openTestDatabase()
    await using wire = await openWire({ kind: 'url', url: database.databaseUrl ?? '' })
    if (wire.address.kind !== 'url') throw new Error('a real Postgres')
    const env = envOf(database, { DATABASE_URL: wire.address.url, TOLLGATE_FLUSH_MS: '50' })
    await using server = await spawnServer(env)
    const traffic = await makeTraffic(server, { seed: 30, now, withCredits: false })
    await warm(traffic, server)
    for (let round = 0; round < (IS_NIGHTLY ? 4 : 2); round++) {
      wire.deafen()
      await runUntil(traffic, server, { isTrue: () => isFailing(server) })
      await wire.open()
      await runUntil(traffic, server, { isTrue: () => !isFailing(server) })
    }
    wire.deafen()
    await runUntil(traffic, server)
    expect(await server.end('SIGTERM')).toBe(0)
    await wire.open()
    await using next = await spawnServer(env)
    expect(traffic.unknown).toEqual([])
    await spillsAreSent(database)
    await expectExactly(next, traffic, traffic.events, now())
    await next.end('SIGTERM')
  },
)
