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
  /** End of the window a tag stands for, Unix ms; 0 = the tag is unused. Tag 0 is never used: an empty entry has it. */
  private readonly tagEnds = new Float64Array(TAGS)
  private readonly tagByEnd = new Map<number, number>()
  private lastTag = 0
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
    let least = CODE_MASK
    for (let row = 0; row < ROWS; row++) {
      const entry = this.entries[this.position(row, h2, h3)] as number // masked
      // What was charged to this window raised the entry's end to ours, so an earlier end means: nothing of ours.
      const code = (this.tagEnds[entry >>> CODE_BITS] as number) >= endMs ? entry & CODE_MASK : 0 // 12 bits
      if (code < least) least = code
    }
    return decode(least)
  }

  /** Makes sure that the counter is estimated at `used` or more until `endMs`. */
  raise(h2: number, h3: number, endMs: number, used: number, nowMs: number): void {
    const tag = this.tagFor(endMs, nowMs)
    const tagEndMs = this.tagEnds[tag] as number // a tag in use
    const code = encode(used)
    for (let row = 0; row < ROWS; row++) {
      const at = this.position(row, h2, h3)
      const entry = this.entries[at] as number // masked
      const entryEndMs = this.tagEnds[entry >>> CODE_BITS] as number // 12 bits
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
      const endMs = this.tagEnds[entry >>> CODE_BITS] as number // 12 bits
      if (endMs <= this.clearBeforeMs) this.entries[at] = 0
    }
    this.clearedUntil = until
    if (until < this.entries.length) return false
    this.clearedUntil = 0
    for (const [endMs, tag] of this.tagByEnd) {
      if (endMs > this.clearBeforeMs) continue
      this.tagByEnd.delete(endMs)
      this.tagEnds[tag] = 0
    }
    this.isActive = this.tagByEnd.size > 0
    return true
  }

  /** Four independent-looking positions from two words of the hash. */
  private position(row: number, h2: number, h3: number): number {
    return (h3 + Math.imul(row, h2 | 1)) & this.mask
  }

  /**
   * The tag of a window end, or a new one. When all are taken: that of the next later end, or else the latest is moved
   * to this end; both only keep counts for longer.
   */
  private tagFor(endMs: number, nowMs: number): number {
    const known = this.tagByEnd.get(endMs)
    if (known !== undefined) return known
    if (this.tagByEnd.size < TAGS - 1) {
      do this.lastTag = (this.lastTag % (TAGS - 1)) + 1
      while (this.tagEnds[this.lastTag] !== 0)
      this.tagEnds[this.lastTag] = endMs
      this.tagByEnd.set(endMs, this.lastTag)
      this.isActive = true
      return this.lastTag
    }
    let latestMs = 0
    let nextMs = Number.POSITIVE_INFINITY
    for (const [otherMs] of this.tagByEnd) {
      if (otherMs > latestMs) latestMs = otherMs
      if (otherMs > endMs && otherMs > nowMs && otherMs < nextMs) nextMs = otherMs
    }
    const tag = this.tagByEnd.get(nextMs) ?? (this.tagByEnd.get(latestMs) as number) // the map is full
    if (nextMs === Number.POSITIVE_INFINITY) {
      this.tagByEnd.delete(latestMs)
      this.tagByEnd.set(endMs, tag)
      this.tagEnds[tag] = endMs
    }
    return tag
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
