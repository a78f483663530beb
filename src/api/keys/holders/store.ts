import type { AnySql } from '../../../db/connect.ts'
import type { WorkspaceId } from '../../../lib/ids.ts'

/** What keys may have in common. */
export type Held = { identityId: string } | { roleId: string } | { permissionId: string }

export type HoldingKeyRow = {
  id: string
  start: string
  apiId: string
  name: string | null
  enabled: boolean
  expiresAt: number | null
  createdAt: number
}

/** The last key read: keys of an identity are ordered by keyspace and id, others by id, with an empty keyspace. */
export type Place = { keyspaceId: string; keyId: string }

/**
 * Keys behind `after`, without deleted ones: up to `rows`, of {@link READ_MAX} at most.
 * @returns `last` is where reading ended, when more may follow; null = there are no more.
 */
export async function listHoldingKeys(
  sql: AnySql,
  workspaceId: WorkspaceId,
  held: Held,
  { after, rows }: { after: Place; rows: number },
): Promise<{ keys: HoldingKeyRow[]; last: Place | null }> {
  const [found] = await sql<{ keys: (HoldingKeyRow & Place)[]; read: number; last: Place | null }[]>`
    with held as materialized (${heldBy(sql, held, after)} limit ${READ_MAX}),
    found as (
      select held.keyspace_id as "keyspaceId", held.key_id as "keyId", ${keyColumns(sql)}
        from held ${livingKeys(sql, workspaceId)}
       order by held.keyspace_id, held.key_id limit ${rows + 1}
    )
    select (select count(*)::integer from held) as read,
           (select json_build_object('keyspaceId', keyspace_id, 'keyId', key_id)
              from held order by keyspace_id desc, key_id desc limit 1) as last,
           coalesce((select json_agg(f order by f."keyspaceId", f."keyId") from found f), '[]') as keys`
  const { keys, read, last } = found ?? { keys: [], read: 0, last: null }
  const page = keys.slice(0, rows)
  const end = page.at(-1)
  const isCut = keys.length > rows && end !== undefined
  return {
    keys: page.map(({ keyspaceId: _, keyId: __, ...key }) => key),
    last: isCut ? { keyspaceId: end.keyspaceId, keyId: end.keyId } : read === READ_MAX ? last : null,
  }
}

/** Links that one page reads; those of deleted keys count. Some milliseconds. */
const READ_MAX = 1000

/** @returns how many keys hold it, at most `max`, looking at ten times as many links at most. */
export async function countHoldingKeys(
  sql: AnySql,
  workspaceId: WorkspaceId,
  held: Held,
  max: number,
): Promise<number> {
  const [row] = await sql<{ total: number }[]>`
    select count(*)::integer as total
      from (select 1 from (${heldBy(sql, held, { keyspaceId: '', keyId: '' })} limit ${10 * max}) as held
            ${livingKeys(sql, workspaceId)} limit ${max}) as found`
  return row?.total ?? 0
}

/** The keys that hold it, as (keyspace_id, key_id) in their order. */
function heldBy(sql: AnySql, held: Held, after: Place) {
  if ('identityId' in held)
    return sql`
      select keyspace_id, id as key_id from keys
       where identity_id = ${held.identityId} and deleted_at is null
         and (keyspace_id, id) > (${after.keyspaceId}, ${after.keyId})
       order by identity_id, keyspace_id, id`
  if ('roleId' in held)
    return sql`
      select '' as keyspace_id, key_id from keys_roles
       where role_id = ${held.roleId} and key_id > ${after.keyId} order by role_id, key_id`
  return sql`
    select '' as keyspace_id, key_id from keys_permissions
     where permission_id = ${held.permissionId} and key_id > ${after.keyId} order by permission_id, key_id`
}

/** Joins keys that exist, of APIs that exist: a key whose API was emptied is on its way out. */
const livingKeys = (sql: AnySql, workspaceId: WorkspaceId) => sql`
  cross join lateral (select id, start, keyspace_id, name, enabled, expires_at, created_at from keys
                       where id = held.key_id and workspace_id = ${workspaceId} and deleted_at is null offset 0) as k
  cross join lateral (select id from apis where keyspace_id = k.keyspace_id and deleted_at is null order by id limit 1) as a`

const keyColumns = (sql: AnySql) => sql`
  k.id, k.start, a.id as "apiId", k.name, k.enabled, k.expires_at as "expiresAt", k.created_at as "createdAt"`
