import type { AnySql } from '../../../db/connect.ts'
import { HOUR_MS } from '../../../lib/clock.ts'
import type { WorkspaceId } from '../../../lib/ids.ts'

/** Which keys are wanted; null = no condition. */
export type KeySearch = {
  /** The keyspaces whose keys are searched: those of live APIs of the workspace. */
  keyspaceIds: readonly string[]
  /** Beginning of the key's text, name, id or external id; not empty. */
  text: string | null
  state: KeyState | null
  used: KeyUse | null
  /** Unix ms, for states that end and for usage. */
  now: number
}

export const KEY_STATES = ['active', 'disabled', 'expired', 'expiresSoon', 'lowCredits'] as const
export type KeyState = (typeof KEY_STATES)[number]

/** When a key was last verified, whatever the outcome: usage is known to the hour. */
export const KEY_USES = ['lastHour', 'last24Hours', 'last7Days', 'last30Days', 'never'] as const
export type KeyUse = (typeof KEY_USES)[number]

/** `expiresSoon`: within this time, ms. */
export const EXPIRES_SOON_MS = 7 * 86_400_000
/** `lowCredits`: so many credits or fewer. */
export const LOW_CREDITS_MAX = 10

/** Each way of finding keys by a text gives so many at most; a text that finds more is searched by walking. */
export const FOUND_MAX = 1000

/** The keyspaces of all live APIs, by the id of the API. */
export async function listLiveKeyspaceIds(sql: AnySql, workspaceId: WorkspaceId): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`
    select s.id from apis a join keyspaces s on s.id = a.keyspace_id and s.deleted_at is null
     where a.workspace_id = ${workspaceId} and a.deleted_at is null`
  return rows.map(({ id }) => id)
}

/** Live keys of these keyspaces. Kept by the writes, so it reads no keys. */
export async function countKeysOf(
  sql: AnySql,
  workspaceId: WorkspaceId,
  keyspaceIds: readonly string[],
): Promise<number> {
  const [row] = await sql<{ total: number }[]>`
    select coalesce(sum(total_of(${workspaceId}, 'keys/' || s.id)), 0)::bigint as total
      from unnest(${keyspaceIds as string[]}::text[]) as s (id)`
  return row?.total ?? 0
}

/**
 * Ids of keys of the workspace that begin with a text, by four indexes: {@link FOUND_MAX} and one more of each at most.
 * @returns null when one of them finds more than {@link FOUND_MAX}.
 */
export async function findIdsByText(
  sql: AnySql,
  workspaceId: WorkspaceId,
  text: string,
): Promise<string[] | null> {
  const rows = await sql<{ way: string; id: string | null; count: number }[]>`
    select way, id, count from keys_by_text(${workspaceId}, ${text}, ${FOUND_MAX + 1})`
  const counts = new Map<string, number>()
  for (const { way, count } of rows) counts.set(way, (counts.get(way) ?? 0) + count)
  if ([...counts.values()].some((count) => count > FOUND_MAX)) return null
  return [...new Set(rows.flatMap(({ id }) => id ?? []))]
}

/** Those of these keys that meet the other conditions of a search, newest first. */
export async function filterIds(
  sql: AnySql,
  workspaceId: WorkspaceId,
  ids: readonly string[],
  search: KeySearch,
): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`
    select k.id from keys k
     where k.id = any(${ids as string[]}::text[]) and k.workspace_id = ${workspaceId} and k.deleted_at is null
       and k.for_workspace_id is null and k.keyspace_id = any(${search.keyspaceIds as string[]}::text[])
       and ${isInState(sql, search)} and ${isUsed(sql, search)}
     order by k.id desc`
  return rows.map(({ id }) => id)
}

/** Rows that a walk reads at most, but for one page from each keyspace. */
export const WALKED_MAX = 20_000
/** The same where the usage of each key is looked up, in each month that is kept. */
export const WALKED_BY_USE_MAX = 4_000

/**
 * Walks through keys, newest first, until it has `limit` that are wanted or has read enough.
 * @param options.before Id of the key after which it begins; empty = at the newest.
 * @returns `next` = where another walk goes on; null = there is nothing more. The last id found may be newer.
 */
export async function walkIds(
  sql: AnySql,
  search: KeySearch,
  { before, limit }: { before: string; limit: number },
): Promise<{ ids: string[]; next: string | null }> {
  const { keyspaceIds, text, state, used } = search
  const most = used === null ? WALKED_MAX : WALKED_BY_USE_MAX
  const isFiltered = text !== null || state !== null || used !== null
  const each = isFiltered ? Math.max(limit, Math.ceil(most / Math.max(1, keyspaceIds.length))) : limit
  // What follows the last key read of a keyspace is unknown, so only keys up to the newest of these are known to be in order.
  // Conditions come after the order, so that none is asked for keys behind the last one found.
  const [row] = await sql<{ ids: string[]; known: string | null }[]>`
    with walked as materialized (
      select k.id collate "C" as id, k.keyspace_id, k.start, k.name, k.identity_id collate "C" as identity_id, k.enabled,
             k.expires_at, k.remaining, k.successor_id, k.created_at
        from unnest(${keyspaceIds as string[]}::text[]) as s (id)
       cross join lateral newest_keys(s.id, ${before === '' ? null : before}, ${each}) as k
    ), known as (
      select max(last) as id
        from (select min(id) as last, count(*) as rows from walked group by keyspace_id) as ends where rows = ${each}
    )
    select known.id as known,
           array(select k.id
                   from (select * from walked where id >= coalesce(known.id, '') order by id desc offset 0) as k
                  where ${isInState(sql, search)} and ${hasText(sql, text)} and ${isUsed(sql, search)}
                  limit ${limit}) as ids
      from known`
  const { ids = [], known = null } = row ?? {}
  return { ids, next: ids.length === limit ? (ids.at(-1) ?? null) : known }
}

/** Condition on a key `k`. Credits of a rerolled key are those of its successor, which the search shows too. */
function isInState(sql: AnySql, { state, now }: KeySearch) {
  switch (state) {
    case null:
      return sql`true`
    case 'active':
      return sql`k.enabled and (k.expires_at is null or k.expires_at >= ${now})`
    case 'disabled':
      return sql`not k.enabled`
    case 'expired':
      return sql`k.expires_at < ${now}`
    case 'expiresSoon':
      return sql`k.expires_at >= ${now} and k.expires_at < ${now + EXPIRES_SOON_MS}`
    case 'lowCredits':
      return sql`k.remaining <= ${LOW_CREDITS_MAX}::integer and k.successor_id is null`
    default:
      return state satisfies never
  }
}

const hasText = (sql: AnySql, text: string | null) =>
  text === null
    ? sql`true`
    : sql`(starts_with(k.start, ${text}) or starts_with(lower(k.name), lower(${text})) or starts_with(k.id, ${text})
           or exists (select from identities i where i.id = k.identity_id and starts_with(i.external_id, ${text}) offset 0))`

/**
 * Condition on a key `k`, by its usage. `offset 0` keeps each look-up one of this key alone: the planner would read the usage
 * of all keys where it takes it for little. No month from before the key was made is looked at.
 */
function isUsed(sql: AnySql, { used, now }: KeySearch) {
  switch (used) {
    case null:
      return sql`true`
    case 'never':
      return sql`not exists (select from usage_verifications u
                              where u.key_id = k.id and u.hour >= k.created_at - ${HOUR_MS}::bigint offset 0)
             and not exists (select from usage_verification_days u
                              where u.key_id = k.id and u.day >= k.created_at - ${24 * HOUR_MS}::bigint offset 0)`
    default: {
      const from = now - SINCE_MS[used]
      return sql`exists (select from usage_verifications u where u.key_id = k.id and u.hour >= ${from - (from % HOUR_MS)} offset 0)`
    }
  }
}

const SINCE_MS: Record<Exclude<KeyUse, 'never'>, number> = {
  lastHour: HOUR_MS,
  last24Hours: 24 * HOUR_MS,
  last7Days: 7 * 24 * HOUR_MS,
  last30Days: 30 * 24 * HOUR_MS,
}

/**
 * The last hour in which each key was verified, Unix ms of its start. Of hours that are kept as days alone, the day. Keys
 * without a counted verification are absent.
 */
export async function findLastUsed(
  history: AnySql,
  workspaceId: WorkspaceId,
  keyIds: readonly string[],
): Promise<Map<string, number>> {
  const rows = await history<{ id: string; at: number | null }[]>`
    select wanted.id,
           coalesce((select v.hour from usage_verifications v
                      where v.key_id = wanted.id and v.workspace_id = ${workspaceId} order by v.hour desc limit 1),
                    (select d.day from usage_verification_days d
                      where d.key_id = wanted.id and d.workspace_id = ${workspaceId} order by d.day desc limit 1)) as at
      from unnest(${keyIds as string[]}::text[]) as wanted (id)`
  return new Map(rows.flatMap(({ id, at }) => (at === null ? [] : [[id, at]])))
}

/** The keys of the workspace among these, each with its API. Deleted ones are absent. */
export async function findApisOfKeys(
  sql: AnySql,
  workspaceId: WorkspaceId,
  keyIds: readonly string[],
): Promise<{ id: string; apiId: string }[]> {
  return await sql<{ id: string; apiId: string }[]>`
    select k.id, a.id as "apiId" from keys k join apis a on a.keyspace_id = k.keyspace_id and a.deleted_at is null
     where k.workspace_id = ${workspaceId} and k.id = any(${keyIds as string[]}::text[]) and k.deleted_at is null`
}

/** What a key is found by when it is verified. Null when the key is absent or deleted. */
export async function findKeyHash(
  sql: AnySql,
  workspaceId: WorkspaceId,
  keyId: string,
): Promise<string | null> {
  const [row] = await sql<{ hash: string }[]>`
    select hash from keys where workspace_id = ${workspaceId} and id = ${keyId} and deleted_at is null`
  return row?.hash ?? null
}
