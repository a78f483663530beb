import { LRUCache } from 'lru-cache'
import { type Cancel, systemTimers, type Timers } from '../lib/timers.ts'
import type { Changes } from './changes.ts'

/**
 * One thread's cache of records read from the database. Entries do not age: a write names what it touched
 * (`changes.ts`), and every entry that depends on it is dropped before the write is answered.
 *
 * When everything may have changed, which is said after the way to other processes was broken, entries stay but are read
 * again before they are used. If that fails, or takes longer than {@link CONFIRM_MS}, the old one is used: it is then as good as
 * all through the outage, and an outage that comes and goes must not cost the keys that were known. Who asks while such a
 * reading is already that late does not wait for it.
 */
export class RecordCache<V extends object> {
  readonly #load: (key: string) => Promise<V | null>
  readonly #timers: Timers
  /** Names of everything whose change can alter the record. */
  readonly #dependenciesOf: (record: V) => string[]
  readonly #isRecordId: (name: string) => boolean
  readonly #found: LRUCache<string, V>
  /** Keys known to have no record, in a bound of their own: junk pushes nothing real out. Null = not kept. */
  readonly #missing: LRUCache<string, true> | null
  /** Name of a thing → cache keys of the records that depend on it: of most things it is one, and needs no set. */
  readonly #dependents = new Map<string, string | Set<string>>()
  /** Entries to be read again before use. */
  readonly #suspects = new Set<string>()
  /** Loads under way, shared by all who ask for the same key meanwhile. */
  #loading = new Map<string, Loading<V>>()
  /** Told of what changed while a load was under way: its result may predate the change and is then not kept. */
  readonly #observers = new Set<(touched: readonly string[] | null) => void>()
  hits = 0
  misses = 0

  /**
   * @param options.bytesMax Bound of the cache, reckoned by `bytesOf`; the least recently used records go first.
   * @param options.missingMax How many keys without a record are remembered; 0 = none.
   * @param options.isRecordId Whether a name is one that a record itself has; not needed where nothing missing is kept.
   */
  constructor(
    changes: Changes,
    options: {
      load: (key: string) => Promise<V | null>
      dependenciesOf: (record: V) => string[]
      bytesOf: (record: V) => number
      bytesMax: number
      missingMax: number
      isRecordId?: (name: string) => boolean
      timers?: Timers
    },
  ) {
    this.#load = options.load
    this.#timers = options.timers ?? systemTimers
    this.#dependenciesOf = options.dependenciesOf
    this.#isRecordId = options.isRecordId ?? (() => false)
    this.#found = new LRUCache<string, V>({
      maxSize: options.bytesMax,
      sizeCalculation: options.bytesOf,
      dispose: (record, key) => {
        this.#suspects.delete(key)
        this.#unlink(key, record)
      },
    })
    this.#missing = options.missingMax === 0 ? null : new LRUCache({ max: options.missingMax })
    changes.onChange((touched) => this.drop(touched))
  }

  /** The record at once when it is cached, else a promise of it; null = there is none. */
  find(key: string): V | null | Promise<V | null> {
    const cached = this.#found.get(key)
    if (cached !== undefined && this.#suspects.size > 0 && this.#suspects.has(key))
      return this.#confirm(key, cached)
    if (cached !== undefined) {
      this.hits++
      return cached
    }
    if (this.#missing?.get(key) !== undefined) {
      this.hits++
      return null
    }
    this.misses++
    return (this.#loading.get(key) ?? this.#startLoad(key)).record
  }

  /** Drops what depends on the names, on this thread alone; null = everything may have changed. */
  drop(touched: readonly string[] | null): void {
    // Who asks from now on must not join a load that began before the change.
    this.#loading = new Map()
    for (const observer of this.#observers) observer(touched)
    if (touched === null) {
      for (const key of this.#found.keys()) this.#suspects.add(key)
      this.#missing?.clear()
      return
    }
    for (const name of touched) {
      this.#missing?.delete(name)
      this.#found.delete(name)
      if (this.#isOfUnknown(name)) this.#missing?.clear()
      const keys = this.#dependents.get(name) ?? []
      for (const key of typeof keys === 'string' ? [keys] : [...keys]) this.#found.delete(key)
    }
  }

  #confirm(key: string, known: V): V | null | Promise<V | null> {
    const loading = this.#loading.get(key) ?? this.#startLoad(key)
    const leftMs = loading.lateAt - this.#timers.now()
    if (leftMs <= 0) {
      this.hits++
      return known
    }
    this.misses++
    return this.#inTime(key, loading, leftMs)
  }

  async #inTime(key: string, loading: Loading<V>, leftMs: number): Promise<V | null> {
    let cancel: Cancel | undefined
    const late = new Promise<never>((_, reject) => {
      cancel = this.#timers.after(leftMs, () => reject(new Error('the record was not read again in time')))
    })
    try {
      return await Promise.race([loading.record, late])
    } catch (cause) {
      const known = this.#found.peek(key)
      if (known === undefined) throw cause // dropped meanwhile, for it has changed
      return known
    } finally {
      cancel?.()
    }
  }

  #startLoad(key: string): Loading<V> {
    const changes: (readonly string[] | null)[] = []
    const observer = (touched: readonly string[] | null) => changes.push(touched)
    this.#observers.add(observer)
    const record = this.#load(key)
      .then((record) => {
        if (changes.every((touched) => !this.#concerns(touched, key, record))) this.#keep(key, record)
        return record
      })
      .finally(() => {
        this.#observers.delete(observer)
        if (this.#loading.get(key) === loading) this.#loading.delete(key)
      })
    const loading = { record, lateAt: this.#timers.now() + CONFIRM_MS }
    this.#loading.set(key, loading)
    return loading
  }

  #keep(key: string, record: V | null): void {
    if (record === null) {
      this.#found.delete(key)
      this.#missing?.set(key, true)
      return
    }
    // Set before linking: replacing an entry unlinks the old one under the same key.
    this.#found.set(key, record)
    if (!this.#found.has(key)) return // larger than the whole cache
    for (const name of this.#dependenciesOf(record)) {
      const keys = this.#dependents.get(name)
      if (keys === undefined) this.#dependents.set(name, key)
      else if (typeof keys !== 'string') keys.add(key)
      else if (keys !== key) this.#dependents.set(name, new Set([keys, key]))
    }
  }

  #unlink(key: string, record: V): void {
    for (const name of this.#dependenciesOf(record)) {
      const keys = this.#dependents.get(name)
      if (keys === key) this.#dependents.delete(name)
      if (keys === undefined || typeof keys === 'string') continue
      keys.delete(key)
      if (keys.size === 0) this.#dependents.delete(name)
    }
  }

  #concerns(touched: readonly string[] | null, key: string, record: V | null): boolean {
    if (touched === null || touched.includes(key)) return true
    if (record === null) return touched.some((name) => this.#isOfUnknown(name))
    return this.#dependenciesOf(record).some((name) => touched.includes(name))
  }

  /**
   * A change of a record that is not known here. Another process may have made it, and its word of that not have come yet:
   * then the record is one of those that are missing here, and which of them is not said.
   */
  #isOfUnknown(name: string): boolean {
    return this.#isRecordId(name) && !this.#dependents.has(name)
  }
}

/** `lateAt`: by the timers' clock, when nobody waits for it any more who has an old record. */
type Loading<V> = { record: Promise<V | null>; lateAt: number }

/** A database in health answers long before; one that does not shall not slow down keys that are known. */
const CONFIRM_MS = 50
