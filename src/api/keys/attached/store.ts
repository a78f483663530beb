import type { AnySql } from '../../../db/connect.ts'
import type { WorkspaceId } from '../../../lib/ids.ts'

export type AttachedPermission = { id: string; name: string; slug: string; description: string | null }
export type AttachedRole = {
  id: string
  name: string
  description: string | null
  permissions: AttachedPermission[]
}

/** Permissions held by the key itself, by slug. */
export async function listAttachedPermissions(
  sql: AnySql,
  workspaceId: WorkspaceId,
  keyId: string,
): Promise<AttachedPermission[]> {
  return await sql<AttachedPermission[]>`
    select p.id, p.name, p.slug, p.description
      from keys_permissions l join permissions p on p.id = l.permission_id
     where l.workspace_id = ${workspaceId} and l.key_id = ${keyId}
     order by p.slug`
}

/** Roles of the key with their permissions, by name. */
export async function listAttachedRoles(
  sql: AnySql,
  workspaceId: WorkspaceId,
  keyId: string,
): Promise<AttachedRole[]> {
  return await sql<AttachedRole[]>`
    select r.id, r.name, r.description,
           coalesce((select json_agg(json_build_object('id', p.id, 'name', p.name, 'slug', p.slug, 'description', p.description)
                                     order by p.slug)
                       from roles_permissions rp join permissions p on p.id = rp.permission_id
                      where rp.role_id = r.id), '[]') as permissions
      from keys_roles l join roles r on r.id = l.role_id
     where l.workspace_id = ${workspaceId} and l.key_id = ${keyId}
     order by r.name`
}
