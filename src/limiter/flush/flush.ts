import type { Spills } from '../../data-dir/spill.ts'
import { Episode } from '../../episodes.ts'
import type { Cancel, Timers } from '../../lib/timers.ts'
import { log } from '../../log.ts'
import { CellBatch, type CompactionRange, HASH_SPACE } from '../table/cell-batch.ts'
import type { WindowTable } from '../table/window-table.ts'
import { CELLS_PER_SEGMENT, packSegment, SEGMENT_FORMAT, type Segment, unpackSegment } from './segment.ts'
import { SPILL_KIND, type SpilledWindows } from './spilled-windows.ts'
import type { HashRange, WindowStore } from './store.ts'

/** What a flusher needs of the store. */
export type FlushStore = Pick<
  WindowStore,
  'connections' | 'segmentsMax' | 'writeSegments' | 'deleteSuperseded' | 'deleteEnded' | 'close'
>

/**
 * Writes the changed windows of one shard to Postgres every `everyMs`, in segments of up to a thousand, and frees ended ones
 * in the same walk. The walk goes in slices of well under a millisecond and lets messages in between. With many segments due, one
 * statement writes several.
 *
 * A segment never changes; a window that changes is written again. So that old segments can be deleted, each flush also
 * writes about as many unchanged windows, going on where the flush before ended. Once it has come through all of them, a
 * generation is complete and the segments of earlier generations are deleted. About four copies of an open window are stored.
 * When a write fails, its windows are marked changed again: nothing is lost and nothing piles up.
 *
 * States: waiting (timer set) → flushing → waiting. `stop` ends with a last flush or a spill file, `abandon` with neither.
 * Why segments: docs/decisions/0007.
 */
export class Flusher {
  private readonly changed = new CellBatch(CELLS_PER_SEGMENT)
  private readonly unchanged = new CellBatch(CELLS_PER_SEGMENT)
  /** Packed, to be written by the next statement. */
  private readonly due: { segment: Segment; changed: number }[] = []
  /** The generation being written, and up to where in the hash range it has come; see {@link CompactionRange}. */
  private generation: number
  private compactedTo = 0
  /** A generation is complete, and some segments of earlier ones are not deleted yet. */
  private hasSuperseded = false
  /** The store's connection over which this generation is written. */
  private connection: number
  private cancelNext: Cancel | null = null
  /** The flush under way or the last one; never rejects. Flushes follow one another. */
  private flushing: Promise<void> = Promise.resolve()
  private awaySinceMs: number | null = null
  private deleteAgainMs = 0
  /** Since the start, for metrics. */
  cellsWritten = 0
  /** What the last flush took, ms, without its rests; for metrics. */
  tookMs = 0
  private isStopped = false
  /** When the last flush began. */
  private beganMs: number
  /** All that changed before is written. */
  private writtenUpToMs: number
  /** For how long the flush under way has rested so far. */
  private restedMs = 0
  /** From the beginning of one segment to the next; 0 = as fast as possible. */
  private msPerSegment = 0
  private segmentsPerWrite = 1
  /** Callers of `flush` that wait: no rests meanwhile. */
  private waiters = 0
  /** No more writes: the time of the last flush is up, or the flusher was abandoned. */
  private isLate = false

  constructor(
    private readonly options: {
      table: WindowTable
      store: FlushStore
      spills: Pick<Spills, 'write'>
      timers: Timers
      nodeId: string
      /** Of the shard. */
      hashes: HashRange
      /** Above all that this node wrote before. */
      firstGeneration: number
      everyMs: number
      /** One shard of a process clears away the rows of ended windows. */
      deletesEnded: boolean
    },
  ) {
    this.generation = options.firstGeneration
    this.connection = options.store.connections
    this.beganMs = options.timers.now()
    this.writtenUpToMs = this.beganMs
  }

  start(): void {
    const { everyMs, timers } = this.options
    // From beginning to beginning, so that a slow flush does not make counts wait longer.
    const delayMs = Math.max(everyMs - (timers.now() - this.beganMs), everyMs / 4)
    this.cancelNext = timers.after(
      this.awaySinceMs === null ? delayMs : Math.max(delayMs, RETRY_MS),
      async () => {
        await this.next(true).catch(() => {}) // logged; the next one tries again
        if (!this.isStopped) this.start()
      },
    )
  }

  /** Resolves when everything counted up to now is written. @throws when Postgres is not available. */
  async flush(): Promise<void> {
    this.waiters++
    try {
      await this.next(false)
    } finally {
      this.waiters--
    }
  }

  private next(isPaced: boolean): Promise<void> {
    const { timers, everyMs, table } = this.options
    const flush = this.flushing.then(async () => {
      this.beganMs = timers.now()
      this.restedMs = 0
      const segments = (2 * table.unwritten) / CELLS_PER_SEGMENT
      this.msPerSegment = isPaced && segments > 4 ? (PACED_SHARE * everyMs) / segments : 0
      this.segmentsPerWrite = Math.min(
        Math.max(1, Math.floor(segments / PACED_WRITES)),
        this.options.store.segmentsMax,
      )
      await this.flushOnce().finally(() => {
        this.tookMs = timers.now() - this.beganMs - this.restedMs
      })
    })
    this.flushing = flush.catch(() => {})
    return flush
  }

  /** Last flush, within `STOP_MS`; what it could not write goes to a spill file. @returns cells spilled. */
  async stop(): Promise<number> {
    this.isStopped = true
    this.cancelNext?.()
    const cancelDeadline = this.options.timers.after(STOP_MS, () => {
      this.isLate = true
      // Makes a write under way fail, which marks its cells changed again.
      void this.options.store.close().catch(() => {})
    })
    try {
      await this.flush()
      return 0
    } catch {
      return this.spill()
    } finally {
      cancelDeadline()
      await this.options.store.close().catch(() => {}) // nothing is under way any more
    }
  }

  /** Stops at once; what is not written yet never will be. The caller closes the store. */
  abandon(): void {
    this.isStopped = true
    this.isLate = true
    this.cancelNext?.()
  }

  /** At most so old is the oldest change that is not written, ms; 0 when all are and Postgres takes windows. */
  get lagMs(): number {
    const { table, timers } = this.options
    const isWritten = table.unwritten === 0 && this.changed.count === 0 && this.due.length === 0
    const sinceMs = isWritten ? this.awaySinceMs : this.writtenUpToMs
    return sinceMs === null ? 0 : Math.ceil(timers.now() - sinceMs)
  }

  private async flushOnce(): Promise<void> {
    const { table } = this.options
    // First, as it needs no database: ended windows must go even while Postgres is away.
    while (!table.sketch.expire(ENTRIES_PER_SLICE, table.nowMs)) await this.nextTurn()
    const range = this.nextRange()
    try {
      await this.writeCells(range)
    } catch (cause) {
      table.markChanged(this.changed)
      this.changed.count = 0
      await this.markDueAsChanged()
      this.reportAway(cause)
      throw cause
    } finally {
      this.unchanged.count = 0
    }
    this.writtenUpToMs = this.beganMs
    // Everything is written, or nothing was left to write: a crash costs no count.
    if (!this.options.deletesEnded) this.reportBack()
    this.advanceCompaction(range.until)
    await this.deleteSuperseded()
    await this.deleteEnded()
  }

  /** Everything up to there is written in this generation. */
  private advanceCompaction(compactedTo: number): void {
    const { connections } = this.options.store
    if (connections !== this.connection) {
      // A standby that took over may lack what was written last: only a generation written from now on supersedes others.
      this.connection = connections
      this.generation++
      this.compactedTo = 0
      this.hasSuperseded = false
    } else if (compactedTo === HASH_SPACE) {
      this.generation++
      this.compactedTo = 0
      this.hasSuperseded = true
    } else this.compactedTo = compactedTo
  }

  /** As large a part as changed since the last flush; nothing when nothing did. */
  private nextRange(): CompactionRange {
    const { unwritten, live, snapshots } = this.options.table
    const isDue = unwritten > 0 && !this.isStopped
    const share = isDue ? Math.max(unwritten, CELLS_REWRITTEN_MIN) / (live + snapshots.count) : 0
    const until = Math.min(HASH_SPACE, this.compactedTo + Math.ceil(share * HASH_SPACE))
    return { from: this.compactedTo, until, unchanged: this.unchanged }
  }

  private async writeCells(range: CompactionRange): Promise<void> {
    const { table } = this.options
    const { changed, unchanged } = this
    let written = 0
    let from = table.collectChanges(0, PAGES_PER_SLICE, changed, range)
    while (from !== -1) {
      for (const cells of [changed, unchanged]) {
        if (!cells.hasRoom(CELLS_PER_SLICE)) this.pack(cells)
      }
      if (this.due.length >= this.segmentsPerWrite) {
        written += this.due.length
        await this.writeDue()
        await this.rest(written)
      }
      await this.nextTurn()
      from = table.collectChanges(from, PAGES_PER_SLICE, changed, range)
    }
    // The rest of both, in one segment if it fits.
    if (changed.count + unchanged.count <= CELLS_PER_SEGMENT) this.pack(changed, unchanged)
    else {
      this.pack(changed)
      this.pack(unchanged)
    }
    await this.writeDue()
  }

  /**
   * Waits until the next segment is due. A flush spreads its work over half of its interval: 50 000 windows at once take a
   * quarter of a core for a tenth of a second, which a busy server cannot spare.
   */
  private async rest(segments: number): Promise<void> {
    const { timers } = this.options
    const began = timers.now()
    const ms = this.beganMs + segments * this.msPerSegment - began
    if (ms <= 0 || this.isStopped || this.waiters > 0) return
    await new Promise<void>((resolve) => {
      timers.after(Math.min(ms, REST_MS_MAX), resolve)
    })
    this.restedMs += timers.now() - began
  }

  /** Empties the batches; they fit into one segment. */
  private pack(...batches: CellBatch[]): void {
    if (batches.every(({ count }) => count === 0)) return
    const changed = batches.includes(this.changed) ? this.changed.count : 0
    this.due.push({ segment: packSegment(batches), changed })
    for (const batch of batches) batch.count = 0
  }

  private async writeDue(): Promise<void> {
    if (this.due.length === 0) return
    if (this.isLate) throw new Error('no time left to flush')
    const { store, nodeId } = this.options
    const segments = this.due.map(({ segment }) => segment)
    await store.writeSegments(nodeId, this.generation, segments)
    for (const { changed } of this.due.splice(0)) this.cellsWritten += changed
    this.reportBack()
  }

  /** They were not written. In slices, as it unpacks them. */
  private async markDueAsChanged(): Promise<void> {
    const { table } = this.options
    for (const { segment, changed } of this.due.splice(0)) {
      if (changed === 0) continue
      unpackSegment(Buffer.from(segment.cells, 'hex'), (...cell) => table.markCellChanged(...cell))
      await this.nextTurn()
    }
  }

  private nextTurn(): Promise<void> {
    return new Promise((resolve) => this.options.timers.soon(resolve))
  }

  private async deleteSuperseded(): Promise<void> {
    const { store, nodeId, hashes } = this.options
    const { generation } = this
    await this.deleteInSlices(async () => {
      if (!this.hasSuperseded) return true
      const isDone = await store.deleteSuperseded({
        nodeId,
        hashes,
        generation: generation - 1,
        rowsMax: DELETE_SEGMENTS,
      })
      if (isDone) this.hasSuperseded = false
      return isDone
    })
  }

  private async deleteEnded(): Promise<void> {
    const { table, store, deletesEnded } = this.options
    if (!deletesEnded || this.isStopped) return
    // While Postgres is away this finds out that it is back, even with nothing to write and no call that moves the time.
    if (this.awaySinceMs === null && table.nowMs < this.deleteAgainMs) return
    this.deleteAgainMs = table.nowMs + DELETE_EVERY_MS
    await this.deleteInSlices(async () => {
      const which = { nowMs: table.nowMs, afterMs: DELETE_AFTER_MS, rowsMax: DELETE_ROWS }
      const isDone = await store.deleteEnded(which)
      this.reportBack()
      return isDone
    })
  }

  /** Some slices each time, so a backlog takes several flushes. What fails is left for the next one. */
  private async deleteInSlices(deleteSome: () => Promise<boolean>): Promise<void> {
    try {
      for (let slice = 0; slice < DELETE_SLICES_MAX && !this.isStopped; slice++) {
        if (await deleteSome()) return
      }
    } catch (cause) {
      this.reportAway(cause)
    }
  }

  private spill(): number {
    const { table, nodeId, spills } = this.options
    const spill: SpilledWindows = {
      nodeId,
      generation: this.generation,
      format: SEGMENT_FORMAT,
      segments: [],
    }
    let cells = 0
    for (let from = 0; from !== -1; ) {
      from = table.collectChanges(from, PAGES_PER_SLICE, this.changed)
      const isFull = !this.changed.hasRoom(CELLS_PER_SLICE)
      if (this.changed.count === 0 || (from !== -1 && !isFull)) continue
      spill.segments.push(packSegment([this.changed]))
      cells += this.changed.count
      this.changed.count = 0
    }
    if (cells > 0) spills.write(SPILL_KIND, spill)
    return cells
  }

  private reportAway(cause: unknown): void {
    this.awaySinceMs ??= this.options.timers.now()
    if (!failing.begin()) return // logged already, by this shard or another
    log(
      'warn',
      'window_flush_failing',
      'rate limit windows cannot be written to the database; rate limits continue in memory',
      { cause },
    )
  }

  private reportBack(): void {
    this.awaySinceMs = null
    const ended = failing.end()
    if (ended !== null)
      log('info', 'window_flush_recovered', 'rate limit windows are written to the database again', {
        awayMs: ended.lastedMs,
      })
  }
}

/** Of all shards. */
const failing = new Episode('window flush')

/** 128 pages are 128 KiB: about 0.1 ms when all of them changed. */
const PAGES_PER_SLICE = 128
const CELLS_PER_SLICE = 32
const ENTRIES_PER_SLICE = 65_536
/** With fewer, a large table in which little changes would have many segments of a few cells each. */
const CELLS_REWRITTEN_MIN = 250
const PACED_SHARE = 0.5
/** With twice as many segments, a statement writes two of them, and so on. */
const PACED_WRITES = 25
/** A stop waits no longer. */
const REST_MS_MAX = 20
const RETRY_MS = 500
const STOP_MS = 3_000
const DELETE_EVERY_MS = 5_000
/** Another server's clock may be behind ours: a row is garbage only a good while after its window. */
const DELETE_AFTER_MS = 60_000
const DELETE_ROWS = 5_000
const DELETE_SEGMENTS = 50
const DELETE_SLICES_MAX = 20
