import { systemTimers, type Timers } from '../../lib/timers.ts'

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
