import type { AnySql } from '../db/connect.ts'
import type { WorkspaceId } from '../lib/ids.ts'

/** Id by externalId, for those that exist. */
export async function findIdentityIds(
  sql: AnySql,
  workspaceId: WorkspaceId,
  externalIds: readonly string[],
): Promise<Map<string, string>> {
  const rows = await sql<{ id: string; externalId: string }[]>`
    select id, external_id as "externalId" from identities
     where workspace_id = ${workspaceId} and external_id = any(${externalIds as string[]}::text[])`
  return new Map(rows.map(({ id, externalId }) => [externalId, id]))
}

/** Makes those that do not exist yet; of two makers at once, one makes it. @returns the ones made here. */
export async function insertMissingIdentities(
  sql: AnySql,
  workspaceId: WorkspaceId,
  identities: readonly { id: string; externalId: string }[],
  now: number,
): Promise<{ id: string; externalId: string }[]> {
  return await sql<{ id: string; externalId: string }[]>`
    insert into identities (id, workspace_id, external_id, created_at)
    select i.id, ${workspaceId}, i.external_id, ${now}
      from unnest(${identities.map(({ id }) => id)}::text[], ${identities.map(({ externalId }) => externalId)}::text[])
        as i (id, external_id)
     order by i.external_id collate "C"
    on conflict (workspace_id, external_id) do nothing
    returning id, external_id as "externalId"`
}
