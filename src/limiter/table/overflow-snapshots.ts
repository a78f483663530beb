import { CellBatch, type CompactionRange, HASH_SPACE } from './cell-batch.ts'
import { OwnerShares } from './owners.ts'

/**
 * Counts of the overflow sketch that a restart must not forget: counters near their limit, and those that lost their cell.
 * Each is here once, with its latest count, until its window ends. A flush collects them like cells.
 *
 * Memory is fixed. A counter has a place in one bucket of 16. In a full bucket an owner takes the place of the owner with
 * the most entries, if that has more; else the counter is not stored. So one owner alone may have all places, and each that
 * comes later still gets its share.
 */
export class OverflowSnapshots {
  /** Entries in use: open windows, and ended ones that are not freed yet. */
  count = 0
  /** Of them, changed since they were last collected. */
  dirty = 0
  private readonly entries: CellBatch
  private readonly isDirty: Uint8Array
  private readonly buckets: number
  private readonly shares = new OwnerShares()

  constructor(bytesMax: number) {
    this.buckets = Math.max(1, Math.floor(bytesMax / (ENTRY_BYTES * BUCKET_ENTRIES)))
    const places = this.buckets * BUCKET_ENTRIES
    this.entries = new CellBatch(places)
    this.isDirty = new Uint8Array(places)
  }

  /**
   * An older window or a lower count than the known one changes nothing.
   * @returns by how much this count is above the one known of the window; all of it when none is.
   */
  record(
    h0: number,
    h1: number,
    h2: number,
    h3: number,
    endMs: number,
    used: number,
    owner: number,
    nowMs: number,
  ): number {
    const { names, ends, used: counts, owners } = this.entries
    const first = Math.floor(((h1 >>> 0) * this.buckets) / HASH_SPACE) * BUCKET_ENTRIES
    let place = -1
    let known = 0
    let most = this.shareOf(owner) + 1
    for (let at = first; at < first + BUCKET_ENTRIES; at++) {
      const knownMs = ends[at] as number // in range
      const isSame =
        names[4 * at] === h0 &&
        names[4 * at + 1] === h1 &&
        names[4 * at + 2] === h2 &&
        names[4 * at + 3] === h3
      if (isSame && knownMs > 0) {
        if (endMs === knownMs) known = counts[at] as number // in range
        if (endMs < knownMs || used < known) return 0
        place = at
        break
      }
      const share = knownMs <= nowMs ? Number.POSITIVE_INFINITY : this.shareOf(owners[at] as number) // in range
      if (share <= most) continue
      most = share
      place = at
    }
    if (place < 0) return used
    this.free(place)
    this.entries.set(place, h0, h1, h2, h3, endMs, used, owner)
    this.isDirty[place] = 1
    this.dirty++
    this.count++
    this.shares.gain(owner)
    return used - known
  }

  /**
   * One slice of a walk over all buckets: frees ended windows and copies out those that changed since the last walk.
   * @param from 0, or what the slice before returned. @param rewrite Where unchanged ones are copied out too.
   * @returns where the next slice begins, or -1 after the last bucket.
   */
  collect(
    from: number,
    bucketsMax: number,
    nowMs: number,
    changed: CellBatch,
    rewrite: CompactionRange,
  ): number {
    if (this.count === 0) return -1
    const until = Math.min(this.buckets, from + bucketsMax)
    for (let bucket = from; bucket < until; bucket++) {
      const hash = (bucket * HASH_SPACE) / this.buckets
      const isRewritten = hash >= rewrite.from && hash < rewrite.until
      if (!changed.hasRoom(BUCKET_ENTRIES)) return bucket
      if (isRewritten && !rewrite.unchanged.hasRoom(BUCKET_ENTRIES)) return bucket
      for (let at = BUCKET_ENTRIES * bucket; at < BUCKET_ENTRIES * (bucket + 1); at++) {
        const endMs = this.entries.ends[at] as number // in range
        if (endMs <= nowMs) this.free(at)
        else if (this.isDirty[at] === 1) {
          this.isDirty[at] = 0
          this.dirty--
          changed.copy(this.entries, at)
        } else if (isRewritten) rewrite.unchanged.copy(this.entries, at)
      }
    }
    return until === this.buckets ? -1 : until
  }

  clear(): void {
    for (let at = 0; at < this.isDirty.length && this.count > 0; at++) this.free(at)
  }

  private free(at: number): void {
    if (this.entries.ends[at] === 0) return
    this.entries.ends[at] = 0
    this.count--
    this.shares.lose(this.entries.owners[at] as number) // in range
    if (this.isDirty[at] === 0) return
    this.isDirty[at] = 0
    this.dirty--
  }

  private shareOf(owner: number): number {
    return this.shares.cells[owner] as number // below OWNERS
  }
}

const BUCKET_ENTRIES = 16
/** With a byte for whether it changed. */
export const ENTRY_BYTES = CellBatch.bytesPerCell + 1
