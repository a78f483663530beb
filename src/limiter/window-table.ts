import { CellBatch } from './cell-batch.ts'
import { NearLimit } from './near-limit.ts'
import { OverflowSketch } from './overflow-sketch.ts'

/**
 * The fixed windows of one shard, in memory. No clock, no timer, no I/O: every call brings its time.
 *
 * Layout: extendible hashing over pages of 32 cells. A cell is 32 bytes, half a cache line: the 128-bit name, the end
 * of its window, what was used of it. A directory indexed by leading bits of the hash names the page; within a page it
 * is linear probing. A walk follows the directory, and so the order of the names. A full page splits in two, so growth
 * costs one page (below 1 µs) at a time and never a rehash of everything, and a page can be swept for expired windows
 * alone. Nothing is allocated after the start except the directory when it doubles; the pages are one array of the whole
 * budget, of which the system only backs what is used.
 *
 * Measured by bench/window-table on two shared cores: 5.9 M takes/s with a million live windows, hashing of 20
 * characters included, when the cells of 64 calls are warmed first; 3.8 M one at a time, so waiting for memory decides.
 * 44 to 51 bytes a live window, depending on how many pages have just split.
 * Refused: one table that doubles, 32 to 80 bytes a window and a pause, or two tables to look into while it moves;
 * pages of 128 cells, up to 62 bytes because they all split at about the same time; pages of 16, no smaller and twice
 * the directory; `Map`, 2.3 M takes/s; separate arrays for names, ends and counts, 3 M; memory that grows with its pages, so
 * that the collector does not take the whole budget for used, which on one core would spare `ratelimits.limit` 3 to 7 % of its
 * CPU: a resizable buffer 6.5 to 6.9 M, chunks of 1 to 16 MiB 7.2 to 7.5 M, where this makes 8.8 on the same machine.
 *
 * Over budget (no page left and the own page full of open windows) a new counter is counted by its fingerprint, which
 * cannot under-count. A cell once made stays exact until its window is over, so no flood makes the table forget one.
 */
export class WindowTable {
  /** What the last `take` found: used of the window after the decision, a refused cost not included. */
  used = 0
  /** When that window ends, Unix ms. */
  resetAtMs = 0
  /** The latest time seen; a call that brings an earlier one is decided at this. Only `take`, `advance` and the start move it. */
  nowMs: number
  /** Cells in use: open windows, and those that are over but not yet swept. */
  live = 0
  /** Of them, changed since they were last gathered. */
  dirty = 0
  /** In use; only ever more. */
  pages: number

  readonly sketch: OverflowSketch
  /** Counters of the sketch that a charge brought to half of their limit or beyond. */
  readonly nearLimit = new NearLimit(NEAR_LIMIT_MAX)
  /** Of which this is one: all `h0` here lie in one part of so many equal ones. */
  private readonly shards: number
  /** What nodes used whose windows were restored before is in the sketch. */
  private sketchKnowsOthers = false
  private readonly words: Int32Array
  /** The same memory; a cell's end is its third double. 0 = the cell is free. */
  private readonly ends: Float64Array
  private readonly pagesMax: number
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
  private readonly scratchEnds = new Float64Array(this.scratchWords.buffer)

  /** @param options.memoryBytes For cells, directory and sketch together; at least 128 KiB are used. */
  constructor(options: { memoryBytes: number; nowMs: number; shards?: number }) {
    this.shards = options.shards ?? 1
    const budget = Math.min(Math.max(options.memoryBytes, MEMORY_BYTES_MIN), MEMORY_BYTES_MAX)
    this.nowMs = options.nowMs
    this.sketch = new OverflowSketch(budget * SKETCH_SHARE)
    this.pagesMax = Math.floor((budget - this.sketch.bytes) / PAGE_BYTES_ALL)
    this.depthMax = Math.floor(Math.log2(this.pagesMax)) + 3
    this.words = new Int32Array(this.pagesMax * PAGE_WORDS)
    this.ends = new Float64Array(this.words.buffer)
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
   * @param limit 0 to 2^31 - 1. @param durationMs 1 to 2^53. @param cost 0 to 2^31 - 1.
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
  ): boolean {
    if (atMs > this.nowMs) this.nowMs = atMs
    const endMs = (Math.floor(this.nowMs / durationMs) + 1) * durationMs
    const words = this.words
    const ends = this.ends
    const page = this.directory[placeOf(h0, this.shards) >>> (32 - this.depth)] as number // the directory has 2^depth entries
    const first = page * PAGE_WORDS
    const home = homeOf(h2)
    for (let probe = 0; probe < PAGE_CELLS; probe++) {
      const at = first + ((home + probe * CELL_WORDS) & (PAGE_WORDS - 1))
      if (words[at] === h0 && words[at + 1] === h1 && words[at + 2] === h2 && words[at + 3] === h3) {
        // A later end than ours is the clock set back over a restart: that window goes on, it is not handed out anew.
        const cellEndMs = ends[(at >> 1) + 2] as number // in range, as `at`
        if (cellEndMs >= endMs) {
          const own = (words[at + 6] as number) & USED_MASK // in range
          const used = own + (words[at + 7] as number) // in range
          this.resetAtMs = cellEndMs
          if (used + cost > limit) {
            this.used = used
            return false
          }
          this.used = used + cost
          if (cost > 0) {
            if ((words[at + 6] as number) >= 0) this.dirty++ // in range
            words[at + 6] = (own + cost) | DIRTY
            this.pageDirty[page] = 1
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
          ends[(at >> 1) + 2] = endMs
          if ((words[at + 6] as number) >= 0) this.dirty++ // in range
          words[at + 6] = cost | DIRTY
          words[at + 7] = 0
          this.pageDirty[page] = 1
        }
        return true
      }
      if (ends[(at >> 1) + 2] === 0) break
    }
    return this.takeNew(h0, h1, h2, h3, limit, cost, endMs)
  }

  /**
   * Brings the counter's cell into the processor's cache, soon before its `take`. For the calls of a batch one after
   * the other the waits for memory overlap, which more than halves the time of a take from a large table.
   */
  warm(h0: number, h2: number): void {
    const page = this.directory[placeOf(h0, this.shards) >>> (32 - this.depth)] as number // in range
    this.warmed ^= this.words[page * PAGE_WORDS + homeOf(h2)] as number // in range
  }

  /** The counter has no cell. It gets one only when something is charged, so looking and being refused cost no memory. */
  private takeNew(
    h0: number,
    h1: number,
    h2: number,
    h3: number,
    limit: number,
    cost: number,
    endMs: number,
  ): boolean {
    const sketch = this.sketch
    const known = sketch.isActive ? sketch.estimate(h1, h2, h3, endMs) : 0
    this.resetAtMs = endMs
    this.used = known
    if (known + cost > limit) return false
    if (cost === 0) return true
    this.used = known + cost
    const at = this.makeCell(h0, h1, h2, h3, endMs)
    if (at < 0) {
      sketch.raise(h1, h2, h3, endMs, known + cost, this.nowMs)
      if (2 * this.used >= limit) this.nearLimit.keep(h0, h1, h2, h3, endMs, this.used)
    } else {
      this.dirty++
      this.words[at + 6] = (known + cost) | DIRTY
      this.pageDirty[Math.floor(at / PAGE_WORDS)] = 1
    }
    return true
  }

  /**
   * Takes up what one node wrote before this start; before any `take`. The same window may come several times and in any
   * order: the newest end counts and, of that, the highest count. It counts as this node's own, and as written.
   */
  restore(h0: number, h1: number, h2: number, h3: number, endMs: number, used: number): void {
    if (endMs <= this.nowMs) return
    const words = this.words
    let at = this.find(h0, h1, h2, h3)
    if (at < 0) {
      const known = this.sketch.isActive ? this.sketch.estimate(h1, h2, h3, endMs) : 0
      at = this.makeCell(h0, h1, h2, h3, endMs)
      if (at < 0) {
        // What others used is to be added to. Once that is mixed with what came of this node, each copy has to be.
        const total = this.sketchKnowsOthers ? Math.min(known + used, USED_MASK) : Math.max(known, used)
        this.sketch.raise(h1, h2, h3, endMs, total, this.nowMs)
        return
      }
      words[at + 7] = known
    }
    const cellEndMs = this.ends[(at >> 1) + 2] as number // in range
    if (cellEndMs > endMs) return
    if (cellEndMs < endMs) {
      this.ends[(at >> 1) + 2] = endMs
      words[at + 6] = 0
      words[at + 7] = 0
    }
    if (used > (words[at + 6] as number)) words[at + 6] = used // in range
  }

  /** All that was restored so far was another node's, and so is only added to what this one counts. */
  wereOthers(): void {
    const words = this.words
    for (let at = 0; at < this.pages * PAGE_WORDS; at += CELL_WORDS) {
      words[at + 7] = Math.min((words[at + 6] as number) + (words[at + 7] as number), USED_MASK) // in range
      words[at + 6] = 0
    }
    this.sketchKnowsOthers = this.sketch.isActive
  }

  /**
   * One slice of a walk over all pages, in the order of their cells' names: frees windows that are over and gathers the
   * cells changed since the last walk, which then count as written. A page that splits meanwhile stays where it is in that
   * order, so a walk misses nothing and gathers no cell twice.
   * @param from 0, or where the slice before ended. @param pagesMax At least 1.
   * @param rewrite Where windows that did not change are gathered too.
   * @returns where to go on from, or -1 after the last page.
   */
  sweep(from: number, pagesMax: number, changed: CellBatch, rewrite: Rewrite = NO_REWRITE): number {
    let place = from
    for (let pages = 0; pages < pagesMax; pages++) {
      const page = this.directory[place >>> (32 - this.depth)] as number // in range
      const isRewritten = place >= rewrite.from && place < rewrite.until
      if (isRewritten || this.pageDirty[page] === 1) {
        if (!changed.hasRoom(PAGE_CELLS)) return place
        if (isRewritten && !rewrite.unchanged.hasRoom(PAGE_CELLS)) return place
        this.gather(page, changed, isRewritten ? rewrite.unchanged : null)
      }
      if ((this.pageEndsFrom[page] as number) <= this.nowMs) this.rebuild(page, page, 0) // in range
      place += 2 ** (32 - (this.pageDepths[page] as number)) // in range
      if (place === PLACES) return -1
    }
    return place
  }

  /** As a call does that only looks: from now on windows are over that end up to then. */
  advance(atMs: number): void {
    if (atMs > this.nowMs) this.nowMs = atMs
  }

  /** Takes back that these cells were written. Those whose window has moved on or is over need no writing any more. */
  markChanged(cells: CellBatch): void {
    for (let i = 0; i < cells.count; i++) {
      const [h0 = 0, h1 = 0, h2 = 0, h3 = 0] = cells.names.subarray(4 * i, 4 * i + 4)
      const at = this.find(h0, h1, h2, h3)
      if (at < 0 || this.ends[(at >> 1) + 2] !== cells.ends[i]) continue
      const word = this.words[at + 6] as number // in range
      if (word >= 0) this.dirty++
      this.words[at + 6] = word | DIRTY
      this.pageDirty[Math.floor(at / PAGE_WORDS)] = 1
    }
  }

  /** Bytes in use of cells and directory, without the sketch. */
  get bytes(): number {
    return this.pages * PAGE_BYTES + this.directory.byteLength
  }

  private gather(page: number, changed: CellBatch, unchanged: CellBatch | null): void {
    this.pageDirty[page] = 0
    const words = this.words
    const first = page * PAGE_WORDS
    for (let at = first; at < first + PAGE_WORDS; at += CELL_WORDS) {
      const word = words[at + 6] as number // in range
      if (word >= 0 && (unchanged === null || word === 0)) continue
      if (word < 0) {
        this.dirty--
        words[at + 6] = word & USED_MASK
      }
      const endMs = this.ends[(at >> 1) + 2] as number // in range
      if (endMs <= this.nowMs) continue
      const into = word < 0 || unchanged === null ? changed : unchanged
      into.add(
        words[at] as number, // h0, in range as `at`
        words[at + 1] as number, // h1
        words[at + 2] as number, // h2
        words[at + 3] as number, // h3
        endMs,
        word & USED_MASK,
      )
    }
  }

  /** @returns where the cell's words begin, or -1. */
  private find(h0: number, h1: number, h2: number, h3: number): number {
    const words = this.words
    const first = (this.directory[placeOf(h0, this.shards) >>> (32 - this.depth)] as number) * PAGE_WORDS // in range
    const home = homeOf(h2)
    for (let probe = 0; probe < PAGE_CELLS; probe++) {
      const at = first + ((home + probe * CELL_WORDS) & (PAGE_WORDS - 1))
      if (this.ends[(at >> 1) + 2] === 0) return -1
      if (words[at] === h0 && words[at + 1] === h1 && words[at + 2] === h2 && words[at + 3] === h3) return at
    }
    return -1
  }

  /**
   * Makes the cell of a counter that has none, nothing used. Makes room first: frees what is over in the page, else
   * splits it.
   * @returns where its words begin, or -1 when there is no room.
   */
  private makeCell(h0: number, h1: number, h2: number, h3: number, endMs: number): number {
    for (;;) {
      const page = this.directory[placeOf(h0, this.shards) >>> (32 - this.depth)] as number // in range
      const at = this.freeCellOf(page, h2)
      if (at >= 0) {
        const words = this.words
        words[at] = h0
        words[at + 1] = h1
        words[at + 2] = h2
        words[at + 3] = h3
        words[at + 6] = 0
        words[at + 7] = 0
        this.ends[(at >> 1) + 2] = endMs
        if (endMs < (this.pageEndsFrom[page] as number)) this.pageEndsFrom[page] = endMs // in range
        this.live++
        return at
      }
      const endsFrom = this.pageEndsFrom[page] as number // in range
      if (endsFrom <= this.nowMs) this.rebuild(page, page, 0)
      else if (!this.split(page, placeOf(h0, this.shards))) return -1
    }
  }

  private freeCellOf(page: number, h2: number): number {
    const first = page * PAGE_WORDS
    const home = homeOf(h2)
    for (let probe = 0; probe < PAGE_CELLS; probe++) {
      const at = first + ((home + probe * CELL_WORDS) & (PAGE_WORDS - 1))
      if (this.ends[(at >> 1) + 2] === 0) return at
    }
    return -1
  }

  /** Moves half of a page, the cells with the next bit of their place set, to a new one. @returns false at the budget. */
  private split(page: number, place: number): boolean {
    if (this.pages === this.pagesMax) return false
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
    const newPage = this.pages++
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
    const ends = this.ends
    const first = page * PAGE_WORDS
    const old = this.scratchWords
    const oldEnds = this.scratchEnds
    old.set(words.subarray(first, first + PAGE_WORDS))
    words.fill(0, first, first + PAGE_WORDS)
    this.pageEndsFrom[page] = Number.POSITIVE_INFINITY
    for (let from = 0; from < PAGE_WORDS; from += CELL_WORDS) {
      const endMs = oldEnds[(from >> 1) + 2] as number // in range
      if (endMs === 0) continue // free
      if (endMs <= this.nowMs) {
        this.live--
        if ((old[from + 6] as number) < 0) this.dirty-- // in range
        continue
      }
      const place = placeOf(old[from] as number, this.shards) // in range
      const target = (place >>> bit) & 1 ? pageOfOnes : page
      const at = this.freeCellOf(target, old[from + 2] as number) // in range
      for (let i = 0; i < CELL_WORDS; i++) words[at + i] = old[from + i] as number // in range
      ends[(at >> 1) + 2] = endMs
      if (endMs < (this.pageEndsFrom[target] as number)) this.pageEndsFrom[target] = endMs // in range
    }
  }
}

/**
 * A part of the names of a shard, stretched to 32 bits: from and until, the latter not included. The parts of one walk after
 * the other cover all cells there were when the first began, whatever pages split meanwhile.
 */
export type Rewrite = { from: number; until: number; unchanged: CellBatch }

/** So many there are to lie in, and a walk or a rewriting of everything ends. */
export const PLACES = 2 ** 32
const NO_REWRITE: Rewrite = { from: 0, until: 0, unchanged: new CellBatch(0) }

/** Where among all names of a shard one lies, as 32 bits: shards own equal parts of `h0`, this is the part stretched. */
const placeOf = (h0: number, shards: number) => Math.imul(h0, shards)

/** Where in its page a counter's cell is looked for first: at the beginning of a cache line of two cells. */
const homeOf = (h2: number) => (h2 << 3) & (PAGE_WORDS - 1) & ~CELL_WORDS

/** Words 0-3 name, 4-5 end (a double), 6 used by this node with the dirty bit, 7 used by other nodes. */
const CELL_WORDS = 8
const PAGE_CELLS = 32
const PAGE_WORDS = PAGE_CELLS * CELL_WORDS
const PAGE_BYTES = 4 * PAGE_WORDS
/** With its share of directory (8 entries at the deepest) and of what is kept per page. */
const PAGE_BYTES_ALL = PAGE_BYTES + 32 + 10
const DEPTH_AT_START = 2
/** Changed since the last flush. The sign bit: limits, and so what can be used, stay below 2^31. */
const DIRTY = 1 << 31
const USED_MASK = 0x7fffffff
const NEAR_LIMIT_MAX = 5_000
const SKETCH_SHARE = 5 / 8
const MEMORY_BYTES_MIN = 128 * 1024
/** More than 4 GiB no array may have. */
const MEMORY_BYTES_MAX = (4 * 1024 ** 3) / SKETCH_SHARE
