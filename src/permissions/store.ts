import type { AnySql } from '../db/connect.ts'
import type { WorkspaceId } from '../lib/ids.ts'

export type RoleRow = { id: string; name: string; description: string | null }
export type PermissionRow = { id: string; name: string; slug: string; description: string | null }

export async function findRolesByName(
  sql: AnySql,
  workspaceId: WorkspaceId,
  names: readonly string[],
): Promise<RoleRow[]> {
  return await sql<RoleRow[]>`
    select id, name, description from roles
     where workspace_id = ${workspaceId} and name = any(${names as string[]}::text[]) order by id`
}

export async function findPermissionsBySlug(
  sql: AnySql,
  workspaceId: WorkspaceId,
  slugs: readonly string[],
): Promise<PermissionRow[]> {
  return await sql<PermissionRow[]>`
    select id, name, slug, description from permissions
     where workspace_id = ${workspaceId} and slug = any(${slugs as string[]}::text[]) order by id`
}
