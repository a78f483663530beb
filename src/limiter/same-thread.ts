import { openSpills } from '../db/spill.ts'
import { systemTimers, type Timers } from '../lib/timers.ts'
import type { FromShard, ToShard } from './protocol.ts'
import { Shard, type ShardThread } from './shard.ts'
import { WindowStore } from './store.ts'

/**
 * A shard on the thread that asks it, for a process with one core and one thread that answers HTTP. What a thread for the
 * shard buys, another core, is not there, and each message to it costs the core a wake-up and a structured clone. Batches,
 * their order and what a death costs are the same as with threads (`protocol.ts`); only, a message is a call.
 *
 * CPU of `ratelimits.limit` on one core, µs a call, in turn with a thread for the shard: at 20 000 a second 16.3 instead of
 * 23.8, at half of saturation 12.7 instead of 17.0, with p99s of 1.9 and 4.1 ms instead of 2.4 and 6.3; at saturation, where
 * many calls share a message, 10.2 to 11.2 instead of 10.3 to 11.9 (a bare `Bun.serve`: 11.8, 10.6, 9.1 to 9.7).
 * Refused: to decide each call when it is asked, without batches. It took no less, and a thousand in one request would no
 * longer find their windows in the CPU's cache.
 */
export class SameThread {
  onmessage: ((event: { data: FromShard }) => void) | null = null
  onerror: ((event: { message: string }) => void) | null = null
  private isTerminated = false
  private readonly shard: Shard

  constructor(parts = OF_THE_SYSTEM) {
    this.shard = new Shard({
      ...parts,
      // Later, as with a thread: who asks something listens for the answer afterwards.
      say: (data) =>
        queueMicrotask(() => {
          if (!this.isTerminated) this.onmessage?.({ data })
        }),
    })
  }

  postMessage(message: ToShard): void {
    if (message.kind === 'connect')
      (message.port as unknown as SameThreadPort).onFailure = (cause) => this.die(cause) // makeSameThreadChannel made it
    void this.shard.receive(message) // as in a thread: what fails is logged as a promise that nobody awaited
  }

  /** There is no end that could be told: nobody but its owner ends it. */
  addEventListener(): void {}

  terminate(): void {
    this.isTerminated = true
    this.shard.abandon()
  }

  private die(cause: unknown): void {
    if (this.isTerminated) return
    this.terminate()
    this.onerror?.({ message: cause instanceof Error ? cause.message : String(cause) })
  }
}

const OF_THE_SYSTEM: Omit<ShardThread, 'say'> = {
  timers: systemTimers,
  openStore: (address) => new WindowStore(address),
  openSpills,
  collectGarbage: () => Bun.gc(false),
}

/** Two ends on one thread: what is posted at one has been received at the other when `postMessage` returns. */
export function makeSameThreadChannel(timers = systemTimers): {
  port1: SameThreadPort
  port2: SameThreadPort
} {
  const port1 = new SameThreadPort(timers)
  const port2 = new SameThreadPort(timers)
  port1.peer = port2
  port2.peer = port1
  return { port1, port2 }
}

/** As far as shards and routers use a `MessagePort`. */
export class SameThreadPort {
  onmessage: ((event: { data: unknown }) => void) | null = null
  /** Called with what receiving throws, which would end a thread. */
  onFailure: ((cause: unknown) => void) | null = null
  peer: SameThreadPort | null = null
  private readonly onClose: (() => void)[] = []

  constructor(private readonly timers: Timers) {}

  /** Lost when the other end is closed. */
  postMessage(data: unknown): void {
    const { peer } = this
    try {
      peer?.onmessage?.({ data })
    } catch (cause) {
      if (peer?.onFailure == null) throw cause
      peer.onFailure(cause)
    }
  }

  addEventListener(_: 'close', run: () => void): void {
    this.onClose.push(run)
  }

  start(): void {}

  /** Both ends hear of it in the next turn of the event loop. */
  close(): void {
    const { peer } = this
    if (peer === null) return
    this.peer = null
    peer.peer = null
    this.timers.soon(() => {
      for (const run of [...this.onClose, ...peer.onClose]) run()
    })
  }
}
