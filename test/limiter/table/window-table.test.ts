import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { CellBatch } from '../../../src/limiter/table/cell-batch.ts'
import { WindowTable } from '../../../src/limiter/table/window-table.ts'
import { firstHashOf } from '../../../src/limiter/threads/shard-ranges.ts'
import { randomNumbers } from '../../support/random.ts'
import { takeFrom, wordsOf } from '../support.ts'

const MIB = 2 ** 20
const newTable = (nowMs = 0, memoryBytes = MIB) => new WindowTable({ memoryBytes, nowMs })

/** A refused call must be free, or a client that retries would lock itself out for good. */
test('a refused cost is not counted against the window', () => {
  const table = newTable()
  const take = (cost: number, atMs: number) =>
    takeFrom(table, { counter: 'c', limit: 5, durationMs: 1_000, cost, atMs })

  expect(take(3, 10_000)).toEqual({ passed: true, used: 3, resetAtMs: 11_000 })
  expect(take(3, 10_500)).toEqual({ passed: false, used: 3, resetAtMs: 11_000 }) // 3 + 3 > 5: refused, still 3
  expect(take(2, 10_999)).toEqual({ passed: true, used: 5, resetAtMs: 11_000 })
  expect(take(5, 11_000)).toEqual({ passed: true, used: 5, resetAtMs: 12_000 }) // the next window starts exactly here
})

test('cost 0 charges nothing, and passes unless the limit is exceeded', () => {
  const table = newTable()
  const take = (cost: number, limit: number) =>
    takeFrom(table, { counter: 'c', limit, durationMs: 1_000, cost, atMs: 500 })

  expect(take(0, 0)).toEqual({ passed: true, used: 0, resetAtMs: 1_000 })
  expect(take(1, 0)).toEqual({ passed: false, used: 0, resetAtMs: 1_000 })
  expect(take(4, 4)).toMatchObject({ passed: true, used: 4 })
  expect(take(0, 4)).toMatchObject({ passed: true, used: 4 })
  expect(take(0, 3)).toMatchObject({ passed: false, used: 4 }) // the limit was lowered below what is used
})

/** An override in mid-window must tighten or widen the running count, not hand out a fresh one. */
test('the limit can change between calls without touching the count', () => {
  const table = newTable()
  const take = (limit: number) =>
    takeFrom(table, { counter: 'c', limit, durationMs: 1_000, cost: 1, atMs: 0 })
  for (let used = 1; used <= 5; used++) expect(take(5)).toMatchObject({ passed: true, used })
  expect(take(3)).toMatchObject({ passed: false, used: 5 })
  expect(take(6)).toMatchObject({ passed: true, used: 6 })
})

/** Otherwise a clock corrected by a second would hand out every limit twice. */
test('an ended window does not open again when the clock steps back', () => {
  const table = newTable()
  const take = (atMs: number) => takeFrom(table, { counter: 'c', limit: 1, durationMs: 1_000, cost: 1, atMs })
  expect(take(1_000)).toEqual({ passed: true, used: 1, resetAtMs: 2_000 })
  expect(take(999)).toEqual({ passed: false, used: 1, resetAtMs: 2_000 })
  expect(take(0)).toEqual({ passed: false, used: 1, resetAtMs: 2_000 })
})

test('the largest limits, costs, durations and times stay exact', () => {
  const most = Number.MAX_SAFE_INTEGER
  const table = newTable(2 ** 42)
  const take = (cost: number, limit: number, durationMs: number) =>
    takeFrom(table, { counter: `c${durationMs}`, limit, durationMs, cost, atMs: 2 ** 42 + 1 })
  expect(take(most, most, 2 ** 45)).toEqual({ passed: true, used: most, resetAtMs: 2 ** 45 })
  expect(take(1, most, 2 ** 45)).toEqual({ passed: false, used: most, resetAtMs: 2 ** 45 })
  expect(take(most - 1, most, 1)).toEqual({ passed: true, used: most - 1, resetAtMs: 2 ** 42 + 2 })
  expect(take(1, most, 1)).toMatchObject({ passed: true, used: most })
  expect(take(most, most, 1)).toMatchObject({ passed: false, used: most })
})

/** The hash of some text may be all zeroes, like an empty cell. */
test('a counter whose hash is all zeroes is counted like any other', () => {
  const table = newTable()
  const take = () => table.take(0, 0, 0, 0, 2, 1_000, 1, 0)
  expect([take(), take(), take()]).toEqual([true, true, false])
  const batch = new CellBatch(100)
  table.collectChanges(0, 1_000, batch)
  expect(batch.count).toBe(1)
  table.markChanged(batch)
  table.take(0, 1, 0, 0, 2, 1_000, 0, 1_000)
  expect(take()).toBe(true)
})

test('a flush collects each changed window once, with its current count, and no ended window', () => {
  const table = newTable()
  const take = (counter: string, durationMs: number, atMs: number) =>
    takeFrom(table, { counter, limit: 10, durationMs, cost: 1, atMs })
  const collect = () => {
    const batch = new CellBatch(1_000)
    expect(table.collectChanges(0, 1_000, batch)).toBe(-1)
    return {
      batch,
      rows: Array.from({ length: batch.count }, (_, i) => [batch.ends[i], batch.used[i]]).sort(),
    }
  }
  take('long', 10_000, 0)
  take('long', 10_000, 1)
  take('short', 100, 2)
  take('shorter', 50, 2)
  take('other', 10_000, 60) // 'shorter' is over now, before it was ever flushed
  expect(collect().rows).toEqual([
    [100, 1],
    [10_000, 1],
    [10_000, 2],
  ])
  expect(collect().rows).toEqual([])
  take('long', 10_000, 61)
  const { batch, rows } = collect()
  expect(rows).toEqual([[10_000, 3]])
  table.markChanged(batch) // the write failed
  take('other', 10_000, 62)
  expect(collect().rows).toEqual([
    [10_000, 2],
    [10_000, 3],
  ])
  take('look only', 10_000, 63)
  table.take(1, 2, 3, 4, 10, 10_000, 0, 64)
  expect(collect().rows).toEqual([[10_000, 1]])
})

/** Postgres writes neighbours in its index at half the cost of rows from anywhere; one statement cannot write a row twice. */
test.each([1, 2, 3, 7])(
  'a walk goes in hash order and collects each cell once, even while pages split, as one of %p shards',
  (shards) => {
    const random = randomNumbers(shards)
    const [first, end] = [firstHashOf(shards - 1, shards), firstHashOf(shards, shards)]
    const table = new WindowTable({ memoryBytes: 4 * MIB, nowMs: 0, shards })
    const names: number[] = []
    const take = (h0: number) => table.take(h0 | 0, 1, h0 | 0, 2, 100, 1_000, 1, 0)
    const takeNew = (count: number) => {
      for (let i = 0; i < count; i++)
        take(names[names.push(first + Math.floor(random() * (end - first))) - 1] ?? 0)
    }
    takeNew(5_000)
    const pagesBefore = table.pages
    const collected: number[] = []
    const batch = new CellBatch(500)
    for (let from = 0; from !== -1; ) {
      from = table.collectChanges(from, 3, batch)
      for (let i = 0; i < batch.count; i++) collected.push((batch.names[4 * i] as number) >>> 0) // below its count
      batch.count = 0
      for (let i = 0; i < 20; i++) take(names[Math.floor(random() * names.length)] ?? 0)
      takeNew(50)
    }
    expect(table.pages).toBeGreaterThan(1.5 * pagesBefore) // or nothing was split meanwhile
    expect(new Set(collected).size).toBe(collected.length)
    const seen = new Set(collected)
    expect(names.slice(0, 5_000).filter((name) => !seen.has(name))).toEqual([])
    // Within a page, of 32 cells, there is no order.
    let highest = 0
    for (const [i, name] of collected.entries()) {
      expect(name).toBeGreaterThan(highest)
      if (i >= 32) highest = Math.max(highest, collected[i - 32] ?? 0)
    }
  },
)

test('restored counts of this node are written again, those of other nodes are only added', () => {
  const table = newTable(1_000)
  const name = [1, 2, 3, 4] as const
  table.restore(...name, 10_000, 4)
  table.markRestoredAsForeign()
  table.restore(...name, 10_000, 1)
  table.markRestoredAsForeign()
  table.restore(...name, 10_000, 3)
  table.restore(...name, 5_000, 100) // an older window
  table.restore(9, 9, 9, 9, 1_000, 100) // over
  const batch = new CellBatch(100)
  table.collectChanges(0, 1_000, batch)
  expect(batch.count).toBe(0) // all of it is in Postgres already

  expect(table.take(...name, 9, 10_000, 1, 1_000)).toBe(true)
  expect(table.used).toBe(9)
  expect(table.take(...name, 9, 10_000, 1, 1_000)).toBe(false)
  table.collectChanges(0, 1_000, batch)
  expect([batch.count, batch.used[0], batch.ends[0]]).toEqual([1, 4, 10_000])
  expect(table.take(...name, 9, 10_000, 9, 10_000)).toBe(true) // the next window starts from nothing
  expect(table.used).toBe(9)
})

/** What is stored tells the same window once for each flush that wrote it, in segments that come in any order. */
test('the copy of a window with the newest end and the highest count is restored, in whatever order copies come', () => {
  type Copy = { node: number; end: number; used: number }
  const copies = fc.array(
    fc.record({
      node: fc.nat(2),
      end: fc.integer({ min: 1, max: 3 }),
      used: fc.integer({ min: 1, max: 50 }),
    }),
    { minLength: 1, maxLength: 12 },
  )
  const name = [7, 7, 7, 7] as const
  const usedOf = (all: Copy[]) => {
    const latest = Math.max(...all.map(({ end }) => end))
    return [0, 1, 2].reduce((sum, node) => {
      const used = all.filter((copy) => copy.node === node && copy.end === latest).map((copy) => copy.used)
      return sum + Math.max(0, ...used)
    }, 0)
  }
  fc.assert(
    fc.property(copies, fc.boolean(), (all, isFull) => {
      const table = newTable(1_000, isFull ? MIB / 8 : MIB)
      // Without room, a window is counted by its fingerprint, which may say more.
      for (let i = 0; isFull && !table.sketch.isActive; i++)
        table.take(Math.imul(i, 0x9e3779b1), i, i, i, 10, 10_000_000, 1, 1_000)
      for (const node of [0, 1, 2]) {
        for (const copy of all) if (copy.node === node) table.restore(...name, 10_000 * copy.end, copy.used)
        if (node < 2) table.markRestoredAsForeign()
      }
      const latest = Math.max(...all.map(({ end }) => end))
      table.take(...name, 1_000_000, 10_000 * latest, 0, 1_000)
      if (isFull) expect(table.used).toBeGreaterThanOrEqual(usedOf(all))
      else expect([table.used, table.resetAtMs]).toEqual([usedOf(all), 10_000 * latest])
    }),
  )
})

/** Segments hold several copies of a window: added up, its counter would be refused long before its limit. */
test('copies of a window that has no cell count once for each node', () => {
  const table = newTable(1_000, MIB / 8)
  const look = () => {
    table.take(7, 7, 7, 7, 1_000, 10_000, 0, 1_000)
    return table.used
  }
  for (let i = 0; !table.sketch.isActive; i++) table.restore(Math.imul(i, 0x9e3779b1), i, i, i, 20_000, 1)
  for (let i = 100; i < 200; i++) table.restore(i, i, i, i, 20_000, 1) // its page is full
  for (const used of [60, 80, 70]) table.restore(7, 7, 7, 7, 10_000, used)
  expect(look()).toBe(80)
  table.markRestoredAsForeign()
  for (const used of [5, 6, 6, 4]) table.restore(7, 7, 7, 7, 10_000, used)
  expect(look()).toBe(86)
  table.markRestoredAsForeign()
  for (const used of [3, 2, 3]) table.restore(7, 7, 7, 7, 10_000, used)
  expect(look()).toBe(89)
  const own = new CellBatch(5_000)
  for (let from = 0; from !== -1; ) from = table.collectChanges(from, 1_000, own)
  expect([own.count, own.used[0]]).toEqual([1, 3])
})

/** Found by simulation: seeds 500684, and 13 with a flood. */
test('a restored window without a cell goes on until its end when the clock was set back', () => {
  const table = newTable(1_000, MIB / 8)
  const spread = (i: number) => Math.imul(i, 0x9e3779b1)
  for (let i = 0; !table.sketch.isActive; i++) table.restore(spread(i), spread(i), i, i, 3_000, 1)
  for (let i = 100; i < 200; i++) table.restore(i, spread(i), i, i, 3_000, 1) // its page is full
  table.restore(7, 7, 7, 7, 60_000, 2)
  const take = (atMs: number) => {
    const passed = table.take(7, 7, 7, 7, 4, 10_000, 1, atMs)
    return [passed, table.used, table.resetAtMs]
  }
  expect(take(2_000)).toEqual([true, 3, 60_000])
  expect(take(4_000)).toEqual([true, 4, 60_000]) // the page has room now
  expect(take(15_000)).toEqual([false, 4, 60_000])
  expect(take(60_000)).toEqual([true, 1, 70_000])
})

test('unchanged windows are collected within the compaction range, and ranges in sequence cover the whole table', () => {
  const table = newTable(1_000, 4 * MIB)
  const take = (i: number) => table.take(Math.imul(i, 0x9e3779b1), i, i, i, 10, 100_000, 1, 1_000)
  for (let i = 1; i <= 3_000; i++) take(i)
  const all = new CellBatch(10_000)
  table.collectChanges(0, 10_000, all)
  expect(all.count).toBe(3_000)

  const seen = new Set<number>()
  let changedSeen = 0
  for (let part = 0; part < 8; part++) {
    const changed = new CellBatch(10_000)
    const unchanged = new CellBatch(10_000)
    take(part + 1) // is collected as changed wherever it lies, and not as unchanged
    const rewrite = { from: part * 2 ** 29, until: (part + 1) * 2 ** 29, unchanged }
    expect(table.collectChanges(0, 10_000, changed, rewrite)).toBe(-1)
    expect(changed.count).toBe(1)
    changedSeen += changed.count
    for (const batch of [changed, unchanged])
      for (let i = 0; i < batch.count; i++) seen.add(batch.names[4 * i + 1] ?? 0)
    for (let i = 3_000 + 500 * part; i < 3_500 + 500 * part; i++) take(i + 1) // pages split meanwhile
    table.collectChanges(0, 10_000, new CellBatch(10_000))
  }
  expect(changedSeen).toBe(8)
  for (let i = 1; i <= 3_000; i++) expect(seen.has(i)).toBe(true)
})

test('the memory of ended windows is used again', () => {
  const table = newTable()
  for (let window = 0; window < 50; window++) {
    for (let i = 0; i < 2_000; i++) {
      takeFrom(table, {
        counter: `${window} ${i}`,
        limit: 1,
        durationMs: 1_000,
        cost: 1,
        atMs: window * 1_000,
      })
    }
    expect(table.sketch.isActive).toBe(false)
  }
  expect(table.bytes).toBeLessThan(MIB / 2)
})

/** Metrics tell them, and nobody walks over a million windows to count. */
test('the counts of live and dirty windows are right as windows come, change, are written and end', () => {
  const table = newTable()
  const changed = new CellBatch(10_000)
  const openUntil = new Map<string, number>()
  const unwritten = new Set<string>()
  let random = 7
  const next = (below: number) => {
    random = (random * 48_271) % 2_147_483_647
    return random % below
  }
  let now = 0
  for (let round = 0; round < 40; round++) {
    for (let call = 0; call < 300; call++) {
      now += next(20)
      const counter = `counter ${next(2_000)}`
      const cost = next(3)
      const { passed, resetAtMs } = takeFrom(table, {
        counter,
        limit: 3,
        durationMs: 30_000,
        cost,
        atMs: now,
      })
      if (!passed || cost === 0) continue
      openUntil.set(counter, resetAtMs)
      unwritten.add(counter)
    }
    const isOpen = (counter: string) => (openUntil.get(counter) ?? 0) > now
    const openUnwritten = [...unwritten].filter(isOpen).length
    expect(table.dirty).toBeGreaterThanOrEqual(openUnwritten)
    table.advance(now)
    expect(table.collectChanges(0, Number.MAX_SAFE_INTEGER, changed)).toBe(-1)
    expect(changed.count).toBe(openUnwritten)
    expect([table.live, table.dirty]).toEqual([[...openUntil.keys()].filter(isOpen).length, 0])
    // As after a write that failed: they are to be written again.
    if (round % 2 === 0) {
      table.markChanged(changed)
      table.markChanged(changed)
      expect(table.dirty).toBe(openUnwritten)
    } else unwritten.clear()
    changed.count = 0
  }
  table.advance(now + 60_000)
  table.collectChanges(0, Number.MAX_SAFE_INTEGER, changed)
  expect([table.live, table.dirty, changed.count]).toEqual([0, 0, 0])
})

/** Before, 5/8 of the memory were kept for the sketch: 120 bytes a window. */
test('windows have cells of their own until nearly all of the memory is used', () => {
  const table = newTable(0, 4 * MIB)
  let windows = 0
  for (; !table.sketch.isActive; windows++)
    takeFrom(table, { counter: `c${windows}`, limit: 1, durationMs: 1e6, cost: 1, atMs: 0 })
  expect((4 * MIB) / windows).toBeLessThan(68)
})

/** Floods end, and the memory must then hold cells again, with nothing left in it of the flood. */
test('a flood turns cells into sketch, forgets no count, and afterwards all memory is for cells again', () => {
  const table = newTable(0, MIB)
  const regulars = Array.from({ length: 500 }, (_, i) => `regular ${i}`)
  const exact: number[] = []
  for (let round = 0; round < 3; round++) {
    const atMs = round * 10_000
    const take = (counter: string, limit: number, cost = 1) =>
      takeFrom(table, { counter, limit, durationMs: 10_000, cost, atMs })
    let windows = 0
    for (; !table.sketch.isActive; windows++) take(`${round} cell ${windows}`, 10)
    exact.push(windows)
    const pagesMost = table.pages
    for (const counter of regulars) for (let call = 0; call < 3; call++) take(counter, 5)
    const changed = new CellBatch(60)
    let from = 0
    let flooded = 0
    for (; !table.sketch.isExtended; flooded++) {
      take(`${round} flood ${flooded}`, 10)
      // A flush goes on meanwhile, slice by slice, while pages are merged and moved.
      if (from !== -1 && flooded % 4 === 0) {
        changed.count = 0
        from = table.collectChanges(from, 1, changed)
      }
    }
    expect(table.pages).toBeLessThan(pagesMost / 3 + 1)
    expect(table.bytes + table.sketch.bytes).toBeLessThanOrEqual(MIB)
    for (; flooded < 60_000; flooded++) take(`${round} flood ${flooded}`, 10)
    // Nobody gets more than its limit, and nearly nobody less.
    let early = 0
    for (const counter of regulars) {
      expect(take(counter, 5, 0).used).toBeGreaterThanOrEqual(3)
      expect(take(counter, 5, 3).passed).toBe(false)
      if (!take(counter, 5, 2).passed) early++
    }
    for (let i = 0; i < windows; i++) expect(take(`${round} cell ${i}`, 10, 0).used).toBeGreaterThanOrEqual(1)
    for (let i = 0; i < 1_000; i++) if (!take(`${round} newcomer ${i}`, 1).passed) early++
    expect(early).toBeLessThan(10)
    table.advance(atMs + 10_000)
    while (!table.sketch.expire(50_000, table.nowMs));
    expect<boolean>(table.sketch.isActive).toBe(false)
  }
  expect(Math.min(...exact)).toBeGreaterThan(0.95 * (exact[0] ?? 0))
})

/** Merged pages begin before the place where a flush went on: what lies behind it must come into the generation too. */
test('cells of merged pages are rewritten by a range that begins in the middle of the page', () => {
  const table = newTable(0, MIB)
  for (let i = 0; !table.sketch.isExtended; i++)
    takeFrom(table, { counter: `c${i}`, limit: 10, durationMs: 10_000, cost: 1, atMs: 0 })
  const walk = (from: number, until: number) => {
    const changed = new CellBatch(100_000)
    const unchanged = new CellBatch(100_000)
    for (let at = 0; at !== -1; ) at = table.collectChanges(at, 128, changed, { from, until, unchanged })
    return [changed, unchanged].flatMap((batch) =>
      Array.from({ length: batch.count }, (_, i) => batch.names.subarray(4 * i, 4 * i + 4).join()),
    )
  }
  walk(0, 0)
  const middle = 2 ** 31 + 12_345
  const names = new Set([...walk(0, middle), ...walk(middle, 2 ** 32)])
  expect(names.size).toBe(table.live + table.snapshots.count)
  expect(walk(middle, middle)).toEqual([])
})

/** Else the copy with the charge would be restored, and the window never given back what it had refused. */
test('a window that was flushed with a charge is written again when the charge is undone, also down to nothing', () => {
  const table = newTable()
  const take = (counter: string, cost: number) =>
    takeFrom(table, { counter, limit: 10, durationMs: 10_000, cost, atMs: 0 })
  const written = () => {
    const changed = new CellBatch(64)
    for (let at = 0; at !== -1; ) at = table.collectChanges(at, 128, changed)
    return [...changed.used.subarray(0, changed.count)]
  }
  take('some', 5)
  take('none', 3)
  expect(written().sort()).toEqual([3, 5])
  table.undo(...wordsOf('some'), 10_000, 2)
  table.undo(...wordsOf('none'), 10_000, 3)
  expect(table.unwritten).toBe(2)
  expect(written().sort()).toEqual([0, 3])
  expect(written()).toEqual([])
  expect([take('some', 0).used, take('none', 0).used]).toEqual([3, 0])
})

test('an undo of another window, of a counter that is not there, or of more than there is takes nothing from others', () => {
  const table = newTable()
  const take = (cost: number, atMs: number) =>
    takeFrom(table, { counter: 'c', limit: 10, durationMs: 10_000, cost, atMs })
  take(5, 0)
  take(4, 10_000)
  table.undo(...wordsOf('c'), 10_000, 5)
  table.undo(...wordsOf('absent'), 20_000, 5)
  expect(take(0, 10_000).used).toBe(4)
  table.undo(...wordsOf('c'), 20_000, 9)
  expect(take(0, 10_000).used).toBe(0)
})
