import { openSpills } from '../../data-dir/spill.ts'
import { systemTimers } from '../../lib/timers.ts'
import { WindowStore } from '../flush/store.ts'
import type { FromShard, ToShard } from './protocol.ts'
import type { SameThreadPort } from './same-thread-port.ts'
import { Shard, type ShardThread } from './shard.ts'

/**
 * A shard on the thread that asks it, for a process with one core and one thread that answers HTTP. What a thread for the
 * shard buys, another core, is not there, and each message to it costs the core a wake-up and a structured clone. Batches,
 * their order and what a death costs are the same as with threads (`protocol.ts`); only, a message is a call.
 *
 * CPU of `ratelimits.limit` on one core, µs a call, in turn with a thread for the shard: at 20 000 a second 16.3 instead of
 * 23.8, at half of saturation 12.7 instead of 17.0, with p99s of 1.9 and 4.1 ms instead of 2.4 and 6.3; at saturation, where
 * many calls share a message, 10.2 to 11.2 instead of 10.3 to 11.9 (a bare `Bun.serve`: 11.8, 10.6, 9.1 to 9.7).
 *
 * A message of single calls leaves with its 32nd, not at the end of the turn only: answers go out with it, and whoever asks
 * again is read in the next turn instead of the one after. At saturation, in turn with one message a turn (medians of six
 * rounds, two servers of each): of 512 connections p90 of 6.1 instead of 8.6 ms, p99 of 8.1 instead of 11.1; of 256 2.6
 * instead of 3.4 and 4.4 instead of 4.7; of 64 a third quartile of 0.57 instead of 0.82 with the same p99. CPU is the same or
 * up to 3 % less. With a thread for the shard the turns overlap anyway, and 32 a message made the tail longer.
 * Refused: fewer a message, with 64 connections 12.3 µs of CPU a call for 1, 10.7 for 4, 10.0 for 8, 9.3 for 16, and 8.3 for
 * 32 and more: what is answered at a time wakes the other end once. To decide each call when it is asked, without batches, as
 * a thousand in one request would also no longer find their windows in the CPU's cache. To shorten messages towards the
 * turn's end, as the last answered are read last (p90 of 0.61 instead of 0.86 ms with 64 connections): 2 % more CPU, and the
 * same p99. To send a turn's first message last, as those in it were answered early in the turn before and come first in the next
 * one again, while others wait for two turns: with 64 connections p90 of 0.55 instead of 0.77 ms, p50 of 0.48 instead of 0.39 and
 * p99s of 0.86 to 0.89 instead of 0.86 to 0.90.
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
