import type { AnySql } from '../db/connect.ts'
import { pause, systemTimers, type Timers, within } from '../lib/timers.ts'
import { log } from '../log.ts'
import { Continuity, type Replaced } from '../records/continuity.ts'

/**
 * What a running server does when its database was replaced by another copy or an older state of itself:
 *
 * 1. Caches are emptied: they may hold keys that the database does not know, or changes that it has lost.
 * 2. All open windows are written again. What this server counted stands, so nobody gets a fresh limit.
 * 3. The steps of a start on a database are repeated: migrations, bounds, root key, the row in `servers`.
 *
 * Usage needs nothing: a batch that was answered is lost with the database it was in, and one that was not is counted once, as each
 * carries its number.
 */
export class ReplacedDatabase {
  readonly #continuity: Continuity
  readonly #parts: ReplacedParts
  readonly #timers: Timers
  readonly #stopping = new AbortController()
  #adopting: Promise<void> = Promise.resolve()

  constructor(processId: string, parts: ReplacedParts, timers: Timers = systemTimers) {
    this.#continuity = new Continuity(processId)
    this.#parts = parts
    this.#timers = timers
  }

  /** Call it every few seconds, with a connection to the database. @throws as {@link Continuity.check} */
  async check(sql: AnySql): Promise<void> {
    const replaced = await this.#continuity.check(sql)
    if (replaced !== null) this.#adopting = this.#adopting.then(() => this.#adopt(replaced))
  }

  /** @param sql Removes the row of this process. */
  async stop(sql: AnySql): Promise<void> {
    this.#stopping.abort()
    const ended = this.#continuity.end(sql).catch(() => {}) // it goes after a day
    await within(this.#timers, STOP_MS, ended, { late: () => {} })
  }

  async #adopt(what: Replaced): Promise<void> {
    log(
      'warn',
      'database_replaced',
      'the database was replaced by another copy or an older state of itself; caches were emptied, and open windows are written again',
      { what },
    )
    this.#parts.emptyCaches()
    let isFailing = false
    while (!this.#stopping.signal.aborted) {
      try {
        await this.#parts.prepare()
        break
      } catch (cause) {
        if (!isFailing)
          log(
            'error',
            'database_replaced_unusable',
            'the database that replaced the one of this server cannot be used yet; attempts continue',
            { cause },
          )
        isFailing = true
        await pause(this.#timers, RETRY_MS, this.#stopping.signal)
      }
    }
    // After the migrations, which windows may need. Records that were read before them may be incomplete.
    this.#parts.emptyCaches()
    await this.#parts.rewriteWindows()
  }
}

type ReplacedParts = {
  emptyCaches(): void
  rewriteWindows(): Promise<void>
  /** The steps of a start. @throws when the database cannot be used. */
  prepare(): Promise<void>
}

const RETRY_MS = 5_000
/** A stop has ten seconds in all. */
const STOP_MS = 300
