import type { Cancel, Timers } from './timers.ts'

/** Sets a timer again and again and sees how late it is: for so long the thread did something else. */
export class LoopLag {
  readonly #timers: Timers
  /** The worst of each of the last {@link SECONDS} seconds, ms, by the second modulo their number. */
  readonly #worstMs = new Float64Array(SECONDS)
  #second = 0
  #expectedMs = 0
  #cancel: Cancel | null = null

  constructor(timers: Timers) {
    this.#timers = timers
  }

  start(): void {
    this.#expectedMs = this.#timers.now() + EVERY_MS
    this.#second = Math.floor(this.#timers.now() / 1000)
    this.#cancel = this.#timers.every(EVERY_MS, () => {
      const now = this.#timers.now()
      this.#forget(now)
      const index = this.#second % SECONDS
      this.#worstMs[index] = Math.max(this.#worstMs[index] ?? 0, now - this.#expectedMs)
      this.#expectedMs = now + EVERY_MS
    })
  }

  stop(): void {
    this.#cancel?.()
  }

  /** Of the last minute. */
  get worstMs(): number {
    this.#forget(this.#timers.now())
    return Math.max(...this.#worstMs)
  }

  /** Seconds begun since the last look have nothing yet; what stood in their place is a minute old. */
  #forget(nowMs: number): void {
    const second = Math.floor(nowMs / 1000)
    for (let begun = Math.max(this.#second, second - SECONDS) + 1; begun <= second; begun++)
      this.#worstMs[begun % SECONDS] = 0
    this.#second = second
  }
}

/** A stall longer than this cannot go unseen; waking so often costs a thread at rest 0.02 % of a core. */
const EVERY_MS = 100
/** Longer than most scrape intervals. */
const SECONDS = 60
