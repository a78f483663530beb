import type { Timers } from './timers.ts'

/**
 * One end of a connection between two threads, or between two parts of one. Messages arrive in the order posted.
 *
 * Implementations: {@link portLink} over a `MessagePort`, {@link workerLink} to a thread by whoever starts it,
 * {@link directLinks} on one thread; the simulation has its own. Whoever gets a link sets `onMessage` and `onClosed` in the
 * same turn.
 */
export type Link<Out = unknown, In = unknown> = {
  /** Whether a message has been received when `post` returns. */
  readonly isDirect: boolean
  /** Lost when the other end is closed. @param transfer The ends that are in the message. */
  post(message: Out, transfer?: readonly LinkEnd[]): void
  onMessage(message: In): void
  /**
   * Called once, at both ends, in a later turn than the `close` of either. Of a thread: called when it has ended.
   * @param cause Why, where a thread ended by an error.
   */
  onClosed(cause?: Error): void
  /** Of a thread: ends it where it stands. */
  close(): void
}

/** A link on its way to where it is used: ports can be transferred to another thread, other links stay on theirs. */
export type LinkEnd = MessagePort | Link

export function toLink<Out, In>(end: LinkEnd): Link<Out, In> {
  return end instanceof MessagePort ? portLink(end) : (end as Link<Out, In>) // whoever made it knows what travels on it
}

/** The ports among them, for `postMessage`. */
export const portsOf = (ends: readonly LinkEnd[]): MessagePort[] =>
  ends.filter((end) => end instanceof MessagePort)

export function portLink<Out, In>(port: MessagePort): Link<Out, In> {
  const link: Link<Out, In> = {
    isDirect: false,
    post: (message, transfer) => {
      if (transfer === undefined) port.postMessage(message)
      else port.postMessage(message, portsOf(transfer))
    },
    onMessage: () => {},
    onClosed: () => {},
    close: () => port.close(),
  }
  port.onmessage = ({ data }) => link.onMessage(data)
  port.addEventListener('close', () => link.onClosed())
  return link
}

/** The owner's end of a thread. What kills the thread, its module failing to load included, is the cause of `onClosed`. */
export function workerLink<Out, In>(worker: Worker): Link<Out, In> {
  let cause: Error | undefined
  const link: Link<Out, In> = {
    isDirect: false,
    post: (message, transfer = []) => worker.postMessage(message, portsOf(transfer)),
    onMessage: () => {},
    onClosed: () => {},
    close: () => worker.terminate(),
  }
  worker.addEventListener('message', ({ data }) => link.onMessage(data))
  worker.addEventListener('error', ({ error, message }) => {
    cause ??= error instanceof Error ? error : new Error(message)
    worker.terminate()
  })
  worker.addEventListener('close', () => link.onClosed(cause))
  return link
}

/** Two ends on one thread: posting is a call. What the receiver throws, the sender gets. */
export function directLinks(timers: Pick<Timers, 'soon'>): [DirectLink, DirectLink] {
  const [one, other] = [new DirectLink(timers), new DirectLink(timers)]
  one.peer = other
  other.peer = one
  return [one, other]
}

export class DirectLink implements Link {
  readonly isDirect = true
  peer: DirectLink | null = null

  constructor(private readonly timers: Pick<Timers, 'soon'>) {}

  post(message: unknown): void {
    this.peer?.onMessage(message)
  }

  onMessage(_message: unknown): void {}
  onClosed(): void {}

  close(): void {
    const { peer } = this
    if (peer === null) return
    this.peer = null
    peer.peer = null
    this.timers.soon(() => {
      this.onClosed()
      peer.onClosed()
    })
  }
}
