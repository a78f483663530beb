import type { AuditResource } from '../../audit/log.ts'
import type { AnySql } from '../../db/connect.ts'
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

/**
 * Events after the event `cursor`, oldest first: up to `limit + 1`, or fewer where they are long, so that a page does not
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
  { limit, cursor }: { limit: number; cursor: string },
): Promise<{ rows: AuditEventRow[]; isCut: boolean }> {
  const startId = start === null ? '' : firstIdAt('log', start - CLOCKS_APART_MS)
  // A range that has not ended, on any server's clock, may still get events.
  const isOver = end !== null && end + CLOCKS_APART_MS < Date.now()
  const beforeId = isOver ? firstIdAt('log', end + CLOCKS_APART_MS) : ''
  const pairs = pairsOf({ event, actorId, resourceId })
  const hasFirst = cursor !== '' || startId !== ''
  // A cursor that names no event of this workspace stands where an event of that id would.
  const upTo = (id: string) => sql`
    (select seq, id from audit_events where workspace_id = ${workspaceId} and id <= ${id} order by id desc limit 1)`
  const rows = await sql<(AuditEventRow & { wanted: number })[]>`
      with before_page as materialized (
           select seq, id from (${upTo(cursor)} union all ${upTo(startId)}) as p order by seq desc, id desc limit 1
           ),
           after_range as materialized (
           select seq, id from audit_events where workspace_id = ${workspaceId} and id >= ${beforeId} order by id limit 1
           )
    select id, event, "actorType", "actorId", resources, description, location, "userAgent", "occurredAt", wanted
      from (select page.*, sum(bytes) over (order by seq, id) - bytes as bytes_before, count(*) over ()::integer as wanted
              from (
    select id, event, actor_type as "actorType", actor_id as "actorId", resources, description, location,
           user_agent as "userAgent", occurred_at as "occurredAt",
           seq, octet_length(resources::text) as bytes
      from audit_events
     where workspace_id = ${workspaceId}
       ${hasFirst ? sql`and (seq, id) > (coalesce((select seq from before_page), -1), coalesce((select id from before_page), ''))` : sql``}
       ${isOver ? sql`and (seq, id) < (coalesce((select seq from after_range), ${SEQ_MAX}), coalesce((select id from after_range), ''))` : sql``}
       ${event === null ? sql`` : sql`and event = ${event}`}
       ${actorId === null ? sql`` : sql`and actor_id = ${actorId}`}
       ${resourceId === null ? sql`` : sql`and resources @> jsonb_build_array(jsonb_build_object('id', ${resourceId}::text))`}
       ${pairs === null ? sql`` : sql`and audit_pairs(event, actor_id, resources) @> ${JSON.stringify(pairs)}::text::jsonb`}
       ${start === null ? sql`` : sql`and occurred_at >= ${start}`}
       ${end === null ? sql`` : sql`and occurred_at < ${end}`}
     order by seq, id limit ${limit + 1}
                   ) as page
           ) as sized
     where bytes_before < ${PAGE_BYTES_MAX}
     order by seq, id`
  const [first] = rows
  return {
    isCut: first !== undefined && rows.length < first.wanted,
    rows: rows.map(({ wanted: _, ...row }) => row),
  }
}

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
