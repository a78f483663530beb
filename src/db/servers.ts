import { hostname } from 'node:os'
import { systemTimers, type Timers, within } from '../lib/timers.ts'
import { isOlder, VERSION } from '../lib/version.ts'
import type { AnySql } from './connect.ts'

/** A server that was seen within the last minute. */
export type SeenServer = { nodeId: string; host: string; version: string }

/**
 * The row of this server in `servers`, which says that it runs and in which version. A migration that takes something away
 * asks there. Times are those of the database, so that clocks need not agree. A server writes its row every
 * {@link BEAT_MS}, and removes the rows of servers that were killed.
 */
export class Presence {
  readonly #sql: AnySql
  readonly #nodeId: string
  readonly #timers: Timers
  #cancel: (() => void) | null = null
  #beating: Promise<void> = Promise.resolve()

  constructor(sql: AnySql, nodeId: string, timers: Timers = systemTimers) {
    this.#sql = sql
    this.#nodeId = nodeId
    this.#timers = timers
  }

  /** The first row was written before the server serves: `joinServers`. */
  start(): void {
    this.#cancel = this.#timers.every(BEAT_MS, () => {
      // A database that is away is reported by those who need it. The next beat makes the row again.
      this.#beating = beat(this.#sql, this.#nodeId, VERSION).catch(() => {})
    })
  }

  async stop(): Promise<void> {
    this.#cancel?.()
    const left = this.#beating.then(() => leave(this.#sql, this.#nodeId)).catch(() => {}) // its row ends by itself
    await within(this.#timers, STOP_MS, left, { late: () => {} })
  }
}

/** Writes the row of a server, and removes those of servers that were killed. */
export async function beat(sql: AnySql, nodeId: string, version: string): Promise<void> {
  await sql`
    with now as (select floor(extract(epoch from clock_timestamp()) * 1000)::bigint as ms), dead as (
      delete from servers using now where seen_at < now.ms - ${DEAD_MS}::bigint and node_id <> ${nodeId}
    )
    insert into servers (node_id, host, version, seen_at) select ${nodeId}, ${hostname()}, ${version}, ms from now
    on conflict (node_id) do update
      set host = excluded.host, version = excluded.version, seen_at = excluded.seen_at`
}

async function leave(sql: AnySql, nodeId: string): Promise<void> {
  await sql`delete from servers where node_id = ${nodeId}`
}

/** Servers before a version that were seen within {@link SEEN_MS}. */
export async function olderServers(sql: AnySql, version: string): Promise<SeenServer[]> {
  return (await seenServers(sql)).filter((each) => isOlder(each.version, version))
}

/** Servers that were seen within {@link SEEN_MS}. A database of before sql/0043 knows none. */
export async function seenServers(sql: AnySql): Promise<SeenServer[]> {
  const [table] = await sql<{ isThere: boolean }[]>`select to_regclass('servers') is not null as "isThere"`
  if (table?.isThere !== true) return []
  return await sql<SeenServer[]>`
    select node_id as "nodeId", host, version from servers
     where seen_at >= floor(extract(epoch from clock_timestamp()) * 1000)::bigint - ${SEEN_MS}::bigint
     order by host, node_id limit ${SERVERS_MAX}`
}

/** A server, and when it was last seen by the clock of the database, Unix ms. */
export type KnownServer = SeenServer & { seenAt: number }

/** Servers that were seen within {@link SEEN_MS}, at most `rowsMax`, by host. */
export async function knownServers(sql: AnySql, rowsMax: number): Promise<KnownServer[]> {
  return await sql<KnownServer[]>`
    select node_id as "nodeId", host, version, seen_at as "seenAt" from servers
     where seen_at >= floor(extract(epoch from clock_timestamp()) * 1000)::bigint - ${SEEN_MS}::bigint
     order by host, node_id limit ${rowsMax}`
}

const BEAT_MS = 20_000
const SEEN_MS = 60_000
/** Later than {@link SEEN_MS}: a row that counts is not removed by a server whose look took long. */
const DEAD_MS = 120_000
const SERVERS_MAX = 10_000
/** A stop has ten seconds in all, and where the database does not answer, others have used them. */
const STOP_MS = 300
