import type { AnySql } from '../../db/connect.ts'
import type { Bounds } from '../../lib/workspace-bounds.ts'

export type WorkspaceRow = {
  id: string
  name: string
  enabled: boolean
  createdAt: number
  /** Where it has others than the rest; null = nowhere. */
  bounds: Partial<Bounds> | null
}

/** @returns false when the id exists already. */
export async function insertWorkspace(
  sql: AnySql,
  { id, name, now }: { id: string; name: string; now: number },
): Promise<boolean> {
  const rows = await sql`
    insert into workspaces (id, name, created_at) values (${id}, ${name}, ${now})
    on conflict (id) do nothing returning 1`
  return rows.length > 0
}

/**
 * One workspace, locked until the transaction ends: of two changes at once, the second sees the first. Not against what is
 * made in it meanwhile: that only asks for the workspace to be there.
 */
export async function lockWorkspace(sql: AnySql, id: string): Promise<WorkspaceRow | null> {
  const [row] = await sql<WorkspaceRow[]>`
    select id, name, enabled, created_at as "createdAt", bounds from workspaces
     where id = ${id} and id <> 'ws_root'
       for no key update`
  return row ?? null
}

export async function changeWorkspace(
  sql: AnySql,
  id: string,
  { name, enabled, now }: { name: string; enabled: boolean; now: number },
): Promise<void> {
  await sql`update workspaces set name = ${name}, enabled = ${enabled}, updated_at = ${now} where id = ${id}`
}

/** One more than `limit`, by id, after `cursor`. The workspace of the root keys themselves is not listed. */
export async function listWorkspaceRows(
  sql: AnySql,
  { limit, cursor }: { limit: number; cursor: string },
): Promise<WorkspaceRow[]> {
  return await sql<WorkspaceRow[]>`
    select id, name, enabled, created_at as "createdAt", bounds from workspaces
     where id > ${cursor} and id <> 'ws_root' order by id limit ${limit + 1}`
}

export async function countWorkspaces(sql: AnySql): Promise<number> {
  const [row] = await sql<{ total: number }[]>`
    select count(*)::integer as total from workspaces where id <> 'ws_root'`
  return row?.total ?? 0
}
