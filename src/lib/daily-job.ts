import { bucketOf } from './buckets.ts'
import type { Clock } from './clock.ts'
import { type Cancel, systemTimers, type Timers } from './timers.ts'

/**
 * Work of once a UTC day: at the start, and within {@link EVERY_MS} of each midnight. A round that says it is not finished
 * is tried again at the next look. One round runs at a time.
 */
export class DailyJob {
  readonly #work: (now: number) => Promise<boolean>
  readonly #clock: Clock
  readonly #timers: Timers
  #cancel: Cancel | null = null
  #running: Promise<void> | null = null
  /** Start of the day that is done, Unix ms. */
  #doneFor = Number.NEGATIVE_INFINITY

  /** @param work One round. Never rejects; false = not finished. */
  constructor(work: (now: number) => Promise<boolean>, clock: Clock, timers: Timers = systemTimers) {
    this.#work = work
    this.#clock = clock
    this.#timers = timers
  }

  /** The first round begins at once, in the background. */
  start(): void {
    this.#cancel = this.#timers.every(EVERY_MS, () => void this.look())
    void this.look()
  }

  /** Begins no further round. @returns the one under way, for its end; null = none. */
  stop(): Promise<void> | null {
    this.#doneFor = Number.POSITIVE_INFINITY
    this.#cancel?.()
    return this.#running
  }

  /** A round, unless today's is done or one is under way. Resolves when it has ended. */
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
