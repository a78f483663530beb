import type { Timers } from './timers.ts'

/**
 * One end of a connection between two threads, or between two parts of one. Messages arrive in the order posted.
 *
 * Implementations: {@link portLink} over a `MessagePort`, {@link workerLink} to a thread from its starter,
 * {@link directLinks} on one thread; the simulation has its own. A receiver sets `onMessage` and `onClosed` in the turn in
 * which it gets the link.
 */
export type Link<Out = unknown, In = unknown> = {
  /** True when a message has been received by the time `post` returns. */
  readonly isDirect: boolean
  /** A message is lost when the other end is closed. @param transfer The ends inside the message. */
  post(message: Out, transfer?: readonly LinkEnd[]): void
  onMessage(message: In): void
  /**
   * Called once at both ends, in a turn after the `close` of either. For a thread: called when it has ended.
   * @param cause The error that ended a thread.
   */
  onClosed(cause?: Error): void
  /** For a thread: terminates it. */
  close(): void
}

/** A link as it is handed over: ports can be transferred to another thread, other links stay on their thread. */
export type LinkEnd = MessagePort | Link

export function toLink<Out, In>(end: LinkEnd): Link<Out, In> {
  return end instanceof MessagePort ? portLink(end) : (end as Link<Out, In>) // its creator knows the types of its messages
}

/** The ports among these ends, for `postMessage`. */
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

/**
 * The starter's end of a link to a thread. The error that ends the thread, also one while loading its module, is the cause
 * of `onClosed`.
 */
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

/** Two ends on one thread: posting is a call. An error of the receiver is thrown to the sender. */
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
