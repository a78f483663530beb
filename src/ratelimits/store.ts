import type { AnySql } from '../db/connect.ts'
import type { WorkspaceId } from '../lib/ids.ts'

export type OverrideRow = {
  id: string
  identifier: string
  limit: number
  durationMs: number
  async: boolean | null
}
export type NamespaceRow = { id: string; name: string; overrides: OverrideRow[] }

/** A live namespace by name, with all its live overrides: one round trip. */
export async function findNamespaceByName(
  sql: AnySql,
  workspaceId: string,
  name: string,
): Promise<NamespaceRow | null> {
  const [row] = await sql<NamespaceRow[]>`
    select n.id, n.name,
           coalesce((select json_agg(json_build_object('id', o.id, 'identifier', o.identifier, 'limit', o."limit",
                                                       'durationMs', o.duration_ms, 'async', o.async) order by o.id)
                       from ratelimit_overrides o
                      where o.namespace_id = n.id and o.deleted_at is null), '[]') as overrides
      from ratelimit_namespaces n
     where n.workspace_id = ${workspaceId} and n.name = ${name} and n.deleted_at is null`
  return row ?? null
}

/** @returns false when a live namespace of that name exists already, made by someone else perhaps a moment ago. */
export async function insertNamespace(
  sql: AnySql,
  { id, workspaceId, name, now }: { id: string; workspaceId: WorkspaceId; name: string; now: number },
): Promise<boolean> {
  const rows = await sql`
    insert into ratelimit_namespaces (id, workspace_id, name, created_at)
    values (${id}, ${workspaceId}, ${name}, ${now})
    on conflict (workspace_id, name) where deleted_at is null do nothing
    returning 1`
  return rows.length > 0
}
