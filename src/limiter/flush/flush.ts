import type { Spills } from '../../data-dir/spill.ts'
import { Episode } from '../../episodes.ts'
import type { Cancel, Timers } from '../../lib/timers.ts'
import { log } from '../../log.ts'
import { CellBatch } from '../table/cell-batch.ts'
import { type CompactionRange, HASH_SPACE, type WindowTable } from '../table/window-table.ts'
import { CELLS_PER_SEGMENT, packSegment } from './segment.ts'
import type { HashRange, WindowRows, WindowStore } from './store.ts'

/** The kind of our spill files, and what is in one: rows of one node. */
export const SPILL_KIND = 'windows'
export type WindowSpill = WindowRows & { nodeId: string }

/** What a flusher needs of the store. */
export type FlushStore = Pick<
  WindowStore,
  'connections' | 'writeSegment' | 'deleteSuperseded' | 'write' | 'deleteEnded' | 'close'
>

/**
 * Writes the changed windows of one shard to Postgres every `everyMs`, in segments of up to a thousand cells, and frees
 * ended ones on the same walk. The walk takes slices of well under a millisecond and lets messages in between.
 *
 * A segment is never changed. A window that changes again is written again, so each walk also writes about as many that did not
 * change, going on where the last one ended: once it has come through all of them a pass is complete, and what earlier passes
 * wrote is deleted. Some four copies of an open window are stored at most.
 * Postgres away: what a failed write held is marked changed again, so nothing is lost and nothing piles up.
 *
 * States: waiting (timer set) → walking → waiting; `stop` ends in stopped by a last walk or a spill file, `abandon` without.
 * Why segments and not rows: docs/decisions/0007.
 */
export class Flusher {
  private readonly changed = new CellBatch(CELLS_PER_SEGMENT)
  private readonly unchanged = new CellBatch(CELLS_PER_SEGMENT)
  /** The pass under way, and up to where it has come; see {@link CompactionRange}. */
  private pass: number
  private rewrittenTo = 0
  /** A pass is complete, and not all that it superseded is deleted. */
  private hasSuperseded = false
  /** Over which of its connections the store has written the pass under way. */
  private connection: number
  private cancelNext: Cancel | null = null
  /** The walk under way or the last one; never rejects. Walks follow one another. */
  private walking: Promise<void> = Promise.resolve()
  private awaySinceMs: number | null = null
  private deleteAgainMs = 0
  /** Since the start, for metrics. */
  cellsWritten = 0
  /** What the last walk took, ms, without its rests; for metrics. */
  tookMs = 0
  private isStopped = false
  /** When the last walk began. */
  private beganMs: number
  /** For how long the walk under way has rested so far. */
  private restedMs = 0
  /** Between the beginnings of two of its segments; 0 = as fast as it goes. */
  private msPerSegment = 0
  /** How many wait for the end of a walk. */
  private waitedFor = 0
  /** Write no more: the time for the last flush is up, or all of it was given up. */
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
      firstPass: number
      everyMs: number
      /** One shard of a process clears away the rows of ended windows. */
      deletesEnded: boolean
    },
  ) {
    this.pass = options.firstPass
    this.connection = options.store.connections
    this.beganMs = options.timers.now()
  }

  start(): void {
    const { everyMs, timers } = this.options
    // From the beginning of one walk to that of the next: what is counted waits no longer, however slowly they go.
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
    this.waitedFor++
    try {
      await this.next(false)
    } finally {
      this.waitedFor--
    }
  }

  private next(isPaced: boolean): Promise<void> {
    const { timers, everyMs, table } = this.options
    const walk = this.walking.then(async () => {
      this.beganMs = timers.now()
      this.restedMs = 0
      const segments = (2 * table.dirty) / CELLS_PER_SEGMENT
      this.msPerSegment = isPaced && segments > 4 ? (PACED_SHARE * everyMs) / segments : 0
      await this.walk().finally(() => {
        this.tookMs = timers.now() - this.beganMs - this.restedMs
      })
    })
    this.walking = walk.catch(() => {})
    return walk
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

  /** Ends it where it stands: of what is not written yet nothing will be. The store is its owner's to close. */
  abandon(): void {
    this.isStopped = true
    this.isLate = true
    this.cancelNext?.()
  }

  /** For how long Postgres has taken no windows, ms; 0 while it does. */
  get awayMs(): number {
    return this.awaySinceMs === null ? 0 : Math.ceil(this.options.timers.now() - this.awaySinceMs)
  }

  private async walk(): Promise<void> {
    const { table } = this.options
    // First, as it needs no database: what is over must not stay for as long as that is away.
    while (!table.sketch.expire(ENTRIES_PER_SLICE, table.nowMs)) await this.nextTurn()
    const rewrite = this.nextRewrite()
    try {
      await this.writeCells(rewrite)
    } catch (cause) {
      table.markChanged(this.changed)
      this.reportAway(cause)
      throw cause
    } finally {
      this.changed.count = 0
      this.unchanged.count = 0
    }
    const nearLimit = table.nearLimit.take(table.nowMs)
    await this.writeNearLimit(nearLimit)
    // All there was to write is written, and so Postgres is back, or there was nothing any more, and no crash costs any.
    if (!this.options.deletesEnded) this.reportBack()
    this.advanceCompaction(rewrite.until)
    await this.deleteSuperseded()
    await this.deleteEnded()
  }

  /** All up to there has been written, in this walk or before. */
  private advanceCompaction(rewrittenTo: number): void {
    const { connections } = this.options.store
    if (connections !== this.connection) {
      // A standby that took over may lack what was written last: only what is written from now on supersedes anything.
      this.connection = connections
      this.pass++
      this.rewrittenTo = 0
      this.hasSuperseded = false
    } else if (rewrittenTo === HASH_SPACE) {
      this.pass++
      this.rewrittenTo = 0
      this.hasSuperseded = true
    } else this.rewrittenTo = rewrittenTo
  }

  /** As large a part as changed since the last walk; nothing where nothing did. */
  private nextRewrite(): CompactionRange {
    const { dirty, live } = this.options.table
    const share = dirty === 0 || this.isStopped ? 0 : Math.max(dirty, CELLS_REWRITTEN_MIN) / live
    const until = Math.min(HASH_SPACE, this.rewrittenTo + Math.ceil(share * HASH_SPACE))
    return { from: this.rewrittenTo, until, unchanged: this.unchanged }
  }

  private async writeCells(rewrite: CompactionRange): Promise<void> {
    const { table } = this.options
    const { changed, unchanged } = this
    let segments = 0
    let from = table.collectChanges(0, PAGES_PER_SLICE, changed, rewrite)
    while (from !== -1) {
      for (const cells of [changed, unchanged]) {
        if (cells.hasRoom(CELLS_PER_SLICE)) continue
        await this.writeSegment(cells)
        await this.rest(++segments)
      }
      await this.nextTurn()
      from = table.collectChanges(from, PAGES_PER_SLICE, changed, rewrite)
    }
    // What is left of both, together where it fits.
    if (changed.count + unchanged.count <= CELLS_PER_SEGMENT)
      return await this.writeSegment(changed, unchanged)
    await this.writeSegment(changed)
    await this.writeSegment(unchanged)
  }

  /**
   * Until so many segments are due. A walk takes what it costs evenly over half of the time there is for it: all at once,
   * 50 000 windows take a quarter of a core for a tenth of a second, which a busy server does not have to spare.
   */
  private async rest(segments: number): Promise<void> {
    const { timers } = this.options
    const began = timers.now()
    const ms = this.beganMs + segments * this.msPerSegment - began
    if (ms <= 0 || this.isStopped || this.waitedFor > 0) return
    await new Promise<void>((resolve) => {
      timers.after(Math.min(ms, REST_MS_MAX), resolve)
    })
    this.restedMs += timers.now() - began
  }

  /** Empties the batches, which fit into one. */
  private async writeSegment(...batches: CellBatch[]): Promise<void> {
    if (batches.every(({ count }) => count === 0)) return
    if (this.isLate) throw new Error('no time left to flush')
    const { store, nodeId } = this.options
    await store.writeSegment(nodeId, this.pass, packSegment(batches))
    for (const batch of batches) {
      if (batch === this.changed) this.cellsWritten += batch.count
      batch.count = 0
    }
    this.reportBack()
  }

  private nextTurn(): Promise<void> {
    return new Promise((resolve) => this.options.timers.soon(resolve))
  }

  /** These have no cell to be written from again: each is a row of its own, until its window is over. */
  private async writeNearLimit(cells: CellBatch): Promise<void> {
    if (cells.count === 0) return
    try {
      for (const rows of statementsOf(cells)) {
        if (this.isLate) throw new Error('no time left to flush')
        await this.options.store.write(this.options.nodeId, rows)
        this.cellsWritten += rows.ends.length
      }
      this.reportBack()
    } catch (cause) {
      this.options.table.nearLimit.putBack(cells)
      this.reportAway(cause)
      throw cause
    }
  }

  private async deleteSuperseded(): Promise<void> {
    const { store, nodeId, hashes } = this.options
    const { pass } = this
    await this.deleteInSlices(async () => {
      if (!this.hasSuperseded) return true
      const isDone = await store.deleteSuperseded({
        nodeId,
        hashes,
        pass: pass - 1,
        rowsMax: DELETE_SEGMENTS,
      })
      if (isDone) this.hasSuperseded = false
      return isDone
    })
  }

  private async deleteEnded(): Promise<void> {
    const { table, store, deletesEnded } = this.options
    if (!deletesEnded || this.isStopped) return
    // While the database is away this asks whether it is back: there may be nothing to write, and no call that moves the time.
    if (this.awaySinceMs === null && table.nowMs < this.deleteAgainMs) return
    this.deleteAgainMs = table.nowMs + DELETE_EVERY_MS
    await this.deleteInSlices(async () => {
      const which = { nowMs: table.nowMs, afterMs: DELETE_AFTER_MS, rowsMax: DELETE_ROWS }
      const isDone = await store.deleteEnded(which)
      this.reportBack()
      return isDone
    })
  }

  /** Some slices each time, so that a backlog goes over several flushes. Whatever fails is left for the next. */
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
    const spill: WindowSpill = { nodeId, cells: '', ends: [], used: [], owners: [] }
    const append = (cells: CellBatch) => {
      for (const rows of statementsOf(cells)) {
        spill.cells += rows.cells
        for (const end of rows.ends) spill.ends.push(end)
        for (const used of rows.used) spill.used.push(used)
        for (const owner of rows.owners) spill.owners.push(owner)
      }
      cells.count = 0
    }
    for (let from = 0; from !== -1; ) {
      from = table.collectChanges(from, PAGES_PER_SLICE, this.changed)
      append(this.changed)
    }
    append(table.nearLimit.take(table.nowMs))
    if (spill.ends.length > 0) spills.write(SPILL_KIND, spill)
    return spill.ends.length
  }

  private reportAway(cause: unknown): void {
    this.awaySinceMs ??= this.options.timers.now()
    if (!failing.begin()) return // told already, by this shard or another
    log(
      'warn',
      'window_flush_failing',
      'rate limit windows cannot be written to the database; limits go on from memory',
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

/** The batch in parts of {@link CELLS_PER_STATEMENT}. */
function* statementsOf(batch: CellBatch): Generator<WindowRows, void> {
  for (let from = 0; from < batch.count; from += CELLS_PER_STATEMENT) {
    const until = Math.min(batch.count, from + CELLS_PER_STATEMENT)
    let at = 0
    for (let i = 4 * from; i < 4 * until; i++) {
      const word = batch.names[i] as number // count is within the batch
      for (let shift = 24; shift >= 0; shift -= 8)
        hexPairs[at++] = HEX_OF_BYTE[(word >>> shift) & 255] as number // 256 of them
    }
    yield {
      cells: hexBytes.toString('latin1', 0, 2 * at),
      ends: Array.from(batch.ends.subarray(from, until)),
      used: Array.from(batch.used.subarray(from, until)),
      owners: Array.from(batch.owners.subarray(from, until)),
    }
  }
}

/** Making one and sending it holds the shard for 0.7 ms, which its calls wait for; with 5 000 it was 2 ms. */
const CELLS_PER_STATEMENT = 1_000
/** 128 pages are 128 KiB: about 0.1 ms when all of them changed. */
const PAGES_PER_SLICE = 128
const CELLS_PER_SLICE = 32
const ENTRIES_PER_SLICE = 65_536
/** With fewer, a large table in which little changes would leave many segments of a few cells each. */
const CELLS_REWRITTEN_MIN = 250
const PACED_SHARE = 0.5
/** So that a stop need not wait. */
const REST_MS_MAX = 20
const RETRY_MS = 500
const STOP_MS = 3_000
const DELETE_EVERY_MS = 5_000
/** Another server's clock may be behind ours: a row is garbage only a good while after its window. */
const DELETE_AFTER_MS = 60_000
const DELETE_ROWS = 5_000
const DELETE_SEGMENTS = 50
const DELETE_SLICES_MAX = 20
/** Two digits at a time: one by one they take four times as long, 94 ns a cell. */
const hexPairs = new Uint16Array(16 * CELLS_PER_STATEMENT)
const hexBytes = Buffer.from(hexPairs.buffer)
const HEX_OF_BYTE = new Uint16Array(
  new TextEncoder().encode(Uint8Array.from({ length: 256 }, (_, byte) => byte).toHex()).buffer,
)
