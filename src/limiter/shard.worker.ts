import { log } from '../log.ts'
import { Flusher } from './flush.ts'
import {
  type Answers,
  type Calls,
  type FromShard,
  NUMBERS_PER_CALL,
  type ShardSetup,
  type ToShard,
} from './protocol.ts'
import { WindowStore } from './store.ts'
import { WindowTable } from './window-table.ts'

/**
 * One shard: the only thread that touches its windows. Calls bring their time, so it never reads a clock to decide.
 */

declare const self: Worker

const say = (message: FromShard) => self.postMessage(message)

type Shard = { table: WindowTable; flusher: Flusher }
let shard: Shard | undefined
const ports: MessagePort[] = []

self.onmessage = async ({ data }: MessageEvent<ToShard>) => {
  switch (data.kind) {
    case 'start':
      try {
        const store = new WindowStore(data.setup.address)
        const table = new WindowTable({ memoryBytes: data.setup.memoryBytes, nowMs: data.setup.nowMs })
        const restored = await restore(table, store, data.setup)
        const flusher = new Flusher({
          table,
          store,
          nodeId: data.setup.nodeId,
          everyMs: data.setup.flushEveryMs,
          dataDir: data.setup.dataDir,
          deletesEnded: data.setup.index === 0,
        })
        flusher.start()
        shard = { table, flusher }
        say({ kind: 'started', restored })
      } catch (cause) {
        say({ kind: 'failed', reason: describe(cause) })
      }
      return
    case 'connect':
      serve(started().table, data.port)
      return
    case 'flush': {
      const error = await started()
        .flusher.flush()
        .then(() => null, describe)
      say({ kind: 'flushed', id: data.id, error })
      return
    }
    case 'stop':
      for (const port of ports) port.close()
      say({ kind: 'stopped', spilled: (await shard?.flusher.stop()) ?? 0 })
      return
    default:
      data satisfies never
  }
}

function started(): Shard {
  if (shard === undefined) throw new Error('the shard has not been started')
  return shard
}

/** Answers the batches of one HTTP thread. */
function serve(table: WindowTable, port: MessagePort): void {
  ports.push(port)
  port.onmessage = ({ data }: { data: Calls }) => {
    port.postMessage(decide(table, data))
    reportOverflow(table)
  }
}

function decide(table: WindowTable, calls: Calls): Answers {
  const answers = [calls[0] as number] // a batch begins with its id, then come whole calls of eight numbers
  for (let at = 1; at < calls.length; at += NUMBERS_PER_CALL) {
    table.warm(calls[at + 1] as number, calls[at + 2] as number)
  }
  for (let at = 1; at < calls.length; at += NUMBERS_PER_CALL) {
    const passed = table.take(
      calls[at] as number,
      calls[at + 1] as number,
      calls[at + 2] as number,
      calls[at + 3] as number,
      calls[at + 4] as number,
      calls[at + 5] as number,
      calls[at + 6] as number,
      calls[at + 7] as number,
    )
    answers.push(passed ? table.used : -1 - table.used, table.resetAtMs)
  }
  return answers
}

let isOverflowing = false

/** One line when the memory budget is reached and one when all windows have a cell of their own again. */
function reportOverflow(table: WindowTable): void {
  if (table.sketch.isActive === isOverflowing) return
  isOverflowing = table.sketch.isActive
  const fields = {
    tableBytes: table.bytes,
    sketchBytes: table.sketch.bytes,
    charges: table.sketch.chargesTotal,
  }
  if (isOverflowing) log('warn', 'rate limit windows exceed their memory: new ones are over-counted', fields)
  else log('info', 'rate limit windows fit their memory again', fields)
}

/** Loads the open windows of this shard's range, of all nodes. @returns how many rows. */
async function restore(table: WindowTable, store: WindowStore, setup: ShardSetup): Promise<number> {
  const { index, count, nodeId, nowMs } = setup
  const first = Math.ceil((index * 2 ** 32) / count)
  const last = Math.ceil(((index + 1) * 2 ** 32) / count) - 1
  const from = hex8(first) + '0'.repeat(24)
  const to = hex8(last) + 'f'.repeat(24)
  let restored = 0
  let after: { cell: string; nodeId: string } | null = null
  for (;;) {
    const page = await store.readOpen({ nodeId, from, to, nowMs, after, rowsMax: RESTORE_ROWS })
    for (const { cell, endsAt, used, isOwn } of page.windows) {
      const digits = cell.replaceAll('-', '')
      const word = (i: number) => Number.parseInt(digits.slice(8 * i, 8 * i + 8), 16) | 0
      table.restore(word(0), word(1), word(2), word(3), endsAt, used, isOwn)
    }
    restored += page.windows.length
    if (page.windows.length < RESTORE_ROWS) return restored
    after = page.last
  }
}

const RESTORE_ROWS = 10_000

const hex8 = (value: number) => value.toString(16).padStart(8, '0')

const describe = (cause: unknown): string => {
  if (!(cause instanceof Error)) return String(cause)
  return cause.cause === undefined ? cause.message : `${cause.message}: ${describe(cause.cause)}`
}
