import type { AnySql } from '../../db/connect.ts'
import { SmallCache } from '../../lib/small-cache.ts'
import type { Invalidations } from '../../records/invalidations.ts'
import { RecordCache } from '../../records/record-cache.ts'
import type { PermissionQuery } from '../../verify/permission-query.ts'
import { CounterPrefix } from './counter-prefix.ts'
import { arrangeOverrides, type Overrides } from './overrides.ts'
import { findNamespaceByName } from './store.ts'

export type Namespace = {
  id: string
  workspaceId: string
  name: string
  overrides: Overrides
  /** The permissions that allow limiting in it. */
  mayLimit: PermissionQuery
  counterPrefix: CounterPrefix
}

/** Namespaces with their overrides, cached by workspace and name. A missing namespace is never cached. */
export class Namespaces {
  readonly cache: RecordCache<Namespace>
  /**
   * By namespace name: the cache key of the workspace that last used it. Building and hashing that key for each call would
   * take 0.2 µs of its 4.
   */
  readonly #keys = new SmallCache<string, CacheKey>(KEYS_MAX)
  /** Namespaces being created on first use, by cache key. */
  readonly #making = new Map<string, Promise<void>>()

  constructor(sql: AnySql, invalidations: Invalidations, options: { bytesMax: number }) {
    this.cache = new RecordCache<Namespace>(invalidations, {
      load: async (key) => {
        // Ids contain no line feed, so the first one ends the workspace's id.
        const split = key.indexOf('\n')
        const row = await findNamespaceByName(sql, key.slice(0, split), key.slice(split + 1))
        if (row === null) return null
        // Loading and arranging thousands of overrides are two turns of the event loop.
        if (row.overrides.length > TURN_OVERRIDES) await new Promise((resolve) => setImmediate(resolve))
        const mayLimit: PermissionQuery = { or: ['*', 'ratelimit.*.limit', `ratelimit.${row.id}.limit`] }
        return {
          id: row.id,
          workspaceId: key.slice(0, split),
          name: row.name,
          overrides: arrangeOverrides(row.overrides),
          mayLimit,
          counterPrefix: new CounterPrefix(row.id),
        }
      },
      dependenciesOf: ({ id }) => [id],
      ownerOf: ({ workspaceId }) => workspaceId,
      bytesOf: ({ name, overrides }) => 700 + 2 * name.length + overrides.bytes,
      bytesMax: options.bytesMax,
      missingMax: 0,
    })
  }

  find(workspaceId: string, name: string): Namespace | null | Promise<Namespace | null> {
    let key = this.#keys.get(name)
    if (key === undefined || key.workspaceId !== workspaceId) {
      key = { workspaceId, text: keyOf(workspaceId, name) }
      this.#keys.set(name, key)
    }
    // Wait for the creation: a read before it ends would have to be repeated.
    const making = this.#making.size === 0 ? undefined : this.#making.get(key.text)
    return making === undefined ? this.cache.find(key.text) : this.#findAfter(making, key.text)
  }

  /** Ignores the creation's error, which its own callers get. */
  async #findAfter(making: Promise<void>, key: string): Promise<Namespace | null> {
    await making.catch(() => {})
    return await this.cache.find(key)
  }

  /**
   * Creates missing namespaces. A name that this thread is creating already is not created again: the call waits for that
   * creation and fails with it.
   * @param make Creates the given names, which are sorted so that two servers cannot deadlock.
   */
  async makeOnce(
    workspaceId: string,
    names: readonly string[],
    make: (names: readonly string[]) => Promise<void>,
  ): Promise<void> {
    const makings = new Set<Promise<void>>()
    const missing: string[] = []
    for (const name of names.toSorted()) {
      const making = this.#making.get(keyOf(workspaceId, name))
      if (making === undefined) missing.push(name)
      else makings.add(making)
    }
    if (missing.length > 0) {
      const making = make(missing).finally(() => {
        for (const name of missing) this.#making.delete(keyOf(workspaceId, name))
      })
      for (const name of missing) this.#making.set(keyOf(workspaceId, name), making)
      makings.add(making)
    }
    await Promise.all(makings)
  }
}

const keyOf = (workspaceId: string, name: string) => `${workspaceId}\n${name}`
type CacheKey = { workspaceId: string; text: string }
const KEYS_MAX = 1000
const TURN_OVERRIDES = 1000
