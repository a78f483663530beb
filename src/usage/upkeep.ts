import { connect, type DatabaseAddress, type Sql } from '../db/connect.ts'
import type { Clock } from '../lib/clock.ts'
import { type Cancel, systemTimers, type Timers } from '../lib/timers.ts'
import { log } from '../log.ts'
import { closeRatelimitHours, openHoursFrom } from './close-hours.ts'
import { codeOf, sumUpUsage } from './rollup.ts'

/**
 * Adds hours of verifications that are over to the rows of their day and month, and closes the hours of rate limits that are over. In
 * the background, once for each process, in small statements with a rest after each. Several servers on one database may do this at
 * the same time: what one of them is at, the others leave to it.
 */
export class UsageUpkeep {
  readonly #address: DatabaseAddress
  readonly #clock: Clock
  readonly #timers: Timers
  #cancelNext: Cancel | null = null
  /** Connection of the current round: flushes and questions do not wait for it. */
  #sql: Sql | null = null
  #running: Promise<void> | null = null
  #isStopped = false

  constructor(address: DatabaseAddress, clock: Clock, timers: Timers = systemTimers) {
    this.#address = address
    this.#clock = clock
    this.#timers = timers
  }

  /** The first round begins at once, in the background. */
  start(): void {
    const next = async () => {
      await this.look()
      if (!this.#isStopped) this.#cancelNext = this.#timers.after(EVERY_MS, next)
    }
    this.#cancelNext = this.#timers.after(0, next)
  }

  /** Ends the current round. The next start does the rest. */
  async stop(): Promise<void> {
    this.#isStopped = true
    this.#cancelNext?.()
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
    let sliceBegan = this.#timers.now()
    const pause = async () => {
      const restMs = Math.min(REST_MS_MAX, this.#timers.now() - sliceBegan)
      await new Promise<void>((resolve) => this.#timers.after(restMs, resolve))
      sliceBegan = this.#timers.now()
      return !this.#isStopped
    }
    try {
      const now = this.#clock()
      await closeRatelimitHours(sql, openHoursFrom(now), pause)
      await sumUpUsage(sql, now, pause)
    } catch (cause) {
      if (!this.#isStopped && codeOf(cause) !== LOCK_NOT_AVAILABLE)
        log(
          'warn',
          'usage_upkeep_failing',
          'usage could not be summed up by day and month, or old hours of rate limits could not be closed; answers stay exact, and the next attempt is within a minute',
          { cause },
        )
    } finally {
      await sql.end({ timeout: 1 })
      this.#sql = null
    }
  }
}

const EVERY_MS = 60_000
const REST_MS_MAX = 250
/** Others hold what it needs; it does not make them wait. */
const LOCK_NOT_AVAILABLE = '55P03'
