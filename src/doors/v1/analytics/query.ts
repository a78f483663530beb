import type { Range } from '../../../api/analytics/series.ts'
import { badRequest } from '../../../errors.ts'
import type { TimeGroup } from '../../../lib/buckets.ts'
import { DAY_MS, HOUR_MS } from '../../../lib/clock.ts'

/**
 * Widens a range to whole hours; the hour of `end` is included.
 * @param now Used when `end` is absent. An absent `start` is 24 hours before the end.
 * @throws ApiError BAD_REQUEST when `start` is not before the end.
 */
export function readRange(
  { start, end }: { start?: number | null | undefined; end?: number | null | undefined },
  now: number,
): Range {
  const endAt = end ?? now
  const startAt = start ?? Math.max(0, endAt - DAY_MS)
  if (startAt >= endAt) throw badRequest(`start: Must be before end, which is ${endAt}`)
  const lastHour = endAt - (endAt % HOUR_MS)
  return { from: startAt - (startAt % HOUR_MS), to: lastHour + HOUR_MS, lastHour }
}

/** Splits lists: repeated parameters, or joined by commas, as the official client sends them. */
export const splitAtCommas = (texts: readonly string[] | undefined): string[] => [
  ...new Set((texts ?? []).flatMap((text) => text.split(',')).filter((text) => text !== '')),
]

/** The widest time group wins: month, then day, then hour. */
export function timeGroupOf(groups: readonly string[]): TimeGroup | null {
  return (['month', 'day', 'hour'] as const).find((group) => groups.includes(group)) ?? null
}

/**
 * @returns null when no order is wanted.
 * @throws ApiError BAD_REQUEST for an order by time without a time group.
 */
export function orderOf<By extends string>(
  { orderBy, order }: { orderBy?: By; order?: 'asc' | 'desc' },
  time: TimeGroup | null,
): { by: By; descending: boolean } | null {
  if (orderBy === undefined) return null
  if (orderBy === 'time' && time === null) throw badRequest('orderBy: time needs groupBy hour, day or month')
  return { by: orderBy, descending: order === 'desc' }
}
