import type { AuditResource } from '../../audit/log.ts'
import type { AnySql } from '../../db/connect.ts'
import { startOfMonth } from '../../lib/buckets.ts'
import { HOUR_MS } from '../../lib/clock.ts'
import { firstIdAt, type WorkspaceId } from '../../lib/ids.ts'

export type AuditEventRow = {
  id: string
  event: string
  actorType: string
  actorId: string
  resources: AuditResource[]
  description: string
  location: string | null
  userAgent: string | null
  occurredAt: number
}

/** Null = no filter. */
export type AuditEventFilter = {
  event: string | null
  actorId: string | null
  resourceId: string | null
  /** Unix ms, `start <= time < end`. */
  start: number | null
  end: number | null
}

export type AuditEventOrder = 'oldestFirst' | 'newestFirst'

/**
 * Events behind the event `cursor`, in this order: up to `limit + 1`, or fewer where they are long, so that a page does not
 * hold the thread.
 *
 * The order is that of `seq`, as ids are ordered to the second only. The time in an id finds where the wanted range begins
 * and ends, so that events outside it are not read.
 * @returns `isCut` = the page ended early because of its length; more events follow.
 */
export async function listAuditEventRows(
  sql: AnySql,
  workspaceId: WorkspaceId,
  { event, actorId, resourceId, start, end }: AuditEventFilter,
  { limit, cursor, order = 'oldestFirst' }: { limit: number; cursor: string; order?: AuditEventOrder },
): Promise<{ rows: AuditEventRow[]; isCut: boolean }> {
  const startId = start === null ? '' : firstIdAt('log', start - CLOCKS_APART_MS)
  // A range that has not ended, on any server's clock, may still get events.
  const isOver = end !== null && end + CLOCKS_APART_MS < Date.now()
  const beforeId = isOver ? firstIdAt('log', end + CLOCKS_APART_MS) : ''
  const pairs = pairsOf({ event, actorId, resourceId })
  const isNewestFirst = order === 'newestFirst'
  const direction = isNewestFirst ? sql`desc` : sql``
  const [afterId, endId] = isNewestFirst ? ['', cursor] : [cursor, '']
  const hasFirst = afterId !== '' || startId !== ''
  const hasEnd = isOver || endId !== ''
  // A cursor that names no event of this workspace stands where an event of that id would.
  const upTo = (id: string) => sql`
    (select seq, id from audit_events where workspace_id = ${workspaceId} and id <= ${id} order by id desc limit 1)`
  const from = (id: string) => sql`
    (select seq, id from audit_events where workspace_id = ${workspaceId} and ${id} <> '' and id >= ${id} order by id limit 1)`
  const pageOf = (part: Part | null) => sql`
   (select id, event, actor_type, actor_id, resources, description, location, user_agent, occurred_at, seq
      from audit_events
     where workspace_id = ${workspaceId} ${isIn(part)}
       ${hasFirst ? sql`and (seq, id) > (coalesce((select seq from before_page), -1), coalesce((select id from before_page), ''))` : sql``}
       ${hasEnd ? sql`and (seq, id) < (coalesce((select seq from after_range), ${SEQ_MAX}), coalesce((select id from after_range), ''))` : sql``}
       ${event === null ? sql`` : sql`and event = ${event}`}
       ${actorId === null ? sql`` : sql`and actor_id = ${actorId}`}
       ${resourceId === null ? sql`` : sql`and resources @> jsonb_build_array(jsonb_build_object('id', ${resourceId}::text))`}
       ${pairs === null ? sql`` : sql`and audit_pairs(event, actor_id, resources) @> ${JSON.stringify(pairs)}::text::jsonb`}
       ${start === null ? sql`` : sql`and occurred_at >= ${start}`}
       ${end === null ? sql`` : sql`and occurred_at < ${end}`}
     order by seq ${direction}, id ${direction} limit ${limit + 1})`
  const isIn = (part: Part | null) => {
    if (part === null) return sql``
    if (part === 'before months') return sql`and era = 0`
    return sql`and era is null and occurred_at >= ${sql.unsafe(`${part.from}`)} and occurred_at < ${sql.unsafe(`${part.to}`)}`
  }
  const isFoundInOrder = resourceId === null && pairs === null
  const parts = isFoundInOrder ? [null] : await listParts(sql, { start, end })
  const pages = parts.map(pageOf).reduce((all, page) => sql`${all} union all ${page}`)
  const rows = await sql<(AuditEventRow & { wanted: number })[]>`
      with before_page as materialized (
           select seq, id from (${upTo(afterId)} union all ${upTo(startId)}) as p order by seq desc, id desc limit 1
           ),
           after_range as materialized (
           select seq, id from (${from(endId)} union all ${from(beforeId)}) as p order by seq, id limit 1
           ),
           page as (
           select * from (${pages}) as found
            order by seq ${direction}, id ${direction} limit ${limit + 1}
           ),
           sized as (
           select page.*, sum(octet_length(resources::text)) over (order by seq ${direction}, id ${direction}) - octet_length(resources::text) as bytes_before,
                  count(*) over ()::integer as wanted
             from page
           )
    select id, event, actor_type as "actorType", actor_id as "actorId", resources, description, location,
           user_agent as "userAgent", occurred_at as "occurredAt", wanted
      from sized
     where bytes_before < ${PAGE_BYTES_MAX}
     order by seq ${direction}, id ${direction}`
  const [first] = rows
  return {
    isCut: first !== undefined && rows.length < first.wanted,
    rows: rows.map(({ wanted: _, ...row }) => row),
  }
}

/** A part of the log; the others by time, Unix ms. */
type Part = 'before months' | { from: number; to: number }

/**
 * The parts of the log that may hold events of that time: what was there before the log had months, each month, and what is
 * between them.
 *
 * Indexes for a resource or several filters have no order. Postgres decides for all months in a statement alike whether to
 * use these or to walk through the events in order, and for a resource that was busy last month and unknown before, both
 * read too much. So each part gets its own page, and its own plan. Their bounds are no parameters, as a plan for all bounds
 * would be of no part.
 */
async function listParts(
  sql: AnySql,
  { start, end }: Pick<AuditEventFilter, 'start' | 'end'>,
): Promise<Part[]> {
  const rows = await sql<{ month: string }[]>`
    select right(c.relname::text, 6) as month
      from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = 'audit_events_by_month'::regclass
     order by 1`
  const starts = rows
    .filter(({ month }) => /^\d{6}$/.test(month))
    .map(({ month }) => Date.UTC(Number(month.slice(0, 4)), Number(month.slice(4)) - 1))
  const edges = [...new Set([FIRST_MS, ...starts.flatMap((at) => [at, startOfMonth(at, 1)]), LAST_MS])]
  return [
    'before months',
    ...edges
      .map((from, index) => ({ from, to: edges[index + 1] ?? from }))
      .filter(({ from, to }) => from < to && from < (end ?? LAST_MS) && to > (start ?? FIRST_MS)),
  ]
}

/** Before and after every event. */
const FIRST_MS = Number.MIN_SAFE_INTEGER
const LAST_MS = Number.MAX_SAFE_INTEGER

/**
 * What events that match two or three filters have in `audit_pairs` (sql/0022); null = at most one is set. Without it, two
 * filters that each find most of the log and together nothing would read all of it.
 */
function pairsOf({ event, actorId, resourceId }: Pick<AuditEventFilter, 'event' | 'actorId' | 'resourceId'>) {
  const pairs: Record<string, unknown> = {}
  if (resourceId !== null && !resourceId.startsWith('key_'))
    for (const of of [event, actorId]) if (of !== null) pairs[of] = [resourceId]
  if (event !== null && actorId !== null) pairs.by = { [event]: actorId }
  return Object.keys(pairs).length === 0 ? null : pairs
}

/** A page ends with the event whose resources take it past this: about 4 ms of a thread. */
const PAGE_BYTES_MAX = 500_000

/**
 * Largest distance between an event's time and its place in the order: clocks of servers differ, and an event gets its time
 * before its transaction waits for locks.
 */
const CLOCKS_APART_MS = HOUR_MS

/** Largest bigint, after every event. */
const SEQ_MAX = '9223372036854775807'
