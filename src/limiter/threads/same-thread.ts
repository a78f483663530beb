import { openSpills } from '../../data-dir/spill.ts'
import { systemTimers } from '../../lib/timers.ts'
import { WindowStore } from '../flush/store.ts'
import type { FromShard, ToShard } from './protocol.ts'
import type { SameThreadPort } from './same-thread-port.ts'
import { Shard, type ShardThread } from './shard.ts'

/**
 * The limiter's shard on the HTTP thread itself, for a process with one core and one HTTP thread: there a thread of its own
 * only costs wake-ups. Batches, their order and what a death costs are the same as with threads (`protocol.ts`); posting a message
 * is a function call.
 *
 * A message of single calls leaves with its 32nd or at the end of the turn, whichever is first, so early answers do not wait for
 * late calls. What throws ends this shard like the end of a thread: calls in flight fail, its owner starts another.
 * Why this way, and why 32: docs/decisions/0006.
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
