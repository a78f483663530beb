import { DAY_MS, HOUR_MS } from './clock.ts'

/** The length of a bucket of usage. Days and months are those of UTC. */
export type TimeGroup = 'hour' | 'day' | 'month'

/** Start of the hour, day or month (UTC) that contains `at`. Unix ms. */
export function bucketOf(at: number, time: TimeGroup): number {
  if (time === 'month') return startOfMonth(at)
  return at - (at % (time === 'day' ? DAY_MS : HOUR_MS))
}

/** The start of another bucket. @param steps Buckets after `bucket`; negative = before it. */
export function bucketAfter(bucket: number, time: TimeGroup, steps: number): number {
  if (time === 'month') return startOfMonth(bucket, steps)
  return bucket + steps * (time === 'day' ? DAY_MS : HOUR_MS)
}

/** Start of the month (UTC) that contains `at`, or of a month that many later. */
export function startOfMonth(at: number, monthsLater = 0): number {
  const date = new Date(at)
  // Date.UTC reads the years 0 to 99 as those of the 20th century.
  return new Date(0).setUTCFullYear(date.getUTCFullYear(), date.getUTCMonth() + monthsLater)
}
