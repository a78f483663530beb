import { Cron } from 'croner'
import type { AnySql } from '../db/connect.ts'
import { Episode } from '../episodes.ts'
import type { Clock } from '../lib/clock.ts'
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
  #cron: Cron | null = null
  #running: Promise<void> | null = null
  #isStopped = false
  /** The midnight the last finished round was for, Unix ms. */
  #doneFor = Number.NEGATIVE_INFINITY

  constructor(sql: AnySql, clock: Clock) {
    this.#sql = sql
    this.#clock = clock
  }

  /** The first round begins at once, in the background. */
  start(): void {
    // Every five minutes it looks whether a midnight has passed: so a round that failed, or left keys, is tried again. The
    // second is drawn once, which spreads the servers of one database.
    const second = Math.floor(Math.random() * 60)
    this.#cron = new Cron(`${second} */5 * * * *`, { timezone: 'UTC', unref: true }, () => void this.look())
    void this.look()
  }

  /** Ends after the page of keys under way, for which it waits {@link STOP_MS} at most. */
  async stop(): Promise<void> {
    this.#isStopped = true
    this.#cron?.stop()
    await Promise.race([this.#running, Bun.sleep(STOP_MS)])
  }

  /** What is done every five minutes: a round, unless that of the last midnight is done. Resolves when it has ended. */
  async look(): Promise<void> {
    const midnight = lastDueAt(null, this.#clock())
    if (this.#isStopped || this.#running !== null || this.#doneFor >= midnight) return
    this.#running = this.#round(midnight).finally(() => {
      this.#running = null
    })
    await this.#running
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

  async #round(midnight: number): Promise<void> {
    try {
      const { refilled, left } = await this.runRound()
      // Whoever changes a key need not be refilling it: what was left is looked at again.
      if (!this.#isStopped && left === 0) this.#doneFor = midnight
      if (refilled > 0) log('info', 'keys_refilled', 'keys were refilled on schedule', { refilled })
      if (failing.end() !== null)
        log('info', 'refill_recovered', 'the scheduled refill works again', { refilled })
    } catch (cause) {
      if (failing.begin())
        log('error', 'refill_failing', 'the scheduled refill failed; it is tried again every five minutes', {
          cause,
        })
    }
  }
}

const failing = new Episode('refill')
const DAYS = Array.from({ length: 31 }, (_, index) => index + 1)
/** Keys a statement looks at: few enough not to hold row locks for long. */
const PAGE_KEYS = 1000
const STOP_MS = 3000
