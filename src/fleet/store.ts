import type { AnySql } from '../db/connect.ts'
import type { Answer, Entry, Exchange } from './engine.ts'

/** Carries out one exchange in one statement, all or nothing. @returns the answers, in the order of the entries. */
export async function takeFromWindows(
  sql: AnySql,
  { nowMs, looseMs, share, entries }: Exchange,
): Promise<Answer[]> {
  const list = (each: (entry: Entry) => number | string | boolean) => `{${entries.map(each).join()}}`
  const rows = await sql<TakenRow[]>`
    select entry, window_end, gift, total, loose
      from fleet_take(
        ${nowMs}, ${looseMs}, ${Math.ceil(share)},
        ${list(cellOf)}::text::uuid[],
        ${list(({ endMs }) => endMs)}::text::bigint[],
        ${list(({ limit }) => limit)}::text::bigint[],
        ${list(({ given }) => given)}::text::bigint[],
        ${list(({ returned }) => returned)}::text::bigint[],
        ${list(({ owed }) => owed)}::text::bigint[],
        ${list(({ asked }) => asked)}::text::bigint[],
        ${list(({ least }) => least)}::text::bigint[],
        ${list(({ ahead }) => ahead)}::text::bigint[],
        ${list(({ isTentative }) => isTentative)}::text::boolean[])`
  const answers: Answer[] = []
  for (const { entry, window_end, gift, total, loose } of rows) {
    const asked = entries[entry - 1]
    if (asked === undefined) throw new Error(`the database answers entry ${entry} of ${entries.length}`)
    const held = window_end === asked.endMs ? asked.given + asked.owed : 0
    answers[entry - 1] = { endMs: window_end, given: held + gift, gift, sum: total, looseUntilMs: loose }
  }
  if (rows.length !== entries.length || answers.length !== entries.length)
    throw new Error(`the database answers ${rows.length} of ${entries.length} entries`)
  return answers
}

type TakenRow = { entry: number; window_end: number; gift: number; total: number; loose: number }

/**
 * Deletes, of the next `rowsMax` cells after one, those whose window has been over for a minute by the database's time. What
 * others are counting in is left out.
 * @param after A cell; null = from the first on.
 * @returns the last cell that was looked at; null = there are no more.
 */
export async function deleteEndedWindows(
  sql: AnySql,
  { after, rowsMax }: { after: string | null; rowsMax: number },
): Promise<string | null> {
  const [row] = await sql<{ last: string | null }[]>`
    with ended as (
      select floor(extract(epoch from now()) * 1000)::bigint - ${KEPT_MS}::bigint as before
    ), slice as materialized (
      select cell, ends_at from fleet_windows
       where cell > ${after ?? BEFORE_ALL}::uuid
       order by cell limit ${rowsMax}
    ), gone as (
      delete from fleet_windows
       where cell in (
         select w.cell from fleet_windows w, ended
          where w.cell in (select cell from slice where slice.ends_at < ended.before) and w.ends_at < ended.before
          order by w.cell for update of w skip locked)
    )
    select case when count(*) = ${rowsMax}::bigint then (array_agg(cell order by cell desc))[1]::text end as last
      from slice`
  return row?.last ?? null
}

const KEPT_MS = 60_000
/** Not the name of a counter: names are hashes. */
const BEFORE_ALL = '00000000-0000-0000-0000-000000000000'

function cellOf({ h0, h1, h2, h3 }: Entry): string {
  return hex8(h0) + hex8(h1) + hex8(h2) + hex8(h3)
}

const hex8 = (word: number) => (word >>> 0).toString(16).padStart(8, '0')

/** The database's setting of that name. */
export async function synchronousCommit(sql: AnySql): Promise<string> {
  const [row] = await sql<{ value: string }[]>`select current_setting('synchronous_commit') as value`
  return row?.value ?? ''
}
