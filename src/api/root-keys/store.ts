import { countGone } from '../../db/bounds.ts'
import type { AnySql } from '../../db/connect.ts'
import { idsOfPage, type ListIndex } from '../../db/lists.ts'
import type { WorkspaceId } from '../../lib/ids.ts'

/** The workspace that holds the rows of all root keys (sql/0001). */
export const ROOT_WORKSPACE_ID = 'ws_root'
export const ROOT_KEYSPACE_ID = 'ks_root'

export type RootKeyRow = {
  id: string
  name: string | null
  start: string
  permissions: string[]
  isOperator: boolean
  enabled: boolean
  expiresAt: number | null
  createdAt: number
  /** The root key that created it. Null = created at a start, or before this column existed. */
  grantedBy: string | null
}

export type NewRootKey = {
  id: string
  hash: string
  start: string
  name: string | null
  forWorkspaceId: string
  permissions: readonly string[]
  isOperator: boolean
  expiresAt: number | null
  grantedBy: string | null
  now: number
}

/** @returns false when a key with this hash exists, deleted ones included. */
export async function insertRootKey(sql: AnySql, key: NewRootKey): Promise<boolean> {
  const rows = await sql`
    insert into keys (id, workspace_id, keyspace_id, hash, start, name, for_workspace_id, root_permissions, is_operator,
                      expires_at, granted_by, created_at)
    values (${key.id}, ${ROOT_WORKSPACE_ID}, ${ROOT_KEYSPACE_ID}, ${key.hash}, ${key.start}, ${key.name},
            ${key.forWorkspaceId}, ${key.permissions as string[]}::text[], ${key.isOperator}, ${key.expiresAt},
            ${key.grantedBy}, ${key.now})
    on conflict (hash) do nothing
    returning 1`
  return rows.length > 0
}

/** Locks a root key against changes until the transaction ends, so that it still holds what it grants meanwhile. */
export async function holdRootKey(tx: AnySql, id: string): Promise<void> {
  await tx`select 1 from keys where keyspace_id = ${ROOT_KEYSPACE_ID} and id = ${id} for share`
}

/**
 * Locks the root key that changes and the one that is changed until the transaction ends, so that what is read of both
 * stays true. For an operator root key it locks all operator root keys: otherwise two transactions could each delete one of
 * the last two.
 */
export async function lockRootKeys(
  sql: AnySql,
  workspaceId: WorkspaceId,
  { id, actorId }: { id: string; actorId: string },
): Promise<void> {
  // In one statement, in the order of their ids: transactions that lock the same rows then do not deadlock.
  await sql`
    select 1 from keys
     where keyspace_id = ${ROOT_KEYSPACE_ID} and deleted_at is null
       and ((for_workspace_id = ${workspaceId} and id in (${id}, ${actorId}))
         or (is_operator and exists (select 1 from keys
                                      where for_workspace_id = ${workspaceId} and id = ${id} and is_operator)))
     order by id
       for update`
}

/** A root key that descends from another. */
export type GrantedRow = RootKeyRow & { workspaceId: string }

/**
 * Locks the root keys that descend from this one: that it created, directly or through others (also through deleted ones),
 * and returns those not deleted. A root key that is being created holds its creator's lock, so the search waits for it, and
 * repeats until it finds no more.
 * @param options.withSuccessors Also what it and they were rerolled into.
 */
export async function lockGranted(
  tx: AnySql,
  id: string,
  { withSuccessors }: { withSuccessors: boolean },
): Promise<GrantedRow[]> {
  for (let known = 0; ; ) {
    const ids = await tx<{ id: string }[]>`
      with recursive granted as (
        select ${id}::text collate "C" as id
         union
        select next.id
          from granted
         cross join lateral (
            select k.id from keys k where k.granted_by = granted.id
             union all
            select k.successor_id from keys k
             where k.id = granted.id and k.successor_id is not null and ${withSuccessors}::boolean) as next
      )
      select id from granted order by id`
    if (ids.length === known)
      return await tx<GrantedRow[]>`
        select ${rootKeyColumns(tx)}, for_workspace_id as "workspaceId" from keys
         where id = any(${ids.map((row) => row.id)}::text[]) and id <> ${id} and deleted_at is null order by id`
    known = ids.length
    await tx`select 1 from keys where id = any(${ids.map((row) => row.id)}::text[]) order by id for update`
  }
}

/** What this root key created counts as created by its successor from now on. */
export async function moveGranted(tx: AnySql, id: string, successorId: string): Promise<void> {
  await tx`update keys set granted_by = ${successorId} where granted_by = ${id} and id <> ${successorId}`
}

const rootKeyColumns = (sql: AnySql) => sql`
  id, name, start, root_permissions as permissions, is_operator as "isOperator", enabled, expires_at as "expiresAt",
  created_at as "createdAt", granted_by as "grantedBy"`

/** A root key that acts for the workspace. Null when absent, deleted or of another workspace. */
export async function findRootKey(
  sql: AnySql,
  workspaceId: WorkspaceId,
  id: string,
): Promise<RootKeyRow | null> {
  const [row] = await sql<RootKeyRow[]>`
    select ${rootKeyColumns(sql)} from keys
     where for_workspace_id = ${workspaceId} and id = ${id} and deleted_at is null`
  return row ?? null
}

/** What a root key that acts for the workspace is found by, also of a deleted one. Null when it is absent. */
export async function findAnyRootKeyHash(
  sql: AnySql,
  workspaceId: WorkspaceId,
  id: string,
): Promise<string | null> {
  const [row] = await sql<{ hash: string }[]>`
    select hash from keys where for_workspace_id = ${workspaceId} and id = ${id}`
  return row?.hash ?? null
}

/**
 * By id, after `cursor`, up to `limit + 1` rows: the extra one shows that there is another page.
 * @param options.grantedBy Null = no filter.
 */
export async function listRootKeyRows(
  sql: AnySql,
  workspaceId: WorkspaceId,
  { limit, cursor, grantedBy = null }: { limit: number; cursor: string; grantedBy?: string | null },
): Promise<RootKeyRow[]> {
  const index: ListIndex =
    grantedBy === null
      ? {
          table: 'keys',
          of: { for_workspace_id: workspaceId },
          where: 'for_workspace_id is not null and deleted_at is null',
        }
      : {
          table: 'keys',
          of: { for_workspace_id: workspaceId, granted_by: grantedBy },
          where: 'granted_by is not null and deleted_at is null',
        }
  return await sql<RootKeyRow[]>`
    select k.*
      from ${idsOfPage(sql, index, { cursor, rows: limit + 1 })}
     cross join lateral (select ${rootKeyColumns(sql)} from keys where id = page.id offset 0) as k
     order by k.id`
}

/** Of a filter it counts what the filter finds, which is bounded as root keys are. */
export async function countRootKeys(
  sql: AnySql,
  workspaceId: WorkspaceId,
  grantedBy: string | null = null,
): Promise<number> {
  const [row] = await sql<{ total: number }[]>`
    select ${grantedBy === null ? sql`total_of(${workspaceId}, 'rootKeys') +` : sql``} count(*)::integer as total from keys
     where for_workspace_id = ${workspaceId} and deleted_at is null
       and ${grantedBy === null ? sql`is_operator` : sql`granted_by = ${grantedBy}`}`
  return row?.total ?? 0
}

export type RootKeyChange = {
  name: string | null
  permissions: readonly string[]
  enabled: boolean
  expiresAt: number | null
}

/** @returns its hash; null when it is deleted. */
export async function changeRootKey(
  sql: AnySql,
  id: string,
  change: RootKeyChange,
  now: number,
): Promise<string | null> {
  const [row] = await sql<{ hash: string }[]>`
    update keys
       set name = ${change.name}, root_permissions = ${change.permissions as string[]}::text[],
           enabled = ${change.enabled}, expires_at = ${change.expiresAt}, updated_at = ${now}
     where id = ${id} and deleted_at is null
 returning hash`
  return row?.hash ?? null
}

/** Gives these root keys an end. The caller has locked them. */
export async function endRootKeys(
  tx: AnySql,
  ids: readonly string[],
  { expiresAt, now }: { expiresAt: number; now: number },
): Promise<void> {
  if (ids.length === 0) return
  await tx`
    update keys set expires_at = ${expiresAt}, updated_at = ${now}
     where id = any(${ids as string[]}::text[]) and deleted_at is null`
}

/** Disables these root keys. The caller has locked them. */
export async function disableRootKeys(tx: AnySql, ids: readonly string[], now: number): Promise<void> {
  if (ids.length === 0) return
  await tx`
    update keys set enabled = false, updated_at = ${now}
     where id = any(${ids as string[]}::text[]) and deleted_at is null`
}

/** The rows stay, so that the same text can never be registered again. */
export async function softDeleteRootKeys(sql: AnySql, ids: readonly string[], now: number): Promise<void> {
  if (ids.length === 0) return
  const rows = await sql<{ workspaceId: string; isOperator: boolean }[]>`
    update keys set deleted_at = ${now}, updated_at = ${now}
     where id = any(${ids as string[]}::text[]) and deleted_at is null
 returning for_workspace_id as "workspaceId", is_operator as "isOperator"`
  const counted = Map.groupBy(
    rows.filter(({ isOperator }) => !isOperator),
    ({ workspaceId }) => workspaceId,
  )
  // In a fixed order, as this locks the workspaces' counts.
  for (const [workspaceId, gone] of [...counted].sort(([a], [b]) => (a < b ? -1 : 1)))
    await countGone(sql, workspaceId, { name: 'rootKeys', rows: gone.length })
}

/** Number of other operator root keys that hold `*` and never end. */
export async function countOtherOperatorKeys(sql: AnySql, id: string): Promise<number> {
  const [row] = await sql<{ total: number }[]>`
    select count(*)::integer as total from keys
     where is_operator and deleted_at is null and enabled and expires_at is null and '*' = any(root_permissions)
       and id <> ${id}`
  return row?.total ?? 0
}

/** At start: the operator root key of a text, by its hash. */
export async function findOperatorKeyByHash(
  sql: AnySql,
  hash: string,
): Promise<{ isOperator: boolean; isDeleted: boolean } | null> {
  const [row] = await sql<{ isOperator: boolean; isDeleted: boolean }[]>`
    select is_operator as "isOperator", deleted_at is not null as "isDeleted" from keys where hash = ${hash}`
  return row ?? null
}

/** The workspace that a first start made; null = there was none. */
export async function findDefaultWorkspace(sql: AnySql): Promise<WorkspaceId | null> {
  const [row] = await sql<{ id: WorkspaceId }[]>`
    select w.id from settings s join workspaces w on w.id = s.value where s.name = 'default_workspace_id'`
  return row?.id ?? null
}

/** Locks all operator root keys until the transaction ends. */
export async function lockOperatorKeys(tx: AnySql): Promise<RootKeyRow[]> {
  return await tx<RootKeyRow[]>`
    select ${rootKeyColumns(tx)} from keys
     where keyspace_id = ${ROOT_KEYSPACE_ID} and is_operator and deleted_at is null order by id for update`
}

export async function hasOperatorKey(sql: AnySql): Promise<boolean> {
  const rows = await sql`select 1 from keys where is_operator and deleted_at is null limit 1`
  return rows.length > 0
}
