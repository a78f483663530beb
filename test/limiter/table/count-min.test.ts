import { expect, setDefaultTimeout, test } from 'bun:test'
import fc from 'fast-check'
import { CountMin } from '../../../src/limiter/table/count-min.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import { expectNoUnderCount } from '../support.ts'

setDefaultTimeout(SLOW_MS)

const name = (i: number): [number, number] => [
  Math.imul(i + 1, 0x9e3779b1) | 0,
  Math.imul(i + 7, 0x85ebca6b) | 0,
]

/** The one thing it must never do: then a flood would give its maker more. */
test('no open window is under-counted, even when entries are shared or cleared and tags run out', () => {
  fc.assert(
    fc.property(
      fc.record({
        seed: fc.integer(),
        names: fc.constantFrom(3, 50, 2_000),
        // With windows up to 9000 ms and steps of 1 ms there are more ends open than tags.
        durationMsMax: fc.constantFrom(1, 20, 9_000),
        costMax: fc.constantFrom(1, 10, 100_000, Number.MAX_SAFE_INTEGER),
      }),
      (traffic) => expectNoUnderCount(new CountMin(8 * 1024), name, traffic),
    ),
    { numRuns: 60 },
  )
})

/** Else one flood would refuse newcomers for ever. */
test('the sketch is empty once all its windows are over', () => {
  const sketch = new CountMin(8 * 1024)
  for (let i = 0; i < 10_000; i++) sketch.recordAtLeast(...name(i), 2_000 + (i % 9_000), 5, 1_000)
  for (let slice = 0; slice < 6; slice++) sketch.expire(1_000, 10_998)
  expect(sketch.isActive).toBe(true)
  for (let slice = 0; slice < 6; slice++) sketch.expire(1_000, 10_999)
  expect(sketch.isActive).toBe(false)
  for (let i = 0; i < 10_000; i++) expect(sketch.estimate(...name(i), 12_000)).toBe(0)
})

/** The next charge is added to what is told: a count rounded up by 32 would cost the caller that much each time. */
test('the count of a lone counter is exact up to the highest limit, however often it is raised', () => {
  const sketch = new CountMin(64 * 1024)
  for (const from of [0, 255, 65_536, 2 ** 19 - 2, 10_000_019, 2 ** 31 - 4, 2 ** 53 - 4]) {
    const counter = name(from)
    let used = from
    for (let charge = 0; charge < 3; charge++) {
      sketch.recordAtLeast(...counter, 2_000, ++used, 1_000)
      expect(sketch.estimate(...counter, 2_000)).toBe(used)
    }
  }
})
