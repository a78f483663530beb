import { Cron } from 'croner'
import { connect, type DatabaseAddress, type Sql } from '../db/connect.ts'
import { Episode } from '../episodes.ts'
import { bucketOf } from '../lib/buckets.ts'
import type { Clock } from '../lib/clock.ts'
import { log } from '../log.ts'
import { codeOf, dropOldPartitions } from './rollup.ts'

/**
 * Drops months of usage older than the operator wants to keep: at start and once a UTC day. Dropping what is gone already
 * changes nothing, so several servers on one database may each do it, and a round cut short is simply done again.
 */
export class UsageRetention {
  readonly #address: DatabaseAddress
  readonly #keepMonths: number
  readonly #clock: Clock
  #cron: Cron | null = null
  #running: Promise<void> | null = null
  /** Of the round under way: a connection of its own, for it may have to wait. */
  #sql: Sql | null = null
  #isStopped = false
  /** Start of the UTC day the last finished round was for, Unix ms. */
  #doneFor = Number.NEGATIVE_INFINITY

  constructor(address: DatabaseAddress, options: { keepMonths: number; clock: Clock }) {
    this.#address = address
    this.#keepMonths = options.keepMonths
    this.#clock = options.clock
  }

  /** The first round begins at once, in the background. */
  start(): void {
    // Every five minutes it looks whether a day has begun: so a round that failed is tried again. The second is drawn
    // once, which spreads the servers of one database.
    const second = Math.floor(Math.random() * 60)
    this.#cron = new Cron(`${second} */5 * * * *`, { timezone: 'UTC', unref: true }, () => void this.look())
    void this.look()
  }

  /** Ends a round under way within a second or so; the next start does the rest. */
  async stop(): Promise<void> {
    this.#isStopped = true
    this.#cron?.stop()
    await this.#sql?.end({ timeout: 1 })
    await this.#running
  }

  /** One round, unless today's is done. Never rejects: what fails is logged and left for the next look. */
  async look(): Promise<void> {
    const now = this.#clock()
    if (this.#isStopped || this.#doneFor >= bucketOf(now, 'day')) return
    this.#running ??= this.#round(now).finally(() => {
      this.#running = null
    })
    await this.#running
  }

  async #round(now: number): Promise<void> {
    const sql = connect(this.#address, { connectionsMax: 1 })
    this.#sql = sql
    const deadline = setTimeout(() => void sql.end({ timeout: 0 }), ROUND_MS)
    try {
      const tables = await dropOldPartitions(sql, this.#keepMonths, now)
      this.#doneFor = bucketOf(now, 'day')
      if (tables.length > 0)
        log(
          'info',
          'usage_months_dropped',
          'months of usage older than TOLLGATE_USAGE_RETENTION_MONTHS were dropped',
          { tables },
        )
      if (failing.end() !== null)
        log('info', 'usage_retention_recovered', 'old months of usage can be dropped again', { tables })
    } catch (cause) {
      if (this.#isStopped) return
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
    } finally {
      clearTimeout(deadline)
      await sql.end({ timeout: 1 })
    }
  }
}

const failing = new Episode('usage retention')

const ROUND_MS = 60_000
const LOCK_NOT_AVAILABLE = '55P03'
