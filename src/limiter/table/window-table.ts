import { COUNT_MAX } from '../../lib/bounds.ts'
import { CellBatch, type CompactionRange, HASH_SPACE } from './cell-batch.ts'
import { type Hold, Holds } from './holds.ts'
import { Overflow } from './overflow.ts'
import { ENTRY_BYTES, OverflowSnapshots } from './overflow-snapshots.ts'
import { OWNERS, OwnerShares, UNKNOWN_OWNER } from './owners.ts'

/**
 * The fixed windows of one shard, in memory. No clock, no timer, no I/O: every call brings its time.
 *
 * Layout: extendible hashing over pages of 32 cells. A directory indexed by leading bits of the hash names the page; in a
 * page it is linear probing. A full page splits in two, so growth costs one page at a time. A walk follows the directory,
 * and so the order of the names. A cell is 40 bytes: the 128-bit name, the window's end with its owner, and two counts.
 *
 * Owners are workspaces, as small numbers (`owners.ts`). When there is no page left and the own page is full, a new counter
 * takes the place of a counter of an owner that has more cells than its own. That one goes on in the overflow sketch, as
 * does the new one where nobody has more. The sketch over-counts and never under-counts, so no flood makes the table
 * forget a count, and a flood costs its own workspace first. When many windows overflow, most of the table becomes sketch
 * until no window is counted there: docs/decisions/0027.
 */
export class WindowTable {
  /** Result of the last `take`: used of the window after the decision. A refused cost is not included. */
  used = 0
  /** When that window ends, Unix ms. */
  resetAtMs = 0
  /** The latest time seen. A call that brings an earlier one is decided at this time. */
  nowMs: number
  /** Cells in use: open windows, and ended ones that are not freed yet. */
  live = 0
  /** Of them, changed since they were last copied out. */
  dirty = 0
  /** All in use lie below. */
  pages: number

  readonly sketch: Overflow
  readonly owners = new OwnerShares()
  /** Counters of the sketch that a charge brought to half of their limit or beyond, or that gave up their cell. */
  readonly snapshots: OverflowSnapshots
  /** Charges of counters without a cell that may still be taken back. */
  private readonly holds = new Holds()
  /** The charge under way may be taken back, so a counter without a cell is held; and then that hold. */
  private isHolding = false
  private held: Hold | null = null
  /** How many shards there are: every `h0` here lies in one of so many equal ranges. */
  private readonly shards: number
  /** The sketch holds counts of other nodes. */
  private sketchKnowsOthers = false
  private readonly words: Int32Array
  /** The same memory: a cell's fourth double is what this node used; a page ends with what others used of its cells. */
  private readonly counts: Float64Array
  private pagesMax: number
  /** `pagesMax` while the sketch has none of the memory, and while it has. */
  private readonly pagesWhole: number
  private readonly pagesShrunk: number
  /** Below `pages`, and not in use. */
  private readonly freePages: number[] = []
  /** How far shrinking has come: a place of its first or second walk; null = it is not under way. */
  private shrinking: { isSecondWalk: boolean; place: number } | null = null
  /** Counted while it is. */
  private callsOfShrinking = 0
  private readonly depthMax: number
  /** What `warm` read, so that the compiler must keep the reads. */
  private warmed = 0
  /** Page by the first `depth` bits of the place. */
  private directory: Int32Array
  private depth: number
  /** How many bits a page stands for; at most `depth`. */
  private readonly pageDepths: Uint8Array
  /** 1 = some cell of the page is dirty. */
  private readonly pageDirty: Uint8Array
  /** No cell of the page ends before this: saves looking at pages where nothing can be freed. */
  private readonly pageEndsFrom: Float64Array
  private readonly scratchWords = new Int32Array(PAGE_WORDS)
  private readonly scratchCounts = new Float64Array(this.scratchWords.buffer)

  /** @param options.memoryBytes For cells, directory and sketch together; at least 16 KiB are used. */
  constructor(options: { memoryBytes: number; nowMs: number; shards?: number }) {
    this.shards = options.shards ?? 1
    const budget = Math.min(Math.max(options.memoryBytes, MEMORY_BYTES_MIN), MEMORY_BYTES_MAX)
    this.nowMs = options.nowMs
    const sketchBytes = { largeBytes: budget * SKETCH_SHARE, smallBytes: budget * SMALL_SKETCH_SHARE }
    this.sketch = new Overflow(sketchBytes)
    const snapshotBytes = budget * SNAPSHOT_SHARE
    this.snapshots = new OverflowSnapshots(Math.max(snapshotBytes, SNAPSHOTS_MIN * ENTRY_BYTES))
    this.pagesWhole = Math.floor((budget - this.sketch.bytes - snapshotBytes) / PAGE_BYTES_ALL)
    this.pagesShrunk = Math.floor((budget * SHRUNK_SHARE) / PAGE_BYTES_ALL)
    this.pagesMax = this.pagesWhole
    this.depthMax = Math.floor(Math.log2(this.pagesMax)) + 3
    this.words = new Int32Array(this.pagesMax * PAGE_WORDS)
    this.counts = new Float64Array(this.words.buffer)
    this.pageDepths = new Uint8Array(this.pagesMax)
    this.pageDirty = new Uint8Array(this.pagesMax)
    this.pageEndsFrom = new Float64Array(this.pagesMax).fill(Number.POSITIVE_INFINITY)
    this.depth = DEPTH_AT_START
    this.pages = 2 ** DEPTH_AT_START
    this.directory = Int32Array.from({ length: this.pages }, (_, page) => page)
    this.pageDepths.fill(DEPTH_AT_START, 0, this.pages)
  }

  /**
   * Takes `cost` from the counter's window if used + cost <= limit; otherwise, and for cost 0, changes nothing.
   * `used` and `resetAtMs` tell the rest.
   * @param limit 0 to 2^53 - 1. @param durationMs 1 to 2^45. @param cost 0 to 2^53 - 1.
   * @param owner Whose counter it is, see {@link OwnerShares}.
   */
  take(
    h0: number,
    h1: number,
    h2: number,
    h3: number,
    limit: number,
    durationMs: number,
    cost: number,
    atMs: number,
    owner: number = UNKNOWN_OWNER,
  ): boolean {
    if (atMs > this.nowMs) this.nowMs = atMs
    const endMs = (Math.floor(this.nowMs / durationMs) + 1) * durationMs
    const words = this.words
    const counts = this.counts
    const page = this.directory[placeOf(h0, this.shards) >>> (32 - this.depth)] as number // the directory has 2^depth entries
    const first = page * PAGE_WORDS
    const home = homeOf(h2)
    for (let probe = 0; probe < PAGE_CELLS; probe++) {
      const at = first + ((home + probe * CELL_WORDS) & (CELLS_WORDS - 1))
      const endHigh = words[at + 5] as number // in range
      if (words[at] === h0 && words[at + 1] === h1 && words[at + 2] === h2 && words[at + 3] === h3) {
        // A later end than ours is the clock set back over a restart: that window goes on, it is not handed out anew.
        const cellEndMs = (endHigh & END_HIGH_MASK) * 2 ** 32 + ((words[at + 4] as number) >>> 0) // in range
        const own = (at >> 1) + 3
        if (cellEndMs >= endMs) {
          const ownUsed = counts[own] as number // in range
          let used = ownUsed
          // Beyond 2^53 a sum is rounded, but no limit is as high.
          if ((endHigh & HAS_OTHERS) !== 0) used += this.othersOf(at)
          this.resetAtMs = cellEndMs
          if (used + cost > limit) {
            this.used = Math.min(used, COUNT_MAX)
            return false
          }
          this.used = used + cost
          if (cost > 0) {
            counts[own] = ownUsed + cost
            if ((endHigh & DIRTY) === 0) {
              this.dirty++
              words[at + 5] = endHigh | DIRTY
              this.pageDirty[page] = 1
            }
            if (endHigh >>> OWNER_SHIFT !== owner) this.adopt(at, owner)
          }
          return true
        }
        // An empty cell is all zeroes, so this may be one, for the name of all zeroes. Then it is not ours to keep.
        if (cellEndMs === 0) break
        this.used = 0
        this.resetAtMs = endMs
        if (cost > limit) return false
        this.used = cost
        if (cost > 0) {
          this.setEnd(at, endMs)
          counts[own] = cost
          this.changed(at)
          if (endHigh >>> OWNER_SHIFT !== owner) this.adopt(at, owner)
        }
        return true
      }
      if (endHigh === 0 && words[at + 4] === 0) break
    }
    return this.takeNew(h0, h1, h2, h3, limit, durationMs, cost, endMs, owner)
  }

  /**
   * Charges what a look has let pass just now, by itself or together with others.
   * @param mayBeUndone A counter without a cell is held: see {@link settle}.
   * @returns the hold, or null when the cost is counted.
   */
  charge(
    h0: number,
    h1: number,
    h2: number,
    h3: number,
    limit: number,
    durationMs: number,
    cost: number,
    atMs: number,
    owner: number,
    mayBeUndone: boolean,
  ): Hold | null {
    this.held = null
    this.isHolding = mayBeUndone && this.holds.hasRoom
    const { isHolding } = this
    const passed = this.take(h0, h1, h2, h3, limit, durationMs, cost, atMs, owner)
    this.isHolding = false
    if (!passed && cost > 0) {
      // Another counter of the same call has raised the sketch's estimate of this one since: it counts too much.
      const endMs = this.resetAtMs
      const known = this.sketch.estimate(owner, h1, h2, h3, endMs)
      this.used = Math.min(this.used + cost, COUNT_MAX)
      if (isHolding) this.hold(h0, h1, h2, h3, limit, durationMs, cost, owner)
      else this.recordAtLeast(owner, h1, h2, h3, endMs, Math.min(known + cost, COUNT_MAX))
    }
    return this.held
  }

  /** Takes back what was charged to a cell. A window that has moved on has nothing to take back. */
  undo(h0: number, h1: number, h2: number, h3: number, endMs: number, cost: number): void {
    const at = this.find(h0, h1, h2, h3)
    if (at < 0 || this.endOf(at) !== endMs) return
    const own = (at >> 1) + 3
    this.counts[own] = Math.max(0, (this.counts[own] as number) - cost) // in range
    this.changed(at)
  }

  /** The outcome of what was held is known: now it is counted, or not. */
  settle(hold: Hold, isKept: boolean): void {
    const { h0, h1, h2, h3, limit, durationMs, cost, owner, endMs } = hold
    if (hold.isInCell) {
      if (!isKept) this.undo(h0, h1, h2, h3, endMs, cost)
      return
    }
    this.holds.remove(hold)
    if (isKept && endMs > this.nowMs)
      this.charge(h0, h1, h2, h3, limit, durationMs, cost, this.nowMs, owner, false)
  }

  private hold(
    h0: number,
    h1: number,
    h2: number,
    h3: number,
    limit: number,
    durationMs: number,
    cost: number,
    owner: number,
  ): void {
    const endMs = this.resetAtMs
    this.held = { h0, h1, h2, h3, limit, durationMs, cost, owner, endMs, isInCell: false }
    this.holds.add(this.held)
  }

  /**
   * Brings the counter's cell into the processor's cache, soon before its `take`. For the calls of a batch one after
   * the other the waits for memory overlap, which more than halves the time of a take from a large table.
   */
  warm(h0: number, h2: number): void {
    const page = this.directory[placeOf(h0, this.shards) >>> (32 - this.depth)] as number // in range
    this.warmed ^= this.words[page * PAGE_WORDS + homeOf(h2)] as number // in range
  }

  /** The cell is to be written. */
  private changed(at: number): void {
    const endHigh = this.words[at + 5] as number // in range
    if ((endHigh & DIRTY) !== 0) return
    this.dirty++
    this.words[at + 5] = endHigh | DIRTY
    this.pageDirty[Math.floor(at / PAGE_WORDS)] = 1
  }

  /** The owner of a restored cell may be known only when its counter is charged. */
  private adopt(at: number, owner: number): void {
    if (owner === UNKNOWN_OWNER) return
    this.owners.lose(this.ownerOf(at))
    this.owners.gain(owner)
    this.words[at + 5] = ((this.words[at + 5] as number) & ~OWNER_MASK) | (owner << OWNER_SHIFT) // in range
  }

  /** For a counter without a cell. It gets one only when it is charged: looking and being refused cost no memory. */
  private takeNew(
    h0: number,
    h1: number,
    h2: number,
    h3: number,
    limit: number,
    durationMs: number,
    cost: number,
    windowEndMs: number,
    owner: number,
  ): boolean {
    const sketch = this.sketch
    if (this.shrinking !== null || sketch.needsExtension) this.shrink()
    // As in `take`: after the clock was set back over a restart, a window goes on until its stored end.
    const endMs = sketch.isActive ? Math.max(windowEndMs, this.snapshots.endOf(h0, h1, h2, h3)) : windowEndMs
    const known = sketch.isActive ? sketch.estimate(owner, h1, h2, h3, endMs) : 0
    const held = this.holds.count > 0 ? this.holds.costOf(h0, h1, h2, h3, endMs) : 0
    this.resetAtMs = endMs
    this.used = Math.min(known + held, COUNT_MAX)
    if (known + held + cost > limit) return false
    if (cost === 0) return true
    this.used = known + held + cost
    const at = this.makeCell(h0, h1, h2, h3, endMs, owner)
    if (at >= 0) {
      this.counts[(at >> 1) + 3] = this.used
      this.changed(at)
      if (held > 0) this.holds.moveToCell(h0, h1, h2, h3, endMs)
    } else if (this.isHolding) this.hold(h0, h1, h2, h3, limit, durationMs, cost, owner)
    else {
      const used = known + cost
      this.recordAtLeast(owner, h1, h2, h3, endMs, used)
      if (2 * used >= limit) this.snapshots.record(h0, h1, h2, h3, endMs, used, owner, this.nowMs)
    }
    return true
  }

  private recordAtLeast(
    owner: number,
    h1: number,
    h2: number,
    h3: number,
    endMs: number,
    used: number,
  ): void {
    const isLarge = owner === UNKNOWN_OWNER || this.owners.isAverage(owner, this.live)
    this.sketch.recordAtLeast(owner, isLarge, h1, h2, h3, endMs, used, this.nowMs)
  }

  /**
   * Restores a window that one node wrote, before any `take`. The same window may come several times, in any order: the
   * newest end wins, then the highest count. It counts as this node's own, and as written.
   */
  restore(
    h0: number,
    h1: number,
    h2: number,
    h3: number,
    storedEndMs: number,
    storedUsed: number,
    owner: number = UNKNOWN_OWNER,
  ): void {
    const endMs = Math.min(storedEndMs, END_MS_MAX)
    const used = Math.min(storedUsed, COUNT_MAX)
    if (endMs <= this.nowMs) return
    const counts = this.counts
    let at = this.find(h0, h1, h2, h3)
    if (at < 0) {
      if (this.shrinking !== null || this.sketch.needsExtension) this.shrink()
      const known = this.sketch.isActive ? this.sketch.estimate(owner, h1, h2, h3, endMs) : 0
      at = this.makeCell(h0, h1, h2, h3, endMs, owner)
      if (at < 0) {
        const added = this.snapshots.record(h0, h1, h2, h3, endMs, used, owner, this.nowMs)
        // Counts of other nodes are added up. Once the sketch holds any, what a copy adds to this node's has to be added too.
        const total = this.sketchKnowsOthers ? Math.min(known + added, COUNT_MAX) : Math.max(known, used)
        if (added > 0) this.recordAtLeast(owner, h1, h2, h3, endMs, total)
        return
      }
      if (this.sketchKnowsOthers) this.setOthers(at, known)
      else counts[(at >> 1) + 3] = known
    }
    const own = (at >> 1) + 3
    const cellEndMs = this.endOf(at)
    if (cellEndMs > endMs) return
    if (cellEndMs < endMs) {
      this.setEnd(at, endMs)
      counts[own] = 0
    }
    if (used > (counts[own] as number)) counts[own] = used // in range
  }

  /** What was restored so far is another node's: it is added to what this node counts, and not written by it. */
  markRestoredAsForeign(): void {
    for (let page = 0; page < this.pages; page++) {
      const first = page * PAGE_WORDS
      for (let at = first; at < first + CELLS_WORDS; at += CELL_WORDS) {
        this.setOthers(at, Math.min(this.usedOf(at), COUNT_MAX))
        this.counts[(at >> 1) + 3] = 0
      }
    }
    this.sketchKnowsOthers = this.sketch.isActive
    this.snapshots.clear() // theirs to write
  }

  /**
   * One slice of a walk over all pages in hash order, then over the snapshots: frees ended windows and copies out the cells
   * that changed since the last walk. These count as written from then on. A page that splits keeps its place in the order,
   * so a walk misses no cell and copies none twice.
   * @param from 0, or what the slice before returned. @param pagesMax At least 1; or so many buckets of snapshots.
   * @param rewrite Where unchanged cells are copied out too.
   * @returns where the next slice begins, or -1 at the end.
   */
  collectChanges(
    from: number,
    pagesMax: number,
    changed: CellBatch,
    rewrite: CompactionRange = NO_REWRITE,
  ): number {
    if (from >= HASH_SPACE) {
      const next = this.snapshots.collect(from - HASH_SPACE, pagesMax, this.nowMs, changed, rewrite)
      return next === -1 ? -1 : HASH_SPACE + next
    }
    let place = from
    for (let pages = 0; pages < pagesMax; pages++) {
      const page = this.directory[place >>> (32 - this.depth)] as number // in range
      // After the table has shrunk, a slice or a range of rewriting may begin in the middle of a page.
      const size = 2 ** (32 - (this.pageDepths[page] as number)) // in range
      const end = place - (place % size) + size
      const isRewritten = rewrite.from < rewrite.until && end > rewrite.from && end - size < rewrite.until
      if (isRewritten || this.pageDirty[page] === 1) {
        if (!changed.hasRoom(PAGE_CELLS)) return place
        if (isRewritten && !rewrite.unchanged.hasRoom(PAGE_CELLS)) return place
        this.copyCells(page, changed, isRewritten ? rewrite.unchanged : null)
      }
      if ((this.pageEndsFrom[page] as number) <= this.nowMs) this.rebuild(page, page, 0) // in range
      place = end
      if (place === HASH_SPACE) return this.snapshots.count === 0 ? -1 : HASH_SPACE
    }
    return place
  }

  /** Moves the time forward: windows that end by then are over. */
  advance(atMs: number): void {
    if (atMs > this.nowMs) this.nowMs = atMs
  }

  /** These cells were not written after all. A cell whose window has moved on or ended needs no writing any more. */
  markChanged(cells: CellBatch): void {
    for (let i = 0; i < cells.count; i++) {
      const [h0 = 0, h1 = 0, h2 = 0, h3 = 0] = cells.names.subarray(4 * i, 4 * i + 4)
      const [endMs = 0, used = 0, owner = UNKNOWN_OWNER] = [cells.ends[i], cells.used[i], cells.owners[i]]
      this.markCellChanged(h0, h1, h2, h3, endMs, used, owner)
    }
  }

  /** All cells with a count of this node are to be written. Takes some 20 ms with a million of them. */
  markAllChanged(): void {
    for (let page = 0; page < this.pages; page++) {
      const first = page * PAGE_WORDS
      for (let at = first; at < first + CELLS_WORDS; at += CELL_WORDS)
        if (this.endOf(at) > this.nowMs && (this.counts[(at >> 1) + 3] as number) > 0) this.changed(at) // in range
    }
  }

  /** See {@link markChanged}. */
  markCellChanged(
    h0: number,
    h1: number,
    h2: number,
    h3: number,
    endMs: number,
    used: number,
    owner: number,
  ): void {
    const at = this.find(h0, h1, h2, h3)
    if (at >= 0) {
      if (this.endOf(at) === endMs) this.changed(at)
      // Its cell may have been given to another counter since: then it is written as what has none.
    } else if (endMs > this.nowMs) this.snapshots.record(h0, h1, h2, h3, endMs, used, owner, this.nowMs)
  }

  /** Windows that the next walk copies out: changed cells and snapshots. */
  get unwritten(): number {
    return this.dirty + this.snapshots.dirty
  }

  /** Bytes in use of cells and directory, without the sketch. */
  get bytes(): number {
    return (this.pages - this.freePages.length) * PAGE_BYTES + this.directory.byteLength
  }

  private copyCells(page: number, changed: CellBatch, unchanged: CellBatch | null): void {
    this.pageDirty[page] = 0
    const words = this.words
    const first = page * PAGE_WORDS
    for (let at = first; at < first + CELLS_WORDS; at += CELL_WORDS) {
      const endHigh = words[at + 5] as number // in range
      const isDirty = (endHigh & DIRTY) !== 0
      if (!isDirty && unchanged === null) continue
      if (isDirty) {
        this.dirty--
        words[at + 5] = endHigh & ~DIRTY
      }
      const endMs = this.endOf(at)
      if (endMs <= this.nowMs) continue // free too
      const used = this.counts[(at >> 1) + 3] as number // in range
      // Only other nodes used it. What was undone is written once: a copy with the charge may be stored.
      if (used === 0 && !isDirty) continue
      const into = isDirty || unchanged === null ? changed : unchanged
      into.add(
        words[at] as number, // h0, in range as `at`
        words[at + 1] as number, // h1
        words[at + 2] as number, // h2
        words[at + 3] as number, // h3
        endMs,
        used,
        this.ownerOf(at),
      )
    }
  }

  /** When the cell's window ends, Unix ms; 0 = the cell is free. */
  private endOf(at: number): number {
    return ((this.words[at + 5] as number) & END_HIGH_MASK) * 2 ** 32 + ((this.words[at + 4] as number) >>> 0) // in range
  }

  private othersOf(at: number): number {
    return this.counts[othersAt(at)] as number // in range
  }

  private setOthers(at: number, used: number): void {
    const endHigh = this.words[at + 5] as number // in range
    this.words[at + 5] = used > 0 ? endHigh | HAS_OTHERS : endHigh & ~HAS_OTHERS
    if (used > 0) this.counts[othersAt(at)] = used
  }

  /** By this node and others. */
  private usedOf(at: number): number {
    const own = this.counts[(at >> 1) + 3] as number // in range
    return ((this.words[at + 5] as number) & HAS_OTHERS) === 0 ? own : own + this.othersOf(at) // in range
  }

  private ownerOf(at: number): number {
    return (this.words[at + 5] as number) >>> OWNER_SHIFT // in range
  }

  /** A window in which other nodes used nothing yet; owner and dirty bit stay. */
  private setEnd(at: number, endMs: number): void {
    const kept = (this.words[at + 5] as number) & (OWNER_MASK | DIRTY) // in range
    this.words[at + 4] = endMs // the low 32 bits, as storing into such an array takes them
    this.words[at + 5] = Math.floor(endMs / 2 ** 32) | kept
  }

  /** @returns where the cell's words begin, or -1. */
  private find(h0: number, h1: number, h2: number, h3: number): number {
    const words = this.words
    const first = (this.directory[placeOf(h0, this.shards) >>> (32 - this.depth)] as number) * PAGE_WORDS // in range
    const home = homeOf(h2)
    for (let probe = 0; probe < PAGE_CELLS; probe++) {
      const at = first + ((home + probe * CELL_WORDS) & (CELLS_WORDS - 1))
      if (words[at + 5] === 0 && words[at + 4] === 0) return -1
      if (words[at] === h0 && words[at + 1] === h1 && words[at + 2] === h2 && words[at + 3] === h3) return at
    }
    return -1
  }

  /**
   * Makes the cell of a counter that has none, nothing used. Makes room first: frees what is over in the page, else
   * splits it, else takes the cell of an owner that has more than this one.
   * @returns where its words begin, or -1 when there is no room.
   */
  private makeCell(h0: number, h1: number, h2: number, h3: number, endMs: number, owner: number): number {
    for (;;) {
      const page = this.directory[placeOf(h0, this.shards) >>> (32 - this.depth)] as number // in range
      let at = this.freeCellOf(page, h2)
      if (at < 0) {
        const endsFrom = this.pageEndsFrom[page] as number // in range
        if (endsFrom <= this.nowMs) {
          this.rebuild(page, page, 0)
          continue
        }
        if (this.split(page, placeOf(h0, this.shards))) continue
        at = this.cellToGive(page, owner)
        if (at < 0) return -1
        this.giveUp(at)
      }
      const words = this.words
      words[at] = h0
      words[at + 1] = h1
      words[at + 2] = h2
      words[at + 3] = h3
      words[at + 5] = owner << OWNER_SHIFT
      this.setEnd(at, endMs)
      this.counts[(at >> 1) + 3] = 0
      if (endMs < (this.pageEndsFrom[page] as number)) this.pageEndsFrom[page] = endMs // in range
      this.live++
      this.owners.gain(owner)
      return at
    }
  }

  /**
   * The cell to give up in a full page: the least used one of the owner with the most cells in the table. That owner must
   * have the average or more, and more than this one will have, so an owner below the average loses none. Cells of unknown
   * owners stay: every owner would have to look at them in the sketch.
   * @returns where its words begin, or -1.
   */
  private cellToGive(page: number, owner: number): number {
    if (owner === UNKNOWN_OWNER) return -1
    const { cells } = this.owners
    const mine = cells[owner] as number // below OWNERS
    if (2 * mine >= this.live) return -1 // nobody has more
    let most = mine + 1
    let least = 0
    let found = -1
    for (let at = page * PAGE_WORDS; at < page * PAGE_WORDS + CELLS_WORDS; at += CELL_WORDS) {
      const other = this.ownerOf(at)
      if (other === UNKNOWN_OWNER || !this.owners.isAverage(other, this.live)) continue
      const theirs = cells[other] as number // below OWNERS
      if (theirs < most || (theirs === most && found < 0)) continue
      const used = this.usedOf(at)
      if (theirs === most && used >= least) continue
      most = theirs
      least = used
      found = at
    }
    return found
  }

  /** Moves the counter of a cell to the sketch. The page must stay full, or its other cells would not be found. */
  private giveUp(at: number, isShrinking = false): void {
    const h0 = this.words[at] as number // in range, here and below
    const h1 = this.words[at + 1] as number // in range
    const h2 = this.words[at + 2] as number // in range
    const h3 = this.words[at + 3] as number // in range
    const owner = this.ownerOf(at)
    const endMs = this.endOf(at)
    const own = this.counts[(at >> 1) + 3] as number // in range
    const used = Math.min(this.usedOf(at), COUNT_MAX)
    if (used > 0) this.recordAtLeast(owner, h1, h2, h3, endMs, used)
    if (own > 0) this.snapshots.record(h0, h1, h2, h3, endMs, own, owner, this.nowMs, isShrinking)
    if (((this.words[at + 5] as number) & DIRTY) !== 0) this.dirty-- // in range
    this.live--
    this.owners.lose(owner)
  }

  private freeCellOf(page: number, h2: number): number {
    const words = this.words
    const first = page * PAGE_WORDS
    const home = homeOf(h2)
    for (let probe = 0; probe < PAGE_CELLS; probe++) {
      const at = first + ((home + probe * CELL_WORDS) & (CELLS_WORDS - 1))
      if (words[at + 5] === 0 && words[at + 4] === 0) return at
    }
    return -1
  }

  /** Moves half of a page, the cells with the next bit of their place set, to a new one. @returns false at the budget. */
  private split(page: number, place: number): boolean {
    if (!this.hasPage()) return false
    const bits = (this.pageDepths[page] as number) + 1 // in range
    if (bits > this.depth) {
      if (this.depth === this.depthMax) return false
      const doubled = new Int32Array(2 * this.directory.length)
      for (let i = 0; i < this.directory.length; i++) {
        const named = this.directory[i] as number // in range
        doubled[2 * i] = named
        doubled[2 * i + 1] = named
      }
      this.directory = doubled
      this.depth++
    }
    const newPage = this.freePages.pop() ?? this.pages++
    this.words.fill(0, newPage * PAGE_WORDS, (newPage + 1) * PAGE_WORDS) // it may have been sketch
    this.pageDepths[page] = bits
    this.pageDepths[newPage] = bits
    this.pageDirty[newPage] = this.pageDirty[page] as number // in range
    const span = 2 ** (this.depth - bits)
    const from = ((place >>> (32 - bits)) | 1) * span
    this.directory.fill(newPage, from, from + span)
    this.rebuild(page, newPage, 32 - bits)
    return true
  }

  /** Places the open windows of a page anew, those with the given bit of their place set in `pageOfOnes`; drops the rest. */
  private rebuild(page: number, pageOfOnes: number, bit: number): void {
    const words = this.words
    const first = page * PAGE_WORDS
    const old = this.scratchWords
    old.set(words.subarray(first, first + PAGE_WORDS))
    words.fill(0, first, first + CELLS_WORDS)
    this.pageEndsFrom[page] = Number.POSITIVE_INFINITY
    for (let from = 0; from < CELLS_WORDS; from += CELL_WORDS) {
      const endHigh = old[from + 5] as number // in range
      const endMs = (endHigh & END_HIGH_MASK) * 2 ** 32 + ((old[from + 4] as number) >>> 0) // in range
      if (endMs === 0) continue // free
      if (endMs <= this.nowMs) {
        this.live--
        if ((endHigh & DIRTY) !== 0) this.dirty--
        this.owners.lose(endHigh >>> OWNER_SHIFT)
        continue
      }
      const place = placeOf(old[from] as number, this.shards) // in range
      this.put(from, endMs, (place >>> bit) & 1 ? pageOfOnes : page)
    }
  }

  /** Copies a cell of the scratch page to a page with room. */
  private put(from: number, endMs: number, page: number): void {
    const old = this.scratchWords
    const at = this.freeCellOf(page, old[from + 2] as number) // in range
    for (let i = 0; i < CELL_WORDS; i++) this.words[at + i] = old[from + i] as number // in range
    const endHigh = old[from + 5] as number // in range
    if ((endHigh & HAS_OTHERS) !== 0) this.counts[othersAt(at)] = this.scratchCounts[othersAt(from)] as number // in range
    if (endMs < (this.pageEndsFrom[page] as number)) this.pageEndsFrom[page] = endMs // in range
  }

  /** Whether there is a page to split into. Takes back what the sketch has and needs no more. */
  private hasPage(): boolean {
    if (this.shrinking !== null) return false // each page freed is for the sketch, or for one that must make way
    if (this.freePages.length > 0 || this.pages < this.pagesMax) return true
    if (!this.sketch.isExtended || this.sketch.isActive) return false
    this.sketch.returnExtension()
    this.pagesMax = this.pagesWhole
    return true
  }

  /**
   * One step of giving two thirds of the pages to the sketch, once in several calls, so that no message takes long. The first
   * walk merges pages until so many are left as fit below `pagesShrunk`. The second moves those that lie above.
   */
  private shrink(): void {
    this.shrinking ??= { isSecondWalk: false, place: 0 }
    if (++this.callsOfShrinking % CALLS_PER_STEP !== 0) return
    const { shrinking } = this
    if (!shrinking.isSecondWalk) shrinking.place = this.mergeAt(shrinking.place)
    else
      for (let pages = 0; pages < MOVES_PER_STEP && shrinking.place < HASH_SPACE; pages++)
        shrinking.place = this.moveAt(shrinking.place)
    if (shrinking.place < HASH_SPACE) return
    if (!shrinking.isSecondWalk) {
      this.shrinking = { isSecondWalk: true, place: 0 }
      return
    }
    this.shrinking = null
    this.pages = this.pagesShrunk
    this.pagesMax = this.pagesShrunk
    const bytes = (this.pagesWhole - this.pagesShrunk) * PAGE_BYTES
    this.sketch.extend(bytes, this.words.buffer, this.pagesShrunk * PAGE_BYTES)
  }

  /**
   * Merges the pages of one part of the hash range, of as many equal ones as the shrunk table has pages; some are half as large.
   * Keeps the cells that fit into one page: those of the owners with the fewest, and of one owner the most used.
   * @returns where the next part begins.
   */
  private mergeAt(place: number): number {
    const bitsLeast = Math.floor(Math.log2(this.pagesShrunk))
    const isHalf = place >>> (32 - bitsLeast) < this.pagesShrunk - 2 ** bitsLeast
    const bits = isHalf ? bitsLeast + 1 : bitsLeast
    const firstPage = this.directory[place >>> (32 - this.depth)] as number // in range
    const depth = this.pageDepths[firstPage] as number // in range
    if (depth <= bits) return place + 2 ** (32 - depth)
    const end = place + 2 ** (32 - bits)
    const pages: number[] = []
    const cells: number[] = []
    for (let from = place; from < end; ) {
      const page = this.directory[from >>> (32 - this.depth)] as number // in range
      pages.push(page)
      if ((this.pageEndsFrom[page] as number) <= this.nowMs) this.rebuild(page, page, 0) // in range
      for (let at = page * PAGE_WORDS; at < page * PAGE_WORDS + CELLS_WORDS; at += CELL_WORDS)
        if (this.endOf(at) !== 0) cells.push(at)
      from += 2 ** (32 - (this.pageDepths[page] as number)) // in range
    }
    if (cells.length > PAGE_CELLS) {
      cells.sort((a, b) => this.sizeOfOwner(a) - this.sizeOfOwner(b) || this.usedOf(b) - this.usedOf(a))
      for (const at of cells.splice(PAGE_CELLS)) this.giveUp(at, true)
    }
    for (const [i, at] of cells.entries()) {
      for (let word = 0; word < CELL_WORDS; word++)
        this.scratchWords[i * CELL_WORDS + word] = this.words[at + word] as number // in range
      this.scratchCounts[othersAt(i * CELL_WORDS)] = this.othersOf(at)
    }
    for (const page of pages) this.clear(page)
    const target = this.freePages.pop() ?? firstPage
    this.pageDepths[target] = bits
    this.directory.fill(
      target,
      place >>> (32 - this.depth),
      (place >>> (32 - this.depth)) + 2 ** (this.depth - bits),
    )
    for (let from = 0; from < cells.length * CELL_WORDS; from += CELL_WORDS) {
      const endHigh = this.scratchWords[from + 5] as number // in range
      const endLow = this.scratchWords[from + 4] as number // in range
      if ((endHigh & DIRTY) !== 0) this.pageDirty[target] = 1
      this.put(from, (endHigh & END_HIGH_MASK) * 2 ** 32 + (endLow >>> 0), target)
    }
    return end
  }

  /** Moves the page there below `pagesShrunk`. @returns where the next page begins. */
  private moveAt(place: number): number {
    const page = this.directory[place >>> (32 - this.depth)] as number // in range
    const depth = this.pageDepths[page] as number // in range
    if (page >= this.pagesShrunk) {
      const target = this.freePages.pop() as number // as many as lie above: merging left `pagesShrunk` at most
      this.words.copyWithin(target * PAGE_WORDS, page * PAGE_WORDS, (page + 1) * PAGE_WORDS)
      this.pageDepths[target] = depth
      this.pageDirty[target] = this.pageDirty[page] as number // in range
      this.pageEndsFrom[target] = this.pageEndsFrom[page] as number // in range
      const from = place >>> (32 - this.depth)
      this.directory.fill(target, from, from + 2 ** (this.depth - depth))
      this.clear(page)
    }
    return place + 2 ** (32 - depth)
  }

  /** Frees a page while the table shrinks. Those above stay unused, all zeroes, for the sketch. */
  private clear(page: number): void {
    this.words.fill(0, page * PAGE_WORDS, (page + 1) * PAGE_WORDS)
    this.pageEndsFrom[page] = Number.POSITIVE_INFINITY
    this.pageDirty[page] = 0
    if (page < this.pagesShrunk) this.freePages.push(page)
  }

  /** 0 for the unknown owner, whose cells stay if they can: see {@link cellToGive}. */
  private sizeOfOwner(at: number): number {
    const owner = this.ownerOf(at)
    return owner === UNKNOWN_OWNER ? 0 : (this.owners.cells[owner] as number) // below OWNERS
  }
}

const NO_REWRITE: CompactionRange = { from: 0, until: 0, unchanged: new CellBatch(0) }

/** The place of a name in its shard's hash range, as 32 bits: shards own equal parts of `h0`, and this stretches one. */
const placeOf = (h0: number, shards: number) => Math.imul(h0, shards)

/** Where in its page a counter's cell is looked for first: at the beginning of a cache line of two cells. */
const homeOf = (h2: number) => (h2 << CELL_SHIFT) & (CELLS_WORDS - 1) & ~CELL_WORDS

/** Words 0-3 name; 4 and 14 bits of 5 end, an integer; two bits; 16 bits owner; 6-7 used by this node, a double. */
const CELL_WORDS = 8
const CELL_SHIFT = 3
const END_HIGH_MASK = 2 ** 14 - 1
const END_MS_MAX = 2 ** 46 - 1
/** Changed since the last flush. */
const DIRTY = 1 << 14
/** Other nodes used some too; without it, what the page has as theirs does not count. */
const HAS_OTHERS = 1 << 15
const OWNER_SHIFT = 16
const OWNER_MASK = (OWNERS - 1) << OWNER_SHIFT
const PAGE_CELLS = 32
const CELLS_WORDS = PAGE_CELLS * CELL_WORDS
/** The cells, then what other nodes used of each: read only where there are any, so that it takes no cache line. */
const PAGE_WORDS = CELLS_WORDS + 2 * PAGE_CELLS
export const CELL_BYTES = (4 * PAGE_WORDS) / PAGE_CELLS
/** The double of the cell that begins at that word. */
const othersAt = (at: number) =>
  ((at - (at % PAGE_WORDS) + CELLS_WORDS) >> 1) + ((at % PAGE_WORDS) >> CELL_SHIFT)
const PAGE_BYTES = 4 * PAGE_WORDS
/** With its share of directory (8 entries at the deepest) and of what is kept per page. */
const PAGE_BYTES_ALL = PAGE_BYTES + 32 + 10
const DEPTH_AT_START = 2
const SNAPSHOT_SHARE = 1 / 64
/** With less memory than this takes, it comes on top. */
const SNAPSHOTS_MIN = 8_192
const SKETCH_SHARE = 1 / 12
const SMALL_SKETCH_SHARE = 1 / 96
/** Of cells, once the rest became sketch. */
const SHRUNK_SHARE = 0.27
/** 10 to 50 µs each. */
const CALLS_PER_STEP = 8
const MOVES_PER_STEP = 16
const MEMORY_BYTES_MIN = 16 * 1024
/** More than 4 GiB no array may have. */
const MEMORY_BYTES_MAX = (4 * 1024 ** 3) / (1 - SKETCH_SHARE - SMALL_SKETCH_SHARE - SNAPSHOT_SHARE)
