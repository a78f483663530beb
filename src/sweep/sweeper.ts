import type { Clock } from '../lib/clock.ts'
import { systemTimers, type Timers, within } from '../lib/timers.ts'
import { log, logUnknownFormat } from '../log.ts'
import type { Database } from '../records/database.ts'
import { deleteSweep, findUnknownKind, listSweeps, type Sweep, sweepSlice } from './store.ts'

/** How long a deletion waits for its sweep at most, ms: less than a slow request. Small ones are complete when it is answered. */
export const SWEEP_WAIT_MS = 800

/**
 * Removes the rows that large deletions leave behind, in the background of the deleting call.
 *
 * 1. The operation detaches the thing (an API, its keyspace, an identity, a role, a permission, a namespace) and records a
 *    sweep, in one transaction. The next verification finds nothing of it.
 * 2. The sweep removes rows in transactions of about {@link SLICE_MS}, with a pause of the same length after each, so that
 *    neither the embedded database nor a lock is held for longer.
 * 3. The last slice finds no row and deletes the record. After a crash the next start or another server continues.
 *
 * Two servers may work on one sweep: each row is removed once.
 */
export class Sweeper {
  readonly #database: Pick<Database, 'sql' | 'write'>
  readonly #clock: Clock
  readonly #timers: Timers
  /** Running sweeps of this thread, by id. */
  readonly #running = new Map<number, Promise<void>>()
  #cancelRound: (() => void) | null = null
  #isStopped = false

  constructor(options: { database: Pick<Database, 'sql' | 'write'>; clock: Clock; timers?: Timers }) {
    this.#database = options.database
    this.#clock = options.clock
    this.#timers = options.timers ?? systemTimers
  }

  /** Called on one thread of a process: resumes sweeps that no call is waiting for. */
  start(): void {
    // At start it resumes all: one that a crash interrupted may be a moment old.
    let youngestMs = 0
    const round = async () => {
      try {
        const left = await listSweeps(this.#database.sql, { createdBefore: this.#clock() - youngestMs + 1 })
        youngestMs = YOUNG_MS
        for (const sweep of left) await this.#run(sweep)
        const unknown = await findUnknownKind(this.#database.sql)
        if (unknown !== null) logUnknownFormat('sweep of deleted rows', unknown)
      } catch (cause) {
        this.#report(cause)
      }
      if (!this.#isStopped) this.#cancelRound = this.#timers.after(ROUND_MS, round)
    }
    this.#cancelRound = this.#timers.after(0, round)
  }

  /** Running sweeps end after their current slice. The next start continues them. */
  async stop(): Promise<void> {
    this.#isStopped = true
    this.#cancelRound?.()
    await within(this.#timers, STOP_MS, Promise.allSettled(this.#running.values()), { late: () => {} })
  }

  /**
   * Runs the sweeps that a deletion recorded for these subjects, and waits up to `ms`. A late sweep continues; a failed one
   * is logged and resumed later. Never rejects: the deletion is already in force.
   */
  async finishWithin(ms: number, subjects: readonly string[]): Promise<void> {
    const swept = listSweeps(this.#database.sql, { subjects })
      .then(async (sweeps) => {
        for (const sweep of sweeps) await this.#run(sweep)
      })
      .catch((cause: unknown) => this.#report(cause))
    await within(this.#timers, ms, swept, { late: () => {} })
  }

  #run(sweep: Sweep): Promise<void> {
    const running = this.#running.get(sweep.id)
    if (running !== undefined) return running
    const run = this.#sweep(sweep).finally(() => this.#running.delete(sweep.id))
    this.#running.set(sweep.id, run)
    return run
  }

  async #sweep(sweep: Sweep): Promise<void> {
    let limit = ROWS_FIRST
    let after = ''
    while (!this.#isStopped) {
      const beganAt = this.#timers.now()
      const slice = await this.#database.write((tx) =>
        sweepSlice(tx, sweep, { limit, now: this.#clock(), after }),
      )
      if (slice.rows < limit && after === '') return await deleteSweep(this.#database.sql, sweep.id)
      // At the end it looks once more from the beginning.
      after = slice.rows < limit ? '' : slice.last
      const tookMs = this.#timers.now() - beganAt
      limit = Math.max(ROWS_MIN, Math.min(ROWS_MAX, Math.round((limit * SLICE_MS) / Math.max(1, tookMs))))
      await new Promise<void>((resolve) => this.#timers.after(Math.min(REST_MS_MAX, tookMs), resolve))
    }
  }

  #report(cause: unknown): void {
    if (this.#isStopped) return
    log(
      'warn',
      'sweep_unfinished',
      'rows of deleted resources could not be removed; they have no effect, and the next attempt is within a minute',
      {
        cause,
      },
    )
  }
}

/** Duration of a slice: others wait no longer for a lock, or for the embedded database. */
const SLICE_MS = 10
const ROWS_FIRST = 100
/** Some 10 ms of the database's CPU. With fewer, a database whose commits are slow would take hours for a million rows. */
const ROWS_MIN = 100
const ROWS_MAX = 1_000
const REST_MS_MAX = 50
const ROUND_MS = 60_000
/** Younger sweeps may be running on another server or thread. */
const YOUNG_MS = 60_000
const STOP_MS = 3_000
