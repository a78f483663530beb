import type { Range } from '../../../api/analytics/series.ts'
import { badRequest } from '../../../errors.ts'
import type { TimeGroup } from '../../../lib/buckets.ts'
import { DAY_MS, HOUR_MS } from '../../../lib/clock.ts'

/**
 * Both ends are cut to their hour, and the hour of `end` is included.
 * @param now Used where `end` is not given; `start` is then, or else by default, 24 hours before `end`.
 * @throws ApiError BAD_REQUEST when nothing lies between them.
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

/** Lists come as repeated parameters, and comma-joined from the official client. */
export const splitAtCommas = (texts: readonly string[] | undefined): string[] => [
  ...new Set((texts ?? []).flatMap((text) => text.split(',')).filter((text) => text !== '')),
]

/** Of several, month beats day beats hour. */
export function timeGroupOf(groups: readonly string[]): TimeGroup | null {
  return (['month', 'day', 'hour'] as const).find((group) => groups.includes(group)) ?? null
}

/**
 * Null = no order asked for.
 * @throws ApiError BAD_REQUEST: without a time group there is no time to order by.
 */
export function orderOf<By extends string>(
  { orderBy, order }: { orderBy?: By; order?: 'asc' | 'desc' },
  time: TimeGroup | null,
): { by: By; descending: boolean } | null {
  if (orderBy === undefined) return null
  if (orderBy === 'time' && time === null) throw badRequest('orderBy: time needs groupBy hour, day or month')
  return { by: orderBy, descending: order === 'desc' }
}
