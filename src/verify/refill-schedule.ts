import type { AnySql } from '../db/connect.ts'
import { Episode } from '../episodes.ts'
import type { Clock } from '../lib/clock.ts'
import { DailyJob } from '../lib/daily-job.ts'
import { systemTimers, within } from '../lib/timers.ts'
import { log } from '../log.ts'
import { lastDueAt } from './refill.ts'
import { refillDueKeys } from './store.ts'

/**
 * Refills keys that nobody verifies: a verification refills its own key when that is due, all others are refilled here,
 * once at start and shortly after every UTC midnight. What is due is decided in the database, so a round too many changes
 * nothing, several servers share the work, and a server that slept through a midnight makes up for it.
 */
export class RefillSchedule {
  readonly #sql: AnySql
  readonly #clock: Clock
  readonly #job: DailyJob
  #isStopped = false

  constructor(sql: AnySql, clock: Clock) {
    this.#sql = sql
    this.#clock = clock
    this.#job = new DailyJob(() => this.#round(), clock)
  }

  /** The first round begins at once, in the background. */
  start(): void {
    this.#job.start()
  }

  /** Ends after the page of keys under way, for which it waits {@link STOP_MS} at most. */
  async stop(): Promise<void> {
    this.#isStopped = true
    const running = this.#job.stop()
    if (running !== null) await within(systemTimers, STOP_MS, running, { late: () => {} })
  }

  /** A round, unless that of the last midnight is done. Resolves when it has ended. */
  look(): Promise<void> {
    return this.#job.look()
  }

  /**
   * One round over all keys that refill.
   * @returns how many were refilled, and how many due ones were left because others were just changing them.
   */
  async runRound(): Promise<{ refilled: number; left: number }> {
    const now = this.#clock()
    const dueAt = [null, ...DAYS].map((day) => lastDueAt(day, now))
    const total = { refilled: 0, left: 0 }
    for (let cursor: string | null = ''; cursor !== null && !this.#isStopped; ) {
      const options: Parameters<typeof refillDueKeys>[1] = { cursor, limit: PAGE_KEYS, dueAt, now }
      const { last, refilled, left } = await refillDueKeys(this.#sql, options)
      cursor = last
      total.refilled += refilled
      total.left += left
    }
    return total
  }

  /** @returns whether it is done for today. */
  async #round(): Promise<boolean> {
    try {
      const { refilled, left } = await this.runRound()
      if (refilled > 0) log('info', 'keys_refilled', 'keys were refilled on schedule', { refilled })
      if (failing.end() !== null)
        log('info', 'refill_recovered', 'the scheduled refill works again', { refilled })
      // Whoever changes a key need not be refilling it: what was left is looked at again.
      return !this.#isStopped && left === 0
    } catch (cause) {
      if (failing.begin())
        log('error', 'refill_failing', 'the scheduled refill failed; it is tried again every five minutes', {
          cause,
        })
      return false
    }
  }
}

const failing = new Episode('refill')
const DAYS = Array.from({ length: 31 }, (_, index) => index + 1)
/** Keys a statement looks at: few enough not to hold row locks for long. */
const PAGE_KEYS = 1000
const STOP_MS = 3000
