import type { AnySql } from '../db/connect.ts'
import { databaseNow, dropMonths, oldestMonthKept } from '../db/months.ts'
import { startOfMonth } from '../lib/buckets.ts'
import type { UsageBatch } from './batch.ts'
import { openHoursFrom, type Pause } from './close-hours.ts'

/** Identifiers of one namespace that get a row of their own while their hour runs: the first so many to appear. */
export const IDENTIFIERS_OPEN_MAX = 100_000

/**
 * Counts a batch, whole or not at all, in one statement; see `apply_usage_batch` in sql/0004 and 0023. Its months must exist. Names
 * that were erased meanwhile become pseudonyms; see `erased_names` in sql/0018.
 * @returns false when this batch was counted before: then nothing is added.
 */
export async function countBatch(
  sql: AnySql,
  { writer, number, columns }: UsageBatch,
  now: number,
  { identifiersMax = IDENTIFIERS_OPEN_MAX } = {},
): Promise<boolean> {
  const { scopes, sets, verifications: v, totals, identifiers } = columns
  const setTags = sets.tags.map(textArray)
  const rows = v.keyIds?.rows ?? v.keyId.length
  const keyIds = v.keyIds === undefined ? idArray(v.keyId) : `{${v.keyIds.list}}`
  const numbersOf = (column: readonly number[]) => numberArray(oneOrAll(column, rows, 0))
  const givenOf = (column: readonly number[]) =>
    column.length === 1 ? numberArray(column) : numbersOf(column)
  const [row] = await sql<{ counted: boolean }[]>`
    select apply_usage_batch(
      g.writer, g.batch, g.now, g.identifiers_max, g.scope_workspaces, g.scope_keyspaces,
      g.set_workspaces, g.set_months, g.set_ids, erased_tags(g.set_workspaces, g.set_tags),
      g.scopes, g.sets, g.hours,
      erased_names(g.scope_workspaces, g.scopes, g.keys), erased_names(g.scope_workspaces, g.scopes, g.identities),
      g.valid, g.rate_limited, g.expired, g.disabled, g.forbidden, g.usage_exceeded, g.insufficient_permissions,
      g.total_workspaces, g.total_namespaces, g.total_hours, g.total_passed, g.total_denied,
      g.totals, erased_names(g.total_workspaces, g.totals, g.identifiers), g.passed, g.denied) as counted
    from (select
      ${writer}::text as writer, ${number}::bigint as batch, ${now}::bigint as now, ${identifiersMax}::integer as identifiers_max,
      ${textArray(scopes.workspaceId)}::text[] as scope_workspaces,
      ${textArray(scopes.keyspaceId)}::text[] as scope_keyspaces,
      ${textArray(sets.workspaceId)}::text[] as set_workspaces, ${numberArray(sets.month)}::bigint[] as set_months,
      ${textArray(sets.id)}::text[] as set_ids, ${textArray(setTags)}::text[] as set_tags,
      ${givenOf(v.scope)}::integer[] as scopes, ${numbersOf(v.set)}::integer[] as sets, ${givenOf(v.hour)}::bigint[] as hours,
      ${keyIds}::text[] as keys, ${textArray(oneOrAll(v.identityId, rows, ''))}::text[] as identities,
      ${numbersOf(v.valid)}::integer[] as valid, ${numbersOf(v.rateLimited)}::integer[] as rate_limited,
      ${numbersOf(v.expired)}::integer[] as expired, ${numbersOf(v.disabled)}::integer[] as disabled,
      ${numbersOf(v.forbidden)}::integer[] as forbidden, ${numbersOf(v.usageExceeded)}::integer[] as usage_exceeded,
      ${numbersOf(v.insufficientPermissions)}::integer[] as insufficient_permissions,
      ${textArray(totals.workspaceId)}::text[] as total_workspaces, ${textArray(totals.namespaceId)}::text[] as total_namespaces,
      ${numberArray(totals.hour)}::bigint[] as total_hours, ${numberArray(totals.passed)}::bigint[] as total_passed,
      ${numberArray(totals.denied)}::bigint[] as total_denied, ${numberArray(identifiers.total)}::integer[] as totals,
      ${textArray(identifiers.identifier)}::text[] as identifiers, ${numberArray(identifiers.passed)}::bigint[] as passed,
      ${numberArray(identifiers.denied)}::bigint[] as denied) as g`
  return row?.counted ?? false
}

/** A namespace in one hour. */
export type NamespaceHour = { namespaceId: string; hour: number }

/**
 * Of these, the ones that take in no more identifiers: they have {@link IDENTIFIERS_OPEN_MAX}, or the workspace has all of its
 * bound. From then on they stay full, also when the bound is raised.
 */
export async function findFull(
  sql: AnySql,
  asked: readonly NamespaceHour[],
  { identifiersMax = IDENTIFIERS_OPEN_MAX } = {},
): Promise<NamespaceHour[]> {
  // Rows are locked in the order of `apply_usage_batch`.
  return await sql<NamespaceHour[]>`
    with held as materialized (
      select t.namespace_id, t.hour, t.workspace_id, t.identifiers
        from unnest(${asked.map(({ namespaceId }) => namespaceId)}::text[], ${asked.map(({ hour }) => hour)}::bigint[]) as a (namespace_id, hour)
        join usage_ratelimits t on t.namespace_id = a.namespace_id and t.hour = a.hour
       order by t.namespace_id collate "C", t.hour for update of t
    ), rooms as (
      select w.workspace_id, w.hour,
             bound_of(w.workspace_id, 'usageIdentifiers')
               - (select sum(t.identifiers) from usage_ratelimits t where t.workspace_id = w.workspace_id and t.hour = w.hour) as room
        from (select distinct workspace_id, hour from held) as w
    ), full_hours as (
      select held.* from held join rooms using (workspace_id, hour)
       where held.identifiers >= ${identifiersMax}::integer or rooms.room <= 0
    ), marked as (
      update usage_ratelimits t set identifiers = ${identifiersMax}::integer
        from full_hours f
       where t.namespace_id = f.namespace_id and t.hour = f.hour and t.identifiers < ${identifiersMax}::integer
    )
    select namespace_id as "namespaceId", hour from full_hours`
}

/** Identifiers with rows, in order. @param after The last one of the page before; empty = from the beginning. */
export async function listNamed(
  sql: AnySql,
  of: NamespaceHour,
  after: string,
  limit: number,
): Promise<string[]> {
  const rows = await sql<{ identifier: string }[]>`
    select identifier from usage_ratelimit_identifiers
     where namespace_id = ${of.namespaceId} and hour = ${of.hour} and identifier > ${after}
     order by identifier limit ${limit}`
  return rows.map(({ identifier }) => identifier)
}

/** Starts of the months that a batch writes to. */
export function monthsOf({ columns }: UsageBatch): Set<number> {
  const hours = new Set(columns.verifications.hour)
  for (const hour of columns.totals.hour) hours.add(hour)
  return new Set(Array.from(hours, (hour) => startOfMonth(hour)))
}

/** Makes the partitions of a month unless they exist. */
export async function makeMonth(sql: AnySql, month: number): Promise<void> {
  await sql`select make_usage_month(${month})`
}

const TABLES = [
  'usage_verifications',
  'usage_verification_days',
  'usage_verification_months',
  'usage_keyspace_hours',
  'usage_tag_sets',
  'usage_tag_set_hours',
  'usage_ratelimits',
  'usage_ratelimit_identifiers',
]

/**
 * Drops whole months of usage: all but the month of `now` and the `keepMonths` before it, so at least the last `keepMonths`
 * months remain. Writers that sent nothing since then are deleted too.
 * @returns the tables dropped.
 * @throws when a long query holds one of them for over 2 s; call it again later.
 */
export async function dropOldPartitions(sql: AnySql, keepMonths: number, now: number): Promise<string[]> {
  const before = await oldestMonthKept(sql, keepMonths, now)
  const dropped: string[] = []
  for (const table of TABLES) dropped.push(...(await dropMonths(sql, table, { before, waitMs: 2000 })))
  await sql`delete from usage_writers where seen_at < ${before}`
  return dropped
}

/**
 * Adds hours that are over to the rows of their day, and days to those of their month, in slices: see sql/0040. What another
 * server is adding is left to it.
 * @param now Unix ms; the database's time, if that is behind.
 * @param pause Waits between statements. @returns false = stop here.
 */
export async function sumUpUsage(sql: AnySql, now: number, pause: Pause = async () => true): Promise<void> {
  const before = openHoursFrom(Math.min(now, await databaseNow(sql)))
  for (;;) {
    const [row] = await sql<{ goesOn: boolean }[]>`
      select make_usage_days(${before}, ${ROWS_SUMMED_AT_ONCE}) as "goesOn"`
    if (row?.goesOn !== true) break
    if (!(await pause())) return
  }
  for (;;) {
    const [row] = await sql<
      { goesOn: boolean }[]
    >`select make_usage_months(${ROWS_SUMMED_AT_ONCE}) as "goesOn"`
    if (row?.goesOn !== true || !(await pause())) return
  }
}
const ROWS_SUMMED_AT_ONCE = 500

/** Postgres's code of a failure; empty for any other failure. */
export const codeOf = (cause: unknown): string =>
  cause instanceof Error && 'code' in cause ? String(cause.code) : ''

// Array literals are built here: the driver's own way costs several times as much for large batches.
const numberArray = (numbers: readonly number[]) => `{${numbers.join(',')}}`

/**
 * A column whose values are all equal is sent as one value. Most columns are: keys that were verified once and are valid.
 * @param filler Value of the rows beyond the end of the column.
 */
function oneOrAll<T extends string | number>(column: readonly T[], rows: number, filler: T): readonly T[] {
  if (rows === 0) return []
  const missing = rows - column.length
  const first = column[0] ?? filler
  if (missing === 0 || first === filler) {
    let at = 0
    while (at < column.length && column[at] === first) at++
    if (at === column.length) return [first]
  }
  return missing === 0 ? column : [...column, ...Array.from({ length: missing }, () => filler)]
}

/** Ids are letters, digits and underscores. Without quotes the list is a third shorter for both sides. */
function idArray(ids: readonly string[]): string {
  const list = ids.join(',')
  return isListOfWords(list, ids.length) ? `{${list}}` : textArray(ids)
}

/**
 * Whether the list is `count` words with commas between them: a comma in an id would read as two ids, and an empty id as none.
 * It checks the list, because checking each id takes ten times as long (194 against 18 ns).
 */
function isListOfWords(list: string, count: number): boolean {
  if (!/^[\w,]*$/.test(list)) return false
  let words = 0
  for (let from = 0; from <= list.length; words++) {
    const comma = list.indexOf(',', from)
    const end = comma === -1 ? list.length : comma
    if (end === from) return false
    from = end + 1
  }
  return words === count
}

function textArray(texts: readonly string[]): string {
  if (texts.length === 0) return '{}'
  const all = texts.join('')
  const isPlain = !all.includes('"') && !all.includes('\\')
  return `{"${(isPlain ? texts : texts.map((text) => text.replaceAll(/["\\]/g, '\\$&'))).join('","')}"}`
}
