import { describe, expect, test } from 'bun:test'
import fc from 'fast-check'
import { DURATION_MS_MAX, TIME_MS_MAX } from '../../src/lib/bounds.ts'
import { durationText, parseDuration, parseTime } from '../../src/lib/written-time.ts'

const NOW = Date.UTC(2026, 10, 28, 12)
const until = (text: string) => parseTime(text, { now: NOW, durationsGo: 'forward' })
const since = (text: string) => parseTime(text, { now: NOW, durationsGo: 'back' })

describe('a duration', () => {
  test('is a number with a unit, several of them, or milliseconds', () => {
    expect(
      ['30s', '15m', '12h', '30d', '1w', '250ms', '1h30m', '1w2d', '0s', '60000'].map(parseDuration),
    ).toEqual([
      30_000, 900_000, 43_200_000, 2_592_000_000, 604_800_000, 250, 5_400_000, 777_600_000, 0, 60_000,
    ])
  })

  test.each(['', ' ', '1e3', '-5m', '1.5h', '30D', '5 m', '30m1h', '5m5m', 'm', 'soon', '1y', '١m'])(
    '%p is not one',
    (text) => {
      expect(parseDuration(text)).toBe(null)
    },
  )

  test('of more than a hundred years is refused', () => {
    expect(parseDuration(String(DURATION_MS_MAX))).toBe(DURATION_MS_MAX)
    expect(parseDuration(String(DURATION_MS_MAX + 1))).toBe(null)
    expect(parseDuration('99999999999999999999w')).toBe(null)
  })

  test('written and parsed again is the same', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: DURATION_MS_MAX }), (ms) => {
        expect(parseDuration(durationText(ms))).toBe(ms)
      }),
    )
    expect([60_000, 86_400_000, 0, 1500, 5_400_000].map(durationText)).toEqual([
      '1m',
      '1d',
      '0s',
      '1s500ms',
      '1h30m',
    ])
  })
})

describe('a time', () => {
  test('is a date, a date with a time of day in UTC or a zone, or Unix milliseconds', () => {
    expect(until('2026-12-31')).toBe(Date.UTC(2026, 11, 31))
    expect(until('2026-12-31T12:00Z')).toBe(Date.UTC(2026, 11, 31, 12))
    expect(until('2026-12-31 12:00')).toBe(Date.UTC(2026, 11, 31, 12))
    expect(until('2026-12-31T12:00:30.5+02:00')).toBe(Date.UTC(2026, 11, 31, 10, 0, 30, 500))
    expect(until('2026-12-31T12:00-0130')).toBe(Date.UTC(2026, 11, 31, 13, 30))
    expect(until('1767225600000')).toBe(1_767_225_600_000)
  })

  test('may be a duration from now on, or back from now', () => {
    expect(until('30d')).toBe(NOW + 2_592_000_000)
    expect(since('12h')).toBe(NOW - 43_200_000)
  })

  test.each([
    '',
    'tomorrow',
    'never',
    '2026-02-29',
    '2026-13-01',
    '2026-1-1',
    '26-01-01',
    '2026-12-31T24:00Z',
    '2026-12-31T12:60Z',
    '2026-12-31T12:00:60Z',
    '2026-12-31T12Z',
    '2026-12-31T12:00+24:00',
    '2026-12-31Z',
    '31.12.2026',
    '-1',
    '1e12',
    '+30d',
  ])('%p is not one', (text) => {
    expect(until(text)).toBe(null)
  })

  test('written as ISO 8601 in any zone and parsed again is the same instant', () => {
    // Years of four digits, as people write them.
    const instants = fc.integer({ min: 0, max: Date.UTC(9999, 11, 31) })
    fc.assert(
      fc.property(instants, fc.integer({ min: -14 * 60, max: 14 * 60 }), (ms, minutes) => {
        fc.pre(ms + minutes * 60_000 >= 0 && ms + minutes * 60_000 < Date.UTC(9999, 11, 31))
        const local = new Date(ms + minutes * 60_000).toISOString().slice(0, -1)
        const two = (value: number) => String(value).padStart(2, '0')
        const size = Math.abs(minutes)
        const zone = `${minutes < 0 ? '-' : '+'}${two(Math.floor(size / 60))}:${two(size % 60)}`
        expect(until(`${local}${zone}`)).toBe(ms)
        expect(until(new Date(ms).toISOString())).toBe(ms)
        expect(until(String(ms))).toBe(ms)
      }),
    )
  })

  test('parsed from any text is a time that a date can hold, or null', () => {
    const texts = fc.oneof(
      fc.string(),
      fc.stringMatching(/^\d{1,20}(w|d|h|m|s|ms)?$/),
      fc.stringMatching(/^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d{1,4})?)?(Z|[+-]\d{2}:\d{2})?)?$/),
    )
    fc.assert(
      fc.property(texts, fc.boolean(), (text, isBack) => {
        const ms = isBack ? since(text) : until(text)
        if (ms !== null) expect(Number.isInteger(ms) && Math.abs(ms) <= TIME_MS_MAX).toBe(true)
      }),
      { numRuns: 1000 },
    )
  })
})
