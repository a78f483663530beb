import type { AnySql } from '../db/connect.ts'
import { bucketAfter, bucketOf } from '../lib/buckets.ts'

/** How far rows of days (of months) hold the hours (the days), as the database says; see sql/0040. */
export type Made = { days: Progress; months: Progress }
type Progress = {
  /** Start of the first hour (day) that is in no row, or of the one that is being added. Unix ms. */
  before: number
  /** Of the one being added, keys up to this keyspace and key are in their rows; `upTo` is its end. Null = none is being added. */
  adding: { keyspaceId: string; keyId: string; upTo: number } | null
}

/**
 * Runs `read` with how far rows of days and months are made, so that what it reads is exact.
 *
 * The rows of the current day and month grow while it reads. So each statement asks in its own snapshot whether they are still
 * as `made` says ({@link stillMade}), and finds nothing if not. Then `read` runs again; after some attempts with rows of
 * days and months that are over, which no longer grow.
 */
export async function readMade<T>(
  sql: AnySql,
  read: (made: Made) => Promise<T>,
  { isEmpty }: { isEmpty: (found: T) => boolean },
): Promise<T> {
  let made = await readProgress(sql)
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    const found = await read(made)
    if (!isEmpty(found)) return found
    // It only grows: what is the same now was the same meanwhile.
    const now = await readProgress(sql)
    if (Bun.deepEquals(made, now)) return found
    made = now
  }
  return await read(overOnly(made))
}
const ATTEMPTS_MAX = 5

async function readProgress(sql: AnySql): Promise<Made> {
  const [row] = await sql<ProgressRow[]>`
    select d.made_before as "hoursBefore", d.open_from as "hoursUpTo", d.keyspace_id as "hourKeyspace", d.key_id as "hourKey",
           m.made_before as "daysBefore", m.open_from as "daysUpTo", m.keyspace_id as "dayKeyspace", m.key_id as "dayKey"
      from usage_days_made d, usage_months_made m`
  if (row === undefined) throw new Error('the database does not say how far usage is summed up')
  return {
    days: progressOf(row.hoursBefore, row.hoursUpTo, row.hourKeyspace, row.hourKey),
    months: progressOf(row.daysBefore, row.daysUpTo, row.dayKeyspace, row.dayKey),
  }
}

type ProgressRow = Record<'hoursBefore' | 'hoursUpTo' | 'daysBefore' | 'daysUpTo', number> &
  Record<'hourKeyspace' | 'hourKey' | 'dayKeyspace' | 'dayKey', string>

const progressOf = (before: number, upTo: number, keyspaceId: string, keyId: string): Progress => ({
  before,
  adding: upTo === before ? null : { keyspaceId, keyId, upTo },
})

/** Without the rows that still grow: the range ends before them. */
const overOnly = ({ days, months }: Made): Made => ({
  days: { before: bucketOf(days.before, 'day'), adding: null },
  months: { before: bucketOf(months.before, 'month'), adding: null },
})

/** Rows of one table, `from <= t < to`. */
export type Part = {
  of: 'months' | 'days' | 'hours'
  from: number
  to: number
  /** Without rows of these keys in its first hours, which coarser rows hold already. */
  except: Progress['adding']
}

/**
 * The fewest rows that add up to a range: months, days before and after them, hours before and after those.
 * @param coarsest The largest bucket that the question can read; its own bucket, or larger ones where it has none.
 */
export function partsOf(
  { from, to }: { from: number; to: number },
  coarsest: 'month' | 'day' | 'hour',
  made: Made,
): Part[] {
  if (coarsest === 'hour') return partsBetween('hours', from, to, null)
  const days = wholeBuckets('day', from, to, made.days)
  if (days === null) return partsBetween('hours', from, to, null)
  const months = coarsest === 'month' ? wholeBuckets('month', days.from, days.end, made.months) : null
  return [
    ...(months === null
      ? partsBetween('days', days.from, days.end, null)
      : [
          ...partsBetween('days', days.from, months.from, null),
          ...partsBetween('months', months.from, months.end, null),
          ...partsBetween('days', months.next, days.end, months.except),
        ]),
    ...partsBetween('hours', from, days.from, null),
    ...partsBetween('hours', days.next, to, days.except),
  ]
}

const partsBetween = (of: Part['of'], from: number, to: number, except: Part['except']): Part[] =>
  from < to ? [{ of, from, to, except }] : []

/**
 * The buckets whose rows can be read for a range: those in it, and the current one if all that its rows hold is in the range.
 * @returns `end` of their rows, and what comes `next`, in finer rows, `except` some of these. Null = none.
 */
function wholeBuckets(
  time: 'day' | 'month',
  from: number,
  to: number,
  { before, adding }: Progress,
): { from: number; end: number; next: number; except: Part['except'] } | null {
  const floor = bucketOf(from, time)
  const first = floor === from ? floor : bucketAfter(floor, time, 1)
  const holds = adding?.upTo ?? before
  if (first < holds && holds <= to) {
    const last = bucketOf(holds - 1, time)
    // Of a bucket that is being added to, and was empty, the row may hold nothing but what is being added.
    return { from: first, end: bucketAfter(last, time, 1), next: before, except: adding }
  }
  const end = bucketOf(Math.min(to, before), time)
  return first < end ? { from: first, end, next: end, except: null } : null
}

/** Whether an answer from these parts is only exact while the rows are as `made` says. */
export const isOfGrowingRows = (parts: readonly Part[], made: Made): boolean =>
  parts.some(
    ({ of, to }) =>
      (of === 'days' && to > bucketOf(made.days.before, 'day')) ||
      (of === 'months' && to > bucketOf(made.months.before, 'month')),
  )

/** True in a statement's snapshot when rows of days and months are as `made` says. */
export function stillMade(sql: AnySql, { days, months }: Made) {
  const is = (table: string, { before, adding }: Progress) => sql`
    exists (select from ${sql(table)}
             where made_before = ${before} and open_from = ${adding?.upTo ?? before}
               and keyspace_id = ${adding?.keyspaceId ?? ''} and key_id = ${adding?.keyId ?? ''})`
  return sql`(${is('usage_days_made', days)} and ${is('usage_months_made', months)})`
}

/** The parts as one table, in which the start of each row's bucket is its `hour`. */
export function rowsOf(sql: AnySql, parts: readonly Part[]) {
  const [first, ...others] = parts.map((part) => rowsOfPart(sql, part))
  if (first === undefined) return sql`usage_verifications`
  return sql`(${others.reduce((rows, more) => sql`${rows} union all ${more}`, first)}) as stored`
}

function rowsOfPart(sql: AnySql, { of, from, to, except }: Part) {
  const { table, column } = TABLES[of]
  const time = sql(column)
  return sql`
    select ${time} as hour, workspace_id, keyspace_id, key_id, identity_id, tag_set,
           valid, rate_limited, expired, disabled, forbidden, usage_exceeded, insufficient_permissions
      from ${sql(table)}
     where ${time} >= ${from} and ${time} < ${to}
           ${except === null ? sql`` : sql`and not (${time} < ${except.upTo} and (keyspace_id, key_id) <= (${except.keyspaceId}, ${except.keyId}))`}`
}

const TABLES = {
  months: { table: 'usage_verification_months', column: 'month' },
  days: { table: 'usage_verification_days', column: 'day' },
  hours: { table: 'usage_verifications', column: 'hour' },
} as const
