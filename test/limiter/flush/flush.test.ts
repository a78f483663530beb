import { afterAll, beforeAll, expect, setDefaultTimeout, spyOn, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openSpills } from '../../../src/data-dir/spill.ts'
import { systemTimers, type Timers } from '../../../src/lib/timers.ts'
import { Flusher, type FlushStore } from '../../../src/limiter/flush/flush.ts'
import {
  CELL_BYTES,
  packSegment,
  SEGMENT_FORMAT,
  type Segment,
  unpackSegment,
} from '../../../src/limiter/flush/segment.ts'
import { WindowStore } from '../../../src/limiter/flush/store.ts'
import { CellBatch } from '../../../src/limiter/table/cell-batch.ts'
import { WindowTable } from '../../../src/limiter/table/window-table.ts'
import { Shard } from '../../../src/limiter/threads/shard.ts'
import { startShards } from '../../../src/limiter/threads/shards.ts'
import { openTestSql, type TestSql } from '../../support/database.ts'
import { randomNumbers } from '../../support/random.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import { storedOf, takeFrom, windowsOf, wordsOf } from '../support.ts'

setDefaultTimeout(SLOW_MS)

const NOW = Date.UTC(2030, 0, 1, 12, 30)
const NODE = 'node_flush'
const ALL = { first: 0, last: 2 ** 32 - 1 }

let database: TestSql
beforeAll(async () => {
  database = await openTestSql()
})
afterAll(() => database[Symbol.asyncDispose]())

test('cells that change or move during a flush are written whole', async () => {
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
        // Between the first two slices come charges of cells that are written, and new counters that split pages.
        if (isBusy && turns++ === 0) {
          for (let i = 0; i < 500; i++) take(`regular ${i}`)
          for (let i = 0; i < 2_000; i++) take(`newcomer ${i}`)
        }
        systemTimers.soon(run)
      },
    },
    nodeId: NODE,
    hashes: ALL,
    firstGeneration: 1,
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
  expect(await storedOf(database.sql, NODE)).toMatchObject({
    windows: 4_000 + 500 + 2_000,
    used: 4_000 + 2 * 500 + 2_000,
  })
})

/** What keeps segments from piling up must delete no current count. */
test('after any flush, every count is stored, in a bounded number of copies', async () => {
  const nodeId = 'node_generations'
  const table = new WindowTable({ memoryBytes: 64 * 2 ** 20, nowMs: NOW })
  const random = randomNumbers(7)
  let failsIn = Number.POSITIVE_INFINITY
  const store = new WindowStore(database.address)
  const flusher = flusherOf(
    table,
    {
      get connections() {
        return store.connections
      },
      segmentsMax: 16,
      // One in twenty breaks, before or after it was carried out, so that flushes end anywhere.
      writeSegments: async (node, generation, segments) => {
        if (--failsIn === 0) throw new Error('the connection broke')
        await store.writeSegments(node, generation, segments)
        if (failsIn === 1) throw new Error('the connection broke afterwards')
      },
      deleteSuperseded: (which) => store.deleteSuperseded(which),
      deleteEnded: (which) => store.deleteEnded(which),
      close: () => store.close(),
    },
    systemTimers,
    false,
    nodeId,
  )
  const HOUR = 3_600_000
  const counted = new Map<string, number>()
  const take = (counter: string) => {
    takeFrom(table, { counter, limit: 1e6, durationMs: 48 * HOUR, cost: 1, atMs: NOW })
    counted.set(counter, (counted.get(counter) ?? 0) + 1)
  }
  for (let i = 0; i < 5_000; i++) take(`c${i}`)
  let flushed = 0
  for (let round = 0; round < 60; round++) {
    const changes = Math.floor(random() * (round % 10 === 9 ? 5_000 : 300))
    for (let i = 0; i < changes; i++) take(`c${Math.floor(random() * 6_000)}`)
    failsIn = random() < 0.4 ? 1 + Math.floor(random() * 4) : Number.POSITIVE_INFINITY
    const failed = await flusher.flush().catch((cause) => String(cause))
    if (failed !== undefined) continue
    flushed++
    const stored = await storedOf(database.sql, nodeId)
    const used = [...counted.values()].reduce((sum, each) => sum + each, 0)
    expect(stored).toMatchObject({ windows: counted.size, used })
    // Copies of two generations: each flush writes what changed, and as much again. Failed ones write twice.
    expect(stored.copies).toBeLessThan(8 * counted.size)
  }
  expect(flushed).toBeGreaterThan(20)
  expect(flushed).toBeLessThan(60)
  await flusher.stop()
})

/** A counter without a cell has only its snapshot: it must come into each generation, or a restart forgets it. */
test('over budget, no counter near its limit is missing or stored with less, after any flush', async () => {
  const nodeId = 'node_over_budget'
  const table = new WindowTable({ memoryBytes: 128 * 1024, nowMs: NOW })
  const random = randomNumbers(11)
  const store = new WindowStore(database.address)
  let failsIn = Number.POSITIVE_INFINITY
  const breaking = new Proxy(store, {
    get: (target, name: keyof WindowStore) => {
      if (name === 'connections' || name === 'segmentsMax') return target[name]
      if (name !== 'writeSegments') return target[name].bind(target)
      return async (...segments: Parameters<WindowStore['writeSegments']>) => {
        if (--failsIn === 0) throw new Error('the connection broke')
        await target.writeSegments(...segments)
      }
    },
  })
  const flusher = flusherOf(table, breaking, systemTimers, false, nodeId)
  const LIMIT = 4
  const passed = new Map<string, number>()
  const take = (name: string) => {
    const call = { counter: name, limit: LIMIT, durationMs: 48 * 3_600_000, cost: 1, atMs: NOW }
    if (takeFrom(table, call).passed) passed.set(name, (passed.get(name) ?? 0) + 1)
  }
  for (let i = 0; i < 3_000; i++) take(`c${i}`)
  expect(table.sketch.isActive).toBe(true)
  let flushed = 0
  for (let round = 0; round < 40; round++) {
    for (let i = 0; i < 200; i++) take(`c${Math.floor(random() * 3_000)}`)
    failsIn = random() < 0.3 ? 1 + Math.floor(random() * 4) : Number.POSITIVE_INFINITY
    const failed = await flusher.flush().catch((cause) => String(cause))
    if (failed !== undefined) continue
    flushed++
    const stored = await windowsOf(database.sql, nodeId)
    const missing = [...passed].filter(
      ([name, used]) => 2 * used >= LIMIT && (stored.get(wordsOf(name).join())?.used ?? 0) < used,
    )
    expect(missing).toEqual([])
  }
  expect(table.snapshots.count).toBeGreaterThan(500)
  expect(flushed).toBeGreaterThan(20)
  expect(flushed).toBeLessThan(40)
  const { copies } = await storedOf(database.sql, nodeId)
  expect(copies).toBeLessThan(8 * (table.live + table.snapshots.count))
  await flusher.stop()
})

/** Two servers on one database: the list that a start goes by may be out of date while it reads. */
test('a start misses no count of a server that replaces its segments meanwhile', async () => {
  const HOUR = 3_600_000
  const table = new WindowTable({ memoryBytes: 2 ** 22, nowMs: NOW })
  const counters = Array.from({ length: 3_000 }, (_, i) => `shared ${i}`)
  const call = { limit: 100, durationMs: 48 * HOUR, cost: 1, atMs: NOW }
  const nodeId = 'node_at_work'
  const theirs = new WindowStore(database.address)
  const other = flusherOf(table, theirs, systemTimers, false, nodeId)
  for (const counter of counters) takeFrom(table, { ...call, counter })
  await other.flush()

  let reads = 0
  let missed = 0
  class Overtaken extends WindowStore {
    override async readSegments(ids: number[]) {
      // Twice it has written everything anew, and counted on.
      if (reads++ < 2) {
        for (const counter of counters) takeFrom(table, { ...call, counter })
        for (let pass = 0; pass < 2; pass++) {
          takeFrom(table, { ...call, counter: 'another' })
          for (const counter of counters.slice(0, 2_900)) takeFrom(table, { ...call, counter, cost: 0 })
          await other.flush()
          await other.flush()
        }
      }
      const read = await super.readSegments(ids)
      missed += ids.length - read.length
      return read
    }
  }
  const shard = new Shard({
    timers: systemTimers,
    openStore: (address) => new Overtaken(address),
    openSpills,
    collectGarbage: () => {},
  })
  const setup = { index: 0, count: 1, address: database.address, nodeId: 'node_begins', flushEveryMs: HOUR }
  await shard.start({ ...setup, dataDir: '', memoryBytes: 2 ** 22, nowMs: NOW, fleet: null }, () => {})
  expect(missed).toBeGreaterThan(0)
  const { port1, port2 } = new MessageChannel()
  shard.connect(port2)
  const asked = [1, ...counters.flatMap((counter) => [...wordsOf(counter), 100, 48 * HOUR, 0, NOW, 0])]
  const answered = new Promise<number[]>((resolve) => {
    port1.onmessage = ({ data }) => resolve(data)
  })
  port1.postMessage(asked)
  const [, ...answers] = await answered
  expect(answers.filter((_, i) => i % 2 === 0)).toEqual(counters.map(() => 3))
  await shard.stop()
  port1.close()
  await other.stop()
})

/** Twenty million windows take 39 seconds, and nothing is answered meanwhile. */
test('a long start says every five seconds how far it is', async () => {
  let now = 0
  const lines: Record<string, unknown>[] = []
  const written = spyOn(process.stdout, 'write').mockImplementation((line) => {
    lines.push(JSON.parse(String(line)))
    return true
  })
  const cells = new CellBatch(1)
  const segments = Array.from({ length: 6 }, (_, id) => ({ id, generation: 1, bytes: 2 ** 20 }))
  const store = {
    ...awayStore,
    list: async () => [{ nodeId: 'node_long', rows: 0, segments }],
    readRows: async () => [],
    readSegments: async (ids: number[]) => {
      now += 2_000
      return ids.map((id) => {
        cells.count = 0
        cells.add(id, id, id, id, NOW + 1_000, 1, 1)
        return { format: SEGMENT_FORMAT, cells: Buffer.from(packSegment([cells]).cells, 'hex') }
      })
    },
  }
  const shard = new Shard({
    timers: { ...systemTimers, now: () => now },
    openStore: () => store,
    openSpills,
    collectGarbage: () => {},
  })
  const setup = {
    index: 0,
    count: 1,
    address: database.address,
    nodeId: 'node_long',
    flushEveryMs: 3_600_000,
  }
  let steps = 0
  await shard.start({ ...setup, dataDir: '', memoryBytes: 2 ** 22, nowMs: NOW, fleet: null }, () => steps++)
  written.mockRestore()
  expect(steps).toBe(6)
  expect(
    lines.map(({ event, windowsRestored, segmentsRead, segments }) => [
      event,
      windowsRestored,
      segmentsRead,
      segments,
    ]),
  ).toEqual([
    ['windows_restoring', 3, 3, 6],
    ['windows_restoring', 6, 6, 6],
  ])
  shard.abandon()
})

/** It has a snapshot and a cell. */
test('a counter that got a cell after it had overflowed is spilled, and sent by the next start', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-flush-'))
  const HOUR = 3_600_000
  const now = Date.UTC(2030, 0, 1, 12, 30)
  const table = new WindowTable({ memoryBytes: 128 * 1024, nowMs: now })
  for (let i = 0; i < 20_000; i++)
    takeFrom(table, { counter: `flood ${i}`, limit: 10, durationMs: HOUR, cost: 1, atMs: now })
  const abuser = { counter: 'abuser', limit: 10, durationMs: 24 * HOUR, cost: 6 }
  expect(takeFrom(table, { ...abuser, atMs: now })).toMatchObject({ passed: true, used: 6 })
  expect(table.snapshots.count).toBeGreaterThan(0) // it has no cell
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
    hashes: ALL,
    firstGeneration: 1,
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
  expect(await storedOf(database.sql, nodeId, { endsAfterMs: later + HOUR })).toMatchObject({
    windows: 1,
    used: 9,
  })
  rmSync(folder, { recursive: true })
})

/** Else an outage would make counters stand for ever longer windows, and refuse them long after it is over. */
test('ended windows leave the sketch even while nothing can be written', async () => {
  const HOUR = 3_600_000
  let now = NOW
  const table = new WindowTable({ memoryBytes: 128 * 1024, nowMs: now })
  const take = (counter: string, limit: number, durationMs: number) =>
    takeFrom(table, { counter, limit, durationMs, cost: 1, atMs: now })
  for (let i = 0; i < 17_000; i++) take(`settled ${i}`, 10, 24 * HOUR)
  expect(table.sketch.isActive).toBe(true)
  const flusher = flusherOf(table, awayStore)
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

test('a database that is back is reported, even when nothing is left to write', async () => {
  for (const deletesEnded of [true, false]) {
    let now = 1_000
    let isAway = true
    const answer = async () => (isAway ? away() : true)
    const write = async () => void (await answer())
    const store = { ...awayStore, writeSegments: write, deleteEnded: answer, deleteSuperseded: answer }
    const table = new WindowTable({ memoryBytes: 2 ** 20, nowMs: NOW })
    const flusher = flusherOf(table, store, { ...systemTimers, now: () => now }, deletesEnded)
    takeFrom(table, { counter: 'one', limit: 10, durationMs: 1_000, cost: 1, atMs: NOW })
    await flusher.flush().catch(() => {})
    now += 10_000
    expect(flusher.lagMs).toBe(10_000)
    table.advance(NOW + 10_000) // its window is over: nothing is left to write
    if (deletesEnded) await flusher.flush()
    expect(flusher.lagMs).toBe(10_000)
    isAway = false
    table.advance(NOW + 20_000)
    await flusher.flush()
    expect(flusher.lagMs).toBe(0)
  }
})

/** A table's time stands still while nobody asks it anything. */
test('a database that is back is reported, even when nobody calls', async () => {
  let now = 1_000
  let isAway = false
  const answer = async () => (isAway ? away() : true)
  const table = new WindowTable({ memoryBytes: 2 ** 20, nowMs: NOW })
  const store = { ...awayStore, deleteEnded: answer, deleteSuperseded: answer }
  const flusher = flusherOf(table, store, { ...systemTimers, now: () => now }, true)
  await flusher.flush()
  table.advance(NOW + 10_000)
  isAway = true
  await flusher.flush()
  now += 1_000
  await flusher.flush()
  expect(flusher.lagMs).toBe(1_000)
  isAway = false
  await flusher.flush()
  expect(flusher.lagMs).toBe(0)
})

/** Asynchronous replication: the last that the old primary took is not there, and nobody is told. */
test('segments that a standby has are not replaced by segments that only the lost primary had', async () => {
  const table = new WindowTable({ memoryBytes: 2 ** 22, nowMs: NOW })
  const supersededBefore: number[] = []
  const written: number[] = []
  const store = {
    ...awayStore,
    connections: 1,
    writeSegments: async (_: string, generation: number) => void written.push(generation),
    deleteSuperseded: async ({ generation }: { generation: number }) => {
      supersededBefore.push(generation)
      return true
    },
  }
  const flusher = flusherOf(table, store)
  const change = () =>
    takeFrom(table, { counter: 'one', limit: 100, durationMs: 48 * 3_600_000, cost: 1, atMs: NOW })
  // Few windows: each flush is a whole generation.
  for (let walk = 0; walk < 3; walk++) {
    change()
    await flusher.flush()
  }
  expect(supersededBefore).toEqual([1, 2, 3])
  expect(written).toEqual([1, 2, 3])

  store.connections++ // generation 3 may be lost, and only generation 2 be there
  change()
  await flusher.flush()
  expect(supersededBefore).toEqual([1, 2, 3])
  change()
  await flusher.flush()
  expect(written).toEqual([1, 2, 3, 4, 5])
  expect(supersededBefore).toEqual([1, 2, 3, 5])
})

/** All at once they would take a quarter of a core from those who answer, for a tenth of a second. */
test('a flush of many windows rests between segments, begins in time, and does not rest while a caller waits', async () => {
  let now = 0
  let due: { atMs: number; run(): void }[] = []
  const timers = {
    ...systemTimers,
    now: () => now,
    after: (delayMs: number, run: () => void) => {
      const timer = { atMs: now + delayMs, run }
      due.push(timer)
      return () => {
        due = due.filter((other) => other !== timer)
      }
    },
  }
  const writtenAt: number[] = []
  const writeSegments = async () => void writtenAt.push(now)
  const table = new WindowTable({ memoryBytes: 2 ** 24, nowMs: NOW })
  const take = () => {
    for (let i = 0; i < 20_000; i++)
      takeFrom(table, { counter: `c${i}`, limit: 1e6, durationMs: 3_600_000, cost: 1, atMs: NOW })
  }
  const store = { ...awayStore, writeSegments, deleteSuperseded: async () => true }
  const flusher = new Flusher({
    table,
    store,
    spills: openSpills(''),
    timers,
    nodeId: NODE,
    hashes: ALL,
    firstGeneration: 1,
    everyMs: 1_000,
    deletesEnded: false,
  })
  /** Until nothing happens any more without time going on. */
  const settle = async () => {
    for (let turn = 0; turn < 200; turn++) await new Promise((resolve) => setImmediate(resolve))
  }
  const goTo = async (atMs: number) => {
    for (;;) {
      await settle()
      const next = due.toSorted((a, b) => a.atMs - b.atMs)[0]
      if (next === undefined || next.atMs > atMs) break
      due = due.filter((other) => other !== next)
      now = next.atMs
      next.run()
    }
    now = atMs
  }
  flusher.start()
  take()
  await goTo(999)
  expect(writtenAt).toEqual([])
  await goTo(1_999)
  expect(writtenAt.length).toBe(21)
  expect(writtenAt[0]).toBe(1_000)
  for (const [i, at] of writtenAt.entries()) expect(at).toBeGreaterThanOrEqual(1_000 + 12 * i)
  expect(writtenAt.at(-1)).toBeLessThanOrEqual(1_500)
  expect(flusher.tookMs).toBe(0) // but for its rests

  take()
  writtenAt.length = 0
  await goTo(2_050)
  expect(writtenAt[0]).toBe(2_000)
  expect(writtenAt.length).toBeLessThan(10)
  const flushed = flusher.flush()
  await goTo(2_070) // the rest under way ends
  await flushed
  expect(writtenAt.length).toBe(21)
  expect(writtenAt.at(-1)).toBeLessThanOrEqual(2_070)
  await flusher.stop()
})

/** Each statement is a transaction, which waits for a disk: a million windows waited for it two thousand times. */
test('many windows are written with few statements, and a statement that fails loses none of them', async () => {
  const nodeId = 'node_many'
  const table = new WindowTable({ memoryBytes: 2 ** 26, nowMs: NOW })
  const store = new WindowStore(database.address)
  const statements: number[] = []
  let failing = 0
  const flusher = flusherOf(
    table,
    {
      connections: 1,
      segmentsMax: 16,
      writeSegments: async (node, generation, segments) => {
        statements.push(segments.length)
        if (statements.length === failing) throw new Error('the connection broke')
        await store.writeSegments(node, generation, segments)
      },
      deleteSuperseded: (which) => store.deleteSuperseded(which),
      deleteEnded: (which) => store.deleteEnded(which),
      close: () => store.close(),
    },
    systemTimers,
    false,
    nodeId,
  )
  const COUNTERS = 250_000
  for (let i = 0; i < COUNTERS; i++)
    takeFrom(table, {
      counter: `c${i}`,
      limit: 1e6,
      durationMs: 48 * 3_600_000,
      cost: 1 + (i % 3),
      atMs: NOW,
    })
  failing = 5
  expect(await flusher.flush().catch(String)).toContain('broke')
  expect(table.unwritten).toBeGreaterThanOrEqual(COUNTERS - 4 * 16_000)
  expect(flusher.lagMs).toBeGreaterThan(0)
  await flusher.flush()
  expect(flusher.lagMs).toBe(0)
  expect(statements.length).toBeLessThan(5 + COUNTERS / 10_000)
  expect(Math.max(...statements)).toBe(16)
  const used = Array.from({ length: COUNTERS }, (_, i) => 1 + (i % 3)).reduce((sum, each) => sum + each, 0)
  expect(await storedOf(database.sql, nodeId)).toMatchObject({ windows: COUNTERS, used })
  await flusher.stop()
})

/** Each segment is a transaction, which waits for a disk. */
test('the rest of a flush, changed and unchanged windows, is one segment if it fits', async () => {
  const table = new WindowTable({ memoryBytes: 2 ** 24, nowMs: NOW })
  const segments: string[] = []
  const writeSegments = async (_: string, __: number, given: readonly Segment[]) =>
    void segments.push(...given.map(({ cells }) => cells))
  const flusher = flusherOf(table, { ...awayStore, writeSegments, deleteSuperseded: async () => true })
  const take = (from: number, to: number) => {
    for (let i = from; i < to; i++)
      takeFrom(table, { counter: `c${i}`, limit: 1e6, durationMs: 3_600_000, cost: 1, atMs: NOW })
  }
  /** Of each segment, how many windows; and of how many windows all of them together are. */
  const written = async () => {
    segments.length = 0
    await flusher.flush()
    const names = new Set<string>()
    for (const cells of segments)
      unpackSegment(Buffer.from(cells, 'hex'), (...name) => names.add(name.slice(0, 4).join()))
    return { counts: segments.map((cells) => cells.length / 2 / CELL_BYTES), windows: names.size }
  }
  take(0, 600)
  expect(await written()).toEqual({ counts: [600], windows: 600 })
  take(0, 300)
  const { counts, windows } = await written()
  expect(counts).toEqual([windows])
  expect(windows).toBeGreaterThan(300 + 100)
  expect(flusher.cellsWritten).toBe(600 + 300)

  take(600, 1_200)
  await written()
  take(1_200, 1_600)
  await written()
  take(0, 800)
  const large = await written()
  expect(large.counts).toEqual([800, large.windows - 800])
  expect(large.windows).toBeGreaterThan(1_000)
  expect(flusher.cellsWritten).toBe(600 + 300 + 600 + 400 + 800)
})

/** A shard without a thread that died must not go on writing beside the one that took its place. */
test('an abandoned flusher writes and deletes nothing more, and flushes no more', async () => {
  const HOUR = 3_600_000
  for (const abandonedIn of ['a write', 'deleting', 'nothing']) {
    const did: string[] = []
    let timersSet = 0
    const timers: Timers = {
      ...systemTimers,
      after: () => {
        timersSet++
        return () => timersSet--
      },
    }
    const table = new WindowTable({ memoryBytes: 2 ** 24, nowMs: NOW })
    const take = (i: number) =>
      takeFrom(table, { counter: `c${i}`, limit: 1e6, durationMs: HOUR, cost: 1, atMs: NOW })
    const step = (what: string) => {
      if (abandonedIn === what) flusher.abandon()
      did.push(what)
    }
    const store = {
      ...awayStore,
      writeSegments: async () => step('a write'),
      deleteSuperseded: async () => {
        step('deleting')
        return false // there is more
      },
    }
    const flusher = flusherOf(table, store, timers)
    for (let i = 0; i < 3_000; i++) take(i)
    flusher.start()
    await flusher.flush().catch(() => {})
    if (abandonedIn === 'nothing') {
      expect(did.filter((what) => what === 'a write').length).toBeGreaterThan(2)
      expect(did.filter((what) => what === 'deleting').length).toBeGreaterThan(2)
      expect(timersSet).toBe(1)
    } else {
      expect(did.filter((what) => what === abandonedIn)).toHaveLength(1)
      expect(did.at(-1)).toBe(abandonedIn)
      expect(timersSet).toBe(0)
    }
  }
})

/** It is told late, as the start of a shard may take a minute, and what it had been read for is not waited for any more. */
test('a shard that is abandoned during its start closes its connection, and never flushes', async () => {
  let closed = 0
  let isOpen = true
  const shard = new Shard({
    timers: {
      ...systemTimers,
      after: () => {
        throw new Error('nothing is to be flushed')
      },
    },
    openStore: () => ({
      ...awayStore,
      // As the store of Postgres does: whoever asks opens it again.
      list: async () => {
        shard.abandon()
        await Bun.sleep(0)
        isOpen = true
        return []
      },
      readRows: away,
      readSegments: away,
      close: async () => {
        closed++
        isOpen = false
      },
    }),
    openSpills,
    collectGarbage: () => {},
  })
  const address = database.address
  const setup = { index: 0, count: 1, address, nodeId: NODE, flushEveryMs: 1_000, dataDir: '', nowMs: NOW }
  const starting = shard.start({ ...setup, memoryBytes: 2 ** 22, fleet: null }, () => {})
  await expect(starting).rejects.toThrow('the shard was given up while it started')
  expect(closed).toBe(2)
  expect(isOpen).toBe(false)
})

const away = async () => {
  throw new Error('away')
}
const awayStore: FlushStore = {
  connections: 1,
  segmentsMax: 16,
  writeSegments: away,
  deleteSuperseded: away,
  deleteEnded: away,
  close: async () => {},
}

function flusherOf(
  table: WindowTable,
  store: FlushStore,
  timers = systemTimers,
  deletesEnded = false,
  nodeId = NODE,
): Flusher {
  return new Flusher({
    table,
    store,
    spills: openSpills(''),
    timers,
    nodeId,
    hashes: ALL,
    firstGeneration: 1,
    everyMs: 3_600_000,
    deletesEnded,
  })
}
