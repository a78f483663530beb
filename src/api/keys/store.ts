import type { PendingQuery, Row } from 'postgres'
import { countGone } from '../../db/bounds.ts'
import type { AnySql } from '../../db/connect.ts'
import { HEAVY_LINKS, keyLimits, keyLinks, LIMIT_BYTES, LINK_BYTES } from '../../db/key-links.ts'
import { idsOfPage, type ListIndex, totalOf } from '../../db/lists.ts'
import { COUNT_MAX } from '../../lib/bounds.ts'
import type { WorkspaceId } from '../../lib/ids.ts'
import { DEFAULT_LIMIT, type KeyLimitRow } from './limits/store.ts'

/** A new row of `keys`, for keys that are not root keys. */
export type NewKeyRow = {
  id: string
  keyspace_id: string
  hash: string
  start: string
  name: string | null
  owner_id: string | null
  identity_id: string | null
  /** JSON text. */
  meta: string | null
  environment: string | null
  enabled: boolean
  expires_at: number | null
  remaining: number | null
  refill_amount: number | null
  refill_day: number | null
  refill_sets: boolean
  last_refill_at: number | null
}

/**
 * Inserts the keys whose hash is new. Deleted keys count as existing; of two equal hashes in the list, the first is
 * inserted.
 * @returns the ids of the inserted keys.
 */
export async function insertKeys(
  sql: AnySql,
  workspaceId: WorkspaceId,
  rows: readonly NewKeyRow[],
  now: number,
): Promise<string[]> {
  const inserted = await sql<{ id: string }[]>`
    insert into keys (id, workspace_id, keyspace_id, hash, start, name, owner_id, identity_id, meta, environment,
                      enabled, expires_at, remaining, refill_amount, refill_day, refill_sets, last_refill_at, created_at)
    select k.id, ${workspaceId}, k.keyspace_id, k.hash, k.start, k.name, k.owner_id, k.identity_id, k.meta,
           k.environment, k.enabled, k.expires_at, k.remaining, k.refill_amount, k.refill_day, k.refill_sets,
           k.last_refill_at, ${now}
      from json_to_recordset((${JSON.stringify(rows.map((row, at) => ({ ...row, at })))}::text)::json)
        as k (at integer, id text, keyspace_id text, hash text, start text, name text, owner_id text, identity_id text, meta text,
              environment text, enabled boolean, expires_at bigint, remaining bigint, refill_amount bigint,
              refill_day smallint, refill_sets boolean, last_refill_at bigint)
     order by k.hash collate "C", k.at
    on conflict (hash) do nothing
    returning id`
  return inserted.map(({ id }) => id)
}

/** Links inserted by one statement. Building a longer one would hold the thread. */
const LINKS_MAX = 2_000

/** Attaches roles. Existing pairs and roles deleted meanwhile are ignored. */
export async function insertKeyRoles(
  sql: AnySql,
  workspaceId: WorkspaceId,
  links: readonly { keyId: string; roleId: string }[],
  now: number,
): Promise<void> {
  if (links.length > LINKS_MAX) {
    await insertKeyRoles(sql, workspaceId, links.slice(0, LINKS_MAX), now)
    return await insertKeyRoles(sql, workspaceId, links.slice(LINKS_MAX), now)
  }
  if (links.length === 0) return
  await sql`
    insert into keys_roles (key_id, role_id, workspace_id, created_at)
    select l.key_id, l.role_id, ${workspaceId}, ${now}
      from unnest(${links.map(({ keyId }) => keyId)}::text[], ${links.map(({ roleId }) => roleId)}::text[])
        as l (key_id, role_id)
      join roles t on t.id = l.role_id and t.workspace_id = ${workspaceId}
     order by l.key_id, l.role_id
       for key share of t
    on conflict do nothing`
}

/** Attaches permissions. Existing pairs and permissions deleted meanwhile are ignored. */
export async function insertKeyPermissions(
  sql: AnySql,
  workspaceId: WorkspaceId,
  links: readonly { keyId: string; permissionId: string }[],
  now: number,
): Promise<void> {
  if (links.length > LINKS_MAX) {
    await insertKeyPermissions(sql, workspaceId, links.slice(0, LINKS_MAX), now)
    return await insertKeyPermissions(sql, workspaceId, links.slice(LINKS_MAX), now)
  }
  if (links.length === 0) return
  await sql`
    insert into keys_permissions (key_id, permission_id, workspace_id, created_at)
    select l.key_id, l.permission_id, ${workspaceId}, ${now}
      from unnest(${links.map(({ keyId }) => keyId)}::text[], ${links.map(({ permissionId }) => permissionId)}::text[])
        as l (key_id, permission_id)
      join permissions t on t.id = l.permission_id and t.workspace_id = ${workspaceId}
     order by l.key_id, l.permission_id
       for key share of t
    on conflict do nothing`
}

/**
 * Locks a key until the transaction ends: other changes of its roles and permissions wait, so that two replacements do not
 * mix.
 * @returns its hash; null when absent, deleted or of another workspace.
 */
export async function holdKey(tx: AnySql, workspaceId: WorkspaceId, keyId: string): Promise<string | null> {
  const [row] = await tx<{ hash: string }[]>`
    select hash from keys
     where workspace_id = ${workspaceId} and id = ${keyId} and deleted_at is null
       for no key update`
  return row?.hash ?? null
}

export async function listKeyRoles(
  sql: AnySql,
  workspaceId: WorkspaceId,
  keyId: string,
): Promise<{ id: string; name: string }[]> {
  return await sql<{ id: string; name: string }[]>`
    select r.id, r.name
      from keys_roles l join roles r on r.id = l.role_id
     where l.workspace_id = ${workspaceId} and l.key_id = ${keyId}
     order by r.id`
}

/** Permissions held by the key itself, not through roles. */
export async function listKeyPermissions(
  sql: AnySql,
  workspaceId: WorkspaceId,
  keyId: string,
): Promise<{ id: string; name: string; slug: string }[]> {
  return await sql<{ id: string; name: string; slug: string }[]>`
    select p.id, p.name, p.slug
      from keys_permissions l join permissions p on p.id = l.permission_id
     where l.workspace_id = ${workspaceId} and l.key_id = ${keyId}
     order by p.id`
}

export async function deleteKeyRoles(
  sql: AnySql,
  workspaceId: WorkspaceId,
  keyId: string,
  roleIds: readonly string[],
): Promise<void> {
  if (roleIds.length === 0) return
  await sql`
    delete from keys_roles
     where workspace_id = ${workspaceId} and key_id = ${keyId} and role_id = any(${roleIds as string[]}::text[])`
}

export async function deleteKeyPermissions(
  sql: AnySql,
  workspaceId: WorkspaceId,
  keyId: string,
  permissionIds: readonly string[],
): Promise<void> {
  if (permissionIds.length === 0) return
  await sql`
    delete from keys_permissions
     where workspace_id = ${workspaceId} and key_id = ${keyId}
       and permission_id = any(${permissionIds as string[]}::text[])`
}

/** A key as the API shows it, with everything attached to it. */
export type KeyRow = {
  id: string
  apiId: string
  keyspaceId: string
  workspaceId: string
  start: string
  name: string | null
  ownerId: string | null
  /** JSON text. */
  meta: string | null
  environment: string | null
  enabled: boolean
  expiresAt: number | null
  /** Of a rerolled key: those of its successor. */
  remaining: number | null
  /** The successor whose credits a rerolled key spends; null = its own, or it has none. */
  creditsOf: string | null
  refillAmount: number | null
  refillDay: number | null
  /** True: a refill sets the credits to its amount if fewer are left. False: it adds the amount. */
  refillSets: boolean
  lastRefillAt: number | null
  createdAt: number
  updatedAt: number | null
  /** The key's own limits, oldest first; see {@link LimitsRead}. */
  limits: KeyLimitRow[]
  /** Those of its identity, also where the key has one of the same name. */
  identityLimits: KeyLimitRow[]
  identityId: string | null
  externalId: string | null
  /** JSON text. */
  identityMeta: string | null
  /** Names, ascending. */
  roles: string[]
  /** Slugs held directly and through roles, each once, ascending. */
  permissions: string[]
  /** Of a recoverable key; null on others. */
  ciphertext: string | null
  encryptionKeyId: string | null
}

/** The limits that a list of keys reads: all of keys and identities, or of keys those named `default` and no other. */
export type LimitsRead = 'all' | 'default'

/** A key. Null when the key or its API is deleted, and when it is absent or of another workspace. */
export async function findKey(sql: AnySql, workspaceId: WorkspaceId, keyId: string): Promise<KeyRow | null> {
  const [row] = await sql<KeyRow[]>`
    select ${keyColumns(sql, 'all')} from ${keyTables(sql)}
     where k.workspace_id = ${workspaceId} and k.id = ${keyId} and k.deleted_at is null`
  return row ?? null
}

/** What a key is verified by, also of a deleted one. Null when nothing is stored of it. */
export async function findAnyKeyHash(
  sql: AnySql,
  workspaceId: WorkspaceId,
  keyId: string,
): Promise<{ hash: string; apiId: string | null } | null> {
  const [row] = await sql<{ hash: string; apiId: string | null }[]>`
    select k.hash, api_of_keyspace(k.keyspace_id) as "apiId" from keys k
     where k.workspace_id = ${workspaceId} and k.id = ${keyId}`
  return row ?? null
}

/** As {@link findKey}, by the hash of the text. */
export async function findKeyByHash(
  sql: AnySql,
  workspaceId: WorkspaceId,
  hash: string,
): Promise<KeyRow | null> {
  const [row] = await sql<KeyRow[]>`
    select ${keyColumns(sql, 'all')} from ${keyTables(sql)}
     where k.workspace_id = ${workspaceId} and k.hash = ${hash} and k.deleted_at is null`
  return row ?? null
}

export type KeyFilter = { identityId: string } | { ownerId: string }

/**
 * Keys by id, after `cursor`: up to `limit + 1`, or fewer where meta, roles and permissions are long, so that a page does
 * not hold the thread. One statement, however many roles and permissions the keys have.
 * @returns `isCut` = the page ended early because of its length; more keys follow.
 */
export async function listKeyRows(
  sql: AnySql,
  workspaceId: WorkspaceId,
  keyspaceId: string,
  filter: KeyFilter | null,
  { limit, cursor, limits }: { limit: number; cursor: string; limits: LimitsRead },
): Promise<{ rows: KeyRow[]; isCut: boolean }> {
  const page = idsOfPage(sql, listIndex(workspaceId, keyspaceId, filter), { cursor, rows: limit + 1 })
  return await readPage(sql, workspaceId, page, { limits, descending: false })
}

/**
 * Keys by their ids, newest first, each with its limit named `default`. Up to all of them, or fewer as in
 * {@link listKeyRows}. Keys that are deleted meanwhile are left out.
 */
export async function listKeyRowsByIds(
  sql: AnySql,
  workspaceId: WorkspaceId,
  ids: readonly string[],
): Promise<{ rows: KeyRow[]; isCut: boolean }> {
  if (ids.length === 0) return { rows: [], isCut: false }
  const page = sql`unnest(${ids as string[]}::text[]) as page (id)`
  return await readPage(sql, workspaceId, page, { limits: 'default', descending: true })
}

/** @param page A table `page (id)` of ids. */
async function readPage(
  sql: AnySql,
  workspaceId: WorkspaceId,
  page: PendingQuery<Row[]>,
  { limits, descending }: { limits: LimitsRead; descending: boolean },
): Promise<{ rows: KeyRow[]; isCut: boolean }> {
  const inOrder = descending ? sql`desc` : sql``
  const rows = await sql<(KeyRow & { wanted: number })[]>`
    with wanted as materialized (
      select k.id, k.identity_id, k.bytes
        from ${page}
       cross join lateral (select id, identity_id, coalesce(octet_length(meta), 0) as bytes
                             from keys where id = page.id offset 0) as k
    ), weighed as materialized (
      select k.id,
             k.bytes + coalesce(octet_length(i.meta), 0)
             ${limits === 'all' ? sql`+ limits.total * ${LIMIT_BYTES}::integer` : sql``}
             + case when links.total < ${HEAVY_LINKS}::integer then links.total * ${LINK_BYTES}::integer
                    else ${PAGE_BYTES_MAX / 2}::integer end as bytes
        from wanted k
        left join identities i on i.id = k.identity_id
       cross join lateral (select ${keyLinks(sql)} as total) as links
       ${limits === 'all' ? sql`cross join lateral (select ${keyLimits(sql)} as total) as limits` : sql``}
    ), page as (
      select id from (select id, sum(bytes) over (order by id ${inOrder}) - bytes as before from weighed) as sized
       where before < ${PAGE_BYTES_MAX}
    )
    select ${keyColumns(sql, limits)}, (select count(*)::integer from wanted) as wanted from ${keyTables(sql)}
     where k.id in (select id from page) and k.workspace_id = ${workspaceId}
     order by k.id ${inOrder}`
  const [first] = rows
  return {
    isCut: first !== undefined && rows.length < first.wanted,
    rows: rows.map(({ wanted: _, ...row }) => row),
  }
}

function listIndex(workspaceId: WorkspaceId, keyspaceId: string, filter: KeyFilter | null): ListIndex {
  if (filter === null) return { table: 'keys', of: { keyspace_id: keyspaceId }, where: 'deleted_at is null' }
  if ('identityId' in filter)
    return {
      table: 'keys',
      of: { identity_id: filter.identityId, keyspace_id: keyspaceId },
      where: 'identity_id is not null and deleted_at is null',
    }
  return {
    table: 'keys',
    of: { workspace_id: workspaceId, owner_id: filter.ownerId, keyspace_id: keyspaceId },
    where: 'owner_id is not null and deleted_at is null',
  }
}

/** A page ends with the key whose meta, roles and permissions take it past this: about 4 ms of a thread. */
const PAGE_BYTES_MAX = 500_000

/** Exact number of keys of a keyspace, without deleted ones. */
export async function countKeys(sql: AnySql, workspaceId: WorkspaceId, keyspaceId: string): Promise<number> {
  return await totalOf(sql, workspaceId, `keys/${keyspaceId}`)
}

/** Whether there are keys in any of these keyspaces. */
export async function hasKeys(
  sql: AnySql,
  keyspaceIds: readonly string[],
  { alsoDeleted }: { alsoDeleted: boolean },
): Promise<boolean> {
  const rows = await sql`
    select 1
      from unnest(${keyspaceIds as string[]}::text[]) as s (id)
     cross join lateral ids_of_page('keys', '{keyspace_id}', array[s.id], ${alsoDeleted ? 'true' : 'deleted_at is null'}, null, 1)
     limit 1`
  return rows.length > 0
}

/** Exact number of rows of keys, with deleted ones. Reads an index of all of them. */
export async function countKeyRows(
  sql: AnySql,
  workspaceId: WorkspaceId,
  keyspaceIds: readonly string[],
): Promise<number> {
  const [row] = await sql<{ total: number }[]>`
    select count(*)::integer as total from keys
     where workspace_id = ${workspaceId} and keyspace_id = any(${keyspaceIds as string[]}::text[])`
  return row?.total ?? 0
}

/** Keys with this stored owner, without deleted ones, each with its API. */
export async function findKeysOfOwner(
  sql: AnySql,
  workspaceId: WorkspaceId,
  ownerId: string,
): Promise<{ id: string; apiId: string }[]> {
  return await sql<{ id: string; apiId: string }[]>`
    select k.id, a.id as "apiId"
      from keys k join apis a on a.keyspace_id = k.keyspace_id and a.deleted_at is null
     where k.workspace_id = ${workspaceId} and k.owner_id = ${ownerId} and k.deleted_at is null`
}

const keyTables = (sql: AnySql) => sql`
  keys k
  join apis a on a.keyspace_id = k.keyspace_id and a.deleted_at is null
  left join identities i on i.id = k.identity_id
  left join encrypted_keys e on e.key_id = k.id
  left join keys successor on successor.id = k.successor_id and successor.deleted_at is null`

const keyColumns = (sql: AnySql, limits: LimitsRead) => sql`
  k.id, a.id as "apiId", k.keyspace_id as "keyspaceId", k.workspace_id as "workspaceId", k.start, k.name,
  k.owner_id as "ownerId", k.meta, k.environment, k.enabled, k.expires_at as "expiresAt",
  case when k.remaining is null or successor.id is null then k.remaining else successor.remaining end as remaining,
  case when k.remaining is null then null else successor.id end as "creditsOf",
  k.refill_amount as "refillAmount", k.refill_day as "refillDay", k.refill_sets as "refillSets",
  k.last_refill_at as "lastRefillAt", k.created_at as "createdAt", k.updated_at as "updatedAt",
  ${limitsOf(sql, limits === 'all' ? sql`l.key_id = k.id` : sql`l.key_id = k.id and l.name = ${DEFAULT_LIMIT}`)} as limits,
  ${limits === 'all' ? limitsOf(sql, sql`l.identity_id = i.id`) : sql`'[]'::json`} as "identityLimits",
  i.id as "identityId", i.external_id as "externalId", i.meta as "identityMeta",
  array(select r.name from keys_roles kr join roles r on r.id = kr.role_id
         where kr.key_id = k.id order by r.name) as roles,
  array(select p.slug from keys_permissions kp join permissions p on p.id = kp.permission_id
         where kp.key_id = k.id
        union
        select p.slug from keys_roles kr
          join roles_permissions rp on rp.role_id = kr.role_id
          join permissions p on p.id = rp.permission_id
         where kr.key_id = k.id
        order by 1) as permissions,
  e.ciphertext, e.encryption_key_id as "encryptionKeyId"`

const limitsOf = (sql: AnySql, isWanted: ReturnType<AnySql>) => sql`
  coalesce((select json_agg(json_build_object('id', l.id, 'name', l.name, 'limit', l."limit",
                                              'durationMs', l.duration_ms, 'autoApply', l.auto_apply) order by l.id)
              from ratelimits l where ${isWanted}), '[]')`

/** Columns that an update sets. Absent columns stay. */
export type KeyChange = {
  name?: string | null
  meta?: string | null
  owner_id?: string | null
  identity_id?: string | null
  expires_at?: number | null
  remaining?: number | null
  refill_amount?: number | null
  refill_day?: number | null
  refill_sets?: boolean
  last_refill_at?: number | null
  enabled?: boolean
}

/**
 * A key that gets credits after having none counted counts as refilled now: earlier refills are not made up for.
 * @returns false when the key is gone.
 */
export async function changeKey(
  sql: AnySql,
  workspaceId: WorkspaceId,
  keyId: string,
  change: KeyChange,
  now: number,
): Promise<boolean> {
  const isCountedNow = typeof change.remaining === 'number' && change.last_refill_at === undefined
  const refilledAt = sql`
    last_refill_at = case when remaining is null and refill_amount is not null then ${now} else last_refill_at end,`
  const rows = await sql`
    update keys set ${isCountedNow ? refilledAt : sql``} ${sql({ ...change, updated_at: now })}
     where workspace_id = ${workspaceId} and id = ${keyId} and deleted_at is null
 returning 1`
  return rows.length > 0
}

/**
 * Changes the credits left of a key by `by`, not below 0.
 * @returns the credits left; null on a key without credits; 'beyond' when they would exceed {@link COUNT_MAX}; undefined
 *   when the key is gone. Nothing changed in the last three cases.
 */
export async function moveRemaining(
  sql: AnySql,
  workspaceId: WorkspaceId,
  keyId: string,
  by: number,
  now: number,
): Promise<number | null | 'beyond' | undefined> {
  const [row] = await sql<{ remaining: number | null }[]>`
    update keys
       set remaining = greatest(0, remaining + ${by}::bigint), updated_at = ${now}
     where workspace_id = ${workspaceId} and id = ${keyId} and deleted_at is null
       and remaining + ${by}::bigint <= ${COUNT_MAX}::bigint
 returning remaining`
  if (row !== undefined) return row.remaining
  const [unchanged] = await sql<{ remaining: number | null }[]>`
    select remaining from keys where workspace_id = ${workspaceId} and id = ${keyId} and deleted_at is null`
  return unchanged === undefined || unchanged.remaining === null ? unchanged?.remaining : 'beyond'
}

/** The owner of a key at the time of its deletion. */
export type KeyOwner = { identityId: string | null; ownerId: string | null }

/** The row stays with its hash: the same text cannot be imported again. @returns its owner; null when the key is gone. */
export async function softDeleteKey(
  sql: AnySql,
  workspaceId: WorkspaceId,
  keyId: string,
  now: number,
): Promise<KeyOwner | null> {
  const rows = await sql<KeyOwner[]>`
    update keys set deleted_at = ${now}, updated_at = ${now}
     where workspace_id = ${workspaceId} and id = ${keyId} and deleted_at is null
 returning identity_id as "identityId", owner_id as "ownerId"`
  await countGone(sql, workspaceId, { name: 'keys', rows: rows.length })
  return rows[0] ?? null
}

/** Removes the row and everything attached to the key. @returns its owner; null when the key is gone. */
export async function removeKey(
  sql: AnySql,
  workspaceId: WorkspaceId,
  keyId: string,
): Promise<KeyOwner | null> {
  const [row] = await sql<KeyOwner[]>`
    delete from keys where workspace_id = ${workspaceId} and id = ${keyId} and deleted_at is null
 returning identity_id as "identityId", owner_id as "ownerId"`
  return row ?? null
}
