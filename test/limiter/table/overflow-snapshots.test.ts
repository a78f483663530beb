import { expect, test } from 'bun:test'
import { CellBatch, HASH_SPACE } from '../../../src/limiter/table/cell-batch.ts'
import { ENTRY_BYTES, OverflowSnapshots } from '../../../src/limiter/table/overflow-snapshots.ts'

const NOW = 1_000_000
const END = 2_000_000
const snapshotsOf = (entries: number) => new OverflowSnapshots(entries * ENTRY_BYTES)

/** Spread over the buckets, as hashes are. */
const record = (
  list: OverflowSnapshots,
  counter: number,
  used: number,
  endMs = END,
  owner = 1,
  nowMs = NOW,
) => list.record(1, Math.imul(counter, 0x9e3779b1), 3, counter, endMs, used, owner, nowMs)

const rowsOf = ({ count, names, ends, used }: CellBatch) =>
  Array.from({ length: count }, (_, i) => [names[4 * i + 3], ends[i], used[i]]).sort(
    ([a = 0], [b = 0]) => a - b,
  )

/** One whole walk. */
function collect(list: OverflowSnapshots, options: { nowMs?: number; from?: number; until?: number } = {}) {
  const changed = new CellBatch(10_000)
  const unchanged = new CellBatch(10_000)
  const { nowMs = NOW, from = 0, until = 0 } = options
  for (let bucket = 0; bucket !== -1; )
    bucket = list.collect(bucket, 3, nowMs, changed, { from, until, unchanged })
  return { changed: rowsOf(changed), unchanged: rowsOf(unchanged) }
}

/** Else a few busy counters take the room of all others. */
test('a counter that is charged again and again has one entry, with its latest count', () => {
  const list = snapshotsOf(16)
  for (let used = 50; used <= 100; used++) record(list, 1, used)
  record(list, 2, 5)
  record(list, 3, 9)
  expect([list.count, list.dirty]).toEqual([3, 3])
  expect(collect(list).changed).toEqual([
    [1, END, 100],
    [2, END, 5],
    [3, END, 9],
  ])
  expect(collect(list).changed).toEqual([])
  record(list, 3, 10)
  expect(collect(list).changed).toEqual([[3, END, 10]])
})

test('a count that a failed write held never replaces a later count or window', () => {
  const list = snapshotsOf(64)
  record(list, 1, 100)
  record(list, 2, 1, END + 1_000)
  record(list, 3, 60)
  collect(list)
  for (const counter of [1, 2, 3]) record(list, counter, 60)
  expect(collect(list).changed).toEqual([[3, END, 60]])
  expect(collect(list, { until: HASH_SPACE }).unchanged).toEqual([
    [1, END, 100],
    [2, END + 1_000, 1],
    [3, END, 60],
  ])
})

/** What does not change is written again in each generation, as older segments are deleted. */
test('unchanged entries are collected within the compaction range, and ranges in sequence cover all', () => {
  const list = snapshotsOf(1_600)
  for (let i = 0; i < 500; i++) record(list, i, 1)
  collect(list)
  const seen: (number | undefined)[] = []
  for (let part = 0; part < 7; part++) {
    const range = { from: (part * HASH_SPACE) / 7, until: ((part + 1) * HASH_SPACE) / 7 }
    for (const [counter] of collect(list, range).unchanged) seen.push(counter)
  }
  expect(seen.sort((a = 0, b = 0) => a - b)).toEqual(Array.from({ length: 500 }, (_, i) => i))
})

test('an entry stays until its window ends, and its place is free then', () => {
  const list = snapshotsOf(160)
  for (let i = 0; i < 1_000; i++) record(list, i, 1)
  const kept = list.count
  expect(kept).toBeGreaterThan(140)
  expect(collect(list, { nowMs: END - 1 }).changed).toHaveLength(kept)
  expect(list.count).toBe(kept)
  record(list, 5_000, 1, 2 * END, 1, END) // takes the place of an ended one
  expect([list.count, list.dirty]).toEqual([kept, 1])
  expect(collect(list, { nowMs: END, until: HASH_SPACE })).toEqual({
    changed: [[5_000, 2 * END, 1]],
    unchanged: [],
  })
  expect([list.count, list.dirty]).toEqual([1, 0])
  list.clear()
  expect([list.count, list.dirty]).toEqual([0, 0])
  expect(collect(list, { until: HASH_SPACE })).toEqual({ changed: [], unchanged: [] })
})

test('what gave up its cell to the sketch takes free places only, and gives way to a counter near its limit', () => {
  const list = snapshotsOf(16) // one bucket
  for (let i = 0; i < 20; i++) list.record(i, i, i, i, 1_000, 1, 1, 0, true)
  expect(list.count).toBe(16)
  for (let i = 100; i < 116; i++) expect(list.record(i, i, i, i, 1_000, 5, 1, 0)).toBe(5)
  for (let i = 100; i < 116; i++) expect(list.endOf(i, i, i, i)).toBe(1_000)
  list.record(7, 7, 7, 7, 1_000, 1, 1, 0, true)
  expect(list.endOf(7, 7, 7, 7)).toBe(0)
})
