import { bucketOf } from './buckets.ts'
import type { Clock } from './clock.ts'
import { type Cancel, systemTimers, type Timers } from './timers.ts'

/**
 * Runs work once for each UTC day: at start, and within {@link EVERY_MS} after each midnight. An unfinished round is
 * repeated at the next look. Only one round runs at a time.
 */
export class DailyJob {
  readonly #work: (now: number) => Promise<boolean>
  readonly #clock: Clock
  readonly #timers: Timers
  #cancel: Cancel | null = null
  #running: Promise<void> | null = null
  /** Start of the last finished day, Unix ms. */
  #doneFor = Number.NEGATIVE_INFINITY

  /** @param work One round. Must not reject; returns false when it is not finished. */
  constructor(work: (now: number) => Promise<boolean>, clock: Clock, timers: Timers = systemTimers) {
    this.#work = work
    this.#clock = clock
    this.#timers = timers
  }

  /** Starts the first round at once, in the background. */
  start(): void {
    this.#cancel = this.#timers.every(EVERY_MS, () => void this.look())
    void this.look()
  }

  /** Starts no further round. @returns the running round, to wait for; null = none. */
  stop(): Promise<void> | null {
    this.#doneFor = Number.POSITIVE_INFINITY
    this.#cancel?.()
    return this.#running
  }

  /** Runs a round, unless today's is finished or one is running. Resolves when it has ended. */
  async look(): Promise<void> {
    const now = this.#clock()
    const day = bucketOf(now, 'day')
    if (this.#doneFor >= day) return
    this.#running ??= this.#work(now).then((isDone) => {
      this.#running = null
      if (isDone) this.#doneFor = Math.max(this.#doneFor, day)
    })
    await this.#running
  }
}

const EVERY_MS = 300_000
