import type { EpisodeName } from '../episodes.ts'
import { Episode } from '../episodes.ts'
import { startOfMonth } from '../lib/buckets.ts'
import type { Clock } from '../lib/clock.ts'
import { DailyJob } from '../lib/daily-job.ts'
import { type AnySql, connect, type DatabaseAddress, type Sql } from './connect.ts'

/** What is done for tables with a partition for each month (UTC), and how it is logged. */
export type MonthlyWork = {
  episode: EpisodeName
  /** One round. A repeated one changes nothing. @returns `isDone` = not before tomorrow. */
  round: (sql: Sql, now: number) => Promise<{ dropped: string[]; isDone: boolean }>
  onDropped: (tables: string[]) => void
  onRecovered: (tables: string[]) => void
  /** A long query holds one of the tables. */
  onWaiting: () => void
  onFailing: (cause: unknown) => void
}

/**
 * Does the work at start and once a UTC day, in the background. Repeating a round changes nothing, so several servers on
 * one database may each do it, and a round that was cut short is done again.
 */
export class MonthlyJob {
  readonly #address: DatabaseAddress
  readonly #work: MonthlyWork
  readonly #failing: Episode
  readonly #job: DailyJob
  /** Connection of the current round; it has its own because it may have to wait. */
  #sql: Sql | null = null
  #isStopped = false

  constructor(address: DatabaseAddress, work: MonthlyWork, clock: Clock) {
    this.#address = address
    this.#work = work
    this.#failing = new Episode(work.episode)
    this.#job = new DailyJob((now) => this.#round(now), clock)
  }

  /** The first round begins at once, in the background. */
  start(): void {
    this.#job.start()
  }

  /** Ends a running round within about a second; the next start does the rest. */
  async stop(): Promise<void> {
    this.#isStopped = true
    const running = this.#job.stop()
    await this.#sql?.end({ timeout: 1 })
    await running
  }

  /** One round, unless today's is done. Never rejects: a failure is logged, and the next look tries again. */
  look(): Promise<void> {
    return this.#job.look()
  }

  /** @returns whether it is done for today. */
  async #round(now: number): Promise<boolean> {
    const sql = connect(this.#address, { connectionsMax: 1 })
    this.#sql = sql
    const deadline = setTimeout(() => void sql.end({ timeout: 0 }), ROUND_MS)
    try {
      const { dropped, isDone } = await this.#work.round(sql, now)
      if (dropped.length > 0) this.#work.onDropped(dropped)
      if (this.#failing.end() !== null) this.#work.onRecovered(dropped)
      return isDone
    } catch (cause) {
      if (this.#isStopped) return false
      if (cause instanceof Error && 'code' in cause && cause.code === LOCK_NOT_AVAILABLE)
        this.#work.onWaiting()
      else if (this.#failing.begin()) this.#work.onFailing(cause)
      return false
    } finally {
      clearTimeout(deadline)
      await sql.end({ timeout: 1 })
    }
  }
}

const ROUND_MS = 60_000
const LOCK_NOT_AVAILABLE = '55P03'

/**
 * The start of the oldest month to keep: the month of `now` and the `keepMonths` before it stay, so what is left always
 * covers at least the last `keepMonths` months.
 * @param now Unix ms. If the database's clock is behind it, the database's time is used: a wrong clock must not cost history.
 */
export async function oldestMonthKept(sql: AnySql, keepMonths: number, now: number): Promise<number> {
  return startOfMonth(Math.min(now, await databaseNow(sql)), -keepMonths)
}

/**
 * Drops the partitions of a table whose months end at or before `before`.
 * @param waitMs How long it may wait for queries of the table, and hold up later ones.
 * @returns their names.
 * @throws when a query takes longer; call it again later.
 */
export async function dropMonths(
  sql: AnySql,
  table: string,
  { before, waitMs }: { before: number; waitMs: number },
): Promise<string[]> {
  const rows = await sql<{ name: string }[]>`
    select name from drop_months(${table}, ${before}, ${waitMs}) as name`
  return rows.map(({ name }) => name)
}

export async function databaseNow(sql: AnySql): Promise<number> {
  const [row] = await sql<{ now: number }[]>`
    select floor(extract(epoch from clock_timestamp()) * 1000)::bigint as now`
  if (row === undefined) throw new Error('the database does not tell the time')
  return row.now
}
