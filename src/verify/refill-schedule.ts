import type { AnySql } from '../db/connect.ts'
import { Episode } from '../episodes.ts'
import type { Clock } from '../lib/clock.ts'
import { DailyJob } from '../lib/daily-job.ts'
import { systemTimers, within } from '../lib/timers.ts'
import { log } from '../log.ts'
import { lastDueAt } from './refill.ts'
import { refillDueKeys } from './store.ts'

/**
 * Refills keys that are not verified. A verification refills its own key when due; all others are refilled here, at start
 * and shortly after every UTC midnight. The database decides which keys are due, so an extra round changes nothing, several
 * servers share the work, and a server that was suspended over midnight catches up.
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

  /** Starts the first round at once, in the background. */
  start(): void {
    this.#job.start()
  }

  /** Ends after the current page of keys. Waits {@link STOP_MS} at most. */
  async stop(): Promise<void> {
    this.#isStopped = true
    const running = this.#job.stop()
    if (running !== null) await within(systemTimers, STOP_MS, running, { late: () => {} })
  }

  /** Runs a round, unless the one of the last midnight is done. Resolves when it has ended. */
  look(): Promise<void> {
    return this.#job.look()
  }

  /**
   * One round over all keys with a refill.
   * @returns how many were refilled, and how many due ones were skipped because another transaction held them.
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

  /** @returns whether the round of today is complete. */
  async #round(): Promise<boolean> {
    try {
      const { refilled, left } = await this.runRound()
      if (refilled > 0)
        log('info', 'keys_refilled', 'credits of keys were refilled on schedule', { refilled })
      if (failing.end() !== null)
        log('info', 'refill_recovered', 'the scheduled refill of credits works again', { refilled })
      // A transaction that holds a key is not always refilling it, so skipped keys need another round.
      return !this.#isStopped && left === 0
    } catch (cause) {
      if (failing.begin())
        log(
          'error',
          'refill_failing',
          'the scheduled refill of credits failed; the next attempt is in five minutes',
          {
            cause,
          },
        )
      return false
    }
  }
}

const failing = new Episode('refill')
const DAYS = Array.from({ length: 31 }, (_, index) => index + 1)
/** Keys in one statement: few enough to hold row locks only briefly. */
const PAGE_KEYS = 1000
const STOP_MS = 3000
