import type { AnySql, DatabaseAddress } from './connect.ts'

/** What metrics tell of the database, besides whether it answers. */
export type DatabaseStatus = {
  /** Number of the newest migration. A newer server may have run it. */
  schemaVersion: number
  /** Null = embedded: it has one session, and the clock of this process. */
  server: {
    /** Connections of this server's role to this database. With several servers, those of all of them. */
    connections: Record<ConnectionState, number>
    /** How far its clock is ahead, ms; 0 = equal, as far as the round trip tells. */
    clockAheadMs: number
  } | null
}

export const CONNECTION_STATES = ['active', 'idle', 'idle_in_transaction', 'other'] as const
type ConnectionState = (typeof CONNECTION_STATES)[number]

/** Reads the status for scrapes. Concurrent ones share a statement, so a hanging database is not asked again and again. */
export class StatusReader {
  readonly #sql: AnySql
  readonly #kind: DatabaseAddress['kind']
  #reading: Promise<DatabaseStatus | null> | null = null

  /** @param sql A pool with a time limit. */
  constructor(sql: AnySql, { kind }: Pick<DatabaseAddress, 'kind'>) {
    this.#sql = sql
    this.#kind = kind
  }

  /** @returns null when the database does not answer within the time limit of the pool, which reports that. */
  read(): Promise<DatabaseStatus | null> {
    this.#reading ??= this.#ask()
      .catch(() => null)
      .finally(() => {
        this.#reading = null
      })
    return this.#reading
  }

  async #ask(): Promise<DatabaseStatus> {
    const sentAt = Date.now()
    const [row] = await this.#sql<
      { schemaVersion: number; nowMs: number; connections: Partial<Record<ConnectionState, number>> | null }[]
    >`
      select (select coalesce(max(number), 0) from tollgate_migrations) as "schemaVersion",
             (extract(epoch from clock_timestamp()) * 1000)::int8 as "nowMs",
             (select json_object_agg(state, connections) from (
                select case when state in ('active', 'idle') then state
                            when state like 'idle in transaction%' then 'idle_in_transaction'
                            else 'other' end as state, count(*) as connections
                  from pg_stat_activity
                 where datname = current_database() and usename = current_user
                 group by 1) counted) as connections`
    if (row === undefined) throw new Error('the database does not tell its status')
    const { schemaVersion, nowMs, connections } = row
    if (this.#kind === 'embedded') return { schemaVersion, server: null }
    return {
      schemaVersion,
      server: {
        connections: { active: 0, idle: 0, idle_in_transaction: 0, other: 0, ...connections },
        clockAheadMs: clockAhead({ sentAt, nowMs, receivedAt: Date.now() }),
      },
    }
  }
}

/**
 * How far a clock is ahead of the one here, ms. Accurate to the time of the round trip: less than that is 0.
 * @param nowMs Its time, which was asked for at `sentAt` and received at `receivedAt`.
 */
export function clockAhead({
  sentAt,
  nowMs,
  receivedAt,
}: {
  sentAt: number
  nowMs: number
  receivedAt: number
}): number {
  const ahead = nowMs - (sentAt + receivedAt) / 2
  return Math.abs(ahead) <= (receivedAt - sentAt) / 2 ? 0 : ahead
}
