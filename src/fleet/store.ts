import type { AnySql } from '../db/connect.ts'
import type { Answer, Engine, Entry, Exchange } from './engine.ts'

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

/** What the servers on this database share their limits on, once one has. */
export type FleetRow = { engineId: string; kind: Engine['kind']; buckets: number }

/** A server that shares its limits, and was seen within {@link SEEN_MS}. */
export type FleetMember = { host: string; engine: string; seenMsAgo: number }

/** Until the transaction ends. Of servers that start at the same time one decides which engine it is. */
export async function lockFleet(sql: AnySql): Promise<void> {
  await sql`select pg_advisory_xact_lock(8317504812)`
}

/** Whether the database is of a release that knows shared limits. */
export async function isFleetThere(sql: AnySql): Promise<boolean> {
  const [row] = await sql<
    { isThere: boolean }[]
  >`select to_regclass('fleet_members') is not null as "isThere"`
  return row?.isThere === true
}

export async function readFleet(sql: AnySql): Promise<FleetRow | null> {
  const [row] = await sql<FleetRow[]>`select engine_id as "engineId", kind, buckets from fleet`
  return row ?? null
}

/** The engine's id stays for good: an engine that was used before still has it. */
export async function writeFleet(sql: AnySql, { engineId, kind, buckets }: FleetRow): Promise<void> {
  await sql`
    insert into fleet (engine_id, kind, buckets) values (${engineId}, ${kind}, ${buckets})
    on conflict (only_row) do update set kind = excluded.kind, buckets = excluded.buckets`
}

/** Those that run, latest seen first: at most ten. */
export async function fleetMembers(sql: AnySql): Promise<FleetMember[]> {
  return await sql<FleetMember[]>`
    with now as (select floor(extract(epoch from clock_timestamp()) * 1000)::bigint as ms)
    select host, engine, now.ms - seen_at as "seenMsAgo" from fleet_members, now
     where seen_at >= now.ms - ${SEEN_MS}::bigint
     order by seen_at desc limit 10`
}

/** A server that shares its limits. `processId` is new at each start, `seenAt` by the clock of the database, Unix ms. */
export type KnownMember = { processId: string; host: string; engine: string; seenAt: number }

/** Those seen within {@link SEEN_MS}, at most `rowsMax`, by host. */
export async function knownMembers(sql: AnySql, rowsMax: number): Promise<KnownMember[]> {
  return await sql<KnownMember[]>`
    select process_id as "processId", host, engine, seen_at as "seenAt" from fleet_members
     where seen_at >= floor(extract(epoch from clock_timestamp()) * 1000)::bigint - ${SEEN_MS}::bigint
     order by host, process_id limit ${rowsMax}`
}

/**
 * Writes the row of a server, and removes those of servers that were killed.
 * @returns how many servers were seen within {@link SEEN_MS}, this one included.
 */
export async function beatFleet(
  sql: AnySql,
  { processId, host, engine }: { processId: string; host: string; engine: string },
): Promise<number> {
  const [row] = await sql<{ others: number }[]>`
    with now as (select floor(extract(epoch from clock_timestamp()) * 1000)::bigint as ms), dead as (
      delete from fleet_members using now where seen_at < now.ms - ${DEAD_MS}::bigint and process_id <> ${processId}
    ), own as (
      insert into fleet_members (process_id, host, engine, seen_at) select ${processId}, ${host}, ${engine}, ms from now
      on conflict (process_id) do update set host = excluded.host, engine = excluded.engine, seen_at = excluded.seen_at
    )
    select count(*) as others from fleet_members, now
     where seen_at >= now.ms - ${SEEN_MS}::bigint and process_id <> ${processId}`
  return 1 + (row?.others ?? 0)
}

export async function leaveFleet(sql: AnySql, processId: string): Promise<void> {
  await sql`delete from fleet_members where process_id = ${processId}`
}

/** A number that no shard has had. A crash may not forget that it was handed out: Redis counts by it. */
export async function nextServerId(sql: AnySql): Promise<number> {
  const [row] = await sql<{ id: number }[]>`
    select nextval('fleet_server_ids') as id,
           case when current_setting('synchronous_commit') = 'off' then set_config('synchronous_commit', 'on', true) end`
  if (row === undefined) throw new Error('the sequence of server ids gives nothing')
  return row.id
}

/** The time of the database, Unix ms, with fractions. */
export async function databaseTime(sql: AnySql): Promise<number> {
  const [row] = await sql<{ ms: number }[]>`
    select (extract(epoch from clock_timestamp()) * 1000)::float8 as ms`
  if (row === undefined) throw new Error('the database does not tell its time')
  return row.ms
}

/** Four beats: one that is late does not change how many servers there are. */
export const SEEN_MS = 20_000
/** Later than {@link SEEN_MS}: a row that counts is not removed by a server whose look took long. */
const DEAD_MS = 60_000
