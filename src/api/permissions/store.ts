import type { AnySql } from '../../db/connect.ts'
import type { SearchedList } from '../../db/search.ts'
import type { WorkspaceId } from '../../lib/ids.ts'
import { PAGE_BYTES_MAX } from '../../lib/page.ts'

export type RoleRow = { id: string; name: string; description: string | null }
export type PermissionRow = { id: string; name: string; slug: string; description: string | null }
/** Sorted by slug. */
export type RoleWithPermissions = RoleRow & { permissions: PermissionRow[] }

/**
 * The name of a role or permission: its id, or a text that is its id or its unique text (a role's name, a permission's slug).
 * The one with that id wins.
 */
export type LinkName = { id: string } | { idOrText: string }

export const textOf = (by: LinkName): string => ('id' in by ? by.id : by.idOrText)

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

const idOfRole = (sql: AnySql, workspaceId: WorkspaceId, by: LinkName) =>
  'id' in by
    ? sql`${by.id}`
    : sql`coalesce((select id from roles where workspace_id = ${workspaceId} and id = ${by.idOrText}),
                   (select id from roles where workspace_id = ${workspaceId} and name = ${by.idOrText}))`

const idOfPermission = (sql: AnySql, workspaceId: WorkspaceId, by: LinkName) =>
  'id' in by
    ? sql`${by.id}`
    : sql`coalesce((select id from permissions where workspace_id = ${workspaceId} and id = ${by.idOrText}),
                   (select id from permissions where workspace_id = ${workspaceId} and slug = ${by.idOrText}))`

export async function findRole(sql: AnySql, workspaceId: WorkspaceId, by: LinkName): Promise<RoleRow | null> {
  const [row] = await sql<RoleRow[]>`
    select id, name, description from roles
     where workspace_id = ${workspaceId} and id = ${idOfRole(sql, workspaceId, by)}`
  return row ?? null
}

export async function findPermission(
  sql: AnySql,
  workspaceId: WorkspaceId,
  by: LinkName,
): Promise<PermissionRow | null> {
  const [row] = await sql<PermissionRow[]>`
    select id, name, slug, description from permissions
     where workspace_id = ${workspaceId} and id = ${idOfPermission(sql, workspaceId, by)}`
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

/** A search looks at id, name, slug and description. */
export const permissionList = (workspaceId: WorkspaceId): SearchedList => ({
  table: 'permissions',
  of: { workspace_id: workspaceId },
  columns: ['id', 'name', 'slug', 'description'],
})

/** These permissions by id; those that are gone are left out. */
export async function readPermissions(
  sql: AnySql,
  workspaceId: WorkspaceId,
  ids: readonly string[],
): Promise<PermissionRow[]> {
  if (ids.length === 0) return []
  return await sql<PermissionRow[]>`
    select p.id, p.name, p.slug, p.description
      from unnest(${ids as string[]}::text[]) as wanted (id)
     cross join lateral (select id, name, slug, description from permissions
                          where workspace_id = ${workspaceId} and id = wanted.id offset 0) as p
     order by p.id`
}

/** A search looks at id, name and description. */
export const roleList = (workspaceId: WorkspaceId): SearchedList => ({
  table: 'roles',
  of: { workspace_id: workspaceId },
  columns: ['id', 'name', 'description'],
})

/**
 * These roles by id, with their permissions; those that are gone are left out. Fewer where they have many permissions, so that
 * a page does not hold the thread: they are weighed one after the other, until there are enough.
 * @param ids Ascending.
 * @returns `isCut` = the page ended early because of its length; more of these roles follow.
 */
export async function readRoles(
  sql: AnySql,
  workspaceId: WorkspaceId,
  ids: readonly string[],
): Promise<{ rows: RoleWithPermissions[]; isCut: boolean }> {
  if (ids.length === 0) return { rows: [], isCut: false }
  const rows = await sql<(RoleWithPermissions & { wanted: number })[]>`
    with recursive wanted as materialized (
      select array_agg(r.id order by r.id) as ids
        from unnest(${ids as string[]}::text[]) as wanted (id)
       cross join lateral (select id from roles where workspace_id = ${workspaceId} and id = wanted.id offset 0) as r
    ), page (at, before) as (
      select 1, 0::bigint from wanted where ids is not null
      union all
      select page.at + 1, page.before + sized.bytes
        from page
       cross join wanted
       cross join lateral (
         select coalesce(sum(${PERMISSION_BYTES}::integer + octet_length(p.name) + octet_length(p.slug)
                             + coalesce(octet_length(p.description), 0)), 0)::bigint as bytes
           from ${permissionsOf(sql, sql`wanted.ids[page.at]`)}
         offset 0) as sized
       where page.at < cardinality(wanted.ids) and page.before + sized.bytes < ${PAGE_BYTES_MAX}
    )
    select r.id, r.name, r.description, cardinality(wanted.ids) as wanted,
           coalesce((select json_agg(json_build_object('id', p.id, 'name', p.name, 'slug', p.slug, 'description', p.description)
                                     order by p.slug)
                       from ${permissionsOf(sql, sql`r.id`)}), '[]') as permissions
      from page
     cross join wanted
     cross join lateral (select id, name, description from roles where id = wanted.ids[page.at] offset 0) as r
     order by r.id`
  return {
    isCut: rows.length < (rows[0]?.wanted ?? 0),
    rows: rows.map(({ wanted: _, ...row }) => row),
  }
}

/** Permissions of one role, each found by its id, as the table `p` of a statement. */
const permissionsOf = (sql: AnySql, roleId: ReturnType<AnySql>) => sql`
  (select permission_id from roles_permissions where role_id = ${roleId} offset 0) as link
  cross join lateral (select id, name, slug, description from permissions where id = link.permission_id offset 0) as p`

/** About what a permission takes in an answer, without its texts. */
const PERMISSION_BYTES = 80

/** A sweep removes its links to keys (sql/0020). @returns its name; null when there is no such role. */
export async function removeRole(
  sql: AnySql,
  workspaceId: WorkspaceId,
  by: LinkName,
): Promise<{ id: string; name: string } | null> {
  const [row] = await sql<{ id: string; name: string }[]>`
    delete from roles
     where workspace_id = ${workspaceId} and id = ${idOfRole(sql, workspaceId, by)} returning id, name`
  return row ?? null
}

/** A sweep removes its links to keys and roles (sql/0020). @returns its slug; null when there is no such permission. */
export async function removePermission(
  sql: AnySql,
  workspaceId: WorkspaceId,
  by: LinkName,
): Promise<{ id: string; name: string; slug: string } | null> {
  const [row] = await sql<{ id: string; name: string; slug: string }[]>`
    delete from permissions
     where workspace_id = ${workspaceId} and id = ${idOfPermission(sql, workspaceId, by)} returning id, name, slug`
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

export type Holders = {
  keys: number
  /** Of a permission; a role is in no roles. */
  roles: number
}

/**
 * Counts the keys of roles, or the keys and roles of permissions, each to `max`. Deleted keys count among the `10 * max` links
 * that are looked at, and are left out.
 * @returns by id.
 */
export async function countHolders(
  sql: AnySql,
  workspaceId: WorkspaceId,
  {
    table,
    column,
    ids,
    max,
  }: {
    table: 'keys_roles' | 'keys_permissions'
    column: 'role_id' | 'permission_id'
    ids: readonly string[]
    max: number
  },
): Promise<Map<string, Holders>> {
  if (ids.length === 0) return new Map()
  const rows = await sql<(Holders & { id: string })[]>`
    select wanted.id,
           (select count(*)::integer
              from (select 1 from (select key_id from ${sql(table)} where ${sql(column)} = wanted.id limit ${10 * max}) as link
                     cross join lateral (select 1 from keys where id = link.key_id and workspace_id = ${workspaceId}
                                            and deleted_at is null offset 0) as living
                     limit ${max}) as k) as keys,
           (select count(*)::integer
              from (select 1 from roles_permissions where permission_id = wanted.id limit ${max}) as r) as roles
      from unnest(${ids as string[]}::text[]) as wanted (id)`
  return new Map(rows.map(({ id, ...holders }) => [id, holders]))
}

/** The roles that have a permission, by id, up to `rows`. */
export async function findRolesWith(
  sql: AnySql,
  workspaceId: WorkspaceId,
  permissionId: string,
  rows: number,
): Promise<RoleRow[]> {
  return await sql<RoleRow[]>`
    select r.id, r.name, r.description
      from (select role_id from roles_permissions where permission_id = ${permissionId} offset 0) as link
     cross join lateral (select id, name, description from roles
                          where id = link.role_id and workspace_id = ${workspaceId} offset 0) as r
     order by r.id limit ${rows}`
}
