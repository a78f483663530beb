import type { Cancel, Timers } from './timers.ts'

/** Measures how long the thread is blocked: sets a timer repeatedly and takes its delay. */
export class LoopLag {
  readonly #timers: Timers
  /** Largest delay in each of the last {@link SECONDS} seconds, ms. Index: the second modulo their number. */
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

  /** Largest delay in the last minute, ms. */
  get worstMs(): number {
    this.#forget(this.#timers.now())
    return Math.max(...this.#worstMs)
  }

  /** Clears the seconds begun since the last look: their places hold values a minute old. */
  #forget(nowMs: number): void {
    const second = Math.floor(nowMs / 1000)
    for (let begun = Math.max(this.#second, second - SECONDS) + 1; begun <= second; begun++)
      this.#worstMs[begun % SECONDS] = 0
    this.#second = second
  }
}

/** A stall longer than this is always noticed. Waking this often costs an idle thread 0.02 % of a core. */
const EVERY_MS = 100
/** Longer than most scrape intervals. */
const SECONDS = 60
