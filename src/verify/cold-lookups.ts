import type { AnySql } from '../db/connect.ts'
import { apartFromRequest } from '../db/deadline.ts'
import { unavailablePart } from '../errors.ts'
import type { Timers } from '../lib/timers.ts'
import type { KeyRecord } from './key-record.ts'
import { findKeysByHash, type Heavy, READ_WEIGHT_MAX } from './store.ts'

/** The client that presents a key. */
export type Asking = { clientAddress(): string | null }

type Waiting = {
  hash: string
  asking: Asking | null
  resolve: (record: KeyRecord | null) => void
  reject: (cause: unknown) => void
}

/**
 * Reads keys that are not cached. Strangers can present unknown keys at any rate, so each thread runs at most
 * {@link UNDER_WAY_MAX} statements at a time and starts {@link STARTS_MAX} in {@link PERIOD_MS}; a statement that finds at
 * least half of its keys does not count. Look-ups that wait share the next statement; a single look-up does not wait. When more wait than fit into one statement, client addresses take
 * turns.
 *
 * Statements that take longer than a period count as slow. Look-ups waiting behind them then get one more statement a
 * period. Its time limit starts with it, so a slow database does not make them fail sooner than others.
 *
 * Keys too large for their batch are read afterwards, one statement at a time, with the workspaces taking turns: large keys
 * of one workspace neither delay nor fail keys of others. When the database refuses a batch, its halves are tried, so that
 * a row that cannot be read fails alone.
 */
export class ColdLookups {
  readonly #sql: AnySql
  readonly #timers: Timers
  #waiting: Waiting[] = []
  /** Workspace → its keys that are too large for a batch. */
  readonly #heavy = new Map<string, (Waiting & Heavy)[]>()
  #isHeavyUnderWay = false
  #underWay = 0
  #periodStartedAt = Number.NEGATIVE_INFINITY
  #starts = 0
  /** A timer is set for the end of the period, for waiting look-ups. */
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
    const period = this.#periodStartedAt
    const found = await this.#settle(batch)
    // Only statements for unknown keys are bounded. Keys that exist are cached from now on.
    if (2 * found >= batch.length && period === this.#periodStartedAt) this.#starts--
    this.#underWay--
    this.#startNext()
    void this.#readHeavy()
  }

  /**
   * @param tries Statements left for this batch and its halves.
   * @returns how many of the keys exist.
   */
  async #settle(batch: readonly Waiting[], tries = { left: TRIES_MAX }): Promise<number> {
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
      return found.size + heavy.size
    } catch (cause) {
      if (batch.length === 1 || tries.left <= 0 || unavailablePart(cause) !== null) {
        for (const { reject } of batch) reject(cause)
        return 0
      }
      const middle = Math.ceil(batch.length / 2)
      const found = await this.#settle(batch.slice(0, middle), tries)
      return found + (await this.#settle(batch.slice(middle), tries))
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
      // With a time limit of its own: the request that started this loop may have waited for long.
      await apartFromRequest(() => this.#settle(batch))
    this.#isHeavyUnderWay = false
  }

  /** Keys of the workspace whose turn it is, up to the weight of one statement. */
  #takeHeavy(): Waiting[] {
    for (const [workspaceId, waiting] of this.#heavy) {
      let weight = 0
      const fits = waiting.findIndex((each, at) => {
        weight += each.weight
        return at > 0 && weight > READ_WEIGHT_MAX
      })
      const batch = waiting.splice(0, fits === -1 ? waiting.length : fits)
      this.#heavy.delete(workspaceId)
      if (waiting.length > 0) this.#heavy.set(workspaceId, waiting) // to the end of the line
      return batch
    }
    return []
  }
}

/** Reorders look-ups: the first of each client, then the second of each, and so on. */
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

/** The other connections of the pool are for root keys' operations. */
const UNDER_WAY_MAX = 2
/** 200 statements a second. At 20 000 unknown keys a second each reads a hundred keys, in 0.5 ms of CPU. */
const STARTS_MAX = 4
const PERIOD_MS = 20
/** Statements for a batch that the database refuses: enough to isolate two unreadable rows among 500. */
const TRIES_MAX = 40
/** Keys in one statement. */
export const HASHES_MAX = 500
