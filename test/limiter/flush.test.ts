import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openSpills } from '../../src/db/spill.ts'
import { systemTimers } from '../../src/lib/timers.ts'
import { Flusher } from '../../src/limiter/flush.ts'
import { startShards } from '../../src/limiter/shards.ts'
import { WindowStore } from '../../src/limiter/store.ts'
import { WindowTable } from '../../src/limiter/window-table.ts'
import { openTestSql, type TestSql } from '../support/database.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { takeFrom } from './support.ts'

setDefaultTimeout(SLOW_MS)

const NOW = Date.UTC(2030, 0, 1, 12, 30)
const NODE = 'node_flush'

let database: TestSql
beforeAll(async () => {
  database = await openTestSql()
})
afterAll(() => database[Symbol.asyncDispose]())

/** One statement cannot write a row twice: a batch with a cell in it twice would fail, and the flush with it. */
test('cells that change and move while a walk is under way are written whole, once in each statement', async () => {
  const table = new WindowTable({ memoryBytes: 64 * 2 ** 20, nowMs: NOW })
  const take = (counter: string) =>
    takeFrom(table, { counter, limit: 1_000, durationMs: 3_600_000, cost: 1, atMs: NOW })
  let turns = 0
  let isBusy = false
  const flusher = new Flusher({
    table,
    store: new WindowStore(database.address),
    spills: openSpills(''),
    timers: {
      ...systemTimers,
      soon: (run) => {
        // Between the first two slices of a walk come charges of cells it has gathered, and newcomers that split pages.
        if (isBusy && turns++ === 0) {
          for (let i = 0; i < 500; i++) take(`regular ${i}`)
          for (let i = 0; i < 2_000; i++) take(`newcomer ${i}`)
        }
        systemTimers.soon(run)
      },
    },
    nodeId: NODE,
    everyMs: 3_600_000,
    deletesEnded: false,
  })
  for (let i = 0; i < 4_000; i++) take(`settled ${i}`)
  await flusher.flush()
  for (let i = 0; i < 500; i++) take(`regular ${i}`)
  isBusy = true
  await flusher.flush()
  expect(turns).toBeGreaterThan(0)

  await flusher.flush()
  await flusher.stop()
  const [row] = await database.sql<{ cells: number; used: number }[]>`
    select count(*) as cells, sum(used)::bigint as used from ratelimit_windows where node_id = ${NODE}`
  expect(row).toEqual({ cells: 4_000 + 500 + 2_000, used: 4_000 + 2 * 500 + 2_000 })
})

/** It is in the list of those near their limit and in the table. A start that cannot send a spill file does not start. */
test('a counter that got a cell of its own since memory was full is spilled, and sent by the next start', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-flush-'))
  const HOUR = 3_600_000
  const now = Date.UTC(2030, 0, 1, 12, 30)
  const table = new WindowTable({ memoryBytes: 128 * 1024, nowMs: now })
  for (let i = 0; i < 20_000; i++)
    takeFrom(table, { counter: `flood ${i}`, limit: 10, durationMs: HOUR, cost: 1, atMs: now })
  const abuser = { counter: 'abuser', limit: 10, durationMs: 24 * HOUR, cost: 6 }
  expect(takeFrom(table, { ...abuser, atMs: now })).toMatchObject({ passed: true, used: 6 })
  expect(table.nearLimit.count).toBeGreaterThan(0) // it has no cell
  const later = now + HOUR
  expect(takeFrom(table, { ...abuser, cost: 3, atMs: later })).toMatchObject({ passed: true, used: 9 })
  expect(table.dirty).toBeGreaterThan(0) // it has one

  const store = new WindowStore({ ...database.address, databaseId: 'another one' })
  const nodeId = 'node_spill'
  const flusher = new Flusher({
    table,
    store,
    spills: openSpills(folder),
    timers: systemTimers,
    nodeId,
    everyMs: HOUR,
    deletesEnded: false,
  })
  expect(await flusher.stop()).toBeGreaterThan(0)
  const shards = await startShards({
    count: 1,
    address: database.address,
    nodeId,
    hashSecret: 'secret',
    flushEveryMs: HOUR,
    dataDir: folder,
    memoryBytes: 2 ** 22,
    now: later,
  })
  await shards.stop()
  const rows = await database.sql`
    select used from ratelimit_windows where node_id = ${nodeId} and ends_at > ${later + HOUR}`
  expect(rows.map(({ used }) => used)).toEqual([9])
  rmSync(folder, { recursive: true })
})

/** Else an outage would make counters stand for ever longer windows, and refuse them long after it is over. */
test('over-counted windows that are over are given up while nothing can be written', async () => {
  const HOUR = 3_600_000
  let now = NOW
  const table = new WindowTable({ memoryBytes: 128 * 1024, nowMs: now })
  const take = (counter: string, limit: number, durationMs: number) =>
    takeFrom(table, { counter, limit, durationMs, cost: 1, atMs: now })
  for (let i = 0; i < 20_000; i++) take(`settled ${i}`, 10, 24 * HOUR)
  expect(table.sketch.isActive).toBe(true)
  const flusher = flusherOf(table, { write: away, deleteEnded: away, close: async () => {} })
  const passed = (counter: string, calls: number) =>
    Array.from({ length: calls }, () => take(counter, 10, 1_000).passed).filter(Boolean).length
  // More ends than the sketch can tell apart at once.
  for (let second = 0; second < 5_000; second++) {
    now += 1_000
    take(`visitor ${second}`, 10, 1_000)
    if (second % 5 === 0) expect(await flusher.flush().catch(() => 'away')).toBe('away')
  }
  now += 1_000
  expect(passed('regular', 11)).toBe(10)
  now += 1_000
  expect(passed('regular', 11)).toBe(10)
})

test('a database that was away for a moment is not told as away while there is nothing to write', async () => {
  for (const deletesEnded of [true, false]) {
    let now = 1_000
    let isAway = true
    const answer = async () => (isAway ? away() : 0)
    const store = { write: async () => void (await answer()), deleteEnded: answer, close: async () => {} }
    const table = new WindowTable({ memoryBytes: 2 ** 20, nowMs: NOW })
    const flusher = flusherOf(table, store, { ...systemTimers, now: () => now }, deletesEnded)
    takeFrom(table, { counter: 'one', limit: 10, durationMs: 1_000, cost: 1, atMs: NOW })
    await flusher.flush().catch(() => {})
    now += 10_000
    expect(flusher.awayMs).toBe(10_000)
    table.advance(NOW + 10_000) // its window is over: nothing is left to write
    if (deletesEnded) await flusher.flush()
    expect(flusher.awayMs).toBe(10_000)
    isAway = false
    table.advance(NOW + 20_000)
    await flusher.flush()
    expect(flusher.awayMs).toBe(0)
  }
})

const away = async () => {
  throw new Error('away')
}

function flusherOf(
  table: WindowTable,
  store: Pick<WindowStore, 'write' | 'deleteEnded' | 'close'>,
  timers = systemTimers,
  deletesEnded = false,
): Flusher {
  return new Flusher({
    table,
    store,
    spills: openSpills(''),
    timers,
    nodeId: NODE,
    everyMs: 3_600_000,
    deletesEnded,
  })
}
