import type { AnySql } from '../../db/connect.ts'
import { idsOfPage, totalOf } from '../../db/lists.ts'
import type { SearchedList } from '../../db/search.ts'
import type { WorkspaceId } from '../../lib/ids.ts'
import { PAGE_BYTES_MAX } from '../../lib/page.ts'

/** Ids by external id, of the identities that exist. */
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

/** As {@link findIdentityIds}, before keys are connected: the identities cannot be deleted until the transaction ends. */
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

/** Creates the identities that do not exist. Of two transactions at once, one creates it. @returns those created here. */
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

/** The name of an identity: its id, or the caller's own id of the person. */
export type ExactIdentityName = { id: string } | { externalId: string }
/** Or a text that may be either. The identity with that id wins over one with that external id. */
export type IdentityName = ExactIdentityName | { idOrExternalId: string }

export const textOf = (by: IdentityName): string =>
  'id' in by ? by.id : 'externalId' in by ? by.externalId : by.idOrExternalId

/** `limit` tokens in a window of `durationMs`. */
export type IdentityLimit = {
  name: string
  limit: number
  durationMs: number
  /** Every verification counts it, also one that does not name it. */
  autoApply: boolean
}
export type IdentityLimitRow = IdentityLimit & { id: string }
export type IdentityRow = {
  id: string
  externalId: string
  /** JSON text as given; null = never set. */
  meta: string | null
  /** Oldest first. */
  limits: IdentityLimitRow[]
}

/** An identity by id or by external id, with its limits, in one round trip. */
export async function findIdentity(
  sql: AnySql,
  workspaceId: WorkspaceId,
  by: IdentityName,
): Promise<IdentityRow | null> {
  const [row] = await sql<IdentityRow[]>`
    select i.id, i.external_id as "externalId", i.meta, ${limitsOf(sql)} as limits
      from identities i
     where i.workspace_id = ${workspaceId} and ${isNamed(sql, workspaceId, by)}`
  return row ?? null
}

/** Whether the identity `i` of the enclosing query has that name. Each name is found by its index. */
function isNamed(sql: AnySql, workspaceId: WorkspaceId, by: IdentityName) {
  if ('id' in by) return sql`i.id = ${by.id}`
  if ('externalId' in by) return sql`i.external_id = ${by.externalId}`
  const text = by.idOrExternalId
  // The second condition is for a row that changed while its lock was waited for: the ids were looked up before.
  return sql`
    i.id = coalesce((select id from identities where workspace_id = ${workspaceId} and id = ${text}),
                    (select id from identities where workspace_id = ${workspaceId} and external_id = ${text}))
    and (i.id = ${text} or i.external_id = ${text})`
}

/** By id, after `cursor`, up to `limit + 1` rows, each with its limits: the extra one shows that there is another page. */
export async function listIdentityRows(
  sql: AnySql,
  workspaceId: WorkspaceId,
  { limit, cursor }: { limit: number; cursor: string },
): Promise<Omit<IdentityRow, 'meta'>[]> {
  const index = { table: 'identities', of: { workspace_id: workspaceId } }
  return await sql<IdentityRow[]>`
    select i.id, i.external_id as "externalId", ${limitsOf(sql)} as limits
      from ${idsOfPage(sql, index, { cursor, rows: limit + 1 })}
     cross join lateral (select id, external_id from identities where id = page.id offset 0) as i
     order by i.id`
}

/** The range of external ids that begin with `prefix`. They are compared by their bytes, and none is above U+10FFFF. */
const startsWith = (sql: AnySql, prefix: string) =>
  sql`external_id >= ${prefix} and external_id < ${`${prefix}\u{10ffff}`}`

/** By external id, up to `rows` of those that begin with `prefix` and come behind `after`. */
export async function listIdentityRowsStarting(
  sql: AnySql,
  workspaceId: WorkspaceId,
  { prefix, after, rows }: { prefix: string; after: string; rows: number },
): Promise<Omit<IdentityRow, 'meta'>[]> {
  return await sql<IdentityRow[]>`
    select i.id, i.external_id as "externalId", ${limitsOf(sql)} as limits
      from (select id, external_id from identities
             where workspace_id = ${workspaceId} and ${startsWith(sql, prefix)} and external_id > ${after}
             order by workspace_id, external_id limit ${rows}) as i
     order by i.external_id`
}

/** @returns how many external ids begin with `prefix`, at most `max`. */
export async function countIdentitiesStarting(
  sql: AnySql,
  workspaceId: WorkspaceId,
  { prefix, max }: { prefix: string; max: number },
): Promise<number> {
  const [row] = await sql<{ total: number }[]>`
    select count(*)::integer as total
      from (select 1 from identities where workspace_id = ${workspaceId} and ${startsWith(sql, prefix)} limit ${max}) as found`
  return row?.total ?? 0
}

/** A search looks at the id and the external id. */
export const identityList = (workspaceId: WorkspaceId): SearchedList => ({
  table: 'identities',
  of: { workspace_id: workspaceId },
  columns: ['id', 'external_id'],
})

/**
 * These identities by id, with meta and limits; those that are gone are left out. Fewer where meta are long, so that a page
 * does not hold the thread.
 * @returns `isCut` = the page ended early because of its length; more of these identities follow.
 */
export async function readIdentities(
  sql: AnySql,
  workspaceId: WorkspaceId,
  ids: readonly string[],
): Promise<{ rows: IdentityRow[]; isCut: boolean }> {
  if (ids.length === 0) return { rows: [], isCut: false }
  const rows = await sql<(IdentityRow & { wanted: number })[]>`
    with weighed as materialized (
      select i.id, coalesce(octet_length(i.meta), 0)
             + (select coalesce(sum(${LIMIT_BYTES}::integer + octet_length(name)), 0) from ratelimits where identity_id = i.id) as bytes
        from unnest(${ids as string[]}::text[]) as wanted (id)
       cross join lateral (select id, meta from identities
                            where workspace_id = ${workspaceId} and id = wanted.id offset 0) as i
    ), page as (
      select id, count(*) over ()::integer as wanted, sum(bytes) over (order by id) - bytes as before from weighed
    )
    select i.id, i.external_id as "externalId", i.meta, ${limitsOf(sql)} as limits, page.wanted
      from page
     cross join lateral (select id, external_id, meta from identities where id = page.id offset 0) as i
     where page.before < ${PAGE_BYTES_MAX}
     order by i.id`
  return {
    isCut: rows.length < (rows[0]?.wanted ?? 0),
    rows: rows.map(({ wanted: _, ...row }) => row),
  }
}

/** About what a limit takes in an answer, without its name. */
const LIMIT_BYTES = 120

/** Limits of the identity `i` of the enclosing query. */
const limitsOf = (sql: AnySql) => sql`
  coalesce((select json_agg(json_build_object('id', l.id, 'name', l.name, 'limit', l."limit",
                                              'durationMs', l.duration_ms, 'autoApply', l.auto_apply) order by l.id)
              from ratelimits l where l.identity_id = i.id), '[]')`

export async function countIdentities(sql: AnySql, workspaceId: WorkspaceId): Promise<number> {
  return await totalOf(sql, workspaceId, 'identities')
}

/** @returns false when the workspace already has an identity with that external id. */
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
 * Locks an identity until the transaction ends. Other changes of it or its limits, and connecting keys to it, wait. Every
 * transaction locks the identity before its keys, so that none deadlock.
 * @returns its id, or null when absent.
 */
export async function holdIdentity(
  tx: AnySql,
  workspaceId: WorkspaceId,
  by: IdentityName,
): Promise<string | null> {
  const [row] = await tx<{ id: string }[]>`
    select i.id from identities i
     where i.workspace_id = ${workspaceId} and ${isNamed(tx, workspaceId, by)}
       for update`
  return row?.id ?? null
}

/** @param meta JSON text; null = leave it unchanged. */
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
    insert into ratelimits (id, workspace_id, name, identity_id, "limit", duration_ms, auto_apply, created_at)
    select l.id, ${workspaceId}, l.name, ${identityId}, l."limit", l.duration_ms, l.auto_apply, ${now}
      from unnest(${limits.map(({ id }) => id)}::text[], ${limits.map(({ name }) => name)}::text[],
                  ${limits.map(({ limit }) => limit)}::bigint[],
                  ${limits.map(({ durationMs }) => durationMs)}::bigint[],
                  ${limits.map(({ autoApply }) => String(autoApply))}::text[]::boolean[])
        as l (id, name, "limit", duration_ms, auto_apply)`
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
    update ratelimits r
       set "limit" = l."limit", duration_ms = l.duration_ms, auto_apply = l.auto_apply, updated_at = ${now}
      from unnest(${limits.map(({ id }) => id)}::text[], ${limits.map(({ limit }) => limit)}::bigint[],
                  ${limits.map(({ durationMs }) => durationMs)}::bigint[],
                  ${limits.map(({ autoApply }) => String(autoApply))}::text[]::boolean[])
        as l (id, "limit", duration_ms, auto_apply)
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

/** Deletes an identity with its limits. A sweep removes it from its keys (sql/0020). */
export async function removeIdentity(tx: AnySql, workspaceId: WorkspaceId, id: string): Promise<void> {
  await tx`delete from identities where workspace_id = ${workspaceId} and id = ${id}`
}
