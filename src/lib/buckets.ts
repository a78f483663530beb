import { DAY_MS, HOUR_MS } from './clock.ts'

/** A length of time that usage is counted by. Days and months are those of UTC. */
export type TimeGroup = 'hour' | 'day' | 'month'

/** Start of the hour, day or month (UTC) that holds `at`. All are Unix ms. */
export function bucketOf(at: number, time: TimeGroup): number {
  if (time === 'month') return startOfMonth(at)
  return at - (at % (time === 'day' ? DAY_MS : HOUR_MS))
}

/** @param steps Buckets later than `bucket`, a start; negative = earlier. */
export function bucketAfter(bucket: number, time: TimeGroup, steps: number): number {
  if (time === 'month') return startOfMonth(bucket, steps)
  return bucket + steps * (time === 'day' ? DAY_MS : HOUR_MS)
}

/** Start of the month (UTC) that holds `at`, or of one so many months later. */
export function startOfMonth(at: number, monthsLater = 0): number {
  const date = new Date(at)
  // Date.UTC would take the years 0 to 99 for those of the 20th century.
  return new Date(0).setUTCFullYear(date.getUTCFullYear(), date.getUTCMonth() + monthsLater)
}
