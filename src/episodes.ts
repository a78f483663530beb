import { getEnvironmentData, setEnvironmentData } from 'node:worker_threads'

/** Lasting problems of the whole process, whichever thread notices them. */
const NAMES = [
  'database',
  'database writes',
  'database calls',
  'database disk',
  'database memory',
  'database connections',
  'limiter calls',
  'window flush',
  'usage flush',
  'usage spill',
  'span export',
  'connections',
  'key import',
  'housekeeping',
  'refill',
  'usage retention',
  'audit retention',
  'embedded restart',
  'fleet',
  'fleet learning',
] as const
export type EpisodeName = (typeof NAMES)[number]

/**
 * A lasting problem that is logged once when it begins and once when it ends, with the number of affected calls, however
 * many threads, pools and calls meet it. The state is in shared memory.
 *
 * Each instance is one part that can meet the problem: it calls {@link begin} at every failure and {@link end} at every
 * success. The episode ends when all have ended. {@link FORGOTTEN_MS} after the last failure it ends without waiting for dead
 * threads.
 */
export class Episode {
  readonly #words: Int32Array
  readonly #times: Float64Array
  readonly #at: number
  #isMine = false

  constructor(name: EpisodeName, memory = sharedMemory()) {
    this.#words = new Int32Array(memory)
    this.#times = new Float64Array(memory)
    this.#at = WORDS * NAMES.indexOf(name)
  }

  get isOn(): boolean {
    return Atomics.load(this.#words, this.#at + ON) === 1
  }

  /** Calls counted since it began. */
  get counted(): number {
    return Atomics.load(this.#words, this.#at + COUNTED)
  }

  /** The last failure, Unix ms. */
  get lastAt(): number {
    return this.#times[this.#at / 2 + LAST_AT] as number // in range
  }

  /** @returns true when the episode begins now; the caller then logs it. */
  begin(now = Date.now()): boolean {
    this.#times[this.#at / 2 + LAST_AT] = now
    if (!this.#isMine) Atomics.add(this.#words, this.#at + HOLDERS, 1)
    this.#isMine = true
    if (Atomics.compareExchange(this.#words, this.#at + ON, 0, 1) !== 0) return false
    Atomics.store(this.#words, this.#at + COUNTED, 0)
    this.#times[this.#at / 2 + SINCE] = now
    return true
  }

  /** Counts calls if the episode is on. @returns whether it is on. */
  count(calls = 1, now = Date.now()): boolean {
    if (!this.isOn) return false
    Atomics.add(this.#words, this.#at + COUNTED, calls)
    this.#times[this.#at / 2 + LAST_AT] = now
    return true
  }

  /**
   * @returns the counts when the episode ends now; the caller then logs it. Null = it was not on, or others are still in
   *   it.
   */
  end(now = Date.now()): { counted: number; lastedMs: number } | null {
    if (this.#isMine) {
      this.#isMine = false
      // Not below zero: an episode that ended without waiting for all has already released them.
      if (Atomics.sub(this.#words, this.#at + HOLDERS, 1) <= 0)
        Atomics.store(this.#words, this.#at + HOLDERS, 0)
    }
    if (!this.isOn) return null
    if (Atomics.load(this.#words, this.#at + HOLDERS) > 0 && now - this.lastAt < FORGOTTEN_MS) return null
    if (Atomics.compareExchange(this.#words, this.#at + ON, 1, 0) !== 1) return null
    Atomics.store(this.#words, this.#at + HOLDERS, 0)
    const since = this.#times[this.#at / 2 + SINCE] as number // in range
    return { counted: this.counted, lastedMs: Math.max(0, now - since) }
  }
}

/** Indexes of an episode's words. */
const ON = 0
const COUNTED = 1
const HOLDERS = 2
/** Indexes of its times, in units of two words. */
const SINCE = 2
const LAST_AT = 3
const WORDS = 8

const FORGOTTEN_MS = 15_000

/** Threads started later share it: workers inherit it as environment data. */
function sharedMemory(): SharedArrayBuffer {
  const inherited = getEnvironmentData(INHERITED)
  if (inherited instanceof SharedArrayBuffer) return inherited
  const made = new SharedArrayBuffer(4 * WORDS * NAMES.length)
  setEnvironmentData(INHERITED, made)
  return made
}

const INHERITED = 'tollgate.episodes'
