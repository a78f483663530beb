import { type AuditActor, auditDeletedKeys } from '../audit/log.ts'
import { countGone } from '../db/bounds.ts'
import type { AnySql, Transaction } from '../db/connect.ts'
import { idsOfPage, someIds } from '../db/lists.ts'
import type { WorkspaceId } from '../lib/ids.ts'

/** What is left to remove after a deletion. The deleted thing itself is out of reach already. */
export type Sweep = { id: number; workspaceId: WorkspaceId; subject: string } & (
  | { kind: 'keyspace'; detail: KeyspaceSweep }
  | { kind: 'identity' | 'role' | 'permission' | 'namespace'; detail: null }
)

/** The keys of a keyspace, deleted together. */
export type KeyspaceSweep = {
  apiId: string
  /** Removes the rows. Otherwise they are kept as deleted ones. */
  isPermanent: boolean
  actor: Omit<AuditActor, 'workspaceId'>
}

export async function insertKeyspaceSweeps(
  tx: Transaction,
  workspaceId: WorkspaceId,
  { keyspaceIds, detail, now }: { keyspaceIds: readonly string[]; detail: KeyspaceSweep; now: number },
): Promise<void> {
  await tx`
    insert into sweeps (workspace_id, kind, subject, detail, created_at)
    select ${workspaceId}, 'keyspace', k.id, ${JSON.stringify(detail)}::text::jsonb, ${now}
      from unnest(${keyspaceIds as string[]}::text[]) as k (id)
     where exists (select from keys where keyspace_id = k.id)`
}

/** @returns false when the namespace has no overrides to sweep. */
export async function insertNamespaceSweep(
  tx: Transaction,
  workspaceId: WorkspaceId,
  { namespaceId, now }: { namespaceId: string; now: number },
): Promise<boolean> {
  const { count } = await tx`
    insert into sweeps (workspace_id, kind, subject, created_at)
    select ${workspaceId}, 'namespace', ${namespaceId}, ${now}
     where exists (select from ${someIds(tx, liveOverridesOf(namespaceId), 1)})`
  return count > 0
}

const liveOverridesOf = (namespaceId: string) => ({
  table: 'ratelimit_overrides',
  of: { namespace_id: namespaceId },
  where: 'deleted_at is null',
})

/** The kinds that this release can sweep. Others are of a newer one and wait for it. */
const KINDS: readonly Sweep['kind'][] = ['keyspace', 'identity', 'role', 'permission', 'namespace']

/** A kind of a newer release; null = there is none. */
export async function findUnknownKind(sql: AnySql): Promise<string | null> {
  const [row] = await sql<{ kind: string }[]>`
    select kind from sweeps where kind <> all(${KINDS as string[]}::text[]) limit 1`
  return row?.kind ?? null
}

/** @param filter.createdBefore Unix ms; younger sweeps may be running on another server. */
export async function listSweeps(
  sql: AnySql,
  filter: { createdBefore: number } | { subjects: readonly string[] },
): Promise<Sweep[]> {
  return await sql<Sweep[]>`
    select id, workspace_id as "workspaceId", kind, subject, detail from sweeps
     where kind = any(${KINDS as string[]}::text[])
       and ${'subjects' in filter ? sql`subject = any(${filter.subjects as string[]}::text[])` : sql`created_at < ${filter.createdBefore}`}
     order by id limit ${SWEEPS_MAX}`
}

const SWEEPS_MAX = 100

export async function deleteSweep(tx: AnySql, id: number): Promise<void> {
  await tx`delete from sweeps where id = ${id}`
}

export type Slice = {
  /** Found, also those that another sweep removed meanwhile; fewer than the limit = there are no more behind `after`. */
  rows: number
  /** Where the next slice goes on; empty = it looks from the beginning. */
  last: string
}

/**
 * Removes up to `limit` rows that refer to the deleted thing.
 * @param options.after The `last` of the slice before, so that none passes over what others removed.
 */
export async function sweepSlice(
  tx: Transaction,
  sweep: Sweep,
  { limit, now, after = '' }: { limit: number; now: number; after?: string },
): Promise<Slice> {
  if (sweep.kind === 'keyspace') return await sweepKeys(tx, sweep, { limit, now, after })
  return { rows: await sweepUnordered(tx, sweep, { limit, now }), last: '' }
}

/** Rows whose entries in the index go with them. */
async function sweepUnordered(
  tx: Transaction,
  sweep: Exclude<Sweep, { kind: 'keyspace' }>,
  { limit, now }: { limit: number; now: number },
): Promise<number> {
  switch (sweep.kind) {
    case 'identity':
      return await sweepIdentity(tx, sweep, { limit, now })
    case 'role':
      return await sweepLinks(tx, { table: 'keys_roles', from: 'key_id', to: 'role_id', sweep, limit })
    case 'namespace':
      return (
        await tx`
        update ratelimit_overrides set deleted_at = ${now}, updated_at = ${now}
         where id in (select id from ${someIds(tx, liveOverridesOf(sweep.subject), limit)})`
      ).count
    case 'permission': {
      const links = { to: 'permission_id', sweep } as const
      const ofKeys = await sweepLinks(tx, { ...links, table: 'keys_permissions', from: 'key_id', limit })
      if (ofKeys === limit) return ofKeys
      const left = { table: 'roles_permissions', from: 'role_id', limit: limit - ofKeys } as const
      return ofKeys + (await sweepLinks(tx, { ...links, ...left }))
    }
    default:
      throw new Error(`no such sweep: ${sweep.kind satisfies never}`)
  }
}

/**
 * Deletes links to a role or permission, found by its index: in the table they stand behind all that earlier slices
 * removed.
 */
async function sweepLinks(
  tx: Transaction,
  {
    table,
    from,
    to,
    sweep: { subject },
    limit,
  }: {
    table: 'keys_roles' | 'keys_permissions' | 'roles_permissions'
    from: 'key_id' | 'role_id'
    to: 'role_id' | 'permission_id'
    sweep: Sweep
    limit: number
  },
): Promise<number> {
  const links = { table: `(select ${from} as id, ${to} from ${table}) as links`, of: { [to]: subject } }
  const [row] = await tx<{ chosen: number }[]>`
    with chosen as materialized (select id, ${subject}::text as subject from ${someIds(tx, links, limit)}), gone as (
      delete from ${tx(table)} where (${tx(from)}, ${tx(to)}) in (select id, subject from chosen)
    )
    select count(*)::integer as chosen from chosen`
  return row?.chosen ?? 0
}

/**
 * Deletes keys. A key with an owner leaves an audit event, because its row goes and an erasure of that person must still
 * find where the key is named.
 */
async function sweepKeys(
  tx: Transaction,
  { workspaceId, subject, detail }: Sweep & { kind: 'keyspace' },
  { limit, now, after }: { limit: number; now: number; after: string },
): Promise<Slice> {
  const { apiId, isPermanent, actor } = detail
  const audited = auditDeletedKeys(tx, { workspaceId, ...actor }, apiId)
  const ofKeyspace = { table: 'keys', of: { keyspace_id: subject } }
  const ids = isPermanent
    ? someIds(tx, ofKeyspace, limit)
    : idsOfPage(tx, { ...ofKeyspace, where: 'deleted_at is null' }, { cursor: after, rows: limit })
  const [row] = await tx<{ rows: number; chosen: number; last: string | null }[]>`
    with chosen as materialized (select id from ${ids}), held as materialized (
      select id, deleted_at from keys
       where id in (select id from chosen) ${isPermanent ? tx`` : tx`and deleted_at is null`}
       order by id for update
    ), gone as (
      ${isPermanent ? tx`delete from keys using held` : tx`update keys set deleted_at = ${now}, updated_at = ${now} from held`}
       where keys.id = held.id
      returning keys.id, keys.identity_id, keys.owner_id, held.deleted_at
    ), deleted as (
      select id, identity_id, owner_id from gone
       where deleted_at is null and (identity_id is not null or owner_id is not null)
    ), audited as (${audited})
    select (select count(*) from gone)::integer as rows, count(*)::integer as chosen, max(id collate "C") as last from chosen`
  const { rows, chosen, last } = row ?? { rows: 0, chosen: 0, last: null }
  // A deleted row is counted by the trigger of `keys`.
  if (!isPermanent) await countGone(tx, workspaceId, { name: 'keys', rows })
  return { rows: chosen, last: isPermanent ? '' : (last ?? '') }
}

/** Locks keys in the order of their ids, as `spend_credits` does, so that neither can deadlock the other. */
async function sweepIdentity(
  tx: Transaction,
  { subject }: Sweep,
  { limit, now }: { limit: number; now: number },
): Promise<number> {
  const ofIdentity = { table: 'keys', of: { identity_id: subject }, where: 'identity_id is not null' }
  const [row] = await tx<{ chosen: number }[]>`
    with chosen as materialized (select id from ${someIds(tx, ofIdentity, limit)}), held as materialized (
      select id from keys where id in (select id from chosen) order by id for update
    ), freed as (
      update keys set identity_id = nullif(identity_id, ${subject}), updated_at = ${now} from held where keys.id = held.id
    )
    select count(*)::integer as chosen from chosen`
  return row?.chosen ?? 0
}
