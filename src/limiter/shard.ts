import type { DatabaseAddress } from '../db/connect.ts'
import type { Spills } from '../db/spill.ts'
import { LoopLag } from '../lib/loop-lag.ts'
import type { Timers } from '../lib/timers.ts'
import { log } from '../log.ts'
import { firstHashOf } from './counter-hash.ts'
import { Flusher } from './flush.ts'
import {
  type Answers,
  type Calls,
  type FromShard,
  NUMBERS_PER_CALL,
  type ShardSetup,
  type ToShard,
} from './protocol.ts'
import type { CellRange, WindowStore } from './store.ts'
import { WindowTable } from './window-table.ts'

/** What a shard needs of the thread it runs on. */
export type ShardThread = {
  say(message: FromShard): void
  timers: Timers
  openStore(address: DatabaseAddress): Store
  openSpills(dataDir: string, of: DatabaseAddress): Pick<Spills, 'write'>
  /** Called now and then, when batches have left garbage behind. */
  collectGarbage(): void
}
type Store = Pick<WindowStore, 'write' | 'countOpen' | 'readOpen' | 'deleteEnded' | 'close'>

/**
 * One shard: the only one that touches its windows. Calls bring their time, so it never reads a clock to decide.
 */
export class Shard {
  private running: { table: WindowTable; flusher: Flusher } | undefined
  private readonly ports = new Set<MessagePort>()
  private readonly lag: LoopLag
  private numbersReceived = 0
  private isOverflowing = false

  constructor(private readonly thread: ShardThread) {
    this.lag = new LoopLag(thread.timers)
  }

  /** From the main thread. */
  async receive(message: ToShard): Promise<void> {
    const { say } = this.thread
    switch (message.kind) {
      case 'start':
        try {
          say({ kind: 'started', restored: await this.start(message.setup) })
        } catch (cause) {
          say({ kind: 'failed', reason: describe(cause) })
        }
        return
      case 'connect':
        this.serve(this.started().table, message.port)
        return
      case 'flush': {
        const error = await this.started()
          .flusher.flush()
          .then(() => null, describe)
        say({ kind: 'flushed', id: message.id, error })
        return
      }
      case 'stats': {
        const { table, flusher } = this.started()
        table.advance(message.nowMs)
        const stats = {
          windowsLive: table.live,
          windowsDirty: table.dirty,
          loopLagMs: this.lag.worstMs,
          tableBytes: table.bytes,
          isOverBudget: table.sketch.isActive,
          chargesOverBudget: table.sketch.chargesTotal,
          flushAwayMs: flusher.awayMs,
          cellsFlushed: flusher.cellsWritten,
          flushTookMs: flusher.tookMs,
        }
        say({ kind: 'stats', id: message.id, stats })
        return
      }
      case 'stop':
        this.lag.stop()
        for (const port of this.ports) port.close()
        say({ kind: 'stopped', spilled: (await this.running?.flusher.stop()) ?? 0 })
        return
      default:
        message satisfies never
    }
  }

  private async start(setup: ShardSetup): Promise<number> {
    const { timers, openStore, openSpills } = this.thread
    const store = openStore(setup.address)
    const { memoryBytes, nowMs, count } = setup
    const table = new WindowTable({ memoryBytes, nowMs, shards: count })
    const restored = await restore(table, store, setup, (restored) =>
      this.thread.say({ kind: 'restoring', restored }),
    )
    const flusher = new Flusher({
      table,
      store,
      spills: openSpills(setup.dataDir, setup.address),
      timers,
      nodeId: setup.nodeId,
      everyMs: setup.flushEveryMs,
      deletesEnded: setup.index === 0,
    })
    flusher.start()
    this.lag.start()
    this.running = { table, flusher }
    return restored
  }

  private started(): { table: WindowTable; flusher: Flusher } {
    if (this.running === undefined) throw new Error('the shard has not been started')
    return this.running
  }

  /** Answers the batches of one HTTP thread. */
  private serve(table: WindowTable, port: MessagePort): void {
    this.ports.add(port)
    port.addEventListener('close', () => this.ports.delete(port))
    port.onmessage = ({ data }: { data: Calls }) => {
      port.postMessage(decide(table, data))
      this.reportOverflow(table)
      this.collectGarbage(data.length)
    }
  }

  /**
   * The collector sees a heap as large as the whole memory budget and would let batches pile up in proportion: with
   * 64 MiB the process wavered between 100 and 220 MiB. Asked every million numbers, that is every 16 MB of batches or so,
   * it stays at 100 ± 2; asking takes 0.1 ms, the collecting is done on another thread.
   */
  private collectGarbage(numbers: number): void {
    this.numbersReceived += numbers
    if (this.numbersReceived < 1_000_000) return
    this.numbersReceived = 0
    this.thread.collectGarbage()
  }

  /** One line when the memory budget is reached and one when all windows have a cell of their own again. */
  private reportOverflow(table: WindowTable): void {
    if (table.sketch.isActive === this.isOverflowing) return
    this.isOverflowing = table.sketch.isActive
    const fields = {
      tableBytes: table.bytes,
      sketchBytes: table.sketch.bytes,
      charges: table.sketch.chargesTotal,
    }
    if (this.isOverflowing)
      log('warn', 'rate limit windows exceed their memory: new ones are over-counted', fields)
    else log('info', 'rate limit windows fit their memory again', fields)
  }
}

function decide(table: WindowTable, calls: Calls): Answers {
  const answers = [calls[0] as number] // a batch begins with its id, then come whole calls of eight numbers
  for (let at = 1; at < calls.length; at += NUMBERS_PER_CALL) {
    table.warm(calls[at] as number, calls[at + 2] as number) // h0, h2
  }
  for (let at = 1; at < calls.length; at += NUMBERS_PER_CALL) {
    const passed = table.take(
      calls[at] as number, // h0
      calls[at + 1] as number, // h1
      calls[at + 2] as number, // h2
      calls[at + 3] as number, // h3
      calls[at + 4] as number, // limit
      calls[at + 5] as number, // durationMs
      calls[at + 6] as number, // cost
      calls[at + 7] as number, // atMs
    )
    answers.push(passed ? table.used : -1 - table.used, table.resetAtMs)
  }
  return answers
}

/**
 * Loads the open windows of this shard's range, of all nodes.
 * @param onProgress Told after each part how many rows are loaded so far.
 * @returns how many rows.
 */
async function restore(
  table: WindowTable,
  store: Store,
  setup: ShardSetup,
  onProgress: (restored: number) => void,
): Promise<number> {
  const { index, count, nodeId, nowMs } = setup
  const first = firstHashOf(index, count)
  const last = firstHashOf(index + 1, count) - 1
  const open = await store.countOpen(rangeOf(first, last), nowMs)
  // Hashes are spread evenly, so equal parts of the range hold about equally many.
  const step = Math.ceil((last - first + 1) / Math.max(1, Math.ceil(open / RESTORE_ROWS)))
  let restored = 0
  for (let from = first; from <= last; from += step) {
    const range = rangeOf(from, Math.min(last, from + step - 1))
    const windows = await store.readOpen(range, nodeId, nowMs)
    for (const { cell, ends_at, used, is_own } of windows) {
      const digits = cell.replaceAll('-', '')
      const word = (i: number) => Number.parseInt(digits.slice(8 * i, 8 * i + 8), 16) | 0
      table.restore(word(0), word(1), word(2), word(3), ends_at, used, is_own)
    }
    restored += windows.length
    onProgress(restored)
  }
  return restored
}

const RESTORE_ROWS = 20_000

/** All cells whose first word lies from `first` to `last`. */
function rangeOf(first: number, last: number): CellRange {
  const hex8 = (value: number) => value.toString(16).padStart(8, '0')
  return { from: hex8(first) + '0'.repeat(24), to: hex8(last) + 'f'.repeat(24) }
}

const describe = (cause: unknown): string => {
  if (!(cause instanceof Error)) return String(cause)
  return cause.cause === undefined ? cause.message : `${cause.message}: ${describe(cause.cause)}`
}
