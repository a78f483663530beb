import { type BoundReached, boundReachedBy } from '../db/bounds.ts'
import type { AnySql, Transaction } from '../db/connect.ts'
import { type GuardedPool, isReadOnlyFailure, QueryGivenUp } from '../db/guarded-pool.ts'
import type { Invalidations } from './invalidations.ts'

/** How long a write may take that reads or changes as many rows as a workspace can have, ms. */
export const MANY_KEYS_MS = 120_000

/** Names what a write touches: ids of records, hashes of new keys. See `invalidations.ts`. */
export type Invalidate = (...names: string[]) => void

/** One thread's way to read and write. */
export class Database {
  readonly sql: AnySql
  readonly #pool: Pick<GuardedPool, 'sql' | 'transaction'>
  readonly #invalidations: Invalidations
  /** False on the embedded database: it has no other process to tell. */
  readonly #notifies: boolean
  readonly #onBoundReached: (reached: BoundReached) => void

  constructor(
    pool: Pick<GuardedPool, 'sql' | 'transaction'>,
    invalidations: Invalidations,
    options: { notifies: boolean; onBoundReached?: (reached: BoundReached) => void },
  ) {
    this.sql = pool.sql
    this.#pool = pool
    this.#invalidations = invalidations
    this.#notifies = options.notifies
    this.#onBoundReached = options.onBoundReached ?? (() => {})
  }

  /**
   * Runs `work` in one transaction; whatever it touched is dropped from every cache of this process before the promise
   * resolves. `work` may run again after a deadlock or a failover, so it must do nothing but query through its `tx`.
   * @param options.timeoutMs How long it may take, where that grows with what the workspace holds; else the pool's.
   * @throws what `work` throws, with nothing written; {@link BoundReached} where the workspace has no room for it.
   */
  async write<T>(
    work: (tx: Transaction, invalidate: Invalidate) => Promise<T>,
    options: { timeoutMs?: number } = {},
  ): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      const touched = new Set<string>()
      const writeId = Math.floor(Math.random() * Number.MAX_SAFE_INTEGER) // also different from other threads'
      try {
        const result = await this.#pool.transaction(async (tx) => {
          const invalidate: Invalidate = (...names) => {
            for (const name of names) touched.add(name)
          }
          const value = await work(tx, invalidate)
          if (this.#notifies && touched.size > 0) await this.#invalidations.notify(tx, [...touched], writeId)
          return value
        }, options)
        await this.#invalidations.broadcastAndWait([...touched], writeId)
        return result
      } catch (cause) {
        // One that was given up may even commit later; then what was read meanwhile is dropped as well.
        if (cause instanceof QueryGivenUp)
          void cause.settled.then(() => this.#invalidations.broadcast([...touched]))
        // The connection may have broken after the commit: dropping too much costs a lookup, too little a lie.
        if (touched.size > 0) await this.#invalidations.broadcastAndWait([...touched])
        if (attempt < ATTEMPTS_MAX && isTransient(cause)) continue
        const reached = boundReachedBy(cause)
        if (reached === null) throw cause
        this.#onBoundReached(reached)
        throw reached
      }
    }
  }
}

const ATTEMPTS_MAX = 3

/**
 * Deadlock and serialization failure: Postgres undid the transaction and asks to try again. Likewise a connection of when
 * the database took no writes: the pool has fresh ones by now.
 */
const isTransient = (cause: unknown) =>
  (cause instanceof Error && 'code' in cause && (cause.code === '40P01' || cause.code === '40001')) ||
  isReadOnlyFailure(cause)
