import { compileWildcard, matchesWildcard, type Wildcard } from '../../lib/wildcard.ts'
import type { ChangedOverride, OverrideRow } from './store.ts'

/** The values that replace the caller's own. */
export type Override = {
  id: string
  /** Exact, or a pattern. */
  identifier: string
  limit: number
  durationMs: number
}

/** A namespace's overrides, arranged for lookup. A change costs what it changes, however many overrides there are. */
export class Overrides {
  readonly #exact = new Map<string, Override>()
  readonly #patterns = new PatternOverrides()
  /** Approximate memory of all overrides. */
  bytes = 0

  /** @param revision All changes up to this one are in it. */
  constructor(
    rows: readonly OverrideRow[],
    public revision: number,
  ) {
    for (const row of rows) this.set(row)
  }

  /** An exact override beats a pattern. A `*` in the caller's identifier is an ordinary character. */
  find(identifier: string): Override | null {
    return (
      this.#exact.get(identifier) ?? (this.#patterns.count === 0 ? null : this.#patterns.find(identifier))
    )
  }

  /** Applies a change, unless it is in it: a statement that began earlier may be answered later. */
  change(override: ChangedOverride): void {
    if (override.revision <= this.revision) return
    if (override.isDeleted) this.delete(override.identifier)
    else this.set(override)
    this.revision = override.revision
  }

  set({ id, identifier, limit, durationMs }: OverrideRow): void {
    this.delete(identifier)
    const override = { id, identifier, limit, durationMs }
    if (isPattern(identifier)) this.#patterns.add(override)
    else this.#exact.set(identifier, override)
    this.bytes += bytesOf(identifier)
  }

  delete(identifier: string): void {
    const isGone = isPattern(identifier) ? this.#patterns.delete(identifier) : this.#exact.delete(identifier)
    if (isGone) this.bytes -= bytesOf(identifier)
  }
}

export const isPattern = (identifier: string) => identifier.includes('*')

/** True for text between two stars. It can be anywhere in an identifier, so finding it takes a pass over the identifier. */
export const hasInnerText = (pattern: string) => /\*[^*]+\*/.test(pattern)

/** Measured: 198 bytes for an exact identifier of 17 characters, some 400 for a pattern. */
const bytesOf = (identifier: string) =>
  isPattern(identifier) ? 400 + 4 * identifier.length : 200 + 2 * identifier.length

/**
 * The patterns of a namespace. The longest matching one decides; of equally long ones, the one with the lowest id.
 *
 * A look-up takes time in proportion to the identifier, whatever the number of patterns: one pass hashes each beginning and
 * each end of it. Patterns whose prefixes and suffixes have the same lengths are found by one map look-up of both hashes.
 * Only patterns with text between two stars take a pass each, and only when prefix and suffix match; a namespace has few of
 * them (`/docs/bounds`).
 */
class PatternOverrides {
  /** By length of the patterns, then by {@link lengthsOf} their prefix and suffix. */
  readonly #shapes = new Map<number, Map<number, Shape>>()
  /** The shapes by length of their patterns, longest first; null = to be arranged by the next look-up. */
  #groups: readonly Shape[][] | null = []
  #prefixMax = 0
  #suffixMax = 0
  /** Number of patterns. */
  count = 0

  /** @param override With a pattern that is not there. */
  add(override: Override): void {
    const pattern = override.identifier
    const wildcard = compileWildcard(pattern)
    const shapes = getOrMake(this.#shapes, pattern.length, () => new Map<number, Shape>())
    const lengths = lengthsOf(wildcard)
    let shape = shapes.get(lengths)
    if (shape === undefined) {
      const { prefix, suffix } = wildcard
      shape = { prefixLength: prefix.length, suffixLength: suffix.length, byHash: new Map() }
      shapes.set(lengths, shape)
      this.#groups = null
    }
    getOrMake(shape.byHash, hashOfEnds(wildcard), () => []).push({ ...override, wildcard })
    this.count++
  }

  /** @returns false when it was not there. */
  delete(pattern: string): boolean {
    const wildcard = compileWildcard(pattern)
    const [lengths, hash] = [lengthsOf(wildcard), hashOfEnds(wildcard)]
    const shapes = this.#shapes.get(pattern.length)
    const shape = shapes?.get(lengths)
    const patterns = shape?.byHash.get(hash)
    const at = patterns?.findIndex(({ identifier }) => identifier === pattern) ?? -1
    if (shapes === undefined || shape === undefined || patterns === undefined || at < 0) return false
    patterns.splice(at, 1)
    this.count--
    if (patterns.length > 0) return true
    shape.byHash.delete(hash)
    if (shape.byHash.size > 0) return true
    shapes.delete(lengths)
    if (shapes.size === 0) this.#shapes.delete(pattern.length)
    this.#groups = null
    return true
  }

  find(identifier: string): Override | null {
    const groups = this.#groups ?? this.#arrange()
    const { length } = identifier
    hashEnds(identifier, Math.min(this.#prefixMax, length), Math.min(this.#suffixMax, length))
    for (const shapes of groups) {
      let best: Pattern | null = null
      for (const { prefixLength, suffixLength, byHash } of shapes) {
        if (prefixLength + suffixLength > length) continue
        const prefixHash = prefixHashes[prefixLength] as number // in range: no longer than the identifier
        const suffixHash = suffixHashes[suffixLength] as number // in range: no longer than the identifier
        const patterns = byHash.get(joined(prefixHash, suffixHash))
        if (patterns === undefined) continue
        for (const pattern of patterns)
          if ((best === null || pattern.id < best.id) && matchesWildcard(pattern.wildcard, identifier))
            best = pattern
      }
      if (best !== null) return best
    }
    return null
  }

  #arrange(): Shape[][] {
    const groups = [...this.#shapes].sort(([a], [b]) => b - a).map(([, shapes]) => [...shapes.values()])
    this.#prefixMax = 0
    this.#suffixMax = 0
    for (const { prefixLength, suffixLength } of groups.flat()) {
      this.#prefixMax = Math.max(this.#prefixMax, prefixLength)
      this.#suffixMax = Math.max(this.#suffixMax, suffixLength)
    }
    this.#groups = groups
    return groups
  }
}

/** Patterns of one length with equally long prefixes and suffixes, by the hash of both. */
type Shape = { prefixLength: number; suffixLength: number; byHash: Map<number, Pattern[]> }
type Pattern = Override & { wildcard: Wildcard }

const lengthsOf = ({ prefix, suffix }: Wildcard) => 2 ** 16 * prefix.length + suffix.length
const hashOfEnds = ({ prefix, suffix }: Wildcard) => joined(hashOf(prefix), hashOfEnd(suffix))

function getOrMake<Key, Value>(map: Map<Key, Value>, key: Key, make: () => Value): Value {
  let value = map.get(key)
  if (value === undefined) {
    value = make()
    map.set(key, value)
  }
  return value
}

/** Hashes of each beginning and end of the last hashed identifier, by length. */
let prefixHashes = new Int32Array(1_025)
let suffixHashes = new Int32Array(1_025)

function hashEnds(text: string, prefixMax: number, suffixMax: number): void {
  if (text.length >= prefixHashes.length) {
    prefixHashes = new Int32Array(text.length + 1)
    suffixHashes = new Int32Array(text.length + 1)
  }
  let hash = 0
  for (let i = 0; i < prefixMax; i++) prefixHashes[i + 1] = hash = withNext(hash, text.charCodeAt(i))
  hash = 0
  for (let i = 0; i < suffixMax; i++)
    suffixHashes[i + 1] = hash = withNext(hash, text.charCodeAt(text.length - 1 - i))
}

function hashOf(text: string): number {
  let hash = 0
  for (let i = 0; i < text.length; i++) hash = withNext(hash, text.charCodeAt(i))
  return hash
}

function hashOfEnd(text: string): number {
  let hash = 0
  for (let i = text.length - 1; i >= 0; i--) hash = withNext(hash, text.charCodeAt(i))
  return hash
}

// A collision is harmless: patterns are then compared as text, which costs the colliding caller some time.
const withNext = (hash: number, code: number) => (Math.imul(hash, 0x01000193) + code + 1) | 0
const joined = (prefixHash: number, suffixHash: number) =>
  (Math.imul(prefixHash, 0x9e3779b1) ^ suffixHash) | 0
