import type { AnySql } from '../db/connect.ts'
import { duringRequest, startOfWait } from '../db/deadline.ts'
import type { Clock } from '../lib/clock.ts'
import { systemTimers, type Timers } from '../lib/timers.ts'
import { type SpentRow, spendCredits } from './store.ts'

/** `remaining` after the call; null = the key became unlimited. */
export type Spent = { passed: boolean; remaining: number | null }

type Pending = {
  /** On the clock of `performance.now()`, ms. */
  since: number
  keyId: string
  cost: number
  resolve: (spent: Spent | null) => void
  reject: (cause: unknown) => void
}

/**
 * Spends credits exactly and durably: the database decides each one in a guarded statement, and a call is answered only
 * when that is committed. Calls that arrive in the same turn of the event loop, or while a statement is under way, share
 * the next statement and its commit; so a burst costs a few commits, not one each.
 *
 * At most one statement at a time, of at most {@link BATCH_MAX} calls: more in parallel would only wait for each other's
 * row locks on a busy key.
 */
export class CreditSpender {
  readonly #sql: AnySql
  readonly #clock: Clock
  readonly #timers: Timers
  #queue: Pending[] = []
  #isRunning = false

  constructor(sql: AnySql, clock: Clock, timers: Timers = systemTimers) {
    this.#sql = sql
    this.#clock = clock
    this.#timers = timers
  }

  /**
   * Takes `cost` credits, or none when fewer are left.
   * @param cost 0 or more; 0 only looks.
   * @returns null when the key is gone.
   * @throws when the database does not answer; then it is unknown whether the credits were taken.
   */
  spend(keyId: string, cost: number): Promise<Spent | null> {
    return new Promise((resolve, reject) => {
      this.#queue.push({ since: startOfWait(), keyId, cost, resolve, reject })
      if (!this.#isRunning) {
        this.#isRunning = true
        this.#timers.soon(() => void this.#run())
      }
    })
  }

  async #run(): Promise<void> {
    while (this.#queue.length > 0) {
      const batch = this.#queue.splice(0, BATCH_MAX)
      // It has waited longest, for the statements before; all share its time limit.
      const oldest = { startedAt: batch[0]?.since ?? 0, isAnswered: false }
      const spend = () =>
        spendCredits(this.#sql, {
          keyIds: batch.map(({ keyId }) => keyId),
          costs: batch.map(({ cost }) => cost),
          now: this.#clock(),
        })
      try {
        const rows = await duringRequest(oldest, spend)
        const byCall = new Map<number, SpentRow>(rows.map((row) => [row.call, row]))
        for (const [call, { resolve }] of batch.entries()) resolve(byCall.get(call) ?? null)
      } catch (cause) {
        for (const { reject } of batch) reject(cause)
      }
    }
    this.#isRunning = false
  }
}

const BATCH_MAX = 1000
