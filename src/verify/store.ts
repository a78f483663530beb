import type { AnySql } from '../db/connect.ts'
import { HEAVY_LINKS, keyLimits, keyLinks, LIMIT_BYTES, LINK_BYTES } from '../db/key-links.ts'
import { COUNT_MAX } from '../lib/bounds.ts'
import type { CounterRef } from '../usage/recorder.ts'
import type { ConfiguredLimit, KeyRecord } from './key-record.ts'

type Row = Omit<
  KeyRecord,
  | 'permissions'
  | 'meta'
  | 'identity'
  | 'refill'
  | 'limits'
  | 'identityLimits'
  | 'hasCredits'
  | keyof CounterRef
> & {
  meta: string | null
  permissions: string[]
  identityId: string | null
  identityExternalId: string | null
  identityMeta: string | null
  refillAmount: number | null
  refillDay: number | null
  lastRefillAt: number | null
  createdAt: number
  limits: (Omit<ConfiguredLimit, 'ownerId'> & { owner: 'key' | 'identity' })[]
}

/** A key too large to be read with the rest of its batch. */
export type Heavy = { workspaceId: string; weight: number }

/** What one statement reads at most, in the bytes that {@link findKeysByHash} computes. A larger key is read alone. */
export const READ_WEIGHT_MAX = 4_000_000

/**
 * Reads everything that verification needs of these keys in one round trip: key, API, both workspaces, identity, limits of
 * key and identity, roles, permissions held directly and through roles. One row a key, with lists aggregated in it. `offset
 * 0` forces a look-up for each hash: for a plain join, a planner without statistics may read whole tables. An `or` between
 * limits of the key and of its identity has the same risk, hence two look-ups.
 *
 * Keys are weighed first and the lightest are read, at least one, so that a large key does not delay others. Keys beyond
 * {@link READ_WEIGHT_MAX} are returned as `heavy`.
 * @returns hash → record. No entry when the key is absent, when it, its keyspace or its API is deleted, or when its person is
 * being erased: the erasure deletes such keys in short transactions, and may have been interrupted.
 */
export async function findKeysByHash(
  sql: AnySql,
  hashes: readonly string[],
): Promise<{ found: Map<string, KeyRecord>; heavy: Map<string, Heavy> }> {
  type Weighed = { at: number; weight: number; heavyOf: string; isLeft: boolean }
  const rows = await sql<(Weighed & (Row | { id: null }))[]>`
    with weighed as materialized (
      select wanted.at, k.id, k.owner, k.weight::bigint as weight
        from unnest(${hashes as string[]}::text[]) with ordinality as wanted (hash, at)
       cross join lateral (
          select k.id, coalesce(k.for_workspace_id, k.workspace_id) as owner,
                 1000 + coalesce(octet_length(k.meta), 0) + coalesce(octet_length(i.meta), 0)
                 + (${keyLimits(sql)}) * ${LIMIT_BYTES}::integer
                 + (links.total + coalesce(cardinality(k.root_permissions), 0)) * ${LINK_BYTES}::integer
                 + case when links.total >= ${HEAVY_LINKS}::integer then ${READ_WEIGHT_MAX}::integer else 0 end as weight
            from keys k
            left join identities i on i.id = k.identity_id
           cross join lateral (select ${keyLinks(sql)} as total) as links
           where k.hash = wanted.hash collate "C" and k.deleted_at is null
             and not exists (select from erasures e
                              where e.workspace_id = k.workspace_id and e.name = coalesce(k.identity_id, k.owner_id)
                                and e.kind = case when k.identity_id is null then 'external' else 'identity' end)
          offset 0) as k
    ), cut as (
      select at, id, owner, weight, before > 0 and before + weight > ${READ_WEIGHT_MAX}::integer as is_left
        from (select *, sum(weight) over (order by weight, at) - weight as before from weighed) as summed
    )
    select cut.at::integer as at, cut.weight, cut.owner as "heavyOf", cut.is_left as "isLeft", found.*
      from cut
      left join lateral (
        select k.id, k.hash, k.workspace_id as "workspaceId", k.keyspace_id as "keyspaceId", a.id as "apiId",
               k.for_workspace_id as "forWorkspaceId", k.is_operator as "isOperator",
               w.enabled and coalesce(fw.enabled, true) as "workspaceEnabled",
               k.name, k.owner_id as "ownerId", k.meta, k.environment, k.enabled, k.expires_at as "expiresAt",
               a.ip_whitelist as "ipWhitelist",
               case when k.successor_id is null or k.remaining is null then k.remaining
                    else coalesce((select s.remaining from keys s where s.id = k.successor_id and s.deleted_at is null), k.remaining)
               end as "creditsSeen", k.refill_amount as "refillAmount", k.refill_day as "refillDay",
               k.last_refill_at as "lastRefillAt", k.created_at as "createdAt",
               coalesce(k.counts_as, k.id) as "countsAs",
               i.id as "identityId", i.external_id as "identityExternalId", i.meta as "identityMeta",
               coalesce((select json_agg(json_build_object('id', l.id, 'name', l.name, 'limit', l."limit",
                                                           'durationMs', l.duration_ms, 'autoApply', l.auto_apply,
                                                           'owner', case when l.key_id is null then 'identity' else 'key' end)
                                         order by l.id)
                           from (select * from ratelimits where key_id = k.id
                                 union all
                                 select * from ratelimits where identity_id = k.identity_id) as l), '[]') as limits,
               array(select r.name from keys_roles kr join roles r on r.id = kr.role_id
                      where kr.key_id = k.id order by r.name) as roles,
               array(select p.slug from keys_permissions kp join permissions p on p.id = kp.permission_id
                      where kp.key_id = k.id
                     union
                     select p.slug from keys_roles kr
                       join roles_permissions rp on rp.role_id = kr.role_id
                       join permissions p on p.id = rp.permission_id
                      where kr.key_id = k.id
                     union
                     select unnest(k.root_permissions)
                     order by 1) as permissions
          from keys k
          join keyspaces s on s.id = k.keyspace_id and s.deleted_at is null
          join apis a on a.keyspace_id = k.keyspace_id and a.deleted_at is null
          join workspaces w on w.id = k.workspace_id
          left join workspaces fw on fw.id = k.for_workspace_id
          left join identities i on i.id = k.identity_id
         where k.id = cut.id and not cut.is_left
        offset 0) as found on true`
  const found = new Map<string, KeyRecord>()
  const heavy = new Map<string, Heavy>()
  for (const { at, weight, heavyOf, isLeft, ...row } of rows) {
    const hash = hashes[at - 1] as string // ordinality counts from 1
    if (isLeft) heavy.set(hash, { workspaceId: heavyOf, weight })
    else if (row.id !== null) found.set(hash, toRecord(row, hash))
  }
  return { found, heavy }
}

/** @param hash The cache's string: the row has a copy of the same text. */
function toRecord(row: Row, hash: string): KeyRecord {
  const { identityId, identityExternalId, identityMeta, refillAmount, refillDay, lastRefillAt, createdAt } =
    row
  const identity =
    identityId === null || identityExternalId === null
      ? null
      : { id: identityId, externalId: identityExternalId, meta: parseMeta(identityMeta) ?? {} }
  const { limits, identityLimits } = limitsOf(row)
  return {
    id: row.id,
    countsAs: row.countsAs === row.id ? row.id : row.countsAs,
    hash,
    workspaceId: shared(row.workspaceId),
    keyspaceId: shared(row.keyspaceId),
    changesSeen: 0,
    usageRows: null,
    usageRow: 0,
    apiId: shared(row.apiId),
    forWorkspaceId: row.forWorkspaceId,
    isOperator: row.isOperator,
    workspaceEnabled: row.workspaceEnabled,
    name: row.name,
    ownerId: row.ownerId,
    meta: parseMeta(row.meta),
    environment: row.environment,
    enabled: row.enabled,
    expiresAt: row.expiresAt,
    ipWhitelist: row.ipWhitelist,
    hasCredits: row.creditsSeen !== null,
    creditsSeen: row.creditsSeen,
    refill:
      refillAmount === null
        ? null
        : { amount: refillAmount, day: refillDay, lastAt: lastRefillAt, baseAt: lastRefillAt ?? createdAt },
    identity,
    limits,
    identityLimits,
    roles: row.roles.length === 0 ? NO_ROLES : row.roles.map(shared),
    permissions: row.permissions.length === 0 ? NO_PERMISSIONS : new Set(row.permissions.map(shared)),
  }
}

function limitsOf(row: Row): Pick<KeyRecord, 'limits' | 'identityLimits'> {
  if (row.limits.length === 0) return { limits: NO_LIMITS, identityLimits: NO_LIMITS }
  const all = row.limits.map(({ id, name, limit, durationMs, autoApply, owner }) => ({
    id,
    name: shared(name),
    limit,
    durationMs,
    autoApply,
    ownerId: owner === 'identity' && row.identityId !== null ? row.identityId : row.countsAs,
  }))
  const identityLimits = all.filter(({ ownerId }) => ownerId !== row.countsAs)
  if (identityLimits.length === 0) return { limits: all, identityLimits: NO_LIMITS }
  const own = new Set(all.filter(({ ownerId }) => ownerId === row.countsAs).map(({ name }) => name))
  const limits = all.filter(({ ownerId, name }) => ownerId === row.countsAs || !own.has(name))
  return { limits, identityLimits }
}

// Shared empty values: most keys have no limits, roles or permissions, and empty lists and a set would be a tenth of a record.
const NO_LIMITS: ConfiguredLimit[] = []
const NO_ROLES: string[] = []
const NO_PERMISSIONS: ReadonlySet<string> = new Set()

const texts = new Map<string, string>()

/** One copy of equal texts for all records: keys of one API share about a hundred bytes of ids. */
function shared(text: string): string {
  const known = texts.get(text)
  if (known !== undefined) return known
  if (texts.size >= TEXTS_MAX) texts.clear()
  texts.set(text, text)
  return text
}
const TEXTS_MAX = 10_000

const parseMeta = (text: string | null): Record<string, unknown> | null =>
  text === null ? null : (JSON.parse(text) as Record<string, unknown>) // stored from a checked object

/**
 * One call's result from `spend_credits` (sql/0014). `passed` null = another transaction holds the key and nothing was
 * taken; `remaining` null = the key has no credits to count.
 */
export type SpentRow = { call: number; passed: boolean | null; remaining: number | null }

/**
 * Spends for several calls in one statement and one commit; see sql/0014. A key that is gone has no row. A migration may hold
 * the whole table for longer than the statement waits: then it is as if each key were held.
 * @param options.waits Wait some milliseconds for keys that other transactions hold.
 */
export async function spendCredits(
  sql: AnySql,
  { keyIds, costs, now, waits }: { keyIds: string[]; costs: number[]; now: number; waits: boolean },
): Promise<SpentRow[]> {
  try {
    return await sql<SpentRow[]>`
      select call, passed, remaining
        from spend_credits(${keyIds}::text[], ${costs}::bigint[], ${now}, ${waits}::boolean)`
  } catch (cause) {
    if (!(cause instanceof Error && 'code' in cause && cause.code === LOCK_NOT_AVAILABLE)) throw cause
    return keyIds.map((_, call) => ({ call, passed: null, remaining: null }))
  }
}

const LOCK_NOT_AVAILABLE = '55P03'

/** Credits of the key `k` after a refill. The only place that knows the two modes. */
const refilled = (sql: AnySql) => sql`
  (case when k.refill_sets then greatest(k.remaining, k.refill_amount)
        else least(k.remaining + k.refill_amount, ${COUNT_MAX}::bigint) end)`

/**
 * Adds a refill if `lastAt` is still the caller's value, so that servers, verifications and the schedule add it only once.
 * Does not wait for a key that another transaction holds.
 * @returns true when the refill was added or is no longer due; false when another transaction holds the key, or it is gone.
 */
export async function applyRefill(
  sql: AnySql,
  { keyId, amount, lastAt, now }: { keyId: string; amount: number; lastAt: number | null; now: number },
): Promise<boolean> {
  const [row] = await sql<{ isHeld: boolean }[]>`
    with held as (
      select id from keys where id = ${keyId} and deleted_at is null for no key update skip locked
    ), refilled as (
      update keys k
         set remaining = ${refilled(sql)}, last_refill_at = ${now}, updated_at = ${now}
        from held
       where k.id = held.id and k.remaining is not null and k.refill_amount = ${amount}
         and k.last_refill_at is not distinct from ${lastAt}
    )
    select exists (select from held) as "isHeld"`
  return row?.isHeld === true
}

/**
 * Refills the due keys among the next `limit` keys with a refill, by id after `cursor`. Each key is locked and checked
 * again, so it is refilled once per due day, whatever servers and verifications do. Keys held by other transactions are
 * skipped. The lock is `for no key update`: inserts of rows that refer to a key do not conflict with it.
 * @param dueAt Latest due times, Unix ms: of daily refills, then of those on day 1 to 31.
 * @returns the last key read, null at the end; how many were refilled, and how many due ones were skipped.
 */
export async function refillDueKeys(
  sql: AnySql,
  { cursor, limit, dueAt, now }: { cursor: string; limit: number; dueAt: readonly number[]; now: number },
): Promise<{ last: string | null; refilled: number; left: number }> {
  const isDue = sql`
    k.remaining is not null and k.refill_amount is not null and k.deleted_at is null
    and coalesce(k.last_refill_at, k.created_at) < (${dueAt as number[]}::bigint[])[coalesce(k.refill_day, 0) + 1]`
  const [row] = await sql<{ last: string | null; refilled: number; left: number }[]>`
    with page as (
      select id from keys
       where refill_amount is not null and deleted_at is null and id > ${cursor}
       order by id limit ${limit}
    ), due as (
      select count(*)::integer as total from keys k join page on page.id = k.id where ${isDue}
    ), held as (
      select k.id
        from keys k join page on page.id = k.id
       where ${isDue}
       order by k.id
         for no key update of k skip locked
    ), refilled as (
      update keys k
         set remaining = ${refilled(sql)}, last_refill_at = ${now}, updated_at = ${now}
        from held
       where k.id = held.id
      returning 1
    ), counted as (
      select count(*)::integer as total from refilled
    )
    select (select max(id) from page) as last, counted.total as refilled, due.total - counted.total as "left"
      from counted, due`
  return row ?? { last: null, refilled: 0, left: 0 }
}
