import { InvalidInput } from '../../errors.ts'
import { bucketAfter, bucketOf, type TimeGroup } from '../../lib/buckets.ts'

/** Largest number of datapoints in one answer. More would hold the thread and memory that all clients share. */
export const ROWS_MAX = 20_000

/**
 * Whole UTC hours, `from <= t < to`. Empty buckets are filled in from the one of `from` to before the one of `lastHour`.
 */
export type Range = { from: number; to: number; lastHour: number }

/** How many rows to read: one more than an answer may have, which shows that there are too many. */
export const rowsToRead = (limit: number | undefined): number => Math.min(limit ?? ROWS_MAX + 1, ROWS_MAX + 1)

/**
 * Turns the database's grouped rows into the answer: fills in empty buckets, sorts, cuts.
 * @param rows Sorted; the first {@link rowsToRead} are enough.
 * @param options.time Null = there are no gaps to fill.
 * @param options.bucketsWithData Buckets with data, including those whose rows were cut off.
 * @param options.order Null = by time when grouped by it, else in the order of the rows.
 * @throws ApiError BAD_REQUEST for more than {@link ROWS_MAX} datapoints.
 */
export function completeSeries<R extends { time?: number }>(
  rows: readonly R[],
  options: {
    range: Range
    time: TimeGroup | null
    bucketsWithData: ReadonlySet<number>
    emptyRow: (time: number) => R
    order: { by: Extract<NumericField<R>, string>; descending: boolean } | null
    limit: number | undefined
  },
): R[] {
  const { range, time, bucketsWithData, emptyRow, order, limit } = options
  const rowsMax = rowsToRead(limit)
  let series = [...rows]
  if (time !== null) {
    const filled = new Set(bucketsWithData)
    for (const row of rows) if (row.time !== undefined) filled.add(row.time)
    // Gaps differ only in time, and time also breaks ties. So only the first gaps, as many as fit, can be in the answer.
    const fromTheEnd = order?.by === 'time' && order.descending
    series.push(...gaps(range, time, filled, { fromTheEnd, max: rowsMax }).map(emptyRow))
    const by = order?.by ?? 'time'
    const sign = order?.descending === true ? -1 : 1
    series.sort(
      (a, b) => sign * (numberOf(a, by) - numberOf(b, by)) || numberOf(a, 'time') - numberOf(b, 'time'),
    )
  }
  series = series.slice(0, rowsMax)
  if (series.length > ROWS_MAX)
    throw new InvalidInput(
      'limit',
      `The answer would have more than ${ROWS_MAX} datapoints; set limit, or use a shorter range or fewer groups`,
    )
  return series
}

type NumericField<R> = { [K in keyof R]-?: R[K] extends number | undefined ? K : never }[keyof R]

function numberOf<R extends { time?: number }>(
  row: R,
  field: Extract<NumericField<R>, string> | 'time',
): number {
  const value: unknown = row[field]
  return typeof value === 'number' ? value : 0
}

function gaps(
  range: Range,
  time: TimeGroup,
  filled: ReadonlySet<number>,
  { fromTheEnd, max }: { fromTheEnd: boolean; max: number },
): number[] {
  const found: number[] = []
  const first = bucketOf(range.from, time)
  const end = bucketOf(range.lastHour, time)
  const step = fromTheEnd ? -1 : 1
  for (
    let bucket = fromTheEnd ? bucketAfter(end, time, -1) : first;
    bucket >= first && bucket < end && found.length < max;
    bucket = bucketAfter(bucket, time, step)
  )
    if (!filled.has(bucket)) found.push(bucket)
  return found
}
