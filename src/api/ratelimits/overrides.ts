import { compileWildcard, matchesWildcard, type Wildcard } from '../../lib/wildcard.ts'
import type { OverrideRow } from './store.ts'

/** The values that replace the caller's own. */
export type Override = { id: string; limit: number; durationMs: number }

/** A namespace's overrides, arranged for lookup. */
export type Overrides = {
  exact: ReadonlyMap<string, Override>
  wildcards: WildcardOverrides
  /** Approximate memory of all overrides. */
  bytes: number
}

export function arrangeOverrides(rows: readonly OverrideRow[]): Overrides {
  const exact = new Map<string, Override>()
  const wildcards: OverrideRow[] = []
  let bytes = 0
  for (const row of rows) {
    bytes += 300 + 4 * row.identifier.length
    const { id, identifier, limit, durationMs } = row
    if (isPattern(identifier)) wildcards.push(row)
    else exact.set(identifier, { id, limit, durationMs })
  }
  return { exact, wildcards: new WildcardOverrides(wildcards), bytes }
}

/** An exact override beats a pattern. A `*` in the caller's identifier is an ordinary character. */
export function findOverride({ exact, wildcards }: Overrides, identifier: string): Override | null {
  return exact.get(identifier) ?? (wildcards.count === 0 ? null : wildcards.find(identifier))
}

export const isPattern = (identifier: string) => identifier.includes('*')

/** True for text between two stars. It can be anywhere in an identifier, so finding it takes a pass over the identifier. */
export const hasInnerText = (pattern: string) => /\*[^*]+\*/.test(pattern)

/**
 * The patterns of a namespace. The longest matching one decides; of equally long ones, the one with the lowest id.
 *
 * A look-up takes time in proportion to the identifier, whatever the number of patterns: one pass hashes each beginning and
 * each end of it. Patterns whose prefixes and suffixes have the same lengths are found by one map look-up of both hashes.
 * Only patterns with text between two stars take a pass each, and only when prefix and suffix match; a namespace has few of
 * them (`/docs/bounds`).
 */
export class WildcardOverrides {
  /** Shapes by length of their patterns, longest first. */
  private readonly groups: readonly Shape[][]
  private readonly prefixMax: number
  private readonly suffixMax: number

  /** @param rows Distinct identifiers, each with a star. */
  constructor(rows: readonly OverrideRow[]) {
    this.count = rows.length
    let prefixMax = 0
    let suffixMax = 0
    const byLength = new Map<number, Map<number, Shape>>()
    for (const { id, identifier, limit, durationMs } of rows) {
      const wildcard = compileWildcard(identifier)
      const { prefix, suffix } = wildcard
      const [prefixLength, suffixLength] = [prefix.length, suffix.length]
      prefixMax = Math.max(prefixMax, prefixLength)
      suffixMax = Math.max(suffixMax, suffixLength)
      const shapes = getOrMake(byLength, identifier.length, () => new Map<number, Shape>())
      const lengths = 2 ** 16 * prefixLength + suffixLength
      const shape = getOrMake(shapes, lengths, () => ({ prefixLength, suffixLength, byHash: new Map() }))
      const hash = joined(hashOf(prefix), hashOfEnd(suffix))
      getOrMake(shape.byHash, hash, () => []).push({ id, limit, durationMs, wildcard })
    }
    this.groups = [...byLength].sort(([a], [b]) => b - a).map(([, shapes]) => [...shapes.values()])
    this.prefixMax = prefixMax
    this.suffixMax = suffixMax
  }

  /** Number of patterns. */
  readonly count: number

  find(identifier: string): Override | null {
    const { length } = identifier
    hashEnds(identifier, Math.min(this.prefixMax, length), Math.min(this.suffixMax, length))
    for (const shapes of this.groups) {
      let best: Override | null = null
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
}

/** Patterns of one length with equally long prefixes and suffixes, by the hash of both. */
type Shape = { prefixLength: number; suffixLength: number; byHash: Map<number, Pattern[]> }
type Pattern = Override & { wildcard: Wildcard }

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
