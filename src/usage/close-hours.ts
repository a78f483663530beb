import type { AnySql } from '../db/connect.ts'
import { databaseNow } from '../db/months.ts'
import { HOUR_MS } from '../lib/clock.ts'
import type { NamespaceHour } from './rollup.ts'

/** How many identifiers keep their row once their hour is closed: those with the most traffic. */
export const IDENTIFIERS_KEPT_MAX = 1_000

/** Other servers have this long to send their counts of an hour before its identifiers are cut. */
const CLOSED_AFTER_HOURS = 2

/** Start of the first hour that stays open. */
export const openHoursFrom = (now: number): number => Math.floor(now / HOUR_MS - CLOSED_AFTER_HOURS) * HOUR_MS

/** Between the slices of long work. @returns false = leave the rest. */
export type Pause = () => Promise<boolean>

/**
 * Cuts the identifiers of hours that are over to the {@link IDENTIFIERS_KEPT_MAX} with the most traffic, in slices.
 *
 * 1. Hours with few identifiers are closed, many in a statement.
 * 2. Of an hour with more, the ones to keep are found in slices that only read. One statement marks them and closes the hour:
 *    questions show it as it was, or as it is cut.
 * 3. The other rows are deleted. A cut that a crash interrupted goes on in the next round.
 *
 * Several servers may do this at once: an hour is closed once.
 * @param before Unix ms: closes hours that began earlier. If the database's clock is behind, its time is used: a wrong clock
 *   must not close the hour that other servers still count in.
 */
export async function closeRatelimitHours(
  sql: AnySql,
  before: number,
  pause: Pause = async () => true,
): Promise<void> {
  for (const cut of await listCuts(sql)) if (!(await deleteSurplus(sql, cut, pause))) return
  const overBefore = Math.min(before, openHoursFrom(await databaseNow(sql)))
  let last = { hour: 0, namespaceId: '' }
  for (;;) {
    const [row] = await sql<(NamespaceHour & { isLarge: boolean })[]>`
      select hour, namespace_id as "namespaceId", is_large as "isLarge"
        from close_small_ratelimit_hours(${overBefore}, ${IDENTIFIERS_KEPT_MAX}, ${HOURS_CLOSED_AT_ONCE}, ${last.hour}, ${last.namespaceId})`
    if (row === undefined || !(await pause())) return
    if (row.isLarge && !(await cutHour(sql, row, pause))) return
    last = row
  }
}
const HOURS_CLOSED_AT_ONCE = 100

/** @returns false = `pause` ended it. */
async function cutHour(sql: AnySql, hour: NamespaceHour, pause: Pause): Promise<boolean> {
  const kept = await findBusiest(sql, hour, pause)
  if (kept === null) return false
  await closeHour(sql, hour, kept)
  return (await pause()) && (await deleteSurplus(sql, hour, pause))
}

/** The identifiers to keep, the first of equal ones. A slice returns only those that may be among them. */
async function findBusiest(sql: AnySql, hour: NamespaceHour, pause: Pause): Promise<string[] | null> {
  let busiest: { identifier: string; count: number }[] = []
  for (let after = ''; ; ) {
    const least = busiest.length < IDENTIFIERS_KEPT_MAX ? 0 : (busiest.at(-1)?.count ?? 0)
    const [slice] = await sql<{ last: string | null; found: { identifier: string; count: number }[] }[]>`
      with slice as materialized (
        select identifier, passed + denied as count from usage_ratelimit_identifiers
         where namespace_id = ${hour.namespaceId} and hour = ${hour.hour} and identifier > ${after}
         order by identifier limit ${ROWS_READ_AT_ONCE}
      )
      select (select max(identifier) from slice) as last,
             (select coalesce(json_agg(busy), '[]')
                from (select * from slice where count > ${least} order by count desc, identifier limit ${IDENTIFIERS_KEPT_MAX}) as busy) as found`
    // What is found later comes later in order: it goes behind equal ones.
    busiest = [...busiest, ...(slice?.found ?? [])]
      .sort((a, b) => b.count - a.count)
      .slice(0, IDENTIFIERS_KEPT_MAX)
    if (slice === undefined || slice.last === null) return busiest.map(({ identifier }) => identifier)
    after = slice.last
    if (!(await pause())) return null
  }
}
const ROWS_READ_AT_ONCE = 5_000

/** Does nothing when the hour is closed, or another server closes it. Rows are locked in the order of `apply_usage_batch`. */
async function closeHour(sql: AnySql, { namespaceId, hour }: NamespaceHour, kept: string[]): Promise<void> {
  await sql`
    with held as materialized (
      select namespace_id, hour from usage_ratelimits
       where namespace_id = ${namespaceId} and hour = ${hour} and not is_closed for update skip locked
    ), noted as (
      insert into usage_ratelimit_cuts (namespace_id, hour) select namespace_id, hour from held on conflict do nothing
    ), marked as (
      update usage_ratelimit_identifiers i set is_kept = true
        from held
       where i.namespace_id = held.namespace_id and i.hour = held.hour and i.identifier = any(${kept}::text[])
    )
    update usage_ratelimits t set is_closed = true
      from held
     where t.namespace_id = held.namespace_id and t.hour = held.hour`
}

async function listCuts(sql: AnySql): Promise<NamespaceHour[]> {
  return await sql<NamespaceHour[]>`
    select namespace_id as "namespaceId", hour from usage_ratelimit_cuts order by hour, namespace_id limit 1000`
}

/**
 * Does nothing to an hour that is still open: another server holds it, and nothing is marked yet.
 * @returns false = `pause` ended it.
 */
async function deleteSurplus(
  sql: AnySql,
  { namespaceId, hour }: NamespaceHour,
  pause: Pause,
): Promise<boolean> {
  for (let after: string | null = ''; after !== null; ) {
    // The hour first, as an erasure locks it that moves an identifier.
    const [slice]: Surplus[] = await sql<Surplus[]>`
      with held as materialized (
        select 1 from usage_ratelimits where namespace_id = ${namespaceId} and hour = ${hour} and is_closed for update
      ), slice as materialized (
        select identifier, is_kept from usage_ratelimit_identifiers
         where namespace_id = ${namespaceId} and hour = ${hour} and identifier > ${after}
           and exists (select from held)
         order by identifier limit ${ROWS_DELETED_AT_ONCE}
      ), gone as (
        delete from usage_ratelimit_identifiers i using slice
         where i.namespace_id = ${namespaceId} and i.hour = ${hour} and i.identifier = slice.identifier
           and i.is_kept is not true
      )
      select max(identifier) as last, exists (select from held) as "isClosed" from slice`
    if (slice?.isClosed !== true) return true
    after = slice?.last ?? null
    if (after !== null && !(await pause())) return false
  }
  await sql`delete from usage_ratelimit_cuts where namespace_id = ${namespaceId} and hour = ${hour}`
  return true
}
type Surplus = { last: string | null; isClosed: boolean }
const ROWS_DELETED_AT_ONCE = 500
