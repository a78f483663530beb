import type { AnySql } from '../db/connect.ts'
import { SmallCache } from '../lib/small-cache.ts'
import { systemTimers, type Timers } from '../lib/timers.ts'
import type { Changes } from '../records/changes.ts'
import { RecordCache } from '../records/record-cache.ts'
import { type Asking, ColdLookups } from './cold-lookups.ts'
import type { KeyRecord } from './key-record.ts'
import { bearer, hashKey } from './secret.ts'

/**
 * Text of a key → its record. The text is hashed first: nothing of it reaches the cache or SQL, and what a lookup costs
 * tells nothing of how near a guess was. "Not found" is cached too, and forgotten when a key of that hash is made.
 */
export class KeyLookup {
  readonly cache: RecordCache<KeyRecord, Asking>
  /** Authorization header → hash of root keys that were found lately. */
  private readonly rootHashes = new SmallCache<string, string>(ROOT_HASHES_MAX)

  constructor(
    sql: AnySql,
    changes: Changes,
    options: { bytesMax: number; missingMax: number },
    timers: Timers = systemTimers,
  ) {
    const cold = new ColdLookups(sql, timers)
    this.cache = new RecordCache(changes, {
      load: (hash, asking) => cold.find(hash, asking),
      dependenciesOf,
      isRecordId: (name) => name.startsWith('key_'),
      bytesOf,
      ownerOf: ({ workspaceId, forWorkspaceId }) => forWorkspaceId ?? workspaceId,
      partBytes: RECORD_BYTES_MAX,
      timers,
      ...options,
    })
  }

  /** The record at once when it is cached, else a promise of it; null = no such key. */
  find(key: string, asking: Asking | null = null): KeyRecord | null | Promise<KeyRecord | null> {
    return this.cache.find(hashKey(key), asking)
  }

  /**
   * The same for a text that comes with every call, as root keys do: the hash is kept and so, of those that exist, is the
   * text. Its heads are kept as well (`http-server.ts`), so that the whole header is looked for: it is the same text each time,
   * which knows its place in a map, and any part of it would be a fresh one. Hashing the key each time and looking for the
   * fresh text of the hash took 0.5 µs of a call's 6.
   * @param authorization Value of that header, not empty.
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

  /** Drops a key on this thread alone, for a change that no other thread needs to hear of. */
  forget(keyId: string): void {
    this.cache.drop([keyId])
  }
}

/** A change of a role or permission names the whole workspace. */
function dependenciesOf(record: KeyRecord): string[] {
  const names = [record.id, record.apiId, record.workspaceId]
  if (record.forWorkspaceId !== null) names.push(record.forWorkspaceId)
  if (record.identity !== null) names.push(record.identity.id)
  return names
}

/**
 * What an entry takes, roughly: fixed parts, and two bytes for each character of its texts. Measured with 50 000 keys, as
 * resident memory grew: 1 260 to 1 630 bytes each, with an identity 1 800.
 */
function bytesOf(record: KeyRecord): number {
  let characters =
    JSON.stringify(record.meta ?? '').length + JSON.stringify(record.identity?.meta ?? '').length
  for (const permission of record.permissions) characters += permission.length + 40
  for (const role of record.roles) characters += role.length + 20
  return 1300 + (record.identity === null ? 0 : 400) + 120 * record.limits.length + 2 * characters
}

/** More than the largest key that the default bounds allow: 2.6 MiB as reckoned here. */
const RECORD_BYTES_MAX = 4 * 2 ** 20
const ROOT_HASHES_MAX = 1000
