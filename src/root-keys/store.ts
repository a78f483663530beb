import { countGone } from '../db/bounds.ts'
import type { AnySql } from '../db/connect.ts'
import type { WorkspaceId } from '../lib/ids.ts'

/** Where root keys themselves live (sql/0001). */
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
  now: number
}

/** @returns false when a key of this hash exists already, deleted ones included. */
export async function insertRootKey(sql: AnySql, key: NewRootKey): Promise<boolean> {
  const rows = await sql`
    insert into keys (id, workspace_id, keyspace_id, hash, start, name, for_workspace_id, root_permissions, is_operator,
                      expires_at, created_at)
    values (${key.id}, ${ROOT_WORKSPACE_ID}, ${ROOT_KEYSPACE_ID}, ${key.hash}, ${key.start}, ${key.name},
            ${key.forWorkspaceId}, ${key.permissions as string[]}::text[], ${key.isOperator}, ${key.expiresAt}, ${key.now})
    on conflict (hash) do nothing
    returning 1`
  return rows.length > 0
}

/**
 * Keeps a root key from being changed by others until the transaction ends: what is read of it from now on holds. With an
 * operator's all operator root keys are kept, or of the last two that go at once, each would be let go for the other.
 */
export async function lockRootKey(sql: AnySql, workspaceId: WorkspaceId, id: string): Promise<void> {
  // In order of their ids, in one statement: two that lock the same ones then never wait for each other.
  await sql`
    select 1 from keys
     where keyspace_id = ${ROOT_KEYSPACE_ID} and deleted_at is null
       and ((for_workspace_id = ${workspaceId} and id = ${id})
         or (is_operator and exists (select 1 from keys
                                      where for_workspace_id = ${workspaceId} and id = ${id} and is_operator)))
     order by id
       for update`
}

/** One root key that acts for the workspace; null when absent, deleted or another workspace's. */
export async function findRootKey(
  sql: AnySql,
  workspaceId: WorkspaceId,
  id: string,
): Promise<RootKeyRow | null> {
  const [row] = await sql<RootKeyRow[]>`
    select id, name, start, root_permissions as permissions, is_operator as "isOperator", enabled,
           expires_at as "expiresAt", created_at as "createdAt"
      from keys
     where for_workspace_id = ${workspaceId} and id = ${id} and deleted_at is null`
  return row ?? null
}

/** One more than `limit`, by id, after `cursor`. */
export async function listRootKeyRows(
  sql: AnySql,
  workspaceId: WorkspaceId,
  { limit, cursor }: { limit: number; cursor: string },
): Promise<RootKeyRow[]> {
  return await sql<RootKeyRow[]>`
    select id, name, start, root_permissions as permissions, is_operator as "isOperator", enabled,
           expires_at as "expiresAt", created_at as "createdAt"
      from keys
     where for_workspace_id = ${workspaceId} and id > ${cursor} and deleted_at is null
     order by id limit ${limit + 1}`
}

export async function countRootKeys(sql: AnySql, workspaceId: WorkspaceId): Promise<number> {
  const [row] = await sql<{ total: number }[]>`
    select count(*)::integer as total from keys where for_workspace_id = ${workspaceId} and deleted_at is null`
  return row?.total ?? 0
}

export type RootKeyChange = {
  name: string | null
  permissions: readonly string[]
  enabled: boolean
  expiresAt: number | null
}

export async function changeRootKey(
  sql: AnySql,
  id: string,
  change: RootKeyChange,
  now: number,
): Promise<void> {
  await sql`
    update keys
       set name = ${change.name}, root_permissions = ${change.permissions as string[]}::text[],
           enabled = ${change.enabled}, expires_at = ${change.expiresAt}, updated_at = ${now}
     where id = ${id} and deleted_at is null`
}

/** The row stays, so that the same text can never be registered again. */
export async function softDeleteRootKey(sql: AnySql, id: string, now: number): Promise<void> {
  const [row] = await sql<{ workspaceId: string; isOperator: boolean }[]>`
    update keys set deleted_at = ${now}, updated_at = ${now} where id = ${id} and deleted_at is null
 returning for_workspace_id as "workspaceId", is_operator as "isOperator"`
  if (row === undefined || row.isOperator) return
  await countGone(sql, row.workspaceId, { name: 'rootKeys', rows: 1 })
}

/** Operator root keys besides this one that may do everything, for good. */
export async function countOtherOperatorKeys(sql: AnySql, id: string): Promise<number> {
  const [row] = await sql<{ total: number }[]>`
    select count(*)::integer as total from keys
     where is_operator and deleted_at is null and enabled and expires_at is null and '*' = any(root_permissions)
       and id <> ${id}`
  return row?.total ?? 0
}

/** For the start: what is known of a text's hash. */
export async function findOperatorKeyByHash(
  sql: AnySql,
  hash: string,
): Promise<{ isOperator: boolean; isDeleted: boolean } | null> {
  const [row] = await sql<{ isOperator: boolean; isDeleted: boolean }[]>`
    select is_operator as "isOperator", deleted_at is not null as "isDeleted" from keys where hash = ${hash}`
  return row ?? null
}

export async function hasOperatorKey(sql: AnySql): Promise<boolean> {
  const rows = await sql`select 1 from keys where is_operator and deleted_at is null limit 1`
  return rows.length > 0
}
