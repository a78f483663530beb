import { describe, expect, test } from 'bun:test'
import { completeSeries, ROWS_MAX } from '../../../src/api/analytics/series.ts'
import { readRange, splitAtCommas, timeGroupOf } from '../../../src/doors/v1/analytics/query.ts'
import { ApiError } from '../../../src/errors.ts'

const H = 3_600_000
const NOW = Date.UTC(2026, 10, 21, 13, 37)

describe('the range', () => {
  test('both ends are widened to whole hours, and the hour of the end is included', () => {
    expect(readRange({ start: 10 * H + 1, end: 12 * H + H - 1 }, NOW)).toEqual({
      from: 10 * H,
      to: 13 * H,
      lastHour: 12 * H,
    })
    expect(readRange({ start: 10 * H, end: 12 * H }, NOW)).toEqual({
      from: 10 * H,
      to: 13 * H,
      lastHour: 12 * H,
    })
  })

  test('the end defaults to now, the start to 24 hours before the end, and null means the default', () => {
    const hour = NOW - (NOW % H)
    expect(readRange({}, NOW)).toEqual({ from: hour - 24 * H, to: hour + H, lastHour: hour })
    expect(readRange({ start: null, end: 100 * H + 5 }, NOW)).toMatchObject({ from: 76 * H, to: 101 * H })
    expect(readRange({ start: null, end: 5 }, NOW)).toMatchObject({ from: 0, to: H })
  })

  /** Also when both are in one hour, so that the widened range is not empty. */
  test('a start that is not before the end is refused', () => {
    for (const [start, end] of [
      [5, 5],
      [6, 5],
      [2 * H, H],
    ])
      expect(() => readRange({ start, end }, NOW)).toThrow(ApiError)
    expect(() => readRange({ start: NOW }, NOW)).toThrow(/before end/)
    expect(readRange({ start: 5, end: 6 }, NOW)).toEqual({ from: 0, to: H, lastHour: 0 })
  })
})

test('lists are read when repeated, comma-joined, and both', () => {
  expect(splitAtCommas(['key,hour', 'tag', 'key'])).toEqual(['key', 'hour', 'tag'])
  expect(splitAtCommas(undefined)).toEqual([])
})

test('of several time groups the longest counts', () => {
  expect(timeGroupOf(['hour', 'day', 'month', 'key'])).toBe('month')
  expect(timeGroupOf(['hour', 'day'])).toBe('day')
  expect(timeGroupOf(['key'])).toBeNull()
})

type Point = { time?: number; name: string; total: number }
const complete = (
  rows: Point[],
  options: Partial<Parameters<typeof completeSeries<Point>>[1]> & { start: number; end: number },
) =>
  completeSeries(rows, {
    range: readRange(options, NOW),
    time: 'hour',
    bucketsWithData: new Set(),
    emptyRow: (time) => ({ time, name: '', total: 0 }),
    order: null,
    limit: undefined,
    ...options,
  })

describe('the series', () => {
  test('empty buckets from the one of the start to before the one of the end have rows of zeros', () => {
    const series = complete([{ time: 11 * H, name: 'a', total: 2 }], { start: 10 * H + 5, end: 13 * H + 5 })
    expect(series.map(({ time, total }) => [time, total])).toEqual([
      [10 * H, 0],
      [11 * H, 2],
      [12 * H, 0],
    ])
  })

  test('the bucket of the end has a row only when it has data', () => {
    const series = complete([{ time: 12 * H, name: 'a', total: 1 }], { start: 11 * H, end: 12 * H + 1 })
    expect(series.map(({ time, total }) => [time, total])).toEqual([
      [11 * H, 0],
      [12 * H, 1],
    ])
  })

  test('thirty hours without data are thirty rows', () => {
    expect(complete([], { start: NOW - 30 * H, end: NOW })).toHaveLength(30)
  })

  test('days and months are those of UTC, whatever their length', () => {
    const days = complete([], { start: Date.UTC(2028, 1, 28, 5), end: Date.UTC(2028, 2, 2), time: 'day' })
    expect(days.map(({ time }) => time)).toEqual([
      Date.UTC(2028, 1, 28),
      Date.UTC(2028, 1, 29),
      Date.UTC(2028, 2, 1),
    ])
    const months = complete([], { start: Date.UTC(2027, 10, 30), end: Date.UTC(2028, 2, 1), time: 'month' })
    expect(months.map(({ time }) => time)).toEqual([
      Date.UTC(2027, 10),
      Date.UTC(2027, 11),
      Date.UTC(2028, 0),
      Date.UTC(2028, 1),
    ])
  })

  test('without a time group nothing is filled in', () => {
    expect(complete([], { start: 0, end: NOW, time: null })).toEqual([])
  })

  /** The work must not depend on the number of gaps: here all hours since 1970, of which ten are wanted. */
  test('gaps are filled, then sorted, then cut', () => {
    const rows = [
      { time: 400_000 * H, name: 'a', total: 3 },
      { time: 2 * H, name: 'a', total: 5 },
      { time: 2 * H, name: 'b', total: 5 },
    ]
    const top = (by: 'total' | 'time', descending: boolean, limit: number) =>
      complete(rows, { start: 0, end: 450_000 * H, order: { by, descending }, limit }).map(
        ({ time, total }) => [Number(time) / H, total],
      )
    expect(top('total', true, 5)).toEqual([
      [2, 5],
      [2, 5],
      [400_000, 3],
      [0, 0],
      [1, 0],
    ])
    expect(top('total', false, 3)).toEqual([
      [0, 0],
      [1, 0],
      [3, 0],
    ])
    expect(top('time', true, 2)).toEqual([
      [449_999, 0],
      [449_998, 0],
    ])
    expect(top('time', false, 4)).toEqual([
      [0, 0],
      [1, 0],
      [2, 5],
      [2, 5],
    ])
  })

  test('a bucket whose rows were cut off does not count as empty', () => {
    const series = complete([{ time: H, name: 'a', total: 9 }], {
      start: 0,
      end: 3 * H,
      order: { by: 'total', descending: true },
      limit: 1,
      bucketsWithData: new Set([0, H]),
    })
    expect(series).toEqual([{ time: H, name: 'a', total: 9 }])
  })

  test('more datapoints than an answer may have are refused, unless a limit cuts them', () => {
    const options = { start: 0, end: (ROWS_MAX + 1) * H }
    expect(() => complete([], options)).toThrow(/more than 20000 datapoints/)
    expect(complete([], { ...options, end: ROWS_MAX * H })).toHaveLength(ROWS_MAX)
    expect(complete([], { ...options, limit: 7 })).toHaveLength(7)
  })
})
