import { WindowEndTable } from './window-end-table.ts'

/**
 * Counts the windows that a cell of the overflow sketch cannot hold: a count-min sketch with conservative update. A counter
 * is charged to four entries chosen by its hash, and its count is their minimum. Counters share entries, so it may
 * over-count and never under-counts.
 *
 * An entry is a count of 53 bits in a double, and a tag of 12 bits for the window's end. An entry counts as empty once its
 * window is over, and for windows that end later. Two open windows in one entry: the later end and the higher count stay.
 * Refused: both in 32 bits, with counts from 2^19 rounded up to steps of 32 and more. An estimate is what the next charge is
 * added to, so each charge cost a step.
 */
export class CountMin {
  /** Some window counted here is open, or was at the last `expire`. */
  isActive = false
  readonly bytes: number
  private readonly counts: Float64Array
  private readonly entryTags: Uint16Array
  private readonly tags = new WindowEndTable(TAGS)

  /** @param memory Where to be, from `offset` on: all zeroes. */
  constructor(bytesMax: number, memory: ArrayBufferLike = new ArrayBuffer(bytesMax), offset = 0) {
    const entries = Math.max(1, Math.floor(bytesMax / ENTRY_BYTES))
    this.bytes = ENTRY_BYTES * entries
    this.counts = new Float64Array(memory, offset, entries)
    this.entryTags = new Uint16Array(memory, offset + this.counts.byteLength, entries)
  }

  /** The most that can have been used of the window that ends at `endMs`. */
  estimate(h2: number, h3: number, endMs: number): number {
    const { ends } = this.tags
    let least = Number.POSITIVE_INFINITY
    for (let row = 0; row < ROWS; row++) {
      const at = this.position(row, h2, h3)
      const entryEndMs = ends[this.entryTags[at] as number] as number // masked; a tag given
      // A charge of this window raised the entry's end to ours, so an earlier end means that nothing here is ours.
      const count = entryEndMs >= endMs ? (this.counts[at] as number) : 0 // masked
      if (count < least) least = count
    }
    return least
  }

  /** Makes sure that the counter is estimated at `used` or more until `endMs`. */
  recordAtLeast(h2: number, h3: number, endMs: number, used: number, nowMs: number): void {
    const { ends } = this.tags
    const tag = this.tags.tagFor(endMs) || this.tags.shareFor(endMs, nowMs)
    const tagEndMs = ends[tag] as number // a tag in use
    this.isActive = true
    for (let row = 0; row < ROWS; row++) {
      const at = this.position(row, h2, h3)
      const entryEndMs = ends[this.entryTags[at] as number] as number // masked; a tag given
      const isOver = entryEndMs <= nowMs
      if (isOver || entryEndMs < tagEndMs) this.entryTags[at] = tag
      if (isOver || used > (this.counts[at] as number)) this.counts[at] = used // masked
    }
  }

  /**
   * One slice of clearing entries whose window is over, see {@link WindowEndTable.expire}. Call it regularly.
   * @returns whether a walk over all entries was completed, or none was needed.
   */
  expire(entriesMax: number, nowMs: number): boolean {
    const { counts, entryTags, tags } = this
    const isDone = tags.expire(counts.length, entriesMax, nowMs, (from, until, endMs) => {
      for (let at = from; at < until; at++) {
        const tag = entryTags[at] as number // in range
        if (tag === 0 || (tags.ends[tag] as number) > endMs) continue // a tag given
        entryTags[at] = 0
        counts[at] = 0
      }
    })
    if (isDone) this.isActive = !tags.isEmpty
    return isDone
  }

  /** Four independent-looking positions from two words of the hash. */
  private position(row: number, h2: number, h3: number): number {
    const word = (h3 + Math.imul(row, h2 | 1)) >>> 0
    return Math.floor((word * this.counts.length) / 2 ** 32)
  }
}

const ROWS = 4
const TAGS = 4096
const ENTRY_BYTES = 10
