import { KeyedHash } from '../lib/keyed-hash.ts'

/**
 * Identifiers that have a row in the database, of one namespace and hour that takes in no more. A Bloom filter: two bytes an
 * identifier. It knows all that were added; of others one in a thousand seems known, is sent, and is dropped by the database.
 */
export class KnownIdentifiers {
  readonly #bits: Uint32Array
  readonly #mask: number

  constructor(identifiers: readonly string[]) {
    const bits = 2 ** Math.ceil(Math.log2(Math.max(32, identifiers.length * BITS_EACH)))
    this.#bits = new Uint32Array(bits / 32)
    this.#mask = bits - 1
    for (const identifier of identifiers) this.#add(identifier)
  }

  has(identifier: string): boolean {
    hash.update(identifier)
    for (let i = 0; i < PROBES; i++) {
      const at = (hash.h0 + i * hash.h1) & this.#mask
      if (((this.#bits[at >>> 5] as number) & (1 << (at & 31))) === 0) return false // in range
    }
    return true
  }

  #add(identifier: string): void {
    hash.update(identifier)
    for (let i = 0; i < PROBES; i++) {
      const at = (hash.h0 + i * hash.h1) & this.#mask
      this.#bits[at >>> 5] = (this.#bits[at >>> 5] as number) | (1 << (at & 31)) // in range
    }
  }
}

/**
 * Namespaces whose hour has all the identifiers that the database counts by name. The others are counted in the total alone,
 * and take no memory. Only the latest hour of each namespace is kept.
 */
export class FullNamespaces {
  readonly #byId = new Map<string, { hour: number; known: KnownIdentifiers }>()

  /** Null = every identifier of this hour may get a row. */
  knownOf(namespaceId: string, hour: number): KnownIdentifiers | null {
    if (this.#byId.size === 0) return null
    const full = this.#byId.get(namespaceId)
    return full?.hour === hour ? full.known : null
  }

  set(namespaceId: string, hour: number, known: KnownIdentifiers): void {
    for (const [id, full] of this.#byId) if (full.hour < hour) this.#byId.delete(id)
    this.#byId.set(namespaceId, { hour, known })
  }
}

const hash = new KeyedHash(crypto.randomUUID())
const BITS_EACH = 16
const PROBES = 6
