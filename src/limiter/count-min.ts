import { EndTags } from './end-tags.ts'

/**
 * Counts the windows that a cell of the overflow sketch cannot hold: a count-min sketch with conservative update. A
 * counter is charged to four entries chosen by its hash, its count is their minimum. Entries are shared, so it may
 * over-count and never under-counts.
 *
 * An entry is 32 bits: 12 of tag, 20 of count. The tag names the end of the window it counts, so an entry is as good as
 * empty once that is over, and a counter does not see what belongs to windows that end before its own. Two open windows
 * in one entry: it keeps the later end and the higher count. Counts are exact below 2^19 and rounded up by at most
 * 1/16384 above.
 */
export class CountMin {
  /** Some window counted here is still open (or was at the last `expire`). */
  isActive = false
  readonly bytes: number
  private readonly entries: Uint32Array
  private readonly mask: number
  private readonly tags = new EndTags(TAGS)
  /** Where the clearing walk is, and the time it clears up to; a tag may be used again only after a whole walk. */
  private clearedUntil = 0
  private clearBeforeMs = 0

  /** @param bytesMax The largest power of two within is used. */
  constructor(bytesMax: number) {
    this.bytes = 2 ** Math.floor(Math.log2(bytesMax))
    this.entries = new Uint32Array(this.bytes / 4)
    this.mask = this.entries.length - 1
  }

  /** The most that can have been used of the window that ends at `endMs`. */
  estimate(h2: number, h3: number, endMs: number): number {
    const { ends } = this.tags
    let least = CODE_MASK
    for (let row = 0; row < ROWS; row++) {
      const entry = this.entries[this.position(row, h2, h3)] as number // masked
      // What was charged to this window raised the entry's end to ours, so an earlier end means: nothing of ours.
      const code = (ends[entry >>> CODE_BITS] as number) >= endMs ? entry & CODE_MASK : 0 // 12 bits
      if (code < least) least = code
    }
    return decode(least)
  }

  /** Makes sure that the counter is estimated at `used` or more until `endMs`. */
  raise(h2: number, h3: number, endMs: number, used: number, nowMs: number): void {
    const { ends } = this.tags
    const tag = this.tags.tagFor(endMs) || this.tags.shareFor(endMs, nowMs)
    const tagEndMs = ends[tag] as number // a tag in use
    this.isActive = true
    const code = encode(used)
    for (let row = 0; row < ROWS; row++) {
      const at = this.position(row, h2, h3)
      const entry = this.entries[at] as number // masked
      const entryEndMs = ends[entry >>> CODE_BITS] as number // 12 bits
      const isOver = entryEndMs <= nowMs
      const newTag = isOver || entryEndMs < tagEndMs ? tag : entry >>> CODE_BITS
      const newCode = isOver ? code : Math.max(code, entry & CODE_MASK)
      this.entries[at] = newTag * 2 ** CODE_BITS + newCode
    }
  }

  /**
   * One slice of clearing entries whose window is over, so that their tags can be used again.
   * Call it regularly; it does nothing while the sketch is empty.
   * @returns whether a walk over all entries was completed, or none was needed.
   */
  expire(entriesMax: number, nowMs: number): boolean {
    if (!this.isActive) return true
    if (this.clearedUntil === 0) this.clearBeforeMs = nowMs
    const until = Math.min(this.entries.length, this.clearedUntil + entriesMax)
    for (let at = this.clearedUntil; at < until; at++) {
      const entry = this.entries[at] as number // in range
      if (entry === 0) continue
      const endMs = this.tags.ends[entry >>> CODE_BITS] as number // 12 bits
      if (endMs <= this.clearBeforeMs) this.entries[at] = 0
    }
    this.clearedUntil = until
    if (until < this.entries.length) return false
    this.clearedUntil = 0
    this.tags.forget(this.clearBeforeMs)
    this.isActive = !this.tags.isEmpty
    return true
  }

  /** Four independent-looking positions from two words of the hash. */
  private position(row: number, h2: number, h3: number): number {
    return (h3 + Math.imul(row, h2 | 1)) & this.mask
  }
}

const ROWS = 4
const TAGS = 4096
const CODE_BITS = 20
const CODE_MASK = 2 ** CODE_BITS - 1
const EXACT_BELOW = 2 ** 19

/** Counts below 2^19 as they are; above, 5 bits of exponent and 14 of mantissa, rounded up. Monotone. */
function encode(count: number): number {
  if (count < EXACT_BELOW) return count
  let exponent = 0
  let mantissa = Math.ceil(count / 32)
  while (mantissa >= 2 ** 15) {
    mantissa = Math.ceil(mantissa / 2)
    exponent++
  }
  return EXACT_BELOW + exponent * 2 ** 14 + (mantissa - 2 ** 14)
}

function decode(code: number): number {
  if (code < EXACT_BELOW) return code
  const exponent = (code - EXACT_BELOW) >>> 14
  return (2 ** 14 + (code & (2 ** 14 - 1))) * 2 ** (exponent + 5)
}
