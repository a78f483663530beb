import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { openSpills } from '../../src/db/spill.ts'
import { systemTimers } from '../../src/lib/timers.ts'
import { Flusher } from '../../src/limiter/flush.ts'
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
