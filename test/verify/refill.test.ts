import { describe, expect, test } from 'bun:test'
import { isRefillDue, lastDueAt } from '../../src/verify/refill.ts'

const at = (text: string) => Date.parse(`${text}Z`)

describe('the last due time', () => {
  const cases: [number | null, string, string][] = [
    [null, '2026-03-10T00:00:00.000', '2026-03-10T00:00:00'],
    [null, '2026-03-10T23:59:59.999', '2026-03-10T00:00:00'],
    [15, '2026-03-15T00:00:00', '2026-03-15T00:00:00'],
    [15, '2026-03-14T23:59:59.999', '2026-02-15T00:00:00'],
    [1, '2026-01-01T00:00:00', '2026-01-01T00:00:00'],
    [15, '2026-01-10T00:00:00', '2025-12-15T00:00:00'],
    [31, '2026-02-28T00:00:00', '2026-02-28T00:00:00'], // a shorter month refills on its last day
    [31, '2026-03-01T12:00:00', '2026-02-28T00:00:00'],
    [30, '2028-02-29T01:00:00', '2028-02-29T00:00:00'], // leap year
    [31, '2026-04-30T00:00:00', '2026-04-30T00:00:00'],
  ]
  for (const [day, now, due] of cases)
    test(`of ${day === null ? 'a daily refill' : `day ${day}`} at ${now} is ${due}`, () =>
      expect(lastDueAt(day, at(now))).toBe(at(due)))
})

test('a refill is due from its due time on, and not again until the next', () => {
  const daily = (baseAt: string) => ({ amount: 1, day: null, lastAt: null, baseAt: at(baseAt) })
  expect(isRefillDue(daily('2026-03-09T10:00:00'), at('2026-03-09T23:59:59.999'))).toBe(false)
  expect(isRefillDue(daily('2026-03-09T10:00:00'), at('2026-03-10T00:00:00'))).toBe(true)
  expect(isRefillDue(daily('2026-03-10T00:00:00'), at('2026-03-10T23:00:00'))).toBe(false)
  expect(isRefillDue(daily('2026-01-01T00:00:00'), at('2026-03-10T00:00:00'))).toBe(true) // months late: one refill
})
