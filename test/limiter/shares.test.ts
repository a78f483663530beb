import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { CellBatch, HASH_SPACE } from '../../src/limiter/table/cell-batch.ts'
import { ENTRY_BYTES, OverflowSnapshots } from '../../src/limiter/table/overflow-snapshots.ts'
import { WindowTable } from '../../src/limiter/table/window-table.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { takeFrom } from './support.ts'

setDefaultTimeout(SLOW_MS)

const MIB = 2 ** 20
const YEAR_MS = 366 * 24 * 3_600_000
const NOW = Date.UTC(2030, 0, 1, 12)
const [FLOODER, NEIGHBOUR, THIRD] = [11, 22, 33]

function prepare(options: { memoryBytes?: number } = {}) {
  const table = new WindowTable({ memoryBytes: options.memoryBytes ?? MIB, nowMs: NOW })
  let atMs = NOW
  const take = (owner: number, counter: string, limit = 1, durationMs = YEAR_MS) =>
    takeFrom(table, { owner, counter, limit, durationMs, cost: 1, atMs })
  const flood = (owner: number, count: number, from = 0) => {
    let refused = 0
    for (let i = from; i < from + count; i++) if (!take(owner, `flood of ${owner} ${i}`).passed) refused++
    return refused
  }
  return {
    table,
    take,
    flood,
    setTime: (ms: number) => {
      atMs = ms
    },
  }
}

/** Findings 3.3: one workspace's flood denied the new identifiers of all others until a restart. */
describe('while a workspace floods the memory', () => {
  test('new counters of other workspaces are exact, and only its own are over-counted', () => {
    const { table, take, flood } = prepare()
    expect(flood(FLOODER, 1_000_000)).toBeGreaterThan(10_000) // the flooder meets itself
    for (let i = 0; i < 3_000; i++) {
      expect(take(NEIGHBOUR, `user ${i}`)).toMatchObject({ passed: true, used: 1 })
      if (i % 10 === 0) flood(FLOODER, 50, 1_000_000 + 5 * i)
    }
    for (let i = 0; i < 3_000; i++)
      expect(take(NEIGHBOUR, `user ${i}`)).toMatchObject({ passed: false, used: 1 })
    expect(table.sketch.chargesOf(NEIGHBOUR)).toBe(0)
  })

  /** What gives up its cell is near its limit: forgetting it would be a way to a fresh allowance. */
  test('a counter that loses its cell goes on counting, and a restart does not forget it', () => {
    const { table, take, flood } = prepare()
    for (let i = 0; i < 500; i++) take(FLOODER, `customer ${i}`, 3)
    flood(FLOODER, 50_000)
    table.snapshots.clear()
    for (let i = 0; i < 5_000; i++) take(NEIGHBOUR, `user ${i}`)
    expect(table.snapshots.count).toBeGreaterThan(1_000)
    for (let i = 0; i < 500; i++) {
      expect(take(FLOODER, `customer ${i}`, 3).used).toBeGreaterThanOrEqual(2)
      take(FLOODER, `customer ${i}`, 3)
      expect(take(FLOODER, `customer ${i}`, 3).passed).toBe(false)
    }
    for (let i = 0; i < 50_000; i++) expect(take(FLOODER, `flood of ${FLOODER} ${i}`).passed).toBe(false)
  })

  test('two flooding workspaces have equal shares, and a third keeps its own', () => {
    const { table, take, flood } = prepare()
    for (let i = 0; i < 2_000; i++) take(THIRD, `user ${i}`, 10)
    for (let round = 0; round < 20; round++)
      for (const owner of [FLOODER, NEIGHBOUR]) flood(owner, 5_000, 5_000 * round)
    const { cells } = table.owners
    expect(cells[THIRD]).toBe(2_000)
    expect(Math.abs((cells[FLOODER] as number) - (cells[NEIGHBOUR] as number))).toBeLessThan(200) // in range
    for (let i = 0; i < 2_000; i++)
      expect(take(THIRD, `user ${i}`, 10)).toMatchObject({ passed: true, used: 2 })
    expect(
      table.owners
        .largest(2)
        .map(({ owner }) => owner)
        .sort(),
    ).toEqual([FLOODER, NEIGHBOUR])
  })

  test('its memory is free for others once its windows are over', () => {
    const { table, take, flood, setTime } = prepare()
    flood(FLOODER, 100_000)
    setTime(NOW + 2 * YEAR_MS)
    for (let i = 0; i < 5_000; i++)
      expect(take(NEIGHBOUR, `user ${i}`)).toMatchObject({ passed: true, used: 1 })
    const changed = new CellBatch(50_000)
    for (let from = 0; from !== -1; ) from = table.collectChanges(from, 1_000, changed)
    expect([table.owners.cells[FLOODER], table.owners.cells[NEIGHBOUR]]).toEqual([0, table.live])
    expect(new Set(changed.owners.subarray(0, changed.count))).toEqual(new Set([NEIGHBOUR]))
  })
})

describe('of the overflowed counters that a restart must not forget', () => {
  const END = NOW + 1_000
  const fill = (list: OverflowSnapshots, owner: number, count: number) => {
    for (let i = 0; i < count; i++) list.record(owner, Math.imul(i, 0x9e3779b1), i, i, END, 1, owner, NOW)
  }
  /** How many each owner has. */
  const shares = (list: OverflowSnapshots) => {
    const unchanged = new CellBatch(10_000)
    const changed = new CellBatch(10_000)
    list.collect(0, 10_000, NOW, changed, { from: 0, until: HASH_SPACE, unchanged })
    const owners = [
      ...changed.owners.subarray(0, changed.count),
      ...unchanged.owners.subarray(0, unchanged.count),
    ]
    return [FLOODER, NEIGHBOUR, THIRD].map((owner) => owners.filter((other) => other === owner).length)
  }

  /** They are kept until their windows end, which may be in a year. */
  test('one owner alone has all places, and each after it still gets its share', () => {
    const list = new OverflowSnapshots(1_600 * ENTRY_BYTES)
    fill(list, FLOODER, 20_000)
    expect(list.count).toBe(1_600)
    fill(list, NEIGHBOUR, 100)
    expect(shares(list)).toEqual([1_500, 100, 0])
    fill(list, THIRD, 20_000)
    const [flooder = 0, neighbour, third = 0] = shares(list)
    expect([neighbour, flooder + third]).toEqual([100, 1_500])
    expect(Math.abs(flooder - third)).toBeLessThan(50)
    fill(list, FLOODER, 20_000) // takes nothing back
    expect(shares(list)).toEqual([flooder, 100, third])
  })
})
