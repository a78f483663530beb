import type { AnySql } from '../db/connect.ts'
import { SmallCache } from '../lib/small-cache.ts'
import { systemTimers, type Timers } from '../lib/timers.ts'
import type { Invalidations } from '../records/invalidations.ts'
import { RecordCache } from '../records/record-cache.ts'
import { type Asking, ColdLookups } from './cold-lookups.ts'
import { openKeyChanges } from './key-changes.ts'
import type { KeyRecord } from './key-record.ts'
import { bearer, hashKey } from './secret.ts'

/**
 * Finds the record of a key's text. The text is hashed first, so it reaches neither the cache nor SQL, and the time of a
 * look-up does not depend on how close a guess is. "Not found" is cached too, and dropped when a key with that hash is
 * created.
 */
export class KeyLookup {
  readonly cache: RecordCache<KeyRecord, Asking>
  /** Authorization header → hash, for root keys found recently. */
  private readonly rootHashes = new SmallCache<string, string>(ROOT_HASHES_MAX)

  constructor(
    sql: AnySql,
    invalidations: Invalidations,
    options: { bytesMax: number; missingMax: number },
    timers: Timers = systemTimers,
  ) {
    const cold = new ColdLookups(sql, timers)
    this.cache = new RecordCache(invalidations, {
      load: (hash, asking) => cold.find(hash, asking),
      dependenciesOf,
      bytesOf,
      ownerChanges: openKeyChanges(),
      ownerOf: ({ workspaceId, forWorkspaceId }) => forWorkspaceId ?? workspaceId,
      partBytes: RECORD_BYTES_MAX,
      timers,
      ...options,
    })
  }

  /** @returns the record, or a promise when it is not cached; null = no such key. */
  find(key: string, asking: Asking | null = null): KeyRecord | null | Promise<KeyRecord | null> {
    return this.cache.find(hashKey(key), asking)
  }

  /** As {@link find}, for the root key of a session. */
  findByHash(hash: string, asking: Asking | null = null): KeyRecord | null | Promise<KeyRecord | null> {
    return this.cache.find(hash, asking)
  }

  /**
   * As {@link find}, for root keys, which come with every call. Stores header → hash of existing root keys. The head cache
   * (`doors/http/head-cache.ts`) yields the same string each time, whose own hash is cached, while a part of it would be a
   * new string. Hashing the key each time, and looking up the new string of its hash, took 0.5 µs of a call's 6.
   * @param authorization Value of the Authorization header, not empty.
   */
  findRoot(
    authorization: string,
    asking: Asking | null = null,
  ): KeyRecord | null | Promise<KeyRecord | null> {
    const known = this.rootHashes.get(authorization)
    if (known !== undefined) return this.cache.find(known, asking)
    const hash = hashKey(bearer(authorization))
    const found = this.cache.find(hash, asking)
    if (found === null || found instanceof Promise || found.forWorkspaceId === null) return found
    this.rootHashes.set(authorization, hash)
    return found
  }

  /** Drops a key on this thread only, for a change that does not matter to others. */
  forget(keyId: string): void {
    this.cache.drop([keyId])
  }
}

/** The workspace is included because a change of a role or permission touches it as a whole. */
function dependenciesOf(record: KeyRecord): string[] {
  const names = [record.id, record.apiId, record.workspaceId]
  if (record.forWorkspaceId !== null) names.push(record.forWorkspaceId)
  if (record.identity !== null) names.push(record.identity.id)
  return names
}

/**
 * Approximate size of an entry: fixed parts, and two bytes for each character. Measured as growth of resident memory with
 * 50 000 keys: 1 260 to 1 630 bytes each, 1 800 with an identity.
 */
function bytesOf(record: KeyRecord): number {
  let characters =
    JSON.stringify(record.meta ?? '').length + JSON.stringify(record.identity?.meta ?? '').length
  for (const permission of record.permissions) characters += permission.length + 40
  for (const role of record.roles) characters += role.length + 20
  const limits = Math.max(record.limits.length, record.identityLimits.length)
  return 1300 + (record.identity === null ? 0 : 400) + 180 * limits + 2 * characters
}

/** Above the largest key that the default bounds allow, which is 2.6 MiB by this estimate. */
const RECORD_BYTES_MAX = 4 * 2 ** 20
const ROOT_HASHES_MAX = 1000
