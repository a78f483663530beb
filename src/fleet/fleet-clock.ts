import type { AnySql } from '../db/connect.ts'
import type { Cancel, Timers } from '../lib/timers.ts'
import { log } from '../log.ts'
import { FleetTime } from './fleet-time.ts'
import { databaseTime } from './store.ts'

/** Fleet time in one thread, which asks the database again and again. Without answers the last offset stays. */
export class FleetClock {
  readonly #time: FleetTime
  readonly #sql: AnySql
  readonly #timers: Timers
  #cancel: Cancel | null = null
  #isAsking = false

  constructor(sql: AnySql, timers: Timers) {
    this.#sql = sql
    this.#timers = timers
    this.#time = new FleetTime(() => timers.now(), Date.now())
  }

  /** Unix ms, whole; never backwards. */
  readonly now = (): number => this.#time.now()

  /** Resolves after the first measurement, or when that has failed. */
  async start(): Promise<void> {
    this.#cancel = this.#timers.every(MEASURE_MS, () => void this.#measure())
    await this.#measure()
  }

  stop(): void {
    this.#cancel?.()
  }

  async #measure(): Promise<void> {
    if (this.#isAsking) return
    this.#isAsking = true
    try {
      const sentAt = this.#timers.now()
      const theirMs = await databaseTime(this.#sql)
      const isFirst = this.#time.errorMs === Number.POSITIVE_INFINITY
      const stepMs = this.#time.measured(sentAt, theirMs, this.#timers.now())
      if (stepMs !== 0 && !isFirst)
        log('warn', 'fleet_time_stepped', 'the clock of the database stepped, and windows follow it', {
          stepMs: Math.round(stepMs),
        })
    } catch {
      // A database that is away is reported by those who need it.
    } finally {
      this.#isAsking = false
    }
  }
}

const MEASURE_MS = 1_000
