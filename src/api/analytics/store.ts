import type { AnySql } from '../../db/connect.ts'
import { bucketAfter, bucketOf, type TimeGroup } from '../../lib/buckets.ts'
import { DAY_MS, HOUR_MS } from '../../lib/clock.ts'
import type { WorkspaceId } from '../../lib/ids.ts'
import { isOfGrowingRows, type Made, type Part, partsOf, rowsOf, stillMade } from '../../usage/sums.ts'

/** Verifications that meet every condition. An empty list is no condition. */
export type VerificationFilter = {
  workspaceId: WorkspaceId
  /** All that the API has had: usage of keys that were deleted at once is in earlier ones. */
  keyspaceIds: readonly string[]
  /** Null = with any identity or with none. */
  identityId: string | null
  keyIds: readonly string[]
  /** The verification carried all of these tags. */
  tags: readonly string[]
  /** Whole hours, `from <= t < to`. */
  from: number
  to: number
  /** From {@link readMade}. */
  made: Made
}

export type VerificationGroups = {
  time: TimeGroup | null
  key: boolean
  /** When true, verifications without an identity are left out. */
  identity: boolean
  /** `set`: a row for each distinct set of tags. `each`: a row for each tag, and none for untagged verifications. */
  tags: 'set' | 'each' | null
}

export type VerificationOrder = {
  by: 'time' | VerificationCount
  descending: boolean
} | null

/** By all that is not valid. */
export type RefusedFirst = { by: 'refused'; descending: true }

export const VERIFICATION_COUNTS = [
  'valid',
  'notFound',
  'forbidden',
  'usageExceeded',
  'rateLimited',
  'unauthorized',
  'disabled',
  'insufficientPermissions',
  'expired',
  'total',
] as const
export type VerificationCount = (typeof VERIFICATION_COUNTS)[number]

/** A column that the rows are not grouped by is 0 or empty. */
export type VerificationRow = {
  time: number
  keyId: string
  identityId: string
  /** Null when the identity was deleted. */
  externalId: string | null
  tags: string[]
  tag: string
} & Record<Exclude<VerificationCount, 'notFound' | 'unauthorized'>, number>

/**
 * Counts by group, sorted by the given order, then by time, key, identity and tags: the same question cuts at the same row.
 * Sums stored rows first, by the wanted columns only. Tags and names are looked up for the sums.
 */
export async function countVerifications(
  sql: AnySql,
  filter: VerificationFilter,
  groups: VerificationGroups,
  order: VerificationOrder | RefusedFirst,
  limit: number,
): Promise<VerificationRow[]> {
  const inOrder = sql`order by ${orderColumn(sql, order)}, time, key_id, identity_id, tags, tag`
  // Group only by the wanted columns: a constant in `group by` costs as much as a column.
  const columns = [
    groups.time === null ? null : sql`bucket`,
    groups.key ? sql`key_id` : null,
    groups.identity ? sql`identity_id` : null,
    groups.tags === null ? null : sql`tag_set`,
  ].filter((column) => column !== null)
  const parts = partsFor(filter, groups)
  const grouping = columns.length === 0 ? sql`()` : columns.reduce((list, column) => sql`${list}, ${column}`)
  return await sql<VerificationRow[]>`
    with counts as (
      select ${bucketColumn(sql, filter, groups.time)} as bucket,
             ${groups.key ? sql`key_id` : sql`''`} as key_id,
             ${groups.identity ? sql`identity_id` : sql`''`} as identity_id,
             ${groups.tags === null ? sql`''::bytea` : sql`tag_set`} as tag_set,
             ${groups.tags === null ? sql`` : sql`min(hour) as set_hour,`}
             ${sums(sql)}
        from ${storedCounts(sql, parts)}
       where ${isAsked(sql, filter, groups)} ${isExact(sql, parts, filter.made)}
       group by ${grouping}
    ), named as (
      ${groups.tags === 'each' ? summedByTag(sql, filter) : named(sql, filter, groups)}
    ), cut as (
      select *, valid + rate_limited + expired + disabled + forbidden + usage_exceeded + insufficient_permissions as total,
             rate_limited + expired + disabled + forbidden + usage_exceeded + insufficient_permissions as refused
        from named ${inOrder} limit ${limit}
    )
    select time, key_id as "keyId", identity_id as "identityId", tags, tag,
           (select i.external_id from identities i
             where i.id = identity_id and i.workspace_id = ${filter.workspaceId}) as "externalId",
           valid, rate_limited as "rateLimited", expired, disabled, forbidden, usage_exceeded as "usageExceeded",
           insufficient_permissions as "insufficientPermissions", total
      from cut ${inOrder}`
}

/** The rows that answer a question: the fewest there are. */
const partsFor = (filter: VerificationFilter, groups: VerificationGroups): Part[] | 'keyspaces' =>
  isOfAllKeys(filter, groups) ? 'keyspaces' : partsOf(filter, groups.time ?? 'month', filter.made)

const storedCounts = (sql: AnySql, parts: Part[] | 'keyspaces') =>
  parts === 'keyspaces' ? sql`usage_keyspace_hours` : rowsOf(sql, parts)

/** True when the hourly sums by keyspace can answer: one row an hour, however many keys the keyspace has. */
const isOfAllKeys = (filter: VerificationFilter, groups: VerificationGroups): boolean =>
  !groups.key &&
  !groups.identity &&
  groups.tags === null &&
  filter.identityId === null &&
  filter.keyIds.length === 0 &&
  filter.tags.length === 0

/** The rows of `counts` with the tags of each set. */
const named = (sql: AnySql, filter: VerificationFilter, { tags }: VerificationGroups) => sql`
  select bucket as time, key_id, identity_id, ${tags === 'set' ? sql`coalesce(set_tags, '{}')` : sql`'{}'::text[]`} as tags,
         '' as tag, valid, rate_limited, expired, disabled, forbidden, usage_exceeded, insufficient_permissions
    from counts ${tags === 'set' ? sql`left join ${tagSetsOf(sql, filter)} as sets on id = tag_set` : sql``}`

/** A row for each tag, summed over the tag sets that have it. */
const summedByTag = (sql: AnySql, filter: VerificationFilter) => sql`
  select bucket as time, key_id, identity_id, '{}'::text[] as tags, tag, ${sums(sql)}
    from counts
         left join ${tagSetsOf(sql, filter)} as sets on id = tag_set
         cross join unnest(set_tags) as tag
   group by 1, 2, 3, 5`

/** Starts of the buckets in which {@link countVerifications} has rows, whatever the other groups are. */
export async function bucketsWithVerifications(
  sql: AnySql,
  filter: VerificationFilter,
  groups: VerificationGroups & { time: TimeGroup },
): Promise<Set<number>> {
  // The keys and sets of tags in a bucket do not matter here, only whether it has any.
  const buckets = { ...groups, key: false, tags: groups.tags === 'each' ? groups.tags : null }
  const parts = partsFor(filter, buckets)
  const rows = await sql<{ bucket: number }[]>`
    select distinct ${bucketColumn(sql, filter, groups.time)} as bucket
      from ${storedCounts(sql, parts)}
     where ${isAsked(sql, filter, buckets)} ${isExact(sql, parts, filter.made)}`
  return new Set(rows.map(({ bucket }) => bucketOf(bucket, groups.time)))
}

/** Counts of given keys by UTC day, summed over the keys, ascending; only days on which they were used. */
export type DailyCounts = {
  /** Start of the day, Unix ms. */
  time: number
  success: number
  rateLimited: number
  usageExceeded: number
}

/** @param range Unix ms, widened to whole hours: from the hour of `from` through the hour of `to`. */
export async function dailyCountsOfKeys(
  sql: AnySql,
  {
    workspaceId,
    keyIds,
    ...range
  }: Pick<VerificationFilter, 'workspaceId' | 'keyIds' | 'from' | 'to' | 'made'>,
): Promise<DailyCounts[]> {
  const from = bucketOf(range.from, 'hour')
  const to = bucketOf(range.to, 'hour') + HOUR_MS
  const parts = partsOf({ from, to }, 'day', range.made)
  return await sql<DailyCounts[]>`
    select hour - hour % ${DAY_MS}::bigint as time, sum(valid)::bigint as success,
           sum(rate_limited)::bigint as "rateLimited", sum(usage_exceeded)::bigint as "usageExceeded"
      from ${rowsOf(sql, parts)}
     where workspace_id = ${workspaceId} and key_id = any(${keyIds as string[]}::text[])
       and hour >= ${from} and hour < ${to} ${isExact(sql, parts, range.made)}
     group by 1
     order by 1`
}

/** All keyspaces of a workspace, also of deleted APIs: for usage of the past. */
export async function listAllKeyspaceIds(sql: AnySql, workspaceId: WorkspaceId): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`
    select id from keyspaces where workspace_id = ${workspaceId} order by id`
  return rows.map(({ id }) => id)
}

/** What people recognise keys by. Keys that are gone are absent. */
export async function nameKeys(
  sql: AnySql,
  workspaceId: WorkspaceId,
  ids: readonly string[],
): Promise<Map<string, { name: string | null; start: string }>> {
  const rows = await sql<{ id: string; name: string | null; start: string }[]>`
    select id, name, start from keys
     where workspace_id = ${workspaceId} and id = any(${ids as string[]}::text[]) and deleted_at is null`
  return new Map(rows.map(({ id, name, start }) => [id, { name, start }]))
}

export type RatelimitFilter = {
  workspaceId: WorkspaceId
  namespaceId: string
  /** Any of these identifiers. Empty = all, including those not stored by name. */
  identifiers: readonly string[]
  /** Whole hours, `from <= t < to`. */
  from: number
  to: number
}

export type RatelimitGroups = { time: TimeGroup | null; identifier: boolean }

export const RATELIMIT_COUNTS = ['passed', 'denied', 'total'] as const
export type RatelimitCount = (typeof RATELIMIT_COUNTS)[number]
export type RatelimitOrder = { by: 'time' | RatelimitCount; descending: boolean } | null

/**
 * `time` is 0 when not grouped by time. `identifier` is null on the row of the rest, and when not grouped by identifier.
 */
export type RatelimitRow = {
  time: number
  identifier: string | null
  passed: number
  denied: number
  total: number
}

/**
 * Decisions of one namespace by group, sorted by the given order, then by time and identifier. The rest is the totals minus
 * the identifiers that have rows of their own; it is one row, unless it is zero.
 */
export async function countRatelimits(
  sql: AnySql,
  filter: RatelimitFilter,
  groups: RatelimitGroups,
  order: RatelimitOrder,
  limit: number,
): Promise<RatelimitRow[]> {
  const { identifiers } = filter
  const bucket = bucketColumn(sql, filter, groups.time)
  const passedDenied = sql`sum(passed)::bigint as passed, sum(denied)::bigint as denied`
  const totals = sql`
    select ${bucket} as bucket, null as identifier, ${passedDenied}
      from usage_ratelimits where ${isAskedOf(sql, filter)} group by 1`
  const named = sql`
    select ${bucket} as bucket, ${groups.identifier ? sql`identifier` : sql`null`} as identifier, ${passedDenied}
      from usage_ratelimit_identifiers
     where ${isAskedOf(sql, filter)} ${isNamed(sql, filter)} ${identifiers.length > 0 ? isOneOf(sql, filter) : sql``}
     group by 1, 2`
  const counts = groups.identifier || identifiers.length > 0 ? named : totals
  const rest = sql`
    select t.bucket, null, t.passed - coalesce(n.passed, 0)::bigint, t.denied - coalesce(n.denied, 0)::bigint
      from (${totals}) as t
      left join (select bucket, sum(passed) as passed, sum(denied) as denied from counts group by 1) as n using (bucket)
     where t.passed + t.denied > coalesce(n.passed + n.denied, 0)`
  return await sql<RatelimitRow[]>`
    with counts as (
      ${counts}
    ), complete as (
      select * from counts ${groups.identifier && identifiers.length === 0 ? sql`union all ${rest}` : sql``}
    ), named as (
      select bucket as time, identifier, ${passedDenied} from complete group by 1, 2
    )
    select time, identifier, passed, denied, passed + denied as total
      from named
     order by ${orderColumn(sql, order)}, time, identifier
     limit ${limit}`
}

/** Starts of the buckets in which {@link countRatelimits} has rows. */
export async function bucketsWithRatelimits(
  sql: AnySql,
  filter: RatelimitFilter,
  time: TimeGroup,
): Promise<Set<number>> {
  const isOfSome = filter.identifiers.length > 0
  const rows = await sql<{ bucket: number }[]>`
    select distinct ${bucketColumn(sql, filter, time)} as bucket
      from ${isOfSome ? sql`usage_ratelimit_identifiers` : sql`usage_ratelimits`}
     where ${isAskedOf(sql, filter)} ${isOfSome ? sql`${isNamed(sql, filter)} ${isOneOf(sql, filter)}` : sql``}`
  return new Set(rows.map(({ bucket }) => bucketOf(bucket, time)))
}

/** Decisions of one namespace; `time` is 0 when not grouped by time. */
export type NamespaceCountRow = Omit<RatelimitRow, 'identifier'> & {
  namespaceId: string
  /** Null = it was deleted. */
  namespaceName: string | null
}

/** Decisions of all namespaces of a workspace, by namespace and time. */
export async function countByNamespace(
  sql: AnySql,
  { workspaceId, from, to }: Pick<RatelimitFilter, 'workspaceId' | 'from' | 'to'>,
  time: TimeGroup | null,
  order: RatelimitOrder,
  limit: number,
): Promise<NamespaceCountRow[]> {
  return await sql<NamespaceCountRow[]>`
    with counts as (
      select ${bucketColumn(sql, { from, to }, time)} as time, namespace_id, sum(passed)::bigint as passed,
             sum(denied)::bigint as denied
        from usage_ratelimits
       where workspace_id = ${workspaceId} and hour >= ${from} and hour < ${to}
       group by 1, 2
    )
    select c.time, c.namespace_id as "namespaceId", n.name as "namespaceName", c.passed, c.denied, c.passed + c.denied as total
      from counts c
      left join ratelimit_namespaces n
        on n.id = c.namespace_id and n.workspace_id = ${workspaceId} and n.deleted_at is null
     order by ${orderColumn(sql, order)}, time, namespace_id
     limit ${limit}`
}

/** Starts of the buckets in which {@link countByNamespace} has rows. */
export async function bucketsByNamespace(
  sql: AnySql,
  { workspaceId, from, to }: Pick<RatelimitFilter, 'workspaceId' | 'from' | 'to'>,
  time: TimeGroup,
): Promise<Set<number>> {
  const rows = await sql<{ bucket: number }[]>`
    select distinct ${bucketColumn(sql, { from, to }, time)} as bucket
      from usage_ratelimits
     where workspace_id = ${workspaceId} and hour >= ${from} and hour < ${to}`
  return new Set(rows.map(({ bucket }) => bucketOf(bucket, time)))
}

/** A live namespace by id or by name. */
export async function findNamespace(
  sql: AnySql,
  workspaceId: WorkspaceId,
  wanted: { namespaceId: string } | { namespaceName: string },
): Promise<{ id: string } | null> {
  const isWanted =
    'namespaceId' in wanted ? sql`id = ${wanted.namespaceId}` : sql`name = ${wanted.namespaceName}`
  const [row] = await sql<{ id: string }[]>`
    select id from ratelimit_namespaces where workspace_id = ${workspaceId} and ${isWanted} and deleted_at is null`
  return row ?? null
}

const isAsked = (sql: AnySql, filter: VerificationFilter, groups: VerificationGroups) => sql`
  workspace_id = ${filter.workspaceId} and ${isOfKeyspaces(sql, filter)}
  and hour >= ${filter.from} and hour < ${filter.to}
  ${filter.identityId === null ? sql`` : sql`and identity_id = ${filter.identityId} and identity_id <> ''`}
  ${filter.keyIds.length === 0 ? sql`` : sql`and key_id = any(${filter.keyIds as string[]}::text[])`}
  ${
    filter.tags.length === 0
      ? sql``
      : sql`and tag_set in (select id from usage_tag_sets
                             where ${isTagSetOf(sql, filter)} and tags @> ${filter.tags as string[]}::text[])`
  }
  ${groups.identity ? sql`and identity_id <> ''` : sql``}
  ${groups.tags === 'each' ? sql`and tag_set <> ''` : sql``}`

const isExact = (sql: AnySql, parts: Part[] | 'keyspaces', made: Made) =>
  parts !== 'keyspaces' && isOfGrowingRows(parts, made) ? sql`and ${stillMade(sql, made)}` : sql``

/** As an equality where there is one, as a rule: the planner then knows best how many rows it means. */
const isOfKeyspaces = (sql: AnySql, { keyspaceIds }: VerificationFilter) => {
  const [first, ...others] = keyspaceIds
  return first !== undefined && others.length === 0
    ? sql`keyspace_id = ${first}`
    : sql`keyspace_id = any(${keyspaceIds as string[]}::text[])`
}

/** A tag set is stored once in each month that uses it. */
const isTagSetOf = (sql: AnySql, { workspaceId, from, to }: VerificationFilter) => sql`
  workspace_id = ${workspaceId} and month >= ${bucketOf(from, 'month')} and month < ${to}`

/**
 * The tag sets of `counts`. Each is looked up once, in a month that uses it: the index begins with the month, and without
 * it a look-up reads all sets of the workspace, of which there may be millions.
 */
const tagSetsOf = (sql: AnySql, filter: VerificationFilter) => sql`
  (select id, tags as set_tags
     from (select tag_set, min(set_hour) as set_hour from counts where tag_set <> '' group by 1) as used
     join usage_tag_sets on id = tag_set and month = ${monthOf(sql, sql`set_hour`)}
    where ${isTagSetOf(sql, filter)})`

const isAskedOf = (sql: AnySql, { workspaceId, namespaceId, from, to }: RatelimitFilter) => sql`
  workspace_id = ${workspaceId} and namespace_id = ${namespaceId} and hour >= ${from} and hour < ${to}`

/** An identifier that its hour does not keep is out of it at once; its row goes a little later. */
const isNamed = (sql: AnySql, { namespaceId }: RatelimitFilter) => sql`
  and (is_kept or hour not in (select c.hour from usage_ratelimit_cuts c where c.namespace_id = ${namespaceId}))`

const isOneOf = (sql: AnySql, { identifiers }: RatelimitFilter) => sql`
  and identifier = any(${identifiers as string[]}::text[])`

/** The start of the bucket of `hour`. A month is found among those of the range: computing it for each row is slow. */
function bucketColumn(
  sql: AnySql,
  { from, to }: Pick<VerificationFilter, 'from' | 'to'>,
  time: TimeGroup | null,
) {
  if (time === null) return sql`0::bigint`
  if (time === 'hour') return sql`hour`
  if (time === 'day') return sql`hour - hour % ${DAY_MS}::bigint`
  const months: number[] = []
  for (let month = bucketOf(from, 'month'); month < to; month = bucketAfter(month, 'month', 1)) {
    if (months.length === MONTHS_MAX) return monthOf(sql, sql`hour`)
    months.push(month)
  }
  const list = sql`${months}::bigint[]`
  return sql`(${list})[width_bucket(hour, ${list})]`
}

/** A range of centuries, as a typing error makes it, is not listed. */
const MONTHS_MAX = 1_200

const monthOf = (sql: AnySql, time: ReturnType<AnySql>) => sql`
  extract(epoch from date_trunc('month', to_timestamp(${time} / 1000) at time zone 'UTC'))::bigint * 1000`

const sums = (sql: AnySql) => sql`
  coalesce(sum(valid), 0)::bigint as valid, coalesce(sum(rate_limited), 0)::bigint as rate_limited,
  coalesce(sum(expired), 0)::bigint as expired, coalesce(sum(disabled), 0)::bigint as disabled,
  coalesce(sum(forbidden), 0)::bigint as forbidden, coalesce(sum(usage_exceeded), 0)::bigint as usage_exceeded,
  coalesce(sum(insufficient_permissions), 0)::bigint as insufficient_permissions`

/** The column to sort by. Time when none is wanted, and when the wanted one is always 0. */
function orderColumn(sql: AnySql, order: VerificationOrder | RatelimitOrder | RefusedFirst) {
  if (order === null || order.by === 'notFound' || order.by === 'unauthorized') return sql`time`
  const column = sql(COLUMN_OF[order.by])
  return order.descending ? sql`${column} desc` : column
}

const COLUMN_OF = {
  time: 'time',
  valid: 'valid',
  forbidden: 'forbidden',
  usageExceeded: 'usage_exceeded',
  rateLimited: 'rate_limited',
  disabled: 'disabled',
  insufficientPermissions: 'insufficient_permissions',
  expired: 'expired',
  passed: 'passed',
  denied: 'denied',
  refused: 'refused',
  total: 'total',
} as const
