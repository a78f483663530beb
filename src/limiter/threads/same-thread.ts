import type { Link } from '../../lib/link.ts'
import { carryOut, type FromThread, type Handlers, type ToThread } from '../../lib/managed-thread.ts'
import type { Timers } from '../../lib/timers.ts'
import type { ShardLink, ShardRequests } from './protocol.ts'
import type { Shard } from './shard.ts'

/**
 * A shard on the HTTP thread itself, for a process with one core and one HTTP thread: a second thread there only costs
 * wake-ups. To its owner it looks like a thread. Batches, their order and what a death costs are the same (`protocol.ts`);
 * posting a message is a function call.
 *
 * A message of single calls leaves with its 32nd call or at the end of the turn, whichever is first, so early answers do not
 * wait for late calls. An exception while it decides ends the shard, as it would end a thread: calls in flight fail, and its
 * owner starts another. Why this way, and why 32: docs/decisions/0006.
 */
export class SameThread implements ShardLink {
  readonly isDirect = true
  isClosed = false

  /** @param shard Its `abandon` ends it where it stands. */
  constructor(
    private readonly shard: Handlers<ShardRequests> & Pick<Shard, 'abandon'>,
    private readonly timers: Timers,
  ) {}

  onMessage(_message: FromThread<ShardRequests>): void {}
  onClosed(_cause?: Error): void {}

  post(request: ToThread<ShardRequests>): void {
    if (this.isClosed) return
    // A failure of a request without an answer is logged as an unhandled rejection, as in a thread.
    void carryOut(this.shard, request, (message) => {
      if (!this.isClosed) this.onMessage(message)
    })
    if (request.kind === 'connect' || request.kind === 'connectLocal') this.endOnThrow(request.input as Link) // on one thread an end is a link
  }

  close(): void {
    this.end()
  }

  private endOnThrow(router: Link): void {
    const receive = router.onMessage
    router.onMessage = (calls) => {
      try {
        receive(calls)
      } catch (cause) {
        this.end(cause instanceof Error ? cause : new Error(String(cause)))
      }
    }
  }

  private end(cause?: Error): void {
    if (this.isClosed) return
    this.isClosed = true
    this.shard.abandon()
    this.timers.soon(() => this.onClosed(cause))
  }
}
