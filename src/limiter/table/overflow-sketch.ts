import { CountMin } from './count-min.ts'
import { WindowEndTable } from './window-end-table.ts'

/**
 * Counts windows for which the table has no room, in 4 bytes each. It may count too much, never too little: a flood of new
 * identifiers costs the flooder and, rarely, a newcomer, but frees no one.
 *
 * A counter belongs to two buckets of 16 cells and has a cell in the emptier one. A cell: 16 bits of fingerprint, 6 of the
 * window's end (`window-end-table.ts`), 10 of count; it is free once that end has passed. Bucket and fingerprint come from words of
 * the keyed hash, so nobody can choose whom to collide with. Counts from 1023, counters whose two buckets are full, and
 * ends beyond 63 different ones go to a count-min sketch.
 * Error: at most 32 / 65 536 = 0.05 % of newcomers are limited too early when every cell is taken.
 * Memory is reserved at once, but the system backs it only when the first flood touches it.
 * Why this way: docs/decisions/0005.
 */
export class OverflowSketch {
  /** Some window counted here is still open (or was at the last `expire`). */
  isActive = false
  /** Charges counted here instead of in a cell with a name, since the start. */
  chargesTotal = 0
  readonly bytes: number
  private readonly rest: CountMin
  private readonly cells: Int32Array
  private readonly buckets: number
  /** 1 = a counter of the bucket may be in the sketch. Kept until the sketch is empty. */
  private readonly marked: Uint8Array
  private readonly tags = new WindowEndTable(TAGS)

  constructor(bytesMax: number) {
    this.rest = new CountMin(bytesMax / SKETCH_SHARE)
    this.buckets = Math.floor((bytesMax - this.rest.bytes) / (4 * BUCKET_CELLS + 1))
    this.cells = new Int32Array(this.buckets * BUCKET_CELLS)
    this.marked = new Uint8Array(this.buckets)
    this.bytes = this.cells.byteLength + this.marked.byteLength + this.rest.bytes
  }

  /** The most that can have been used of the window that ends at `endMs`. */
  estimate(h1: number, h2: number, h3: number, endMs: number): number {
    const fingerprint = h1 & FINGERPRINT_MASK
    const first = this.bucketOf(h2)
    const second = this.bucketOf(h3)
    const most = Math.max(this.mostIn(first, fingerprint, endMs), this.mostIn(second, fingerprint, endMs))
    if (most < COUNT_MASK && (this.marked[first] === 0 || this.marked[second] === 0)) return most
    return Math.max(most, this.rest.estimate(h2, h3, endMs))
  }

  /** Makes sure that the counter is estimated at `used` or more until `endMs`. */
  raise(h1: number, h2: number, h3: number, endMs: number, used: number, nowMs: number): void {
    this.chargesTotal++
    this.isActive = true
    if (used >= COUNT_MASK) this.rest.raise(h2, h3, endMs, used, nowMs)
    if (this.raiseCell(h1, h2, h3, endMs, Math.min(used, COUNT_MASK), nowMs)) return
    if (used < COUNT_MASK) this.rest.raise(h2, h3, endMs, used, nowMs)
    this.marked[this.bucketOf(h2)] = 1
    this.marked[this.bucketOf(h3)] = 1
  }

  /**
   * One slice of clearing cells whose window is over, see {@link WindowEndTable.expire}. Call it regularly.
   * @returns whether a walk over all cells was completed, or none was needed.
   */
  expire(cellsMax: number, nowMs: number): boolean {
    if (!this.isActive) return true
    const { cells, rest, tags } = this
    const isDone = tags.expire(cells.length, cellsMax, nowMs, (from, until, endMs) => {
      for (let at = from; at < until; at++) {
        const cell = cells[at] as number // in range
        if (cell !== 0 && this.endOf(cell) <= endMs) cells[at] = 0
      }
    })
    if (!isDone || !rest.expire(cellsMax, nowMs)) return false
    if (!rest.isActive) this.marked.fill(0)
    this.isActive = !tags.isEmpty || rest.isActive
    return true
  }

  /** The highest count under a fingerprint; what was counted for earlier windows is not the asking counter's. */
  private mostIn(bucket: number, fingerprint: number, endMs: number): number {
    const cells = this.cells
    const from = bucket * BUCKET_CELLS
    let most = 0
    for (let at = from; at < from + BUCKET_CELLS; at++) {
      const cell = cells[at] as number // in range
      if (cell >>> FINGERPRINT_SHIFT !== fingerprint || this.endOf(cell) < endMs) continue
      const count = cell & COUNT_MASK
      if (count > most) most = count
    }
    return most
  }

  /** @returns false when the counter has no cell and gets none. */
  private raiseCell(
    h1: number,
    h2: number,
    h3: number,
    endMs: number,
    count: number,
    nowMs: number,
  ): boolean {
    const cells = this.cells
    const fingerprint = h1 & FINGERPRINT_MASK
    let bestAt = -1
    let best = 0
    let roomAt = -1
    let roomMost = 0
    for (let which = 0; which < 2; which++) {
      const from = this.bucketOf(which === 0 ? h2 : h3) * BUCKET_CELLS
      let room = 0
      let freeAt = -1
      for (let at = from; at < from + BUCKET_CELLS; at++) {
        const cell = cells[at] as number // in range
        const cellEndMs = this.endOf(cell)
        if (cellEndMs <= nowMs) {
          room++
          freeAt = at
        } else if (
          cell >>> FINGERPRINT_SHIFT === fingerprint &&
          cellEndMs >= endMs &&
          (cell & COUNT_MASK) > best
        ) {
          // Of several, which only chance brings about, the highest is what `estimate` told and so what has grown.
          best = cell & COUNT_MASK
          bestAt = at
        }
      }
      if (room > roomMost) {
        roomMost = room
        roomAt = freeAt
      }
    }
    if (bestAt >= 0) {
      if (count > best) cells[bestAt] = ((cells[bestAt] as number) & ~COUNT_MASK) | count // in range
      return true
    }
    if (roomAt < 0) return false
    const tag = this.tags.tagFor(endMs)
    if (tag === 0) return false
    cells[roomAt] = (fingerprint << FINGERPRINT_SHIFT) | (tag << TAG_SHIFT) | count
    return true
  }

  private endOf(cell: number): number {
    return this.tags.ends[(cell >>> TAG_SHIFT) & TAG_MASK] as number // masked
  }

  /** The whole range of a word spread over all buckets. */
  private bucketOf(word: number): number {
    return Math.floor(((word >>> 0) * this.buckets) / 2 ** 32)
  }
}

/** One part of so many is the sketch. */
const SKETCH_SHARE = 32
const BUCKET_CELLS = 16
const FINGERPRINT_SHIFT = 16
const FINGERPRINT_MASK = 0xffff
const TAG_SHIFT = 10
const TAGS = 64
const TAG_MASK = TAGS - 1
/** A count of this much stands for: at least, and see the sketch. */
const COUNT_MASK = 1023
