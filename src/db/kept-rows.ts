import { systemTimers, type Timers } from '../lib/timers.ts'
import type { BoundName } from '../lib/workspace-bounds.ts'
import { log } from '../log.ts'
import { type AnySql, connect, type DatabaseAddress, type Sql } from './connect.ts'

/** How much of a bound a workspace uses. */
export type Fullness = { workspaceId: string; bound: string; used: number; value: number }

/**
 * Removes rows beyond the bounds of workspaces, in the background, once for each process. Every {@link EVERY_MS} it removes
 * the oldest audit events, deleted rows and failed imports in small statements, and reads which workspaces are nearest to
 * their bounds, for metrics. Several servers on one database may do this at the same time: each row is removed once.
 */
export class KeptRows {
  readonly #address: DatabaseAddress
  readonly #timers: Timers
  #cancel: (() => void) | null = null
  #sql: Sql | null = null
  #running: Promise<void> | null = null
  #isStopped = false
  /** Of the last round, the fullest first. */
  fullest: readonly Fullness[] = []

  constructor(address: DatabaseAddress, timers: Timers = systemTimers) {
    this.#address = address
    this.#timers = timers
  }

  start(): void {
    this.#cancel = this.#timers.every(EVERY_MS, () => void this.look())
    void this.look()
  }

  /** Ends the current round. The next start does the rest. */
  async stop(): Promise<void> {
    this.#isStopped = true
    this.#cancel?.()
    await this.#sql?.end({ timeout: 1 })
    await this.#running
  }

  /** One round. Never rejects: errors are logged, and the next round tries again. */
  async look(): Promise<void> {
    if (this.#isStopped) return
    this.#running ??= this.#round().finally(() => {
      this.#running = null
    })
    await this.#running
  }

  async #round(): Promise<void> {
    const sql = connect(this.#address, { connectionsMax: 1 })
    this.#sql = sql
    try {
      await takeReturns(sql)
      await removeEmptyKeyspaces(sql)
      await removeExpiredAnswers(sql)
      this.fullest = await findFullest(sql)
      for (const { workspaceId, bound, rows } of await removeOldest(sql))
        log('info', 'old_rows_removed', 'a workspace had more rows than its bound; the oldest were removed', {
          workspaceId,
          bound,
          rows,
        })
    } catch (cause) {
      if (!this.#isStopped)
        log(
          'warn',
          'old_rows_not_removed',
          'old rows beyond a workspace bound could not be removed; the next attempt is within five minutes',
          {
            cause,
          },
        )
    } finally {
      await sql.end({ timeout: 1 })
      this.#sql = null
    }
  }
}

const EVERY_MS = 300_000
const RETURNS_MIN = 1_000
/** Rows in one statement: a moment on any disk. */
const SLICE_ROWS = 2_000
/** Bounds the list for metrics: a metrics store can only take so many series. */
const FULLEST_MAX = 100

/**
 * Adds the removed rows of workspaces to their counts, where many were removed. Inserts do this too, but only when their
 * reserved room is used up. One count in each transaction: an inserting transaction may hold several, and they could
 * deadlock.
 */
export async function takeReturns(sql: AnySql, rowsMin = RETURNS_MIN): Promise<void> {
  const counts = await sql<{ workspaceId: string; name: string }[]>`
    select workspace_id as "workspaceId", name from workspace_returns
     group by workspace_id, name having count(*) >= ${rowsMin}`
  for (const { workspaceId, name } of counts) await sql`select take_returns(${workspaceId}, ${name})`
}

/** Removes the keyspaces that APIs had before `apis.deleteKeys`, once no key and no usage refers to them. */
export async function removeEmptyKeyspaces(sql: AnySql): Promise<void> {
  await sql`
    delete from keyspaces s
     where s.api_id is not null and s.deleted_at is not null
       and not exists (select from apis a where a.keyspace_id = s.id)
       and not exists (select from keys k where k.keyspace_id = s.id)
       and not exists (select from usage_keyspace_hours h where h.keyspace_id = s.id)`
}

/** Removes what creates were answered with, once no repeated call asks for it. */
export async function removeExpiredAnswers(sql: AnySql): Promise<void> {
  await sql`delete from create_answers where expires_at <= extract(epoch from now()) * 1000`
}

/** Workspaces that use half of a bound or more, at most {@link FULLEST_MAX}. */
export async function findFullest(sql: AnySql): Promise<Fullness[]> {
  return await sql<Fullness[]>`
    select workspace_id as "workspaceId", name as bound, used::bigint, bound_of(workspace_id, name)::bigint as value
      from workspace_used
     where used > 0 and used * 2 >= bound_of(workspace_id, name)
     order by used::numeric / greatest(bound_of(workspace_id, name), 1) desc, workspace_id, name
     limit ${FULLEST_MAX}`
}

/**
 * A workspace with more rows than the bound, and the newest row that must go. That row is found once: skipping as many rows as the
 * bound for each slice would cost more than removing them.
 */
type Over = { workspaceId: string; last: { at: number; id: string } }

/** A kind of rows of which only the newest are kept. */
type Kind = {
  bound: BoundName
  over: (sql: AnySql) => Promise<Over[]>
  /** Removes the oldest rows beyond the bound, at most `rowsMax`. @returns how many. */
  remove: (sql: AnySql, over: Over, rowsMax: number) => Promise<number>
}

/** @returns how many rows were removed, by kind and workspace. */
export async function removeOldest(
  sql: AnySql,
  sliceRows = SLICE_ROWS,
): Promise<{ workspaceId: string; bound: BoundName; rows: number }[]> {
  const removed: { workspaceId: string; bound: BoundName; rows: number }[] = []
  for (const { bound, over, remove } of KINDS)
    for (const found of await over(sql)) {
      let rows = 0
      for (let slice = sliceRows; slice === sliceRows; rows += slice)
        slice = await remove(sql, found, sliceRows)
      if (rows > 0) removed.push({ workspaceId: found.workspaceId, bound, rows })
    }
  return removed
}

/*
 * Whether a workspace has too many rows is read from an index by skipping as many entries as the bound: almost free for
 * workspaces with few rows. The newest row that must go is found at the same time.
 */
const KINDS: readonly Kind[] = [
  {
    bound: 'auditEvents',
    over: findOverAuditEvents,
    remove: async (sql, { workspaceId, last }, rowsMax) => {
      const rows = await sql`
        delete from audit_events
         using (select e.id, e.occurred_at from audit_events e
                 where e.workspace_id = ${workspaceId} and (e.seq, e.id) <= (${last.at}, ${last.id})
                 order by e.seq, e.id limit ${rowsMax}) oldest
         -- By the time, too: of the months only the event's own is looked into.
         where audit_events.id = oldest.id and audit_events.occurred_at = oldest.occurred_at`
      return rows.count
    },
  },
  ...[false, true].map(
    (isRoot): Kind => ({
      bound: 'deletedRecords',
      over: (sql) => sql<Over[]>`
        select w.id as "workspaceId", json_build_object('at', last.deleted_at, 'id', last.id) as last
          from workspaces w
         cross join lateral (
               select k.deleted_at, k.id from keys k
                where coalesce(k.for_workspace_id, k.workspace_id) = w.id and (k.for_workspace_id is not null) = ${isRoot}
                  and k.deleted_at is not null and not k.is_operator
                order by k.deleted_at desc, k.id desc offset bound_of(w.id, 'deletedRecords') limit 1) as last`,
      remove: async (sql, { workspaceId, last }, rowsMax) => {
        const rows = await sql`
          delete from keys
           where id in (select k.id from keys k
                         where coalesce(k.for_workspace_id, k.workspace_id) = ${workspaceId}
                           and (k.for_workspace_id is not null) = ${isRoot} and k.deleted_at is not null and not k.is_operator
                           and (k.deleted_at, k.id) <= (${last.at}, ${last.id})
                           -- One that made others stays as long as they do: what revokes its maker finds them through it.
                           and not (${isRoot} and exists (select from keys made where made.granted_by = k.id))
                         order by k.deleted_at, k.id limit ${rowsMax})`
        return rows.count
      },
    }),
  ),
  {
    bound: 'deletedRecords',
    over: (sql) => sql<Over[]>`
      select w.id as "workspaceId", json_build_object('at', last.deleted_at, 'id', last.id) as last
        from workspaces w
       cross join lateral (
             select o.deleted_at, o.id from ratelimit_overrides o where o.workspace_id = w.id and o.deleted_at is not null
              order by o.deleted_at desc, o.id desc offset bound_of(w.id, 'deletedRecords') limit 1) as last`,
    remove: async (sql, { workspaceId, last }, rowsMax) => {
      const rows = await sql`
        delete from ratelimit_overrides
         where id in (select o.id from ratelimit_overrides o
                       where o.workspace_id = ${workspaceId} and o.deleted_at is not null
                         and (o.deleted_at, o.id) <= (${last.at}, ${last.id})
                       order by o.deleted_at, o.id limit ${rowsMax})`
      return rows.count
    },
  },
  {
    bound: 'deletedRecords',
    over: (sql) => sql<Over[]>`
      select w.id as "workspaceId", json_build_object('at', last.deleted_at, 'id', last.id) as last
        from workspaces w
       cross join lateral (
             select n.deleted_at, n.id from ratelimit_namespaces n where n.workspace_id = w.id and n.deleted_at is not null
              order by n.deleted_at desc, n.id desc offset bound_of(w.id, 'deletedRecords') limit 1) as last`,
    // Its overrides go first, in slices too: they may be many.
    remove: async (sql, { workspaceId, last }, rowsMax) => {
      const rows = await sql<{ id: string }[]>`
        select n.id from ratelimit_namespaces n
         where n.workspace_id = ${workspaceId} and n.deleted_at is not null
           and (n.deleted_at, n.id) <= (${last.at}, ${last.id})
         order by n.deleted_at, n.id limit ${rowsMax}`
      const ids = rows.map(({ id }) => id)
      const { count } = await sql`
        delete from ratelimit_overrides
         where id in (select id from ratelimit_overrides where namespace_id = any(${ids}::text[]) limit ${rowsMax})`
      if (count === rowsMax) return count
      await sql`delete from ratelimit_namespaces where id = any(${ids}::text[])`
      return ids.length
    },
  },
  {
    bound: 'deletedRecords',
    over: (sql) => sql<Over[]>`
      select w.id as "workspaceId", json_build_object('at', last.deleted_at, 'id', last.id) as last
        from workspaces w
       cross join lateral (
             select a.deleted_at, a.id from apis a where a.workspace_id = w.id and a.deleted_at is not null
              order by a.deleted_at desc, a.id desc offset bound_of(w.id, 'deletedRecords') limit 1) as last`,
    // An API whose deleted keys are still kept stays until they are gone.
    remove: async (sql, { workspaceId, last }, rowsMax) => {
      const rows = await sql`
        with gone as (
          delete from apis
           where id in (select a.id from apis a
                         where a.workspace_id = ${workspaceId} and a.deleted_at is not null
                           and (a.deleted_at, a.id) <= (${last.at}, ${last.id})
                           and not exists (select from keys k where k.keyspace_id = a.keyspace_id)
                           and not exists (select from keyspaces s join keys k on k.keyspace_id = s.id where s.api_id = a.id)
                         order by a.deleted_at, a.id limit ${rowsMax})
          returning id, keyspace_id
        )
        select id, keyspace_id from gone`
      await sql`
        delete from keyspaces s
         where s.workspace_id = ${workspaceId}
           and (s.id = any(${rows.map(({ keyspace_id }) => String(keyspace_id))}::text[])
                or s.api_id = any(${rows.map(({ id }) => String(id))}::text[]))
           and not exists (select from apis a where a.keyspace_id = s.id)`
      return rows.length
    },
  },
  {
    bound: 'failedImports',
    over: (sql) => sql<Over[]>`
      select w.id as "workspaceId", json_build_object('at', last.id, 'id', '') as last
        from workspaces w
       cross join lateral (
             select i.id from key_imports i where i.workspace_id = w.id and i.failed_at is not null
              order by i.id desc offset bound_of(w.id, 'failedImports') limit 1) as last`,
    remove: async (sql, { workspaceId, last }, rowsMax) => {
      const rows = await sql`
        delete from key_imports
         where id in (select i.id from key_imports i
                       where i.workspace_id = ${workspaceId} and i.failed_at is not null and i.id <= ${last.at}
                       order by i.id limit ${rowsMax})`
      return rows.count
    },
  },
  {
    // Those with an Idempotency-Key. Others are deleted when they are sent, or soon end.
    bound: 'createAnswers',
    over: (sql) => sql<Over[]>`
      select w.id as "workspaceId", json_build_object('at', last.expires_at, 'id', '') as last
        from workspaces w
       cross join lateral (
             select a.expires_at from create_answers a where a.workspace_id = w.id and a.attempt = ''
              order by a.expires_at desc offset bound_of(w.id, 'createAnswers') limit 1) as last`,
    remove: async (sql, { workspaceId, last }, rowsMax) => {
      const rows = await sql`
        delete from create_answers
         where (workspace_id, fingerprint, attempt) in (
               select a.workspace_id, a.fingerprint, a.attempt from create_answers a
                where a.workspace_id = ${workspaceId} and a.expires_at <= ${last.at} and a.attempt = ''
                order by a.expires_at limit ${rowsMax})`
      return rows.count
    },
  },
]

/**
 * The log of most servers is too small for any workspace to be over: that is told by its size on disk, without looking at
 * the events.
 */
export async function findOverAuditEvents(sql: AnySql): Promise<Over[]> {
  return await sql<Over[]>`
    select w.id as "workspaceId", json_build_object('at', last.seq, 'id', last.id) as last
      from workspaces w
     cross join lateral (
           select e.seq, e.id from audit_events e where e.workspace_id = w.id
            order by e.seq desc, e.id desc offset bound_of(w.id, 'auditEvents') limit 1) as last
     where bound_of(w.id, 'auditEvents') <= (select sum(pg_relation_size(relid)) / ${EVENT_BYTES_MIN}::integer
                                               from pg_partition_tree('audit_events') where isleaf)`
}

/** On disk, with an empty description and no resource. */
const EVENT_BYTES_MIN = 64
