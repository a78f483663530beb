import type { AnySql } from '../../db/connect.ts'
import { totalOf } from '../../db/lists.ts'
import type { Bounds } from '../../lib/workspace-bounds.ts'

export type WorkspaceRow = {
  id: string
  name: string
  enabled: boolean
  createdAt: number
  /** Bounds that differ from the default; null = none do. */
  bounds: Partial<Bounds> | null
}

/** @returns false when the id exists. */
export async function insertWorkspace(
  sql: AnySql,
  { id, name, now }: { id: string; name: string; now: number },
): Promise<boolean> {
  const rows = await sql`
    insert into workspaces (id, name, created_at) values (${id}, ${name}, ${now})
    on conflict (id) do nothing returning 1`
  return rows.length > 0
}

export async function findWorkspace(sql: AnySql, id: string): Promise<WorkspaceRow | null> {
  const [row] = await sql<WorkspaceRow[]>`
    select id, name, enabled, created_at as "createdAt", bounds from workspaces where id = ${id}`
  return row ?? null
}

/**
 * Locks a workspace until the transaction ends: the second of two changes at once sees the first. Creating things in the
 * workspace does not wait for this lock.
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

/**
 * By id, after `cursor`, up to `limit + 1` rows, without the workspace of the root keys: the extra one shows that there is
 * another page.
 */
export async function listWorkspaceRows(
  sql: AnySql,
  { limit, cursor }: { limit: number; cursor: string },
): Promise<WorkspaceRow[]> {
  return await sql<WorkspaceRow[]>`
    select id, name, enabled, created_at as "createdAt", bounds from workspaces
     where id > ${cursor} and id <> 'ws_root' order by id limit ${limit + 1}`
}

export async function countWorkspaces(sql: AnySql): Promise<number> {
  return await totalOf(sql, 'ws_root', 'workspaces')
}
