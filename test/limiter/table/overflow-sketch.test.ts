import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import fc from 'fast-check'
import { KeyedHash } from '../../../src/lib/keyed-hash.ts'
import { OverflowSketch } from '../../../src/limiter/table/overflow-sketch.ts'
import { IS_NIGHTLY } from '../../support/nightly.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import { expectNoUnderCount } from '../support.ts'

setDefaultTimeout(SLOW_MS)

const hash = new KeyedHash('tests')
const name = (i: number): [number, number, number] => {
  hash.update(String(i))
  return [hash.h1, hash.h2, hash.h3]
}

/** The one thing it must never do: then a flood would give its maker more. */
test('no open window is under-counted, even when cells are shared, full or cleared, and tags or counts run out', () => {
  fc.assert(
    fc.property(
      fc.record({
        seed: fc.integer(),
        // 8 KiB are some 1800 cells, so 20 000 names fill their buckets many times over.
        names: fc.constantFrom(3, 50, 1_500, 20_000),
        // Few fingerprints: many counters share a cell, and meet each other's windows there.
        fingerprints: fc.constantFrom(1, 16, 2 ** 32),
        // With windows up to 9000 ms and steps of 1 ms there are many more ends open than can be told apart.
        durationMsMax: fc.constantFrom(1, 20, 9_000),
        costMax: fc.constantFrom(1, 10, 2_000, Number.MAX_SAFE_INTEGER),
      }),
      ({ fingerprints, ...traffic }) => {
        const counter = (id: number): [number, number, number] => {
          const [h1, h2, h3] = name(id)
          return [(h1 >>> 0) % fingerprints, h2, h3]
        }
        expectNoUnderCount(new OverflowSketch(8 * 1024), counter, traffic)
      },
    ),
    { numRuns: IS_NIGHTLY ? 80 : 25 },
  )
})

/** The least and the most of so many figures. */
function between(count: number, figure: (i: number) => number): { least: number; most: number } {
  const range = { least: Number.POSITIVE_INFINITY, most: Number.NEGATIVE_INFINITY }
  for (let i = 0; i < count; i++) {
    const value = figure(i)
    range.least = Math.min(range.least, value)
    range.most = Math.max(range.most, value)
  }
  return range
}

describe('a newcomer', () => {
  const endMs = 3_600_000
  const overCounted = (sketch: OverflowSketch) => {
    let count = 0
    for (let i = 0; i < 100_000; i++) if (sketch.estimate(...name(-1 - i), endMs) > 0) count++
    return count
  }

  test('is over-counted in at most one case of a thousand while nine cells of ten are taken', () => {
    const sketch = new OverflowSketch(2 ** 20)
    const counters = Math.floor((0.9 * 0.93 * sketch.bytes) / 4)
    for (let i = 0; i < counters; i++) sketch.recordAtLeast(...name(i), endMs, 5, 1_000)
    expect(overCounted(sketch)).toBeLessThanOrEqual(100)
    expect(between(counters, (i) => sketch.estimate(...name(i), endMs)).least).toBeGreaterThanOrEqual(5)
  })

  test('is over-counted more often once buckets are full, but no counter is under-counted', () => {
    const sketch = new OverflowSketch(2 ** 20)
    const counters = Math.floor(sketch.bytes / 2)
    for (let i = 0; i < counters; i++) sketch.recordAtLeast(...name(i), endMs, 5, 1_000)
    expect(overCounted(sketch)).toBeGreaterThan(1_000)
    expect(between(counters, (i) => sketch.estimate(...name(i), endMs)).least).toBeGreaterThanOrEqual(5)
  })

  test('is not charged for ended windows, even before they are cleared', () => {
    const sketch = new OverflowSketch(2 ** 20)
    for (let i = 0; i < 200_000; i++) sketch.recordAtLeast(...name(i), endMs, 5, 1_000)
    expect(between(200_000, (i) => sketch.estimate(...name(i), 2 * endMs))).toEqual({ least: 0, most: 0 })
    // Their cells are free at once.
    for (let i = 0; i < 150_000; i++) sketch.recordAtLeast(...name(-1 - i), 2 * endMs, 1, endMs)
    expect(between(150_000, (i) => sketch.estimate(...name(-1 - i), 2 * endMs)).most).toBeLessThan(5)
  })
})

/** Else one flood would refuse newcomers for ever. */
test('the sketch is empty once all its windows are over, wherever they were counted', () => {
  const sketch = new OverflowSketch(8 * 1024)
  // More counters than cells, more ends than tags, counts too high for a cell.
  for (let i = 0; i < 10_000; i++)
    sketch.recordAtLeast(...name(i), 2_000 + (i % 9_000), 1 + (i % 3_000), 1_000)
  for (let slice = 0; slice < 12; slice++) sketch.expire(1_000, 10_998)
  expect(sketch.isActive).toBe(true)
  for (let slice = 0; slice < 12; slice++) sketch.expire(1_000, 10_999)
  expect(sketch.isActive).toBe(false)
  for (let i = 0; i < 10_000; i++) expect(sketch.estimate(...name(i), 12_000)).toBe(0)
  for (let i = 0; i < 1_000; i++) {
    sketch.recordAtLeast(...name(i), 20_000, 7, 11_000)
    expect(sketch.estimate(...name(i), 20_000)).toBe(7)
  }
})

test('counts too high for a cell are kept in the count-min sketch', () => {
  const sketch = new OverflowSketch(64 * 1024)
  for (const used of [1, 1_022, 1_023, 1_024, 70_000, 2 ** 19 - 1]) {
    sketch.recordAtLeast(...name(1), 2_000, used, 1_000)
    expect(sketch.estimate(...name(1), 2_000)).toBe(used)
  }
  sketch.recordAtLeast(...name(1), 2_000, Number.MAX_SAFE_INTEGER, 1_000)
  expect(sketch.estimate(...name(1), 2_000)).toBeGreaterThanOrEqual(Number.MAX_SAFE_INTEGER)
  expect(sketch.estimate(...name(2), 2_000)).toBe(0)
})
