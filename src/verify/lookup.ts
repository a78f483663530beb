import { LRUCache } from 'lru-cache'
import type { Changes } from '../db/changes.ts'
import type { Sql } from '../db/connect.ts'
import type { KeyRecord } from './key-record.ts'
import { findKeyByHash } from './store.ts'

/**
 * Hash of a key's text → its record, through this thread's cache. Entries do not age: a write names what it touched
 * (`db/changes.ts`) and every entry that depends on it is dropped before the write is answered. "Not found" is cached
 * too, in a bound of its own, so that junk keys push out neither real ones nor reach the database twice.
 */
export class KeyLookup {
  readonly #sql: Sql
  readonly #found: LRUCache<string, KeyRecord>
  readonly #missing: LRUCache<string, true>
  /** Name of a thing (id of key, API, identity, workspace) → hashes of the cached keys that depend on it. */
  readonly #dependents = new Map<string, Set<string>>()
  /** Lookups under way, shared by all who ask for the same hash meanwhile. */
  #loading = new Map<string, Promise<KeyRecord | null>>()
  /** What changed while a lookup was under way: its result may predate the change and is then not kept. */
  readonly #observers = new Set<(touched: readonly string[] | null) => void>()
  hits = 0
  misses = 0

  constructor(sql: Sql, changes: Changes, options: { bytesMax: number; missingMax: number }) {
    this.#sql = sql
    this.#found = new LRUCache({
      maxSize: options.bytesMax,
      sizeCalculation: bytesOf,
      dispose: (record, hash) => this.#unlink(hash, record),
    })
    this.#missing = new LRUCache({ max: options.missingMax })
    changes.onChange((touched) => this.#drop(touched))
  }

  /** The record at once when it is cached, else a promise of it; null = no such key. */
  find(key: string): KeyRecord | null | Promise<KeyRecord | null> {
    const hash = hashKey(key)
    const cached = this.#found.get(hash)
    if (cached !== undefined) {
      this.hits++
      return cached
    }
    if (this.#missing.get(hash) !== undefined) {
      this.hits++
      return null
    }
    this.misses++
    return this.#loading.get(hash) ?? this.#load(hash)
  }

  /** Drops a key on this thread alone, for a change that no other thread needs to hear of. */
  forget(keyId: string): void {
    this.#drop([keyId])
  }

  #load(hash: string): Promise<KeyRecord | null> {
    const changes: (readonly string[] | null)[] = []
    const observer = (touched: readonly string[] | null) => changes.push(touched)
    this.#observers.add(observer)
    const loading = findKeyByHash(this.#sql, hash)
      .then((record) => {
        if (changes.every((touched) => !concerns(touched, hash, record))) this.#keep(hash, record)
        return record
      })
      .finally(() => {
        this.#observers.delete(observer)
        if (this.#loading.get(hash) === loading) this.#loading.delete(hash)
      })
    this.#loading.set(hash, loading)
    return loading
  }

  #keep(hash: string, record: KeyRecord | null): void {
    if (record === null) {
      this.#missing.set(hash, true)
      return
    }
    // Set before linking: replacing an entry unlinks the old one under the same hash.
    this.#found.set(hash, record)
    if (!this.#found.has(hash)) return // larger than the whole cache
    for (const name of dependenciesOf(record)) {
      const hashes = this.#dependents.get(name)
      if (hashes === undefined) this.#dependents.set(name, new Set([hash]))
      else hashes.add(hash)
    }
  }

  #drop(touched: readonly string[] | null): void {
    // Who asks from now on must not join a lookup that began before the change.
    this.#loading = new Map()
    for (const observer of this.#observers) observer(touched)
    if (touched === null) {
      this.#found.clear()
      this.#missing.clear()
      return
    }
    for (const name of touched) {
      this.#missing.delete(name)
      this.#found.delete(name)
      for (const hash of [...(this.#dependents.get(name) ?? [])]) this.#found.delete(hash)
    }
  }

  #unlink(hash: string, record: KeyRecord): void {
    for (const name of dependenciesOf(record)) {
      const hashes = this.#dependents.get(name)
      hashes?.delete(hash)
      if (hashes?.size === 0) this.#dependents.delete(name)
    }
  }
}

/** SHA-256 over the UTF-8 text of the whole key, standard base64 with padding. */
export const hashKey = (key: string): string => new Bun.CryptoHasher('sha256').update(key).digest('base64')

/** Everything whose change can alter the record. A role or permission touches its whole workspace. */
function dependenciesOf(record: KeyRecord): string[] {
  const names = [record.id, record.apiId, record.workspaceId]
  if (record.forWorkspaceId !== null) names.push(record.forWorkspaceId)
  if (record.identity !== null) names.push(record.identity.id)
  return names
}

function concerns(touched: readonly string[] | null, hash: string, record: KeyRecord | null): boolean {
  if (touched === null || touched.includes(hash)) return true
  return record !== null && dependenciesOf(record).some((name) => touched.includes(name))
}

/** What an entry takes, roughly: the fixed parts as measured on Bun 1.4, two bytes for each character of its texts. */
function bytesOf(record: KeyRecord): number {
  let characters = JSON.stringify(record.meta ?? '').length + JSON.stringify(record.identity?.meta ?? '').length
  for (const permission of record.permissions) characters += permission.length + 40
  for (const role of record.roles) characters += role.length + 20
  return 1500 + 120 * record.limits.length + 2 * characters
}
