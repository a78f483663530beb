import { LRUCache } from 'lru-cache'
import { systemTimers, type Timers, within } from '../lib/timers.ts'
import type { Invalidations } from './invalidations.ts'
import { type RecordChanges, readOwnerChange } from './owner-changes.ts'

/**
 * One thread's cache of records read from the database. Entries do not age: a write names what it touched
 * (`invalidations.ts`), and every entry that depends on it is dropped before the write is answered. When there is no room, the
 * workspaces that have the most give it: what one reads pushes out its own.
 *
 * When everything may have changed, which is said after the way to other processes was broken, entries stay but are read
 * again before they are used. If that fails, or takes longer than {@link CONFIRM_MS}, the old one is used: it is then as good as
 * all through the outage, and an outage that comes and goes must not cost the keys that were known. Who asks while such a
 * reading is already that late does not wait for it.
 */
export class RecordCache<V extends object, Asking = null> {
  readonly #load: (key: string, asking: Asking | null, base: V | null) => Promise<V | null>
  readonly #timers: Timers
  /** Names of everything whose change can alter the record. */
  readonly #dependenciesOf: (record: V) => string[]
  readonly #ownerChanges: RecordChanges<V> | null
  /** A power of two of them. */
  readonly #parts: Part<V>[]
  readonly #keepsBases: boolean
  /** Loads under way, shared by all callers that ask for the same key meanwhile. */
  #loading = new Map<string, Loading<V>>()
  /** Told of what changed while a load was under way: its result may predate the change. */
  readonly #observers = new Set<(touched: readonly string[] | null) => void>()
  #isSweeping = false
  hits = 0
  misses = 0

  /**
   * @param options.bytesMax Bound of the cache, reckoned by `bytesOf`; the least recently used records of a part go first, of
   *   owners that have at least half as much there as the one with the most.
   * @param options.ownerOf The workspace that a record is read for.
   * @param options.missingMax How many keys without a record are remembered; 0 = none.
   * @param options.partBytes What a part of it should be able to hold at least, as no larger record is kept; in one piece
   *   where it is not given. For caches of many records (see {@link Part}).
   * @param options.keepsBases True for records that are expensive to read as a whole: a changed record is no longer found, but it
   *   is passed to `load` as the base of the next reading, which may then read only what changed.
   * @param options.ownerChanges For changes that name an owner's records by something else than an id.
   */
  constructor(
    invalidations: Invalidations,
    options: {
      load: (key: string, asking: Asking | null, base: V | null) => Promise<V | null>
      dependenciesOf: (record: V) => string[]
      bytesOf: (record: V) => number
      ownerOf: (record: V) => string
      bytesMax: number
      missingMax: number
      partBytes?: number
      keepsBases?: boolean
      ownerChanges?: RecordChanges<V>
      timers?: Timers
    },
  ) {
    this.#load = options.load
    this.#timers = options.timers ?? systemTimers
    this.#dependenciesOf = options.dependenciesOf
    this.#ownerChanges = options.ownerChanges ?? null
    this.#keepsBases = options.keepsBases ?? false
    const { bytesMax, partBytes = bytesMax } = options
    const parts = 2 ** Math.floor(Math.log2(Math.min(PARTS_MAX, Math.max(1, bytesMax / partBytes))))
    const partOptions = { ...options, bytesMax: bytesMax / parts, missingMax: options.missingMax / parts }
    this.#parts = Array.from({ length: parts }, () => new Part(partOptions))
    invalidations.onChange((touched) => this.drop(touched))
  }

  /** The record at once when it is cached, else a promise of it; null = there is none. */
  find(key: string, asking: Asking | null = null): V | null | Promise<V | null> {
    const part = this.#partOf(key)
    let cached = part.find(key)
    if (cached !== undefined && this.#ownerChanges?.concern(cached) === true) {
      part.found.delete(key)
      cached = undefined
    }
    if (cached !== undefined && part.isSuspect(key)) return this.#confirm(key, cached, asking)
    if (cached !== undefined) {
      this.hits++
      return cached
    }
    if (part.missing?.get(key) !== undefined) {
      this.hits++
      return null
    }
    this.misses++
    return this.#read(key, asking, this.#loading.get(key) ?? this.#startLoad(key, asking))
  }

  /** Drops what depends on the names, or keeps it as a base, on this thread alone; null = everything may have changed. */
  drop(touched: readonly string[] | null): void {
    for (const observer of this.#observers) observer(touched)
    if (touched === null) {
      this.#loading = new Map() // later callers must not join a load that began before
      for (const part of this.#parts) part.suspectAll()
      return
    }
    for (const name of touched) {
      const change = readOwnerChange(name)
      if (change !== null) {
        this.#ownerChanges?.add(change.owner, change.name)
        continue
      }
      const { found, missing } = this.#partOf(name) // what is dropped may be named by its key
      missing?.delete(name)
      found.delete(name)
      for (const part of this.#parts) part.dropDependents(name)
    }
    if (this.#parts.some((part) => part.hasDropped())) this.#sweepSoon()
  }

  /** By the key's first characters: the text of a hash has few values of each, so that they are mixed to fill all parts alike. */
  #partOf(key: string): Part<V> {
    let mixed = 0
    for (let i = 0; i < 4; i++) mixed = (Math.imul(mixed, 31) + key.charCodeAt(i)) | 0
    const place = (Math.imul(mixed, 0x9e3779b1) >>> 26) & (this.#parts.length - 1)
    return this.#parts[place] as Part<V> // below their number
  }

  #confirm(key: string, known: V, asking: Asking | null): V | null | Promise<V | null> {
    const loading = this.#loading.get(key) ?? this.#startLoad(key, asking)
    const leftMs = loading.lateAt - this.#timers.now()
    if (leftMs <= 0) {
      this.hits++
      return known
    }
    this.misses++
    return this.#inTime(key, this.#read(key, asking, loading), leftMs)
  }

  /** The record of a load. A load that began before the caller asked may predate a change: then the record is read again. */
  async #read(key: string, asking: Asking | null, { record, changes }: Loading<V>): Promise<V | null> {
    const before = changes.length
    if (before === 0) return await record
    const read = await record
    const isOld = changes.slice(0, before).some((touched) => this.#concerns(touched, key, read))
    return isOld ? await this.find(key, asking) : read
  }

  /** Frees what was dropped at once in slices, so that a workspace with many records does not hold up the thread. */
  #sweepSoon(): void {
    if (this.#isSweeping) return
    this.#isSweeping = true
    this.#timers.soon(() => {
      this.#isSweeping = false
      let left = SWEEP_SLICE
      for (const part of this.#parts) left -= part.sweep(left)
      if (this.#parts.some((part) => part.hasDropped())) this.#sweepSoon()
    })
  }

  async #inTime(key: string, reading: Promise<V | null>, leftMs: number): Promise<V | null> {
    try {
      return await within(this.#timers, leftMs, reading)
    } catch (cause) {
      const known = this.#partOf(key).peek(key)
      // Dropped meanwhile, or concerned by a change: the old record must not be used.
      if (known === undefined || this.#ownerChanges?.concern(known) === true) throw cause
      return known
    }
  }

  #startLoad(key: string, asking: Asking | null): Loading<V> {
    const changes: (readonly string[] | null)[] = []
    const observer = (touched: readonly string[] | null) => changes.push(touched)
    this.#observers.add(observer)
    const part = this.#partOf(key)
    const record = this.#load(key, asking, part.baseOf(key))
      .then((record) => {
        const concerning = changes.filter((touched) => this.#concerns(touched, key, record))
        if (concerning.length === 0) {
          if (record !== null) this.#ownerChanges?.admit(record)
          part.keep(key, record)
        } else if (this.#keepsBases && record !== null && !concerning.includes(null)) {
          part.keep(key, record)
          part.outdate(key)
        }
        return record
      })
      .finally(() => {
        this.#observers.delete(observer)
        if (this.#loading.get(key) === loading) this.#loading.delete(key)
      })
    const loading = { record, changes, lateAt: this.#timers.now() + CONFIRM_MS }
    this.#loading.set(key, loading)
    return loading
  }

  #concerns(touched: readonly string[] | null, key: string, record: V | null): boolean {
    if (touched === null || touched.includes(key)) return true
    if (record === null) return false
    if (this.#dependenciesOf(record).some((name) => touched.includes(name))) return true
    const changes = this.#ownerChanges
    return (
      changes !== null &&
      touched.some((name) => {
        const change = readOwnerChange(name)
        return change !== null && changes.isConcernedBy(record, change.owner, change.name)
      })
    )
  }
}

/**
 * Some of the records. A map or list that something was added to is looked through as a whole by the next collection of young
 * garbage. With 90 000 keys cached and 40 others read each second, one core at saturation: collections of 2 to 6 ms instead of
 * 9 to 10 (medians of three rounds in two runs), and p99 of the known keys' verifications 3.1 to 6.1 ms instead of 7.1 to 9.3;
 * 2.2 to 2.6 where no others are read.
 */
class Part<V extends object> {
  readonly found: LRUCache<string, V>
  /** Keys known to have no record, in a bound of their own: junk pushes nothing real out. Null = not kept. */
  readonly missing: LRUCache<string, true> | null
  readonly #dependenciesOf: (record: V) => string[]
  readonly #bytesOf: (record: V) => number
  readonly #ownerOf: (record: V) => string
  readonly #bytesMax: number
  /** What each owner's records take here. */
  readonly #bytes = new Map<string, number>()
  /** Half of what the largest owner has, as of when it was last looked for. */
  #largeBytes = 0
  #evictionsUntilLook = 0
  /** Name of a thing → cache keys of the records that depend on it: of most things it is one, and needs no set. */
  readonly #dependents = new Map<string, string | Set<string>>()
  /** Entries read since everything may have changed: the others are to be read again before use. Null = none is. */
  #confirmed: Set<string> | null = null
  readonly #keepsBases: boolean
  /** Keys of entries that have changed: no longer found, only the base of their next reading. */
  readonly #outdated = new Set<string>()
  /** Keys of entries that are dropped and still take room: many at once, each set as it was in {@link #dependents}. */
  #dropped: Set<string>[] = []

  constructor(options: {
    dependenciesOf: (record: V) => string[]
    bytesOf: (record: V) => number
    ownerOf: (record: V) => string
    bytesMax: number
    missingMax: number
    keepsBases?: boolean
  }) {
    this.#keepsBases = options.keepsBases ?? false
    this.#dependenciesOf = options.dependenciesOf
    this.#bytesOf = options.bytesOf
    this.#ownerOf = options.ownerOf
    this.#bytesMax = Math.floor(options.bytesMax)
    this.found = new LRUCache<string, V>({
      maxSize: this.#bytesMax,
      dispose: (record, key) => {
        this.#confirmed?.delete(key)
        this.#outdated.delete(key)
        this.#unlink(key, record)
        this.#own(record, -this.#bytesOf(record))
      },
    })
    const missingMax = Math.ceil(options.missingMax)
    this.missing = missingMax === 0 ? null : new LRUCache({ max: missingMax })
  }

  find(key: string): V | undefined {
    if (this.#dropped.length > 0) this.#forget(key)
    if (this.#outdated.size > 0 && this.#outdated.has(key)) return undefined
    return this.found.get(key)
  }

  peek(key: string): V | undefined {
    if (this.#dropped.length > 0) this.#forget(key)
    return this.#outdated.has(key) ? undefined : this.found.peek(key)
  }

  /** A changed record that a reading may begin with. Not after everything may have changed: then all of it is read again. */
  baseOf(key: string): V | null {
    return this.#outdated.has(key) && !this.isSuspect(key) ? (this.found.peek(key) ?? null) : null
  }

  outdate(key: string): void {
    if (!this.#keepsBases) this.found.delete(key)
    else if (this.found.peek(key) !== undefined) this.#outdated.add(key)
  }

  isSuspect(key: string): boolean {
    return this.#confirmed !== null && !this.#confirmed.has(key)
  }

  suspectAll(): void {
    this.#confirmed = new Set()
    this.missing?.clear()
  }

  dropDependents(name: string): void {
    const keys = this.#dependents.get(name)
    if (keys === undefined) return
    if (typeof keys === 'string') this.outdate(keys)
    else if (keys.size <= DROPPED_AT_ONCE || this.#keepsBases) for (const key of [...keys]) this.outdate(key)
    else {
      this.#dependents.delete(name)
      this.#dropped.push(keys)
    }
  }

  hasDropped(): boolean {
    return this.#dropped.length > 0
  }

  /** @returns how many entries were freed, `max` at most. */
  sweep(max: number): number {
    let freed = 0
    for (let keys = this.#dropped[0]; keys !== undefined && freed < max; keys = this.#dropped[0]) {
      for (const key of keys) {
        if (freed === max) return freed
        keys.delete(key)
        this.found.delete(key)
        freed++
      }
      this.#dropped.shift()
    }
    return freed
  }

  keep(key: string, record: V | null): void {
    if (this.#dropped.length > 0) this.#forget(key)
    if (record === null) {
      this.found.delete(key)
      this.missing?.set(key, true)
      return
    }
    const bytes = this.#bytesOf(record)
    this.found.delete(key)
    if (bytes > this.#bytesMax) return
    this.#makeRoom(bytes)
    this.found.set(key, record, { size: bytes })
    this.#confirmed?.add(key)
    if (this.#confirmed?.size === this.found.size) this.#confirmed = null
    this.#own(record, bytes)
    for (const name of this.#dependenciesOf(record)) {
      const keys = this.#dependents.get(name)
      if (keys === undefined) this.#dependents.set(name, key)
      else if (typeof keys !== 'string') keys.add(key)
      else if (keys !== key) this.#dependents.set(name, new Set([keys, key]))
    }
  }

  /** An entry that was dropped with many others, now that it is asked for. */
  #forget(key: string): void {
    for (const keys of this.#dropped) if (keys.delete(key)) this.found.delete(key)
  }

  /**
   * The least recently used go first, but those of owners with little here are passed over, and count as just used: the next
   * look does not meet them again.
   */
  #makeRoom(bytes: number): void {
    let passed = 0
    while (this.found.calculatedSize + bytes > this.#bytesMax) {
      if (this.#evictionsUntilLook-- <= 0 || passed > this.found.size) {
        this.#evictionsUntilLook = LOOK_EVERY
        this.#largeBytes = 0
        for (const owned of this.#bytes.values()) this.#largeBytes = Math.max(this.#largeBytes, owned / 2)
        passed = 0
      }
      const { value: oldest } = this.found.rkeys().next()
      const record = oldest === undefined ? undefined : this.found.peek(oldest)
      if (oldest === undefined || record === undefined) return
      if ((this.#bytes.get(this.#ownerOf(record)) ?? 0) >= this.#largeBytes) this.found.delete(oldest)
      else {
        this.found.get(oldest)
        this.#evictionsUntilLook++ // no eviction
        passed++
      }
    }
  }

  #own(record: V, bytes: number): void {
    const owner = this.#ownerOf(record)
    const owned = (this.#bytes.get(owner) ?? 0) + bytes
    if (owned > 0) this.#bytes.set(owner, owned)
    else this.#bytes.delete(owner)
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
}

/** Evictions between two looks for the owner with the most: there may be thousands. */
const LOOK_EVERY = 100
/** Of a part; more are freed in slices. Some 20 µs. */
const DROPPED_AT_ONCE = 20
/** Entries freed in a turn: some 0.3 ms. */
const SWEEP_SLICE = 300

type Loading<V> = {
  record: Promise<V | null>
  /** What was touched since it began; null = everything may have changed. */
  changes: readonly (readonly string[] | null)[]
  /** From then on, by the timers' clock, callers that have an old record do not wait for it. */
  lateAt: number
}

/** A database in health answers long before; one that does not shall not slow down keys that are known. */
const CONFIRM_MS = 50
/** Of 100 000 keys, some 1 600 a part. As many as six bits say, see `#partOf`. */
const PARTS_MAX = 64
