import type { AnySql } from '../../db/connect.ts'
import { idsOfPage, totalOf } from '../../db/lists.ts'
import type { WorkspaceId } from '../../lib/ids.ts'

export type ApiRow = {
  id: string
  workspaceId: string
  name: string
  deleteProtection: boolean
  /** Null on an API without a keyspace. */
  keyspaceId: string | null
  storeEncryptedKeys: boolean
  defaultPrefix: string | null
  defaultBytes: number
}

/** An API with all that can be read of it. */
export type ApiSettings = ApiRow & {
  /** Addresses and CIDR ranges; null = any address. */
  ipWhitelist: string[] | null
  /** Unix ms. */
  createdAt: number
  /** Live keys. */
  keys: number
}

/** The API with its keyspace's settings. Null when absent, deleted or of another workspace. */
export async function findApi(sql: AnySql, workspaceId: WorkspaceId, apiId: string): Promise<ApiRow | null> {
  const [row] = await sql<ApiRow[]>`
    select ${apiColumns(sql)} from ${apiTables(sql)}
     where a.workspace_id = ${workspaceId} and a.id = ${apiId} and a.deleted_at is null`
  return row ?? null
}

/** As {@link findApi}, with all settings. */
export async function findApiSettings(
  sql: AnySql,
  workspaceId: WorkspaceId,
  apiId: string,
): Promise<ApiSettings | null> {
  const [row] = await sql<ApiSettings[]>`
    select ${settingColumns(sql)} from ${apiTables(sql)}
     where a.workspace_id = ${workspaceId} and a.id = ${apiId} and a.deleted_at is null`
  return row ?? null
}

/** An API and the keyspace of its keys. */
export async function insertApi(
  sql: AnySql,
  {
    id,
    keyspaceId,
    workspaceId,
    name,
    now,
  }: { id: string; keyspaceId: string; workspaceId: WorkspaceId; name: string; now: number },
): Promise<void> {
  await sql`
    with keyspace as (
      insert into keyspaces (id, workspace_id, created_at) values (${keyspaceId}, ${workspaceId}, ${now}) returning id
    )
    insert into apis (id, workspace_id, name, keyspace_id, created_at)
    select ${id}, ${workspaceId}, ${name}, keyspace.id, ${now} from keyspace`
}

/**
 * As {@link findApi}, with all settings, and locked until the transaction ends: the second of two changes at once sees the
 * first.
 */
export async function lockApi(
  sql: AnySql,
  workspaceId: WorkspaceId,
  apiId: string,
): Promise<(ApiRow & { ipWhitelist: string[] | null }) | null> {
  const rows = await sql`
    select 1 from apis where workspace_id = ${workspaceId} and id = ${apiId} and deleted_at is null for update`
  if (rows.length === 0) return null
  // A statement of its own: the statement that waited for the lock would return the keyspace as it was before the wait.
  const [row] = await sql<(ApiRow & { ipWhitelist: string[] | null })[]>`
    select ${apiColumns(sql)}, a.ip_whitelist as "ipWhitelist" from ${apiTables(sql)}
     where a.workspace_id = ${workspaceId} and a.id = ${apiId} and a.deleted_at is null`
  return row ?? null
}

export async function softDeleteApi(
  sql: AnySql,
  workspaceId: WorkspaceId,
  apiId: string,
  now: number,
): Promise<void> {
  await sql`
    update apis set deleted_at = ${now}, updated_at = ${now}
     where workspace_id = ${workspaceId} and id = ${apiId} and deleted_at is null`
}

/** Waits for creations of keys under way ({@link holdKeyspaces}), and keeps others waiting until the transaction ends. */
export async function lockKeyspace(tx: AnySql, workspaceId: WorkspaceId, id: string): Promise<void> {
  await tx`select 1 from keyspaces where workspace_id = ${workspaceId} and id = ${id} for no key update`
}

/**
 * Cuts off all keys of a keyspace. Waits as {@link lockKeyspace}; later creations find it deleted.
 * @param apiId The API it belongs to, also after that has another keyspace.
 */
export async function deleteKeyspace(
  tx: AnySql,
  workspaceId: WorkspaceId,
  { keyspaceId, apiId, now }: { keyspaceId: string; apiId: string; now: number },
): Promise<void> {
  await tx`
    update keyspaces set deleted_at = ${now}, updated_at = ${now}, api_id = ${apiId}
     where workspace_id = ${workspaceId} and id = ${keyspaceId} and deleted_at is null`
}

/** Gives an API a new keyspace with the settings of its old one. The API is locked by the caller. */
export async function replaceKeyspace(
  tx: AnySql,
  workspaceId: WorkspaceId,
  { keyspaceId, by, apiId, now }: { keyspaceId: string; by: string; apiId: string; now: number },
): Promise<void> {
  await tx`
    with made as (
      insert into keyspaces (id, workspace_id, store_encrypted_keys, default_prefix, default_bytes, created_at)
      select ${by}, workspace_id, store_encrypted_keys, default_prefix, default_bytes, ${now}
        from keyspaces where workspace_id = ${workspaceId} and id = ${keyspaceId}
      returning id
    )
    update apis set keyspace_id = made.id, updated_at = ${now} from made
     where apis.workspace_id = ${workspaceId} and apis.id = ${apiId}`
}

/**
 * Locks the keyspaces of live APIs until the transaction ends: their keys cannot be deleted all at once meanwhile.
 * @returns id of the API → id of its keyspace. APIs without one are absent.
 */
export async function holdKeyspaces(
  tx: AnySql,
  workspaceId: WorkspaceId,
  apiIds: readonly string[],
): Promise<Map<string, string>> {
  const held = new Map<string, string>()
  // A keyspace that was replaced while its lock was waited for has no row in the first answer.
  for (let attempt = 0; attempt < 2 && held.size < apiIds.length; attempt++) {
    const rows = await tx<{ apiId: string; keyspaceId: string }[]>`
      select a.id as "apiId", s.id as "keyspaceId"
        from apis a join keyspaces s on s.id = a.keyspace_id and s.deleted_at is null
       where a.workspace_id = ${workspaceId} and a.id = any(${apiIds as string[]}::text[]) and a.deleted_at is null
       order by s.id for share of s`
    for (const { apiId, keyspaceId } of rows) held.set(apiId, keyspaceId)
  }
  return held
}

/** All keyspaces that an API has had, for usage of the past. */
export async function listKeyspaceIds(
  sql: AnySql,
  workspaceId: WorkspaceId,
  { apiId, keyspaceId }: { apiId: string; keyspaceId: string },
): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`
    select id from keyspaces where workspace_id = ${workspaceId} and (id = ${keyspaceId} or api_id = ${apiId}) order by id`
  return rows.map(({ id }) => id)
}

/** Columns that an update sets. Absent columns stay. */
export type ApiChange = { name?: string; delete_protection?: boolean; ip_whitelist?: string[] | null }
export type KeyspaceChange = {
  store_encrypted_keys?: boolean
  default_prefix?: string | null
  default_bytes?: number
}

export async function changeApi(
  sql: AnySql,
  workspaceId: WorkspaceId,
  apiId: string,
  change: ApiChange,
  now: number,
): Promise<void> {
  await sql`
    update apis set ${sql({ ...change, updated_at: now })}
     where workspace_id = ${workspaceId} and id = ${apiId} and deleted_at is null`
}

export async function changeKeyspace(
  sql: AnySql,
  workspaceId: WorkspaceId,
  keyspaceId: string,
  change: KeyspaceChange,
  now: number,
): Promise<void> {
  await sql`
    update keyspaces set ${sql({ ...change, updated_at: now })}
     where workspace_id = ${workspaceId} and id = ${keyspaceId} and deleted_at is null`
}

/** By id, after `cursor`, up to `limit + 1` rows: the extra one shows that there is another page. */
export async function listApiRows(
  sql: AnySql,
  workspaceId: WorkspaceId,
  { limit, cursor }: { limit: number; cursor: string },
): Promise<ApiSettings[]> {
  const index = { table: 'apis', of: { workspace_id: workspaceId }, where: 'deleted_at is null' }
  return await sql<ApiSettings[]>`
    select found.*
      from ${idsOfPage(sql, index, { cursor, rows: limit + 1 })}
     cross join lateral (select ${settingColumns(sql)} from ${apiTables(sql)} where a.id = page.id offset 0) as found
     order by found.id`
}

export async function countApis(sql: AnySql, workspaceId: WorkspaceId): Promise<number> {
  return await totalOf(sql, workspaceId, 'apis')
}

/** Several APIs by id, without deleted ones, each with its keyspace's settings. */
export async function findApis(
  sql: AnySql,
  workspaceId: WorkspaceId,
  apiIds: readonly string[],
): Promise<Map<string, ApiRow>> {
  const rows = await sql<ApiRow[]>`
    select ${apiColumns(sql)} from ${apiTables(sql)}
     where a.workspace_id = ${workspaceId} and a.id = any(${apiIds as string[]}::text[]) and a.deleted_at is null`
  return new Map(rows.map((row) => [row.id, row]))
}

const apiTables = (sql: AnySql) => sql`
  apis a left join keyspaces s on s.id = a.keyspace_id and s.deleted_at is null`

const apiColumns = (sql: AnySql) => sql`
  a.id, a.workspace_id as "workspaceId", a.name, a.delete_protection as "deleteProtection", s.id as "keyspaceId",
  coalesce(s.store_encrypted_keys, false) as "storeEncryptedKeys", s.default_prefix as "defaultPrefix",
  coalesce(s.default_bytes, 16) as "defaultBytes"`

const settingColumns = (sql: AnySql) => sql`
  ${apiColumns(sql)}, a.ip_whitelist as "ipWhitelist", a.created_at as "createdAt",
  case when s.id is null then 0 else total_of(a.workspace_id, 'keys/' || s.id) end as keys`
