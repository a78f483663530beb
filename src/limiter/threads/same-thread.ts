import { openSpills } from '../../data-dir/spill.ts'
import { type Link, toLink } from '../../lib/link.ts'
import { systemTimers } from '../../lib/timers.ts'
import { WindowStore } from '../flush/store.ts'
import type { FromShard, ToShard } from './protocol.ts'
import { Shard, type ShardThread } from './shard.ts'

/**
 * A shard on the HTTP thread itself, for a process with one core and one HTTP thread: a second thread there only costs
 * wake-ups. To its owner it looks like a thread. Batches, their order and what a death costs are the same (`protocol.ts`);
 * posting a message is a function call.
 *
 * A message of single calls leaves with its 32nd call or at the end of the turn, whichever is first, so early answers do not
 * wait for late calls. An exception while it decides ends the shard, as it would end a thread: calls in flight fail, and its
 * owner starts another. Why this way, and why 32: docs/decisions/0006.
 */
export class SameThread implements Link<ToShard, FromShard> {
  readonly isDirect = true
  isClosed = false
  private readonly shard: Shard

  constructor(private readonly parts = OF_THE_SYSTEM) {
    this.shard = new Shard({
      ...parts,
      // Later, as from a thread: the owner may ask first and then listen for the answer.
      say: (message) => queueMicrotask(() => this.say(message)),
    })
  }

  onMessage(_message: FromShard): void {}
  onClosed(_cause?: Error): void {}

  post(message: ToShard): void {
    if (this.isClosed) return
    if (message.kind !== 'connect') return void this.shard.receive(message) // a failure is logged as an unhandled rejection
    const link = toLink(message.end)
    void this.shard.receive(message)
    const receive = link.onMessage
    link.onMessage = (calls) => {
      try {
        receive(calls)
      } catch (cause) {
        this.end(cause instanceof Error ? cause : new Error(String(cause)))
      }
    }
  }

  protected say(message: FromShard): void {
    if (!this.isClosed) this.onMessage(message)
  }

  close(): void {
    this.end()
  }

  private end(cause?: Error): void {
    if (this.isClosed) return
    this.isClosed = true
    this.shard.abandon()
    this.parts.timers.soon(() => this.onClosed(cause))
  }
}

const OF_THE_SYSTEM: Omit<ShardThread, 'say'> = {
  timers: systemTimers,
  openStore: (address) => new WindowStore(address),
  openSpills,
  collectGarbage: () => Bun.gc(false),
}
