import type { AnySql } from '../../db/connect.ts'
import type { WorkspaceId } from '../../lib/ids.ts'

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

/** Roles by id or by name, locked against deletion until the transaction ends. */
export async function holdRoles(
  tx: AnySql,
  workspaceId: WorkspaceId,
  { ids, names }: { ids: readonly string[]; names: readonly string[] },
): Promise<RoleRow[]> {
  return await tx<RoleRow[]>`
    select id, name, description from roles
     where workspace_id = ${workspaceId}
       and (id = any(${ids as string[]}::text[]) or name = any(${names as string[]}::text[]))
     order by id for key share`
}

/** As {@link holdRoles}, for permissions by id or by slug. */
export async function holdPermissions(
  tx: AnySql,
  workspaceId: WorkspaceId,
  { ids, slugs }: { ids: readonly string[]; slugs: readonly string[] },
): Promise<PermissionRow[]> {
  return await tx<PermissionRow[]>`
    select id, name, slug, description from permissions
     where workspace_id = ${workspaceId}
       and (id = any(${ids as string[]}::text[]) or slug = any(${slugs as string[]}::text[]))
     order by id for key share`
}

export type NewRole = { id: string; name: string; description: string | null }

/**
 * Creates the roles whose name is free. Of two transactions at once, one creates it.
 * @returns the ids of those created here.
 */
export async function insertRoles(
  sql: AnySql,
  workspaceId: WorkspaceId,
  roles: readonly NewRole[],
  now: number,
): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`
    insert into roles (id, workspace_id, name, description, created_at)
    select r.id, ${workspaceId}, r.name, r.description, ${now}
      from unnest(${roles.map(({ id }) => id)}::text[], ${roles.map(({ name }) => name)}::text[],
                  ${roles.map(({ description }) => description)}::text[]) as r (id, name, description)
     order by r.name collate "C"
    on conflict (workspace_id, name) do nothing
    returning id`
  return rows.map(({ id }) => id)
}

export type NewPermission = NewRole & { slug: string }

/** As {@link insertRoles}. A permission's slug must be free, its name need not be. */
export async function insertPermissions(
  sql: AnySql,
  workspaceId: WorkspaceId,
  permissions: readonly NewPermission[],
  now: number,
): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`
    insert into permissions (id, workspace_id, name, slug, description, created_at)
    select p.id, ${workspaceId}, p.name, p.slug, p.description, ${now}
      from unnest(${permissions.map(({ id }) => id)}::text[], ${permissions.map(({ name }) => name)}::text[],
                  ${permissions.map(({ slug }) => slug)}::text[],
                  ${permissions.map(({ description }) => description)}::text[]) as p (id, name, slug, description)
     order by p.slug collate "C"
    on conflict (workspace_id, slug) do nothing
    returning id`
  return rows.map(({ id }) => id)
}

export async function findRole(sql: AnySql, workspaceId: WorkspaceId, id: string): Promise<RoleRow | null> {
  const [row] = await sql<RoleRow[]>`
    select id, name, description from roles where workspace_id = ${workspaceId} and id = ${id}`
  return row ?? null
}

export async function findPermission(
  sql: AnySql,
  workspaceId: WorkspaceId,
  id: string,
): Promise<PermissionRow | null> {
  const [row] = await sql<PermissionRow[]>`
    select id, name, slug, description from permissions where workspace_id = ${workspaceId} and id = ${id}`
  return row ?? null
}

/** All roles of the workspace, by id. Sorted after they are found: by id alone, those of all workspaces would be read. */
export async function listRoleRows(sql: AnySql, workspaceId: WorkspaceId): Promise<RoleRow[]> {
  return await sql<RoleRow[]>`
    with own as materialized (select id, name, description from roles where workspace_id = ${workspaceId})
    select id, name, description from own order by id`
}

/** All permissions of the workspace, as {@link listRoleRows}. */
export async function listPermissionRows(sql: AnySql, workspaceId: WorkspaceId): Promise<PermissionRow[]> {
  return await sql<PermissionRow[]>`
    with own as materialized (select id, name, slug, description from permissions where workspace_id = ${workspaceId})
    select id, name, slug, description from own order by id`
}

/** A sweep removes its links to keys (sql/0020). @returns its name; null when there is no such role. */
export async function removeRole(
  sql: AnySql,
  workspaceId: WorkspaceId,
  id: string,
): Promise<{ name: string } | null> {
  const [row] = await sql<{ name: string }[]>`
    delete from roles where workspace_id = ${workspaceId} and id = ${id} returning name`
  return row ?? null
}

/** A sweep removes its links to keys and roles (sql/0020). @returns its slug; null when there is no such permission. */
export async function removePermission(
  sql: AnySql,
  workspaceId: WorkspaceId,
  id: string,
): Promise<{ name: string; slug: string } | null> {
  const [row] = await sql<{ name: string; slug: string }[]>`
    delete from permissions where workspace_id = ${workspaceId} and id = ${id} returning name, slug`
  return row ?? null
}

/** Locks a role until the transaction ends: other changes of its permissions wait. */
export async function holdRole(tx: AnySql, workspaceId: WorkspaceId, id: string): Promise<RoleRow | null> {
  const [row] = await tx<RoleRow[]>`
    select id, name, description from roles
     where workspace_id = ${workspaceId} and id = ${id} for no key update`
  return row ?? null
}

export async function listRolePermissions(
  sql: AnySql,
  workspaceId: WorkspaceId,
  roleId: string,
): Promise<PermissionRow[]> {
  return await sql<PermissionRow[]>`
    select p.id, p.name, p.slug, p.description
      from roles_permissions l join permissions p on p.id = l.permission_id
     where l.workspace_id = ${workspaceId} and l.role_id = ${roleId}
     order by p.id`
}

export async function insertRolePermissions(
  sql: AnySql,
  workspaceId: WorkspaceId,
  { roleId, permissionIds, now }: { roleId: string; permissionIds: readonly string[]; now: number },
): Promise<void> {
  if (permissionIds.length === 0) return
  await sql`
    insert into roles_permissions (role_id, permission_id, workspace_id, created_at)
    select ${roleId}, p.id, ${workspaceId}, ${now} from unnest(${permissionIds as string[]}::text[]) as p (id)
    on conflict do nothing`
}

export async function deleteRolePermissions(
  sql: AnySql,
  workspaceId: WorkspaceId,
  { roleId, permissionIds }: { roleId: string; permissionIds: readonly string[] },
): Promise<void> {
  if (permissionIds.length === 0) return
  await sql`
    delete from roles_permissions
     where workspace_id = ${workspaceId} and role_id = ${roleId}
       and permission_id = any(${permissionIds as string[]}::text[])`
}
