import { getEnvironmentData, setEnvironmentData } from 'node:worker_threads'

/** What can last: a trouble of the whole process, whichever thread notices it. */
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
  'embedded restart',
] as const
export type EpisodeName = (typeof NAMES)[number]

/**
 * A trouble that lasts has one line when the first thread meets it and one when the last is over it, with how much fell to
 * it in between. Counters in shared memory keep it from being told once for each call, pool and thread.
 *
 * Each instance is one that may meet the trouble: it says {@link begin} at every failure and {@link end} at every success.
 * One that died in the middle is not waited for: its last failure is {@link FORGOTTEN_MS} ago one day.
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

  /** How much fell to it since it began. */
  get counted(): number {
    return Atomics.load(this.#words, this.#at + COUNTED)
  }

  /** When it was last met, Unix ms. */
  get lastAt(): number {
    return this.#times[this.#at / 2 + LAST_AT] as number // in range
  }

  /** @returns whether it begins now: then the caller logs that. */
  begin(now = Date.now()): boolean {
    this.#times[this.#at / 2 + LAST_AT] = now
    if (!this.#isMine) Atomics.add(this.#words, this.#at + HOLDERS, 1)
    this.#isMine = true
    if (Atomics.compareExchange(this.#words, this.#at + ON, 0, 1) !== 0) return false
    Atomics.store(this.#words, this.#at + COUNTED, 0)
    this.#times[this.#at / 2 + SINCE] = now
    return true
  }

  /** @returns whether it is on: then it was counted. */
  count(calls = 1, now = Date.now()): boolean {
    if (!this.isOn) return false
    Atomics.add(this.#words, this.#at + COUNTED, calls)
    this.#times[this.#at / 2 + LAST_AT] = now
    return true
  }

  /** @returns what fell to it when it ends now: then the caller logs that. Null = it was not on, or others are in it still. */
  end(now = Date.now()): { counted: number; lastedMs: number } | null {
    if (this.#isMine) {
      this.#isMine = false
      // Never below none: whoever ended it without waiting has let go for all.
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

/** Words of an episode. */
const ON = 0
const COUNTED = 1
const HOLDERS = 2
/** Its times, in units of two words. */
const SINCE = 2
const LAST_AT = 3
const WORDS = 8

const FORGOTTEN_MS = 15_000

/** Threads started later have the same: it is part of what a worker inherits. */
function sharedMemory(): SharedArrayBuffer {
  const inherited = getEnvironmentData(INHERITED)
  if (inherited instanceof SharedArrayBuffer) return inherited
  const made = new SharedArrayBuffer(4 * WORDS * NAMES.length)
  setEnvironmentData(INHERITED, made)
  return made
}

const INHERITED = 'tollgate.episodes'
