import type { AnySql } from '../db/connect.ts'
import { duringRequest, startOfWait } from '../db/deadline.ts'
import type { Clock } from '../lib/clock.ts'
import { systemTimers, type Timers } from '../lib/timers.ts'
import { type SpentRow, spendCredits } from './store.ts'

/** `remaining` after the call; null = the key no longer has credits to count. */
export type Spent = { passed: boolean; remaining: number | null }

type Pending = {
  /** When the wait began, ms of `performance.now()`. */
  since: number
  /** Until when the call waits for a locked key, ms of the timers' clock. */
  lockedUntil: number
  keyId: string
  cost: number
  resolve: (spent: Spent | null) => void
  reject: (cause: unknown) => void
}

/**
 * Spends credits exactly and durably: one guarded statement decides, and a call is answered after its commit. Calls of one
 * turn, and calls that arrive while a statement runs, share the next statement: one at a time, of at most {@link BATCH_MAX}
 * calls.
 *
 * A key that another transaction locks for longer than the statement waits (sql/0014) is set aside with its calls, so that
 * they do not delay others. Its first call is retried every {@link ASK_AGAIN_MS}; when it is answered, the others follow. A
 * call whose time is nearly over fails, and takes nothing later. While a key is set aside, statements do not wait for
 * locks: each further locked key would delay them again. Why not a statement for each locked key: a few would use all
 * connections of the thread.
 */
export class CreditSpender {
  readonly #sql: AnySql
  readonly #clock: Clock
  readonly #timeoutMs: number
  readonly #timers: Timers
  #queue: Pending[] = []
  #isRunning = false
  /**
   * Key → its waiting calls, in order of arrival. While a key is here, its calls are in no other statement, so they are
   * answered in order. The list lacks the call that is being retried.
   */
  readonly #locked = new Map<string, Pending[]>()

  /** @param options.timeoutMs How long a request may wait for the database, the same as in its pool. */
  constructor(sql: AnySql, clock: Clock, options: { timeoutMs: number; timers?: Timers }) {
    this.#sql = sql
    this.#clock = clock
    this.#timeoutMs = options.timeoutMs
    this.#timers = options.timers ?? systemTimers
  }

  /**
   * Takes `cost` credits, or none when fewer are left.
   * @param cost 0 or more; 0 takes nothing and returns the credits left.
   * @returns null when the key is gone.
   * @throws {@link KeyLocked}; another error when the database does not answer: then the credits may have been taken.
   */
  spend(keyId: string, cost: number): Promise<Spent | null> {
    return new Promise((resolve, reject) => {
      const nowMs = performance.now()
      const since = startOfWait()
      const waitedMs = Math.max(0, nowMs - since)
      // The last quarter of the time is left for the database's answer.
      const lockedUntil = this.#timers.now() + 0.75 * this.#timeoutMs - waitedMs
      this.#queue.push({ since, lockedUntil, keyId, cost, resolve, reject })
      this.#start()
    })
  }

  #start(): void {
    if (this.#isRunning) return
    this.#isRunning = true
    this.#timers.soon(() => void this.#run())
  }

  async #run(): Promise<void> {
    while (this.#queue.length > 0) {
      const batch = this.#queue.splice(0, BATCH_MAX).filter((call) => !this.#joinLocked(call))
      if (batch.length === 0) continue
      for (const call of await this.#ask(batch)) if (!this.#joinLocked(call)) this.#setAside(call)
    }
    this.#isRunning = false
  }

  /** Answers all calls but those whose key is locked. @returns those, in their order. */
  async #ask(batch: readonly Pending[]): Promise<Pending[]> {
    // The call that has waited longest: all calls of the statement share its time limit.
    const oldest = { waitsSince: Math.min(...batch.map(({ since }) => since)), isAnswered: false }
    const spend = () =>
      spendCredits(this.#sql, {
        keyIds: batch.map(({ keyId }) => keyId),
        costs: batch.map(({ cost }) => cost),
        now: this.#clock(),
        waits: this.#locked.size === 0,
      })
    try {
      const rows = await duringRequest(oldest, spend)
      const byCall = new Map<number, SpentRow>(rows.map((row) => [row.call, row]))
      return batch.filter(({ resolve }, call) => {
        const row = byCall.get(call)
        if (row?.passed === null) return true
        resolve(row === undefined ? null : { passed: row.passed, remaining: row.remaining })
        return false
      })
    } catch (cause) {
      for (const { reject } of batch) reject(cause)
      return []
    }
  }

  /** Queues the call behind others for the same locked key. @returns false when the key is not set aside. */
  #joinLocked(call: Pending): boolean {
    const calls = this.#locked.get(call.keyId)
    calls?.push(call)
    return calls !== undefined
  }

  #setAside(call: Pending): void {
    this.#locked.set(call.keyId, [call])
    if (this.#locked.size === 1) this.#askAgainSoon()
  }

  #askAgainSoon(): void {
    this.#timers.after(ASK_AGAIN_MS, () => void this.#askAgain())
  }

  async #askAgain(): Promise<void> {
    this.#failLate()
    const firsts = [...this.#locked.values()].slice(0, BATCH_MAX).flatMap((calls) => calls.shift() ?? [])
    const stillLocked = new Set(firsts.length === 0 ? [] : await this.#ask(firsts))
    const followers: Pending[] = []
    for (const first of firsts) {
      const others = this.#locked.get(first.keyId) ?? []
      this.#locked.delete(first.keyId)
      // To the end, so that keys beyond this statement's limit are in the next one.
      if (stillLocked.has(first)) this.#locked.set(first.keyId, [first, ...others])
      else followers.push(...others)
    }
    if (this.#locked.size > 0) this.#askAgainSoon()
    if (followers.length === 0) return
    // To the front: they arrived before the queued calls for the same keys.
    this.#queue = followers.concat(this.#queue)
    this.#start()
  }

  #failLate(): void {
    const now = this.#timers.now()
    for (const [keyId, calls] of this.#locked) {
      const late = calls.filter(({ lockedUntil }) => lockedUntil <= now)
      const inTime = calls.filter(({ lockedUntil }) => lockedUntil > now)
      for (const { reject } of late) reject(new KeyLocked(keyId))
      if (inTime.length === 0) this.#locked.delete(keyId)
      else if (late.length > 0) this.#locked.set(keyId, inTime)
    }
  }
}

/** Another transaction held the key's lock for as long as the call could wait. No credits were or will be taken. */
export class KeyLocked extends Error {
  override name = 'KeyLocked'
  constructor(keyId: string) {
    super(`another transaction holds ${keyId}: no credits were taken`)
  }
}

const BATCH_MAX = 1000
/** Much shorter than a request may wait, much longer than a statement takes: a locked key costs the database little. */
const ASK_AGAIN_MS = 20
