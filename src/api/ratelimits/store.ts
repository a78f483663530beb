import type { AnySql } from '../../db/connect.ts'
import { idsOfPage, totalOf } from '../../db/lists.ts'
import type { WorkspaceId } from '../../lib/ids.ts'
import type { OutageRule } from '../../limiter/fleet/fleet-shard.ts'

/** Compares digests, which are indexed (sql/0017): an identifier may be longer than an index entry. */
const isIdentifier = (sql: AnySql, identifier: string) =>
  sql`md5(identifier) = md5(${identifier}) and identifier = ${identifier}`

export type OverrideRow = {
  id: string
  identifier: string
  limit: number
  durationMs: number
  async: boolean | null
}
/** How servers share a namespace's limits. Null = as the environment says. Of no effect where they share none. */
export type NamespaceSettings = {
  /** `local` = each server counts for itself. */
  scope: 'fleet' | 'local' | null
  /** What decides while the engine cannot be asked. */
  outage: OutageRule | null
}

/** A namespace without its overrides. */
export type NamespaceSummary = NamespaceSettings & { id: string; name: string }

export type NamespaceRow = NamespaceSettings & {
  id: string
  /** That of the last change of an override, or 0: `overrides` has all changes up to it. */
  revision: number
  overrides: OverrideRow[]
}

/** A namespace by name with the first of its overrides by id, at most `rows`, without deleted ones, in one round trip. */
export async function findNamespaceByName(
  sql: AnySql,
  workspaceId: string,
  name: string,
  rows: number,
): Promise<NamespaceRow | null> {
  const [row] = await sql<NamespaceRow[]>`
    select n.id, n.scope, n.outage, greatest(n.overrides_lost, override_revision_of(n.id)) as revision,
           coalesce((select json_agg(json_build_object('id', o.id, 'identifier', o.identifier, 'limit', o."limit",
                                                       'durationMs', o.duration_ms, 'async', o.async) order by o.id)
                       from overrides_after(n.id, '', ${rows}) as o), '[]') as overrides
      from ratelimit_namespaces n
     where n.workspace_id = ${workspaceId} and n.name = ${name} and n.deleted_at is null`
  return row ?? null
}

/** Further overrides of a namespace by id, without deleted ones. A page costs the same wherever it begins. */
export async function findOverridesAfter(
  sql: AnySql,
  namespaceId: string,
  cursor: string,
  rows: number,
): Promise<OverrideRow[]> {
  return await sql<OverrideRow[]>`
    select id, identifier, "limit", duration_ms as "durationMs", async
      from overrides_after(${namespaceId}, ${cursor}, ${rows})`
}

export type ChangedOverride = OverrideRow & { revision: number; isDeleted: boolean }

/**
 * The settings, and overrides that changed after a revision, deleted ones included, oldest change first, at most `rows`.
 * @returns null when that cannot be told, as rows were removed for good, or when the name is not this namespace's any more.
 */
export async function findChanges(
  sql: AnySql,
  workspaceId: string,
  { id, name, revision }: { id: string; name: string; revision: number },
  rows: number,
): Promise<(NamespaceSettings & { changed: ChangedOverride[] }) | null> {
  const [row] = await sql<(NamespaceSettings & { changed: ChangedOverride[] })[]>`
    select n.scope, n.outage,
           coalesce((select json_agg(json_build_object('id', o.id, 'identifier', o.identifier, 'limit', o."limit",
                                                       'durationMs', o.duration_ms, 'async', o.async, 'revision', o.revision,
                                                       'isDeleted', o.deleted_at is not null) order by o.revision)
                       from overrides_changed_after(n.id, ${revision}, ${rows}) as o), '[]') as changed
      from ratelimit_namespaces n
     where n.id = ${id} and n.workspace_id = ${workspaceId} and n.name = ${name} and n.deleted_at is null
       and n.overrides_lost <= ${revision}`
  return row ?? null
}

/** @returns false when a namespace of that name exists. */
export async function insertNamespace(
  sql: AnySql,
  {
    id,
    workspaceId,
    name,
    scope = null,
    outage = null,
    now,
  }: { id: string; workspaceId: WorkspaceId; name: string; now: number } & Partial<NamespaceSettings>,
): Promise<boolean> {
  const rows = await sql`
    insert into ratelimit_namespaces (id, workspace_id, name, scope, outage, created_at)
    values (${id}, ${workspaceId}, ${name}, ${scope}, ${outage}, ${now})
    on conflict (workspace_id, name) where deleted_at is null do nothing
    returning 1`
  return rows.length > 0
}

/** A namespace as a request names it. With `idOrName` an id wins over a name of the same text. */
export type NamespaceName = { id: string } | { name: string } | { idOrName: string }

/** Other texts are names only, and need no look-up by id. */
export const mayBeNamespaceId = (text: string) => text.startsWith('rlns_')

/** A namespace that is not deleted, without its overrides. */
export async function findNamespace(
  sql: AnySql,
  workspaceId: WorkspaceId,
  by: NamespaceName,
): Promise<NamespaceSummary | null> {
  if ('idOrName' in by) return await byIdOrName(by.idOrName, (one) => findNamespace(sql, workspaceId, one))
  const [row] = await sql<NamespaceSummary[]>`
    select n.id, n.name, n.scope, n.outage from ratelimit_namespaces n
     where n.workspace_id = ${workspaceId} and n.deleted_at is null
       and ${'id' in by ? sql`n.id = ${by.id}` : sql`n.name = ${by.name}`}`
  return row ?? null
}

/**
 * As {@link findNamespace}, locked until the transaction ends: nobody else deletes it or changes its overrides, so a count
 * of its overrides stays true.
 */
export async function holdNamespace(
  tx: AnySql,
  workspaceId: WorkspaceId,
  by: NamespaceName,
): Promise<NamespaceSummary | null> {
  if ('idOrName' in by) return await byIdOrName(by.idOrName, (one) => holdNamespace(tx, workspaceId, one))
  const [row] = await tx<NamespaceSummary[]>`
    select n.id, n.name, n.scope, n.outage from ratelimit_namespaces n
     where n.workspace_id = ${workspaceId} and n.deleted_at is null
       and ${'id' in by ? tx`n.id = ${by.id}` : tx`n.name = ${by.name}`}
       for no key update`
  return row ?? null
}

async function byIdOrName<T>(
  text: string,
  find: (by: { id: string } | { name: string }) => Promise<T | null>,
): Promise<T | null> {
  const found = mayBeNamespaceId(text) ? await find({ id: text }) : null
  return found ?? (await find({ name: text }))
}

/**
 * The id of a deleted namespace with that id or name, the one deleted last. Of names, only those of the
 * {@link DELETED_NAMES_MAX} namespaces that the workspace deleted last are known, so that a look-up reads no more rows.
 */
export async function findDeletedNamespaceId(
  sql: AnySql,
  workspaceId: WorkspaceId,
  idOrName: string,
): Promise<string | null> {
  return await byIdOrName(idOrName, async (by) => {
    const [row] =
      'id' in by
        ? await sql<{ id: string }[]>`
            select id from ratelimit_namespaces
             where workspace_id = ${workspaceId} and id = ${by.id} and deleted_at is not null`
        : await sql<{ id: string }[]>`
            select id
              from (select id, name, deleted_at from ratelimit_namespaces
                     where workspace_id = ${workspaceId} and deleted_at is not null
                     order by deleted_at desc, id desc limit ${DELETED_NAMES_MAX}) as deleted
             where name = ${by.name}
             order by deleted_at desc
             limit 1`
    return row?.id ?? null
  })
}

const DELETED_NAMES_MAX = 10_000

/** By id, after `cursor`, up to `limit + 1` rows: the extra one shows that there is another page. */
export async function listNamespaceRows(
  sql: AnySql,
  workspaceId: WorkspaceId,
  { limit, cursor }: { limit: number; cursor: string },
): Promise<NamespaceSummary[]> {
  const index = {
    table: 'ratelimit_namespaces',
    of: { workspace_id: workspaceId },
    where: 'deleted_at is null',
  }
  return await sql<NamespaceSummary[]>`
    select n.id, n.name, n.scope, n.outage
      from ${idsOfPage(sql, index, { cursor, rows: limit + 1 })}
     cross join lateral (select id, name, scope, outage from ratelimit_namespaces where id = page.id offset 0) as n
     order by n.id`
}

export async function countNamespaces(sql: AnySql, workspaceId: WorkspaceId): Promise<number> {
  return await totalOf(sql, workspaceId, 'namespaces')
}

export async function changeNamespace(
  sql: AnySql,
  workspaceId: WorkspaceId,
  id: string,
  { scope, outage }: NamespaceSettings,
  now: number,
): Promise<void> {
  await sql`
    update ratelimit_namespaces set scope = ${scope}, outage = ${outage}, updated_at = ${now}
     where workspace_id = ${workspaceId} and id = ${id}`
}

/** Its overrides are out of reach then. @returns its name; null when there is no such namespace. */
export async function softDeleteNamespace(
  sql: AnySql,
  workspaceId: WorkspaceId,
  id: string,
  now: number,
): Promise<{ name: string } | null> {
  const [row] = await sql<{ name: string }[]>`
    update ratelimit_namespaces set deleted_at = ${now}, updated_at = ${now}
     where workspace_id = ${workspaceId} and id = ${id} and deleted_at is null
    returning name`
  return row ?? null
}

/**
 * Creates an override, or changes the one of this identifier. A deleted one is restored with its old id.
 * @returns its id.
 */
export async function upsertOverride(
  sql: AnySql,
  workspaceId: WorkspaceId,
  namespaceId: string,
  { id, identifier, limit, durationMs, async }: OverrideRow,
  now: number,
): Promise<string> {
  const [row] = await sql<{ id: string }[]>`
    insert into ratelimit_overrides as o
           (id, workspace_id, namespace_id, identifier, "limit", duration_ms, async, created_at)
    values (${id}, ${workspaceId}, ${namespaceId}, ${identifier}, ${limit}, ${durationMs}, ${async}, ${now})
    on conflict (namespace_id, md5(identifier)) do update
       set "limit" = excluded."limit", duration_ms = excluded.duration_ms, async = excluded.async,
           updated_at = ${now}, deleted_at = null
    returning o.id`
  if (row === undefined) throw new Error('an upsert returns its row')
  return row.id
}

/** An override by its identifier, compared as text: `*` has no meaning here. */
export async function findOverrideRow(
  sql: AnySql,
  workspaceId: WorkspaceId,
  namespaceId: string,
  identifier: string,
): Promise<OverrideRow | null> {
  const [row] = await sql<OverrideRow[]>`
    select id, identifier, "limit", duration_ms as "durationMs", async from ratelimit_overrides
     where workspace_id = ${workspaceId} and namespace_id = ${namespaceId} and ${isIdentifier(sql, identifier)}
       and deleted_at is null`
  return row ?? null
}

/** By id, after `cursor`, up to `limit + 1` rows: the extra one shows that there is another page. */
export async function listOverrideRows(
  sql: AnySql,
  workspaceId: WorkspaceId,
  namespaceId: string,
  { limit, cursor }: { limit: number; cursor: string },
): Promise<OverrideRow[]> {
  const index = {
    table: 'ratelimit_overrides',
    of: { namespace_id: namespaceId },
    where: 'deleted_at is null',
  }
  return await sql<OverrideRow[]>`
    select o.id, o.identifier, o."limit", o.duration_ms as "durationMs", o.async
      from ${idsOfPage(sql, index, { cursor, rows: limit + 1 })}
     cross join lateral (select id, workspace_id, identifier, "limit", duration_ms, async
                           from ratelimit_overrides where id = page.id offset 0) as o
     where o.workspace_id = ${workspaceId}
     order by o.id`
}

export async function countOverrides(
  sql: AnySql,
  workspaceId: WorkspaceId,
  namespaceId: string,
): Promise<number> {
  return await totalOf(sql, workspaceId, `overrides/${namespaceId}`)
}

/** Overrides with text between two stars, without deleted ones. */
export async function countInnerPatterns(
  sql: AnySql,
  workspaceId: WorkspaceId,
  namespaceId: string,
): Promise<number> {
  const [row] = await sql<{ total: number }[]>`
    select count(*)::integer as total from ratelimit_overrides
     where workspace_id = ${workspaceId} and namespace_id = ${namespaceId} and deleted_at is null
       and identifier ~ '[*][^*]+[*]'`
  return row?.total ?? 0
}

/** As {@link findOverrideRow}, locked until the transaction ends. */
export async function lockOverrideRow(
  tx: AnySql,
  workspaceId: WorkspaceId,
  namespaceId: string,
  identifier: string,
): Promise<OverrideRow | null> {
  const [row] = await tx<OverrideRow[]>`
    select id, identifier, "limit", duration_ms as "durationMs", async from ratelimit_overrides
     where workspace_id = ${workspaceId} and namespace_id = ${namespaceId} and ${isIdentifier(tx, identifier)}
       and deleted_at is null
       for update`
  return row ?? null
}

/** @returns its values before; null when there is no such override. */
export async function softDeleteOverride(
  sql: AnySql,
  workspaceId: WorkspaceId,
  namespaceId: string,
  identifier: string,
  now: number,
): Promise<OverrideRow | null> {
  const [row] = await sql<OverrideRow[]>`
    update ratelimit_overrides set deleted_at = ${now}, updated_at = ${now}
     where workspace_id = ${workspaceId} and namespace_id = ${namespaceId} and ${isIdentifier(sql, identifier)}
       and deleted_at is null
    returning id, identifier, "limit", duration_ms as "durationMs", async`
  return row ?? null
}
