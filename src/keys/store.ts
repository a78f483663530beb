import type { AnySql } from '../db/connect.ts'
import type { WorkspaceId } from '../lib/ids.ts'

/** A row of `keys` to be made, ordinary keys only. */
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
  last_refill_at: number | null
}

/** Inserts keys whose hash no key has yet, deleted ones included. @returns the ids of those inserted. */
export async function insertKeys(
  sql: AnySql,
  workspaceId: WorkspaceId,
  rows: readonly NewKeyRow[],
  now: number,
): Promise<string[]> {
  const inserted = await sql<{ id: string }[]>`
    insert into keys (id, workspace_id, keyspace_id, hash, start, name, owner_id, identity_id, meta, environment,
                      enabled, expires_at, remaining, refill_amount, refill_day, last_refill_at, created_at)
    select k.id, ${workspaceId}, k.keyspace_id, k.hash, k.start, k.name, k.owner_id, k.identity_id, k.meta,
           k.environment, k.enabled, k.expires_at, k.remaining, k.refill_amount, k.refill_day, k.last_refill_at, ${now}
      from json_to_recordset((${JSON.stringify(rows)}::text)::json)
        as k (id text, keyspace_id text, hash text, start text, name text, owner_id text, identity_id text, meta text,
              environment text, enabled boolean, expires_at bigint, remaining integer, refill_amount integer,
              refill_day smallint, last_refill_at bigint)
     order by k.hash collate "C"
    on conflict (hash) do nothing
    returning id`
  return inserted.map(({ id }) => id)
}

/** The limit `default` of new keys, counted on every verification. */
export async function insertDefaultLimits(
  sql: AnySql,
  workspaceId: WorkspaceId,
  limits: readonly { id: string; keyId: string; limit: number; durationMs: number }[],
  now: number,
): Promise<void> {
  if (limits.length === 0) return
  await sql`
    insert into ratelimits (id, workspace_id, name, key_id, "limit", duration_ms, auto_apply, created_at)
    select l.id, ${workspaceId}, 'default', l.key_id, l."limit", l.duration_ms, true, ${now}
      from unnest(${limits.map(({ id }) => id)}::text[], ${limits.map(({ keyId }) => keyId)}::text[],
                  ${limits.map(({ limit }) => limit)}::integer[], ${limits.map(({ durationMs }) => durationMs)}::bigint[])
        as l (id, key_id, "limit", duration_ms)`
}

/** Attaches roles; pairs that exist already are left alone. */
export async function insertKeyRoles(
  sql: AnySql,
  workspaceId: WorkspaceId,
  links: readonly { keyId: string; roleId: string }[],
  now: number,
): Promise<void> {
  if (links.length === 0) return
  await sql`
    insert into keys_roles (key_id, role_id, workspace_id, created_at)
    select l.key_id, l.role_id, ${workspaceId}, ${now}
      from unnest(${links.map(({ keyId }) => keyId)}::text[], ${links.map(({ roleId }) => roleId)}::text[])
        as l (key_id, role_id)
    on conflict do nothing`
}

/** Attaches permissions; pairs that exist already are left alone. */
export async function insertKeyPermissions(
  sql: AnySql,
  workspaceId: WorkspaceId,
  links: readonly { keyId: string; permissionId: string }[],
  now: number,
): Promise<void> {
  if (links.length === 0) return
  await sql`
    insert into keys_permissions (key_id, permission_id, workspace_id, created_at)
    select l.key_id, l.permission_id, ${workspaceId}, ${now}
      from unnest(${links.map(({ keyId }) => keyId)}::text[], ${links.map(({ permissionId }) => permissionId)}::text[])
        as l (key_id, permission_id)
    on conflict do nothing`
}
