import { CellBatch, type CompactionRange, HASH_SPACE } from './cell-batch.ts'
import { OwnerShares } from './owners.ts'

/**
 * Counts of the overflow sketch that a restart must not forget: counters near their limit, and those that lost their cell.
 * Each is here once, with its latest count, until its window ends. A flush collects them like cells. Those that lost it
 * because the table shrank are many, and few are near their limit: such an entry gives way to any other.
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
  /** {@link DIRTY}, {@link GIVES_WAY} or both. */
  private readonly flags: Uint8Array
  private readonly buckets: number
  private readonly shares = new OwnerShares()

  constructor(bytesMax: number) {
    this.buckets = Math.max(1, Math.floor(bytesMax / (ENTRY_BYTES * BUCKET_ENTRIES)))
    const places = this.buckets * BUCKET_ENTRIES
    this.entries = new CellBatch(places)
    this.flags = new Uint8Array(places)
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
    givesWay = false,
  ): number {
    const { ends, used: counts } = this.entries
    let known = 0
    let at = this.find(h0, h1, h2, h3)
    if (at < 0) at = this.placeFor(h1, owner, nowMs, givesWay)
    else {
      const knownMs = ends[at] as number // in range
      if (endMs === knownMs) known = counts[at] as number // in range
      if (endMs < knownMs || used < known) return 0
    }
    if (at < 0) return used
    this.free(at)
    this.entries.set(at, h0, h1, h2, h3, endMs, used, owner)
    this.flags[at] = givesWay ? DIRTY | GIVES_WAY : DIRTY
    this.dirty++
    this.count++
    this.shares.gain(owner)
    return used - known
  }

  /** When the counter's window ends, Unix ms; 0 = it has no entry. */
  endOf(h0: number, h1: number, h2: number, h3: number): number {
    const at = this.count === 0 ? -1 : this.find(h0, h1, h2, h3)
    return at < 0 ? 0 : (this.entries.ends[at] as number) // in range
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
        else if (this.has(at, DIRTY)) {
          this.flags[at] = (this.flags[at] as number) & ~DIRTY // in range
          this.dirty--
          changed.copy(this.entries, at)
        } else if (isRewritten) rewrite.unchanged.copy(this.entries, at)
      }
    }
    return until === this.buckets ? -1 : until
  }

  clear(): void {
    for (let at = 0; at < this.flags.length && this.count > 0; at++) this.free(at)
  }

  private find(h0: number, h1: number, h2: number, h3: number): number {
    const { names, ends } = this.entries
    const first = this.firstOf(h1)
    for (let at = first; at < first + BUCKET_ENTRIES; at++)
      if (
        names[4 * at + 1] === h1 &&
        names[4 * at] === h0 &&
        names[4 * at + 2] === h2 &&
        names[4 * at + 3] === h3 &&
        ends[at] !== 0
      )
        return at
    return -1
  }

  /** A free place for a new entry, or one that gives way, or the place of an owner that has more; -1 = none. */
  private placeFor(h1: number, owner: number, nowMs: number, givesWay: boolean): number {
    const { ends, owners } = this.entries
    const first = this.firstOf(h1)
    let found = -1
    let weak = -1
    let most = this.shareOf(owner) + 1
    for (let at = first; at < first + BUCKET_ENTRIES; at++) {
      if ((ends[at] as number) <= nowMs) return at // in range
      if (this.has(at, GIVES_WAY)) weak = at
      const share = this.shareOf(owners[at] as number) // in range
      if (share <= most) continue
      most = share
      found = at
    }
    return weak >= 0 && !givesWay ? weak : found
  }

  /** The first place of the counter's bucket. */
  private firstOf(h1: number): number {
    return Math.floor(((h1 >>> 0) * this.buckets) / HASH_SPACE) * BUCKET_ENTRIES
  }

  private free(at: number): void {
    if (this.entries.ends[at] === 0) return
    this.entries.ends[at] = 0
    this.count--
    this.shares.lose(this.entries.owners[at] as number) // in range
    if (this.has(at, DIRTY)) this.dirty--
    this.flags[at] = 0
  }

  private has(at: number, flag: number): boolean {
    return ((this.flags[at] as number) & flag) !== 0 // in range
  }

  private shareOf(owner: number): number {
    return this.shares.cells[owner] as number // below OWNERS
  }
}

const BUCKET_ENTRIES = 16
const DIRTY = 1
const GIVES_WAY = 2
/** With its flags. */
export const ENTRY_BYTES = CellBatch.bytesPerCell + 1
