import { CountMin } from './count-min.ts'
import { WindowEndTable } from './window-end-table.ts'

/**
 * Counts windows for which the table has no room, in 4 bytes each. It may over-count and never under-counts: a flood of new
 * identifiers limits the flooder and, rarely, a new counter too early, but lets nobody use more.
 *
 * A counter belongs to two buckets of 16 cells and gets a cell in the emptier one. A cell is 16 bits of fingerprint, 6 bits
 * for the window's end (`window-end-table.ts`) and 10 bits of count. It is free once its window is over. Bucket and
 * fingerprint come from the keyed hash, so nobody can choose whom to collide with. A count-min sketch takes counts from
 * 1023, counters whose two buckets are full, and windows whose end gets no tag.
 *
 * Error: at most 32 / 65 536 = 0.05 % of new counters are limited too early when every cell is taken.
 * The system backs its memory only when the first flood touches it. Why this way: docs/decisions/0005.
 */
export class OverflowSketch {
  /** Some window counted here is open, or was at the last `expire`. */
  isActive = false
  /** Of windows that are open, or were at the last `expire`. */
  cellsUsed = 0
  readonly bytes: number
  private readonly rest: CountMin
  private readonly cells: Int32Array
  private readonly buckets: number
  /** 1 = a counter of the bucket may be in the count-min sketch. Kept until that is empty. */
  private readonly marked: Uint8Array
  private readonly tags = new WindowEndTable(TAGS)

  /** @param memory Where to be, from `offset` on: all zeroes. */
  constructor(bytesMax: number, memory: ArrayBufferLike = new ArrayBuffer(bytesMax), offset = 0) {
    this.rest = new CountMin(bytesMax / SKETCH_SHARE, memory, offset)
    const restBytes = 8 * Math.ceil(this.rest.bytes / 8)
    this.buckets = Math.floor((bytesMax - restBytes) / (4 * BUCKET_CELLS + 1))
    this.cells = new Int32Array(memory, offset + restBytes, this.buckets * BUCKET_CELLS)
    this.marked = new Uint8Array(memory, offset + restBytes + this.cells.byteLength, this.buckets)
    this.bytes = restBytes + this.cells.byteLength + this.marked.byteLength
  }

  get cellsMax(): number {
    return this.cells.length
  }

  /** Whether a cell may be the counter's. */
  holds(h1: number, h2: number, h3: number, endMs: number): boolean {
    const fingerprint = h1 & FINGERPRINT_MASK
    return (
      this.mostIn(this.bucketOf(h2), fingerprint, endMs) > 0 ||
      this.mostIn(this.bucketOf(h3), fingerprint, endMs) > 0
    )
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
  recordAtLeast(h1: number, h2: number, h3: number, endMs: number, used: number, nowMs: number): void {
    this.isActive = true
    if (used >= COUNT_MASK) this.rest.recordAtLeast(h2, h3, endMs, used, nowMs)
    if (this.raiseCell(h1, h2, h3, endMs, Math.min(used, COUNT_MASK), nowMs)) return
    if (used < COUNT_MASK) this.rest.recordAtLeast(h2, h3, endMs, used, nowMs)
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
        if (cell === 0 || this.endOf(cell) > endMs) continue
        cells[at] = 0
        this.cellsUsed--
      }
    })
    if (!isDone || !rest.expire(cellsMax, nowMs)) return false
    if (!rest.isActive) this.marked.fill(0)
    this.isActive = !tags.isEmpty || rest.isActive
    return true
  }

  /** The highest count under a fingerprint, of windows that end at `endMs` or later. */
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

  /** @returns false when the counter has no cell and gets none: its buckets are full, or its end has no tag. */
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
          // Several are rare. The highest is the one that `estimate` told, so it is the one to write.
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
    if (cells[roomAt] === 0) this.cellsUsed++
    cells[roomAt] = (fingerprint << FINGERPRINT_SHIFT) | (tag << TAG_SHIFT) | count
    return true
  }

  private endOf(cell: number): number {
    return this.tags.ends[(cell >>> TAG_SHIFT) & TAG_MASK] as number // masked
  }

  /** Spreads the 32 bits of a word over all buckets. */
  private bucketOf(word: number): number {
    return Math.floor(((word >>> 0) * this.buckets) / 2 ** 32)
  }
}

/** One part of so many is the count-min sketch. */
const SKETCH_SHARE = 32
const BUCKET_CELLS = 16
const FINGERPRINT_SHIFT = 16
const FINGERPRINT_MASK = 0xffff
const TAG_SHIFT = 10
const TAGS = 64
const TAG_MASK = TAGS - 1
/** A cell with this count says: at least so much, see the count-min sketch. */
const COUNT_MASK = 1023
