import { connect, type DatabaseAddress, type Sql } from '../db/connect.ts'
import { Episode } from '../episodes.ts'
import type { Clock } from '../lib/clock.ts'
import { DailyJob } from '../lib/daily-job.ts'
import { log } from '../log.ts'
import { codeOf, dropOldPartitions } from './rollup.ts'

/**
 * Drops months of usage that are older than the setting, at start and once a UTC day. Repeating a round changes nothing, so
 * several servers on one database may each do it, and a round that was cut short is done again.
 */
export class UsageRetention {
  readonly #address: DatabaseAddress
  readonly #keepMonths: number
  readonly #job: DailyJob
  /** Connection of the current round; it has its own because it may have to wait. */
  #sql: Sql | null = null
  #isStopped = false

  constructor(address: DatabaseAddress, options: { keepMonths: number; clock: Clock }) {
    this.#address = address
    this.#keepMonths = options.keepMonths
    this.#job = new DailyJob((now) => this.#round(now), options.clock)
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
      const tables = await dropOldPartitions(sql, this.#keepMonths, now)
      if (tables.length > 0)
        log(
          'info',
          'usage_months_dropped',
          'months of usage older than TOLLGATE_USAGE_RETENTION_MONTHS were dropped',
          { tables },
        )
      if (failing.end() !== null)
        log('info', 'usage_retention_recovered', 'old months of usage can be dropped again', { tables })
      return true
    } catch (cause) {
      if (this.#isStopped) return false
      if (codeOf(cause) === LOCK_NOT_AVAILABLE)
        log(
          'info',
          'usage_retention_waiting',
          'a long query holds old months of usage; they are dropped within five minutes after it',
        )
      else if (failing.begin())
        log(
          'error',
          'usage_retention_failing',
          'dropping old months of usage failed; it is tried again every five minutes',
          { cause },
        )
      return false
    } finally {
      clearTimeout(deadline)
      await sql.end({ timeout: 1 })
    }
  }
}

const failing = new Episode('usage retention')

const ROUND_MS = 60_000
const LOCK_NOT_AVAILABLE = '55P03'
