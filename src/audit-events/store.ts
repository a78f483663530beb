import type { AnySql } from '../db/connect.ts'
import type { WorkspaceId } from '../lib/ids.ts'

export type AuditEventRow = {
  id: string
  event: string
  actorType: string
  actorId: string
  resources: { type: string; id: string; name?: string; meta?: Record<string, unknown> }[]
  description: string
  location: string | null
  userAgent: string | null
  occurredAt: number
}

/** Null = any. */
export type AuditEventFilter = {
  event: string | null
  actorId: string | null
  resourceId: string | null
  /** Unix ms; from `start` on, before `end`. */
  start: number | null
  end: number | null
}

/** One more than `limit`, by id, after `cursor` and before `beforeId`; null = to the end. */
export async function listAuditEventRows(
  sql: AnySql,
  workspaceId: WorkspaceId,
  { event, actorId, resourceId, start, end }: AuditEventFilter,
  { limit, cursor, beforeId }: { limit: number; cursor: string; beforeId: string | null },
): Promise<AuditEventRow[]> {
  return await sql<AuditEventRow[]>`
    select id, event, actor_type as "actorType", actor_id as "actorId", resources, description, location,
           user_agent as "userAgent", occurred_at as "occurredAt"
      from audit_events
     where workspace_id = ${workspaceId} and id > ${cursor}
       ${beforeId === null ? sql`` : sql`and id < ${beforeId}`}
       ${event === null ? sql`` : sql`and event = ${event}`}
       ${actorId === null ? sql`` : sql`and actor_id = ${actorId}`}
       ${resourceId === null ? sql`` : sql`and resources @> jsonb_build_array(jsonb_build_object('id', ${resourceId}::text))`}
       ${start === null ? sql`` : sql`and occurred_at >= ${start}`}
       ${end === null ? sql`` : sql`and occurred_at < ${end}`}
     order by id limit ${limit + 1}`
}
