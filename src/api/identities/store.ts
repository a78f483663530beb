import type { AnySql } from '../../db/connect.ts'
import type { WorkspaceId } from '../../lib/ids.ts'

/** Id by externalId, for those that exist. */
export async function findIdentityIds(
  sql: AnySql,
  workspaceId: WorkspaceId,
  externalIds: readonly string[],
): Promise<Map<string, string>> {
  const rows = await sql<{ id: string; externalId: string }[]>`
    select id, external_id as "externalId" from identities
     where workspace_id = ${workspaceId} and external_id = any(${externalIds as string[]}::text[])`
  return new Map(rows.map(({ id, externalId }) => [externalId, id]))
}

/** The same for a caller about to connect keys: until its transaction ends nobody can delete them. */
export async function holdIdentityIds(
  tx: AnySql,
  workspaceId: WorkspaceId,
  externalIds: readonly string[],
): Promise<Map<string, string>> {
  const rows = await tx<{ id: string; externalId: string }[]>`
    select id, external_id as "externalId" from identities
     where workspace_id = ${workspaceId} and external_id = any(${externalIds as string[]}::text[])
     order by external_id for key share`
  return new Map(rows.map(({ id, externalId }) => [externalId, id]))
}

/** Makes those that do not exist yet; of two makers at once, one makes it. @returns the ones made here. */
export async function insertMissingIdentities(
  sql: AnySql,
  workspaceId: WorkspaceId,
  identities: readonly { id: string; externalId: string }[],
  now: number,
): Promise<{ id: string; externalId: string }[]> {
  return await sql<{ id: string; externalId: string }[]>`
    insert into identities (id, workspace_id, external_id, created_at)
    select i.id, ${workspaceId}, i.external_id, ${now}
      from unnest(${identities.map(({ id }) => id)}::text[], ${identities.map(({ externalId }) => externalId)}::text[])
        as i (id, external_id)
     order by i.external_id collate "C"
    on conflict (workspace_id, external_id) do nothing
    returning id, external_id as "externalId"`
}

/** How an identity is named: by its id, or by the caller's own id of the person. */
export type IdentityName = { id: string } | { externalId: string }

/** Tokens allowed in a window of `durationMs`. */
export type IdentityLimit = { name: string; limit: number; durationMs: number }
export type IdentityLimitRow = IdentityLimit & { id: string }
export type IdentityRow = {
  id: string
  externalId: string
  /** JSON text as given; null = never set. */
  meta: string | null
  /** Oldest first. */
  limits: IdentityLimitRow[]
}

/** By id, or by externalId when that is given instead: an identity with its limits, in one round trip. */
export async function findIdentity(
  sql: AnySql,
  workspaceId: WorkspaceId,
  by: IdentityName,
): Promise<IdentityRow | null> {
  const [row] = await sql<IdentityRow[]>`
    select i.id, i.external_id as "externalId", i.meta, ${limitsOf(sql)} as limits
      from identities i
     where i.workspace_id = ${workspaceId}
       and ${'id' in by ? sql`i.id = ${by.id}` : sql`i.external_id = ${by.externalId}`}`
  return row ?? null
}

/** One more than `limit`, by id, after `cursor`; each with its limits. */
export async function listIdentityRows(
  sql: AnySql,
  workspaceId: WorkspaceId,
  { limit, cursor }: { limit: number; cursor: string },
): Promise<Omit<IdentityRow, 'meta'>[]> {
  return await sql<IdentityRow[]>`
    select i.id, i.external_id as "externalId", ${limitsOf(sql)} as limits
      from identities i
     where i.workspace_id = ${workspaceId} and i.id > ${cursor}
     order by i.id limit ${limit + 1}`
}

/** Limits of the identity `i` of the query around it. */
const limitsOf = (sql: AnySql) => sql`
  coalesce((select json_agg(json_build_object('id', l.id, 'name', l.name, 'limit', l."limit",
                                              'durationMs', l.duration_ms) order by l.id)
              from ratelimits l where l.identity_id = i.id), '[]')`

export async function countIdentities(sql: AnySql, workspaceId: WorkspaceId): Promise<number> {
  const [row] = await sql<{ total: number }[]>`
    select count(*)::integer as total from identities where workspace_id = ${workspaceId}`
  return row?.total ?? 0
}

/** @returns false when the workspace has one of that externalId, made perhaps a moment ago. */
export async function insertIdentity(
  sql: AnySql,
  workspaceId: WorkspaceId,
  { id, externalId, meta, now }: { id: string; externalId: string; meta: string | null; now: number },
): Promise<boolean> {
  const rows = await sql`
    insert into identities (id, workspace_id, external_id, meta, created_at)
    values (${id}, ${workspaceId}, ${externalId}, ${meta}, ${now})
    on conflict (workspace_id, external_id) do nothing
    returning 1`
  return rows.length > 0
}

/**
 * Takes an identity for this transaction: whoever else changes it or its limits, or connects keys to it, waits. It comes
 * before the keys, as with those who connect some: an order that nobody can deadlock.
 * @returns its id.
 */
export async function holdIdentity(
  tx: AnySql,
  workspaceId: WorkspaceId,
  by: IdentityName,
): Promise<string | null> {
  const [row] = await tx<{ id: string }[]>`
    select i.id from identities i
     where i.workspace_id = ${workspaceId}
       and ${'id' in by ? tx`i.id = ${by.id}` : tx`i.external_id = ${by.externalId}`}
       for update`
  return row?.id ?? null
}

/** @param meta JSON text; null = leave it as it is. */
export async function changeIdentity(
  sql: AnySql,
  workspaceId: WorkspaceId,
  { id, meta, now }: { id: string; meta: string | null; now: number },
): Promise<void> {
  await sql`
    update identities set meta = coalesce(${meta}, meta), updated_at = ${now}
     where workspace_id = ${workspaceId} and id = ${id}`
}

export async function insertIdentityLimits(
  sql: AnySql,
  workspaceId: WorkspaceId,
  identityId: string,
  limits: readonly IdentityLimitRow[],
  now: number,
): Promise<void> {
  if (limits.length === 0) return
  await sql`
    insert into ratelimits (id, workspace_id, name, identity_id, "limit", duration_ms, created_at)
    select l.id, ${workspaceId}, l.name, ${identityId}, l."limit", l.duration_ms, ${now}
      from unnest(${limits.map(({ id }) => id)}::text[], ${limits.map(({ name }) => name)}::text[],
                  ${limits.map(({ limit }) => limit)}::bigint[],
                  ${limits.map(({ durationMs }) => durationMs)}::bigint[]) as l (id, name, "limit", duration_ms)`
}

export async function changeIdentityLimits(
  sql: AnySql,
  workspaceId: WorkspaceId,
  identityId: string,
  limits: readonly IdentityLimitRow[],
  now: number,
): Promise<void> {
  if (limits.length === 0) return
  await sql`
    update ratelimits r set "limit" = l."limit", duration_ms = l.duration_ms, updated_at = ${now}
      from unnest(${limits.map(({ id }) => id)}::text[], ${limits.map(({ limit }) => limit)}::bigint[],
                  ${limits.map(({ durationMs }) => durationMs)}::bigint[]) as l (id, "limit", duration_ms)
     where r.workspace_id = ${workspaceId} and r.identity_id = ${identityId} and r.id = l.id`
}

export async function deleteIdentityLimits(
  sql: AnySql,
  workspaceId: WorkspaceId,
  identityId: string,
  ids: readonly string[],
): Promise<void> {
  if (ids.length === 0) return
  await sql`
    delete from ratelimits
     where workspace_id = ${workspaceId} and identity_id = ${identityId} and id = any(${ids as string[]}::text[])`
}

/**
 * Removes an identity with its limits; its keys stay, without it. The keys are locked in the order of their ids, as
 * spending credits does (sql/0002): neither can deadlock the other.
 */
export async function removeIdentity(
  tx: AnySql,
  workspaceId: WorkspaceId,
  id: string,
  now: number,
): Promise<void> {
  await tx`
    update keys set identity_id = null, updated_at = ${now}
      from (select id from keys where workspace_id = ${workspaceId} and identity_id = ${id} order by id for update) k
     where keys.id = k.id`
  await tx`delete from identities where workspace_id = ${workspaceId} and id = ${id}`
}
