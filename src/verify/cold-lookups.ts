import type { AnySql } from '../db/connect.ts'
import { apartFromRequest } from '../db/deadline.ts'
import { unavailablePart } from '../errors.ts'
import type { Timers } from '../lib/timers.ts'
import type { KeyRecord } from './key-record.ts'
import { findKeysByHash, type Heavy, READ_WEIGHT_MAX } from './store.ts'

/** Who asks, as far as is known. */
export type Asking = { clientAddress(): string | null }

type Waiting = {
  hash: string
  asking: Asking | null
  resolve: (record: KeyRecord | null) => void
  reject: (cause: unknown) => void
}

/**
 * Reads keys that are not cached. A stranger can ask for as many as the server answers, so what that takes of the database
 * is bounded here, for each thread: {@link UNDER_WAY_MAX} statements at a time, {@link STARTS_MAX} in
 * {@link PERIOD_MS}; what is asked meanwhile waits and shares the next one. A lookup by itself does not wait. Where more wait
 * than a statement takes, client addresses take turns: who sends thousands of unknown keys waits behind their own.
 *
 * Statements that are under way for a whole period are slow. What waits behind them then gets one of its own, one a
 * period: its time is counted by the pool from there, so that a slow database costs it no more than it costs anyone.
 *
 * Keys that are too large for their batch are read after it, each workspace's by themselves: one statement at a time,
 * workspaces take turns. So keys of one workspace, however large, make no other workspace's key late or fail. Where the
 * database refuses a batch, its halves are tried, so that one row it cannot read fails alone.
 */
export class ColdLookups {
  readonly #sql: AnySql
  readonly #timers: Timers
  #waiting: Waiting[] = []
  /** Workspace → those of its keys that are read apart from others. */
  readonly #heavy = new Map<string, (Waiting & Heavy)[]>()
  #isHeavyUnderWay = false
  #underWay = 0
  #periodStartedAt = Number.NEGATIVE_INFINITY
  #starts = 0
  /** Something waits, and is looked after when the period ends. */
  #isTimed = false

  constructor(sql: AnySql, timers: Timers) {
    this.#sql = sql
    this.#timers = timers
  }

  /** @throws when the database does not answer. */
  find(hash: string, asking: Asking | null = null): Promise<KeyRecord | null> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ hash, asking, resolve, reject })
      this.#startNext()
    })
  }

  #startNext(): void {
    while (this.#waiting.length > 0 && this.#underWay < UNDER_WAY_MAX && this.#mayStart()) void this.#read()
    if (this.#waiting.length === 0 || this.#isTimed) return
    this.#isTimed = true
    this.#timers.after(PERIOD_MS, () => {
      this.#isTimed = false
      if (this.#waiting.length > 0 && this.#mayStart()) void this.#read()
      this.#startNext()
    })
  }

  #mayStart(): boolean {
    const now = this.#timers.now()
    if (now - this.#periodStartedAt >= PERIOD_MS) {
      this.#periodStartedAt = now
      this.#starts = 0
    }
    return this.#starts < STARTS_MAX
  }

  #takeBatch(): Waiting[] {
    if (this.#waiting.length > HASHES_MAX) this.#waiting = inTurns(this.#waiting)
    return this.#waiting.splice(0, HASHES_MAX)
  }

  async #read(): Promise<void> {
    const batch = this.#takeBatch()
    this.#starts++
    this.#underWay++
    await this.#settle(batch)
    this.#underWay--
    this.#startNext()
    void this.#readHeavy()
  }

  /** @param tries How many statements more it may take, shared by its halves. */
  async #settle(batch: readonly Waiting[], tries = { left: TRIES_MAX }): Promise<void> {
    tries.left--
    try {
      const { found, heavy } = await findKeysByHash(
        this.#sql,
        batch.map(({ hash }) => hash),
      )
      for (const each of batch) {
        const left = heavy.get(each.hash)
        if (left === undefined) each.resolve(found.get(each.hash) ?? null)
        else this.#putOff({ ...each, ...left })
      }
    } catch (cause) {
      if (batch.length === 1 || tries.left <= 0 || unavailablePart(cause) !== null) {
        for (const { reject } of batch) reject(cause)
        return
      }
      const middle = Math.ceil(batch.length / 2)
      await this.#settle(batch.slice(0, middle), tries)
      await this.#settle(batch.slice(middle), tries)
    }
  }

  #putOff(heavy: Waiting & Heavy): void {
    const others = this.#heavy.get(heavy.workspaceId)
    if (others === undefined) this.#heavy.set(heavy.workspaceId, [heavy])
    else others.push(heavy)
  }

  async #readHeavy(): Promise<void> {
    if (this.#isHeavyUnderWay) return
    this.#isHeavyUnderWay = true
    for (let batch = this.#takeHeavy(); batch.length > 0; batch = this.#takeHeavy())
      // In a time of its own: whose request began this loop may have waited for long.
      await apartFromRequest(() => this.#settle(batch))
    this.#isHeavyUnderWay = false
  }

  /** Of the workspace whose turn it is, as many as a statement reads. */
  #takeHeavy(): Waiting[] {
    for (const [workspaceId, waiting] of this.#heavy) {
      let weight = 0
      const fits = waiting.findIndex((each, at) => {
        weight += each.weight
        return at > 0 && weight > READ_WEIGHT_MAX
      })
      const batch = waiting.splice(0, fits === -1 ? waiting.length : fits)
      this.#heavy.delete(workspaceId)
      if (waiting.length > 0) this.#heavy.set(workspaceId, waiting) // behind the others
      return batch
    }
    return []
  }
}

/** One of each client, then a second of each, and so on. */
function inTurns(waiting: readonly Waiting[]): Waiting[] {
  const turns: Waiting[][] = []
  const asked = new Map<string, number>()
  for (const each of waiting) {
    const client = each.asking?.clientAddress() ?? ''
    const turn = asked.get(client) ?? 0
    asked.set(client, turn + 1)
    turns[turn] ??= []
    turns[turn]?.push(each)
  }
  return turns.flat()
}

/** The pool has more connections, which are for what root keys ask. */
const UNDER_WAY_MAX = 2
/** Together 200 statements a second: at 20 000 unknown keys a second each reads a hundred of them, for 0.5 ms of CPU. */
const STARTS_MAX = 4
const PERIOD_MS = 20
/** Statements for a batch that the database refuses: finds two rows that it cannot read among 500 others. */
const TRIES_MAX = 40
/** In a statement. */
export const HASHES_MAX = 500
