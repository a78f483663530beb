import type { AuditResource } from '../audit/log.ts'
import { countGone } from '../db/bounds.ts'
import type { AnySql } from '../db/connect.ts'
import { DAY_MS } from '../lib/clock.ts'
import type { WorkspaceId } from '../lib/ids.ts'

/** `external`: the customer's name of a person, as external id, owner id or identifier of a rate limit. */
export type ErasedKind = 'external' | 'identity' | 'key'
export type ErasedName = {
  kind: ErasedKind
  /** Null = swept. */
  name: string | null
  pseudonym: string
  /** The pseudonym that groups all names of one erasure. */
  subject: string
  apiId: string | null
}
export type Renamed = { name: string; pseudonym: string }
type NewName = { kind: ErasedKind; name: string; pseudonym: string; subject: string; apiId: string | null }

/** Blocks the writing of usage until the transaction ends (sql/0012, `erased_names`). The transaction must be short. */
export async function holdCounts(tx: AnySql): Promise<void> {
  await tx`select pg_advisory_xact_lock(8317504812)`
}

/** The recent erasure of this name; null = none. */
export async function findErasedName(
  sql: AnySql,
  workspaceId: WorkspaceId,
  name: string,
): Promise<ErasedName | null> {
  const [row] = await sql<ErasedName[]>`
    select kind, name, pseudonym, subject, api_id as "apiId" from erasures
     where workspace_id = ${workspaceId} and name_hash = erased_hash(${name})`
  return row ?? null
}

/** A name that is inserted again is swept again and keeps its pseudonym. */
export async function insertErasedNames(
  tx: AnySql,
  workspaceId: WorkspaceId,
  names: readonly NewName[],
  now: number,
): Promise<void> {
  if (names.length === 0) return
  await tx`
    insert into erasures (workspace_id, name_hash, name_mark, kind, name, pseudonym, subject, api_id, created_at)
    select ${workspaceId}, erased_hash(n.name), erased_mark(n.name), n.kind, n.name, n.pseudonym, n.subject, n."apiId", ${now}
      from json_to_recordset((${JSON.stringify(names)}::text)::json)
        as n (kind text, name text, pseudonym text, subject text, "apiId" text)
    on conflict (workspace_id, name_hash)
    do update set name = excluded.name, created_at = excluded.created_at`
}

/** Unswept names of an erasure. Keys come first, as they must be swept before their identity. */
export async function listUnsweptNames(
  sql: AnySql,
  workspaceId: WorkspaceId,
  subject: string,
  limit: number,
): Promise<{ kind: ErasedKind; name: string; pseudonym: string }[]> {
  return await sql<{ kind: ErasedKind; name: string; pseudonym: string }[]>`
    select kind, name, pseudonym from erasures
     where workspace_id = ${workspaceId} and subject = ${subject} and name is not null
     order by kind desc, name limit ${limit}`
}

export async function markSwept(
  tx: AnySql,
  workspaceId: WorkspaceId,
  names: readonly string[],
): Promise<void> {
  await tx`
    update erasures set name = null
     where workspace_id = ${workspaceId} and name_hash in (select erased_hash(n) from unnest(${names as string[]}::text[]) n)`
}

/** Unfinished erasures that began at or before `before`. Younger ones may be running on another server. */
export async function listUnfinished(
  sql: AnySql,
  before: number,
): Promise<{ workspaceId: WorkspaceId; subject: string }[]> {
  return await sql<{ workspaceId: WorkspaceId; subject: string }[]>`
    select distinct workspace_id as "workspaceId", subject from erasures
     where name is not null and created_at <= ${before} limit 100`
}

/** Deletes the hashes of names whose erasure began before `before`. */
export async function forgetErasures(sql: AnySql, before: number): Promise<void> {
  await sql`delete from erasures where name is null and created_at < ${before}`
}

/** Removes personal data from an identity. Its row stays while it has keys. */
export async function emptyIdentity(
  tx: AnySql,
  workspaceId: WorkspaceId,
  { id, externalId, now }: { id: string; externalId: string; now: number },
): Promise<void> {
  await tx`
    update identities set external_id = ${externalId}, meta = null, updated_at = ${now}
     where workspace_id = ${workspaceId} and id = ${id}`
  await tx`delete from ratelimits where workspace_id = ${workspaceId} and identity_id = ${id}`
}

/** Deletes identities whose keys are all swept. */
export async function deleteIdentities(
  tx: AnySql,
  workspaceId: WorkspaceId,
  ids: readonly string[],
): Promise<void> {
  await tx`delete from identities where workspace_id = ${workspaceId} and id = any(${ids as string[]}::text[])`
}

/** Keys to erase with the person: those of the identities, and those without an identity that have the owner id. */
export type KeysOf = { identityIds: readonly string[]; ownerIds: readonly string[] }

const isKeyOf = (sql: AnySql, { identityIds, ownerIds }: KeysOf) => sql`
  (k.identity_id = any(${identityIds as string[]}::text[])
   or k.identity_id is null and k.owner_id = any(${ownerIds as string[]}::text[]))`

/**
 * Revokes some live keys of the person, and clears the owner id of some that belong to other identities.
 * @returns those it changed; null = there are no more.
 */
export async function revokeSomeKeysOf(
  tx: AnySql,
  workspaceId: WorkspaceId,
  { identityIds, ownerIds }: KeysOf,
  { limit, now }: { limit: number; now: number },
): Promise<{ id: string; identityId: string | null }[] | null> {
  const isLive = 'deleted_at is null'
  const found = await tx<{ id: string }[]>`
    select id from (${idsOfIdentities(tx, identityIds, { where: isLive, limit })}
                     union all
                    select found.id
                      from unnest(${ownerIds as string[]}::text[]) as o (id)
                     cross join lateral ids_of_page('keys', '{workspace_id,owner_id}', array[${workspaceId}::text, o.id],
                                                    'owner_id is not null and deleted_at is null', null, ${limit}) as found (id)) as found
     limit ${limit}`
  if (found.length === 0) return null
  const held = await tx<{ id: string; identityId: string | null }[]>`
    select id, identity_id as "identityId" from keys
     where id = any(${found.map(({ id }) => id)}::text[]) and workspace_id = ${workspaceId} and deleted_at is null
     order by id for update`
  const isOwn = ({ identityId }: { identityId: string | null }) =>
    identityId === null || identityIds.includes(identityId)
  const own = held.filter(isOwn).map(({ id }) => id)
  await tx`update keys set deleted_at = ${now}, updated_at = ${now} where id = any(${own}::text[])`
  await countGone(tx, workspaceId, { name: 'keys', rows: own.length })
  const others = held.filter((key) => !isOwn(key)).map(({ id }) => id)
  await tx`update keys set owner_id = null where id = any(${others}::text[])`
  return held
}

/** Locks the next of these keys, including deleted ones. */
export async function lockKeysOf(
  tx: AnySql,
  workspaceId: WorkspaceId,
  keysOf: KeysOf,
  limit: number,
): Promise<{ id: string; apiId: string | null }[]> {
  return await tx<{ id: string; apiId: string | null }[]>`
    with chosen as materialized (
      select id from (${idsOfIdentities(tx, keysOf.identityIds, { where: 'true', limit })}
                       union all
                      ${idsOfOwners(tx, workspaceId, keysOf.ownerIds, { where: 'identity_id is null', limit })}) as found
       limit ${limit}
    )
    select k.id, api_of_keyspace(k.keyspace_id) as "apiId"
      from keys k
     where k.id in (select id from chosen) and k.workspace_id = ${workspaceId} and ${isKeyOf(tx, keysOf)}
     order by k.id for update`
}

const idsOfIdentities = (
  sql: AnySql,
  identityIds: readonly string[],
  { where, limit }: { where: string; limit: number },
) => sql`
  select found.id
    from unnest(${identityIds as string[]}::text[]) as i (id)
   cross join lateral ids_of_page('keys', '{identity_id}', array[i.id],
                                  'identity_id is not null and ' || ${where}::text, null, ${limit}) as found (id)`

/** Live and deleted keys have an index each. */
const idsOfOwners = (
  sql: AnySql,
  workspaceId: WorkspaceId,
  ownerIds: readonly string[],
  { where, limit }: { where: string; limit: number },
) => sql`
  select found.id
    from unnest(${ownerIds as string[]}::text[]) as o (id)
   cross join unnest(array['deleted_at is null', 'deleted_at is not null']) as half (condition)
   cross join lateral ids_of_page('keys', '{workspace_id,owner_id}', array[${workspaceId}::text, o.id],
                                  'owner_id is not null and ' || half.condition || ' and ' || ${where}::text, null, ${limit}) as found (id)`

/** A key, also a deleted one, with its API. Null when it has no row. */
export async function findAnyKey(
  sql: AnySql,
  workspaceId: WorkspaceId,
  id: string,
): Promise<{ apiId: string | null } | null> {
  const [row] = await sql<{ apiId: string | null }[]>`
    select api_of_keyspace(k.keyspace_id) as "apiId" from keys k where k.workspace_id = ${workspaceId} and k.id = ${id}`
  return row ?? null
}

/** The newest audit events of a thing without a row: ids of their other resources, and metas. */
export async function findTraces(
  sql: AnySql,
  workspaceId: WorkspaceId,
  resource: { type: string; id: string },
): Promise<AuditResource[]> {
  const rows = await sql<{ resources: AuditResource[] }[]>`
    select resources
      from (select resources, seq, id from audit_events
             where workspace_id = ${workspaceId} and resources @> ${JSON.stringify([resource])}::text::jsonb
            offset 0) as found -- all of them by the index: in order, months without one would be read to their end
     order by seq desc, id desc limit 100`
  return rows.flatMap(({ resources }) => resources)
}

/**
 * Deletes keys with everything attached to them. Keys that they were rerolled into, and those rerolled into them, no longer
 * name them: the windows of such a successor begin anew.
 */
export async function deleteKeys(
  tx: AnySql,
  workspaceId: WorkspaceId,
  ids: readonly string[],
): Promise<void> {
  const list = ids as string[] // the driver's types refuse a readonly list
  await tx`
    update keys set successor_id = null
     where workspace_id = ${workspaceId} and successor_id = any(${list}::text[])`
  await tx`
    update keys set counts_as = null
     where workspace_id = ${workspaceId} and counts_as = any(${list}::text[])`
  await tx`delete from keys where workspace_id = ${workspaceId} and id = any(${list}::text[])`
}

/** Clears the owner id of deleted keys that belong to other identities. */
export async function clearOwnerOfDeleted(
  tx: AnySql,
  workspaceId: WorkspaceId,
  owner: string,
): Promise<void> {
  const isForeign = 'owner_id is not null and deleted_at is not null and identity_id is not null'
  await tx`
    update keys set owner_id = null
      from (select id from keys
             where id in (select found.id
                            from ids_of_page('keys', '{workspace_id,owner_id}', array[${workspaceId}::text, ${owner}::text],
                                             ${isForeign}, null, null) as found (id))
               and workspace_id = ${workspaceId} and owner_id = ${owner} and identity_id is not null
             order by id for update) held
     where keys.id = held.id`
}

/** Deletes overrides of these identifiers, including soft-deleted ones. @returns the ids of their namespaces. */
export async function deleteOverridesOf(
  tx: AnySql,
  workspaceId: WorkspaceId,
  identifiers: readonly string[],
): Promise<string[]> {
  const texts = identifiers as string[] // the driver's type is not readonly
  const isOne = tx`workspace_id = ${workspaceId} and identifier = any(${texts}::text[])
       and md5(workspace_id || ' ' || identifier)
           = any(array(select md5(${workspaceId}::text || ' ' || t.text) from unnest(${texts}::text[]) as t (text)))`
  // Namespaces first, as a call does that changes an override: neither can deadlock the other.
  const { count } = await tx`
    select id from ratelimit_namespaces where id in (select namespace_id from ratelimit_overrides where ${isOne})
     order by id for no key update`
  if (count === 0) return []
  const rows = await tx<{ namespaceId: string }[]>`
    delete from ratelimit_overrides where ${isOne} returning namespace_id as "namespaceId"`
  return [...new Set(rows.map(({ namespaceId }) => namespaceId))]
}

/** Deletes queued imports of these keys, including failed ones. */
export async function deleteImportsOfKeys(
  tx: AnySql,
  workspaceId: WorkspaceId,
  keyIds: readonly string[],
): Promise<void> {
  await tx`delete from key_imports where workspace_id = ${workspaceId} and key_id = any(${keyIds as string[]}::text[])`
}

/** Deletes queued imports of these people, including failed ones. It reads the whole queue of the workspace. */
export async function deleteImportsOfOwners(
  tx: AnySql,
  workspaceId: WorkspaceId,
  ownerIds: readonly string[],
): Promise<void> {
  if (ownerIds.length === 0) return
  const list = ownerIds as string[] // the driver's types refuse a readonly list
  await tx`
    delete from key_imports
     where workspace_id = ${workspaceId}
       and (key::json ->> 'externalId' = any(${list}::text[]) or key::json ->> 'ownerId' = any(${list}::text[]))`
}

export type AuditRow = {
  id: string
  /** Finds the event's month. */
  occurredAt: number
  event: string
  resources: AuditResource[]
  description: string
}

/** Locks events that contain one of these patterns. @param patterns JSON of lists of resources. */
export async function lockAuditEvents(
  tx: AnySql,
  workspaceId: WorkspaceId,
  { patterns, decisionPatterns }: { patterns: readonly string[]; decisionPatterns: readonly string[] },
  limit: number,
): Promise<AuditRow[]> {
  return await tx<AuditRow[]>`
    select id, occurred_at as "occurredAt", event, resources, description
      from audit_events
     where (id, occurred_at) in (
           select found.id, found.occurred_at
             from (select pattern, false as is_decision from unnest(${patterns as string[]}::text[]) pattern
                    union all
                   select pattern, true from unnest(${decisionPatterns as string[]}::text[]) pattern) as wanted
            cross join lateral (
                  select a.id, a.occurred_at from audit_events a
                   where a.resources @> wanted.pattern::jsonb and a.workspace_id = ${workspaceId}
                     and (not wanted.is_decision or a.event in ('ratelimit.success', 'ratelimit.denied'))
                   limit ${limit}
                  offset 0) as found
            limit ${limit})
     order by id for update`
}

export async function rewriteAuditEvents(
  tx: AnySql,
  events: readonly Omit<AuditRow, 'event'>[],
): Promise<void> {
  if (events.length === 0) return
  const rows = events.map(({ id, occurredAt, resources, description }) => ({
    id,
    occurredAt,
    resources: JSON.stringify(resources),
    description,
  }))
  await tx`
    update audit_events a
       set resources = r.resources::jsonb, description = r.description, location = null, user_agent = null
      from json_to_recordset((${JSON.stringify(rows)}::text)::json) as r (id text, "occurredAt" bigint, resources text, description text)
     where a.id = r.id and a.occurred_at = r."occurredAt"`
}

/**
 * Moves usage of a key to its pseudonym. Rows of an erased identity get that identity's pseudonym as well.
 * @returns how many rows; fewer than `limit` = there are no more.
 */
export async function moveKeyCounts(
  tx: AnySql,
  workspaceId: WorkspaceId,
  { name, pseudonym }: Renamed,
  limit: number,
): Promise<number> {
  return await moveCounts(
    tx,
    tx`select keyspace_id, hour, key_id, identity_id, tag_set from usage_verifications
        where key_id = ${name} and workspace_id = ${workspaceId} limit ${limit}`,
    { keyId: tx`${pseudonym}::text`, identityId: tx`moved.identity_id` },
  )
}

/** As {@link moveKeyCounts}, for an identity in one keyspace and range of hours. */
export async function moveIdentityCounts(
  tx: AnySql,
  workspaceId: WorkspaceId,
  { name, pseudonym }: Renamed,
  { keyspaceId, from, to, limit }: CountRange & { limit: number },
): Promise<number> {
  return await moveCounts(
    tx,
    tx`select keyspace_id, hour, key_id, identity_id, tag_set from usage_verifications
        where keyspace_id = ${keyspaceId} and hour >= ${from} and hour < ${to} and identity_id = ${name}
          and workspace_id = ${workspaceId} limit ${limit}`,
    { keyId: tx`moved.key_id`, identityId: tx`${pseudonym}::text` },
  )
}

/**
 * The pseudonym may already have rows, of usage that arrived late. Then the counts are added. A trigger moves the daily rows;
 * its lock is taken before those of the rows, as by a batch (sql/0023).
 */
async function moveCounts(
  tx: AnySql,
  found: ReturnType<AnySql>,
  { keyId, identityId }: { keyId: ReturnType<AnySql>; identityId: ReturnType<AnySql> },
): Promise<number> {
  await tx`select hold_usage_days(0)`
  const [row] = await tx<{ moved: number }[]>`
    with found as (${found}), moved as (
      delete from usage_verifications v using found f
       where v.keyspace_id = f.keyspace_id and v.hour = f.hour and v.key_id = f.key_id
         and v.identity_id = f.identity_id and v.tag_set = f.tag_set
      returning v.*
    ), added as (
      insert into usage_verifications as v (
             workspace_id, keyspace_id, hour, key_id, identity_id, tag_set,
             valid, rate_limited, expired, disabled, forbidden, usage_exceeded, insufficient_permissions)
      select workspace_id, keyspace_id, hour, ${keyId}, ${identityId}, tag_set,
             valid, rate_limited, expired, disabled, forbidden, usage_exceeded, insufficient_permissions
        from moved
       order by keyspace_id, hour, key_id, identity_id, tag_set
          on conflict (keyspace_id, hour, key_id, identity_id, tag_set) do update
         set valid = v.valid + excluded.valid,
             rate_limited = v.rate_limited + excluded.rate_limited,
             expired = v.expired + excluded.expired,
             disabled = v.disabled + excluded.disabled,
             forbidden = v.forbidden + excluded.forbidden,
             usage_exceeded = v.usage_exceeded + excluded.usage_exceeded,
             insufficient_permissions = v.insufficient_permissions + excluded.insufficient_permissions
    )
    select count(*)::integer as moved from moved`
  return row?.moved ?? 0
}

const WEEK_MS = 7 * DAY_MS
export type CountRange = { keyspaceId: string; from: number; to: number }

/** Ranges with usage of verifications: weeks of a keyspace, each bounded by the number of rows in a week. */
export async function listCountRanges(tx: AnySql, workspaceId: WorkspaceId): Promise<CountRange[]> {
  return await tx<CountRange[]>`
    select keyspace_id as "keyspaceId", hour - hour % ${WEEK_MS}::bigint as "from",
           hour - hour % ${WEEK_MS}::bigint + ${WEEK_MS}::bigint as "to"
      from usage_keyspace_hours
     where keyspace_id in (select id from keyspaces where workspace_id = ${workspaceId})
     group by 1, 2, 3 order by 1, 2`
}

/** Moves usage of an identifier to its pseudonym: the hours of all namespaces, each by an index look-up. */
export async function moveIdentifierCounts(
  tx: AnySql,
  workspaceId: WorkspaceId,
  name: Renamed,
  limit: number,
): Promise<number> {
  return await moveIdentifiers(
    tx,
    tx`select i.namespace_id, i.hour, i.identifier
         from usage_ratelimits t
         join usage_ratelimit_identifiers i
           on i.namespace_id = t.namespace_id and i.hour = t.hour and i.identifier = ${name.name}
        where t.namespace_id in (select id from ratelimit_namespaces where workspace_id = ${workspaceId})
        limit ${limit}`,
    [name],
  )
}

/** As {@link moveIdentifierCounts}, for many names in one namespace and range of hours, by reading all its identifiers. */
export async function moveManyIdentifierCounts(
  tx: AnySql,
  names: readonly Renamed[],
  { namespaceId, from, to, limit }: IdentifierRange & { limit: number },
): Promise<number> {
  return await moveIdentifiers(
    tx,
    tx`select i.namespace_id, i.hour, i.identifier
         from usage_ratelimit_identifiers i
        where i.namespace_id = ${namespaceId} and i.hour >= ${from} and i.hour < ${to}
          and i.identifier = any(${names.map(({ name }) => name)}::text[])
        limit ${limit}`,
    names,
  )
}

/**
 * Moves the found rows, adding them up where the pseudonym has rows. Locks the hours first, in the order of
 * `apply_usage_batch`: it holds the same locks to know which identifiers have a row, and a row that appears meanwhile would
 * break its batch.
 * @param found Rows of identifiers.
 */
async function moveIdentifiers(
  tx: AnySql,
  found: ReturnType<AnySql>,
  names: readonly Renamed[],
): Promise<number> {
  const rows = await tx<{ namespaceId: string; hour: number; identifier: string }[]>`
    with found as materialized (${found}), held as materialized (
      select t.namespace_id, t.hour from usage_ratelimits t
       where (t.namespace_id, t.hour) in (select f.namespace_id, f.hour from found f)
       order by t.namespace_id collate "C", t.hour for update of t
    )
    select f.namespace_id as "namespaceId", f.hour, f.identifier, h.hour is not null as "isHeld"
      from found f left join held h on h.namespace_id = f.namespace_id and h.hour = f.hour`
  if (rows.length === 0) return 0
  await tx`
    with found as (
      select * from unnest(${rows.map(({ namespaceId }) => namespaceId)}::text[], ${rows.map(({ hour }) => hour)}::bigint[],
                           ${rows.map(({ identifier }) => identifier)}::text[]) as f (namespace_id, hour, identifier)
    ), moved as (
      delete from usage_ratelimit_identifiers i using found f
       where i.namespace_id = f.namespace_id and i.hour = f.hour and i.identifier = f.identifier
      returning i.*
    ), added as (
      insert into usage_ratelimit_identifiers as i (workspace_id, namespace_id, hour, identifier, passed, denied, is_kept)
      select m.workspace_id, m.namespace_id, m.hour, n.pseudonym, sum(m.passed)::bigint, sum(m.denied)::bigint, bool_or(m.is_kept)
        from moved m
        join unnest(${names.map(({ name }) => name)}::text[], ${names.map(({ pseudonym }) => pseudonym)}::text[])
          as n (name, pseudonym) on n.name = m.identifier
       group by m.workspace_id, m.namespace_id, m.hour, n.pseudonym
       order by m.namespace_id, m.hour, n.pseudonym
          on conflict (namespace_id, hour, identifier) do update
         set passed = i.passed + excluded.passed, denied = i.denied + excluded.denied, is_kept = i.is_kept or excluded.is_kept
    )
    select 1`
  return rows.length
}

export type IdentifierRange = { namespaceId: string; from: number; to: number }

/** Ranges with usage by identifier: weeks of a namespace. */
export async function listIdentifierRanges(tx: AnySql, workspaceId: WorkspaceId): Promise<IdentifierRange[]> {
  return await tx<IdentifierRange[]>`
    select namespace_id as "namespaceId", hour - hour % ${WEEK_MS}::bigint as "from",
           hour - hour % ${WEEK_MS}::bigint + ${WEEK_MS}::bigint as "to"
      from usage_ratelimits
     where namespace_id in (select id from ratelimit_namespaces where workspace_id = ${workspaceId})
     group by 1, 2, 3 order by 1, 2`
}

/** Replaces the name in tag sets. The sets keep their ids, which are hashes that usage refers to. */
export async function renameTags(
  tx: AnySql,
  workspaceId: WorkspaceId,
  { name, pseudonym }: Renamed,
): Promise<void> {
  await tx`
    update usage_tag_sets set tags = array_replace(tags, ${name}::text collate "C", ${pseudonym}::text collate "C")
     where workspace_id = ${workspaceId} and tags @> array[${name}::text] collate "C"`
}

/** The pseudonyms of the erased ones among these names. @param places From 1, the workspace of each name. */
export async function erasedNames(
  sql: AnySql,
  workspaceIds: readonly string[],
  places: readonly number[],
  names: readonly string[],
): Promise<string[]> {
  const [row] = await sql<{ names: string[] }[]>`
    select erased_names(${workspaceIds as string[]}::text[], ${places as number[]}::integer[], ${names as string[]}::text[]) as names`
  return row?.names ?? []
}
