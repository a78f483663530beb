import type { Spills } from '../db/spill.ts'
import type { Cancel, Timers } from '../lib/timers.ts'
import { log } from '../log.ts'
import { CellBatch } from './cell-batch.ts'
import type { WindowRows, WindowStore } from './store.ts'
import type { WindowTable } from './window-table.ts'

/** The kind of our spill files, and what is in one: rows of one node. */
export const SPILL_KIND = 'windows'
export type WindowSpill = WindowRows & { nodeId: string }

/**
 * Writes the cells of one shard that changed since the last time, every `everyMs`; frees ended windows on the same
 * walk. The walk takes slices of well under a millisecond and lets messages in between.
 *
 * Postgres away: what a failed write held is marked changed again, so nothing is lost and nothing piles up: there is
 * one cell per open window. One log line when it starts and one when it is over.
 *
 * States: waiting (timer set) → walking → waiting; `stop` ends in stopped from either, by a last walk or a spill file.
 */
export class Flusher {
  private readonly changed = new CellBatch(CELLS_PER_STATEMENT)
  private cancelNext: Cancel | null = null
  /** The walk under way or the last one; never rejects. Walks follow one another. */
  private walking: Promise<void> = Promise.resolve()
  private awaySinceMs: number | null = null
  private deleteAgainMs = 0
  /** Since the start, for metrics. */
  cellsWritten = 0
  /** What the last walk took, ms, for metrics. */
  tookMs = 0
  private isStopped = false
  /** The time for the last flush is up: write no more. */
  private isLate = false

  constructor(
    private readonly options: {
      table: WindowTable
      store: Pick<WindowStore, 'write' | 'deleteEnded' | 'close'>
      spills: Pick<Spills, 'write'>
      timers: Timers
      nodeId: string
      everyMs: number
      /** One shard of a process clears away the rows of ended windows. */
      deletesEnded: boolean
    },
  ) {}

  start(): void {
    const { everyMs, timers } = this.options
    const delayMs = this.awaySinceMs === null ? everyMs : Math.max(everyMs, RETRY_MS)
    this.cancelNext = timers.after(delayMs, async () => {
      await this.flush().catch(() => {}) // logged; the next one tries again
      if (!this.isStopped) this.start()
    })
  }

  /** Resolves when everything counted up to now is written. @throws when Postgres is not available. */
  flush(): Promise<void> {
    const walk = this.walking.then(async () => {
      const began = this.options.timers.now()
      await this.walk().finally(() => {
        this.tookMs = this.options.timers.now() - began
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

  /** For how long Postgres has taken no windows, ms; 0 while it does. */
  get awayMs(): number {
    return this.awaySinceMs === null ? 0 : Math.ceil(this.options.timers.now() - this.awaySinceMs)
  }

  private async walk(): Promise<void> {
    const { table } = this.options
    // First, as it needs no database: what is over must not stay for as long as that is away.
    while (!table.sketch.expire(ENTRIES_PER_SLICE, table.nowMs)) await this.nextTurn()
    const changed = this.changed
    let from = 0
    do {
      from = table.sweep(from, PAGES_PER_SLICE, changed)
      if (from === -1 || !changed.hasRoom(CELLS_PER_SLICE)) {
        await this.write(changed, () => table.markChanged(changed))
        changed.count = 0
      } else {
        await this.nextTurn()
      }
    } while (from !== -1)
    const nearLimit = table.nearLimit.take()
    await this.write(nearLimit, () => table.nearLimit.putBack(nearLimit))
    // All there was to write is written, and so Postgres is back, or there was nothing any more, and no crash costs any.
    if (!this.options.deletesEnded) this.reportBack()
    await this.deleteEnded()
  }

  private nextTurn(): Promise<void> {
    return new Promise((resolve) => this.options.timers.soon(resolve))
  }

  /** @param putBack Called when it fails: the cells are to be written with the next walk. */
  private async write(cells: CellBatch, putBack: () => void): Promise<void> {
    if (cells.count === 0) return
    try {
      for (const rows of statementsOf(cells)) {
        if (this.isLate) throw new Error('no time left to flush')
        await this.options.store.write(this.options.nodeId, rows)
        this.cellsWritten += rows.ends.length
      }
      this.reportBack()
    } catch (cause) {
      putBack()
      cells.count = 0
      this.reportAway(cause)
      throw cause
    }
  }

  /** Some slices each time, so that a backlog goes over several flushes. Whatever fails is left for the next. */
  private async deleteEnded(): Promise<void> {
    const { table, store, deletesEnded } = this.options
    if (!deletesEnded || this.isStopped || table.nowMs < this.deleteAgainMs) return
    this.deleteAgainMs = table.nowMs + DELETE_EVERY_MS
    try {
      for (let slice = 0; slice < DELETE_SLICES_MAX && !this.isStopped; slice++) {
        const deleted = await store.deleteEnded({
          nowMs: table.nowMs,
          afterMs: DELETE_AFTER_MS,
          rowsMax: DELETE_ROWS,
        })
        this.reportBack()
        if (deleted < DELETE_ROWS) return
      }
    } catch (cause) {
      this.reportAway(cause)
    }
  }

  private spill(): number {
    const { table, nodeId, spills } = this.options
    const spill: WindowSpill = { nodeId, cells: '', ends: [], used: [] }
    const append = (cells: CellBatch) => {
      for (const rows of statementsOf(cells)) {
        spill.cells += rows.cells
        for (const end of rows.ends) spill.ends.push(end)
        for (const used of rows.used) spill.used.push(used)
      }
      cells.count = 0
    }
    for (let from = 0; from !== -1; ) {
      from = table.sweep(from, PAGES_PER_SLICE, this.changed)
      append(this.changed)
    }
    append(table.nearLimit.take())
    if (spill.ends.length > 0) spills.write(SPILL_KIND, spill)
    return spill.ends.length
  }

  private reportAway(cause: unknown): void {
    if (this.awaySinceMs !== null) return
    this.awaySinceMs = this.options.timers.now()
    log('warn', 'rate limit windows cannot be flushed; limits go on from memory', { cause })
  }

  private reportBack(): void {
    if (this.awaySinceMs === null) return
    log('info', 'rate limit windows are flushed again', { awayMs: this.awayMs })
    this.awaySinceMs = null
  }
}

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
    }
  }
}

/**
 * Making one and sending it holds the shard for 0.7 ms, which its calls wait for; with 5 000 it was 2 ms. 50 000 cells take
 * a tenth longer for it.
 */
const CELLS_PER_STATEMENT = 1_000
/** 128 pages are 128 KiB: about 0.1 ms when all of them changed. */
const PAGES_PER_SLICE = 128
const CELLS_PER_SLICE = 32
const ENTRIES_PER_SLICE = 65_536
const RETRY_MS = 500
const STOP_MS = 3_000
const DELETE_EVERY_MS = 5_000
/** Another server's clock may be behind ours: a row is garbage only a good while after its window. */
const DELETE_AFTER_MS = 60_000
const DELETE_ROWS = 5_000
const DELETE_SLICES_MAX = 20
/** Two digits at a time: one by one they take four times as long, 94 ns a cell. */
const hexPairs = new Uint16Array(16 * CELLS_PER_STATEMENT)
const hexBytes = Buffer.from(hexPairs.buffer)
const HEX_OF_BYTE = new Uint16Array(
  new TextEncoder().encode(Uint8Array.from({ length: 256 }, (_, byte) => byte).toHex()).buffer,
)
