import type { Link, LinkEnd } from './link.ts'
import { type Cancel, pause, systemTimers, type Timers, within } from './timers.ts'

/**
 * A thread as its owner sees it: starting → running → stopped; running → dead → starting, when it ends by itself.
 *
 * The owner sends requests, and the thread answers each with a value or a failure ({@link serveOwner}). Every request has a
 * time limit, and fails when the thread ends. A dead thread is restarted after a pause until it runs again. The owner
 * defines how to open and set up the thread, and is called when it dies.
 */
export class ManagedThread<R extends Requests, Notice = never> {
  readonly #options: ThreadOptions<R, Notice>
  readonly #timers: Timers
  #state: 'starting' | 'running' | 'dead' | 'stopped' = 'dead'
  /** Null = it has ended, or is about to. */
  #link: ThreadLink<R, Notice> | null = null
  /** Resolves when the thread of `#link`, or the last one, has ended. */
  #ended: Promise<void> = Promise.resolve()
  #endedBy = new Error('the thread has not been started')
  readonly #unanswered = new Map<number, Unanswered>()
  #lastId = 0
  #runningSinceMs = 0
  /** Attempts to restart it since it last ran for {@link STABLE_MS}. */
  #attempts = 0
  readonly #stopping = new AbortController()
  #stopped: Promise<Answer<R, 'stop'> | null> | null = null

  constructor(options: ThreadOptions<R, Notice>) {
    this.#options = options
    this.#timers = options.timers ?? systemTimers
  }

  get isRunning(): boolean {
    return this.#state === 'running'
  }

  /** @throws Error when the thread ends or `setUp` fails; the thread has ended then. */
  async start(): Promise<void> {
    const { open, setUp } = this.#options
    this.#state = 'starting'
    const link = open()
    const ended = Promise.withResolvers<void>()
    this.#link = link
    this.#ended = ended.promise
    link.onMessage = (message) => {
      if (link === this.#link) this.#receive(message) // ignores late messages of an earlier thread
    }
    link.onClosed = (cause) => {
      ended.resolve()
      const how = cause === undefined ? '' : `: ${cause.message}`
      if (link === this.#link) this.#die(new Error(`the thread has ended${how}`, { cause }))
    }
    try {
      await setUp(this)
      if (link !== this.#link) throw this.#endedBy
      this.#state = 'running'
      this.#runningSinceMs = this.#timers.now()
    } catch (cause) {
      await this.end()
      throw cause
    }
  }

  /** @throws Error when the thread answers with a failure, ends, or does not answer in time. */
  ask<K extends Kind<R>>(
    kind: K,
    input: Input<R, K>,
    options: { timeoutMs: number; transfer?: readonly LinkEnd[] },
  ): Promise<Answer<R, K>> {
    const link = this.#link
    if (link === null) return Promise.reject(this.#endedBy)
    const { timeoutMs, transfer } = options
    const id = ++this.#lastId
    return new Promise((resolve, reject) => {
      const wait = () =>
        this.#timers.after(timeoutMs, () => {
          this.#unanswered.delete(id)
          reject(new Error(`no answer to '${kind}' within ${timeoutMs} ms`))
        })
      this.#unanswered.set(id, { resolve, reject, wait, cancel: wait() })
      link.post({ id, kind, input }, transfer)
    })
  }

  /** Sends a request without an answer. It is lost when the thread does not run. */
  send<K extends Kind<R>>(kind: K, input: Input<R, K>, transfer?: readonly LinkEnd[]): void {
    this.#link?.post({ id: NO_ANSWER, kind, input }, transfer)
  }

  /**
   * Asks a running thread to stop, then ends it in any case. It is not restarted.
   * @returns its answer; null = it was not running.
   * @throws Error as {@link ask}, after the thread has ended.
   */
  stop(timeoutMs: number): Promise<Answer<R, 'stop'> | null> {
    this.#stopped ??= this.#stop(timeoutMs)
    return this.#stopped
  }

  /** Terminates the thread. Resolves when it has ended, or after {@link END_MS}. */
  async end(): Promise<void> {
    if (this.#state !== 'stopped') this.#state = 'dead'
    this.#close(new Error('the thread was ended'))
    await within(this.#timers, END_MS, this.#ended, { late: () => {} })
  }

  async #stop(timeoutMs: number): Promise<Answer<R, 'stop'> | null> {
    const wasRunning = this.isRunning
    this.#state = 'stopped'
    this.#stopping.abort()
    try {
      return wasRunning ? await this.ask('stop', null, { timeoutMs }) : null
    } finally {
      await this.end()
    }
  }

  #receive(message: FromThread<R, Notice>): void {
    if (message.kind === 'notice') return void this.#options.onNotice?.(message.notice)
    if (message.kind === 'dying') return void this.#die(new Error(message.reason))
    const request = this.#unanswered.get(message.id)
    if (request === undefined) return // too late
    request.cancel()
    if (message.kind === 'working') {
      request.cancel = request.wait()
      return
    }
    this.#unanswered.delete(message.id)
    if (message.kind === 'answer') request.resolve(message.answer)
    else request.reject(new Error(message.reason))
  }

  #die(cause: Error): void {
    const wasRunning = this.isRunning
    this.#close(cause)
    if (!wasRunning) return // `start` or `stop` reports it
    this.#state = 'dead'
    this.#options.onDeath(cause)
    void this.#restart()
  }

  /** Fails requests in flight, and later ones. */
  #close(reason: Error): void {
    const link = this.#link
    if (link === null) return
    this.#link = null
    this.#endedBy = reason
    for (const { cancel, reject } of this.#unanswered.values()) {
      cancel()
      reject(reason)
    }
    this.#unanswered.clear()
    link.close()
  }

  async #restart(): Promise<void> {
    const { restartDelaysMs, onRestarted, onRestartFailing } = this.#options
    const { signal } = this.#stopping
    if (this.#timers.now() - this.#runningSinceMs >= STABLE_MS) this.#attempts = 0
    // Two threads at once would use the same files or ports.
    await within(this.#timers, END_MS, this.#ended, { late: () => {} })
    for (let isFailing = false; ; isFailing = true) {
      const delayMs = restartDelaysMs[Math.min(this.#attempts++, restartDelaysMs.length - 1)] ?? 0
      await pause(this.#timers, delayMs, signal)
      if (signal.aborted) return
      try {
        await this.start()
        return onRestarted?.(this.#attempts)
      } catch (cause) {
        if (signal.aborted) return
        if (!isFailing) onRestartFailing(cause)
      }
    }
  }
}

export type ThreadOptions<R extends Requests, Notice> = {
  timers?: Timers
  /** Starts a new thread. */
  open(): ThreadLink<R, Notice>
  /** Makes the requests that a new thread needs before it runs. */
  setUp(thread: ManagedThread<R, Notice>): Promise<unknown>
  /** Pauses before the first, second, … attempt to restart it, ms. The last one repeats. */
  restartDelaysMs: readonly number[]
  /** Called with messages that answer no request. */
  onNotice?(notice: Notice): void
  /** It had run, and will be restarted. */
  onDeath(cause: Error): void
  /** @param attempts Number of attempts. */
  onRestarted?(attempts: number): void
  /** The first attempt after a death failed. Others follow. */
  onRestartFailing(cause: unknown): void
}

/** Requests that a thread accepts: for each kind, input and answer. */
export type Requests = Record<string, (input: never) => unknown> & { stop(input: null): unknown }
type Kind<R extends Requests> = keyof R & string
type Input<R extends Requests, K extends Kind<R> = Kind<R>> = Parameters<R[K]>[0]
type Answer<R extends Requests, K extends Kind<R> = Kind<R>> = ReturnType<R[K]>

/** `id`: {@link NO_ANSWER} when no answer is wanted. */
export type ToThread<R extends Requests> = { id: number; kind: Kind<R>; input: Input<R> }
export type FromThread<R extends Requests, Notice = never> =
  | { kind: 'answer'; id: number; answer: Answer<R> }
  | { kind: 'failure'; id: number; reason: string }
  /** Restarts the time limit of that request. */
  | { kind: 'working'; id: number }
  | { kind: 'notice'; notice: Notice }
  /** The thread cannot continue; its owner ends it. */
  | { kind: 'dying'; reason: string }
export type ThreadLink<R extends Requests, Notice = never> = Link<ToThread<R>, FromThread<R, Notice>>

type Unanswered = {
  resolve(answer: unknown): void
  reject(reason: Error): void
  /** Starts the time limit. */
  wait(): Cancel
  cancel: Cancel
}

/** How a thread answers its owner. `working` renews the time limit of the request. */
export type Handlers<R extends Requests> = {
  [K in Kind<R>]: (input: Input<R, K>, working: () => void) => Answer<R, K> | Promise<Answer<R, K>>
}

/** In a worker: carries out its owner's requests. @returns a function that sends notices to the owner. */
export function serveOwner<R extends Requests, Notice = never>(
  self: Worker,
  handlers: Handlers<R>,
): { notify(notice: Notice): void; die(cause: unknown): void } {
  const say = (message: FromThread<R, Notice>) => self.postMessage(message)
  self.onmessage = ({ data }: MessageEvent<ToThread<R>>) => carryOut(handlers, data, say)
  return {
    notify: (notice) => say({ kind: 'notice', notice }),
    die: (cause) => say({ kind: 'dying', reason: describe(cause) }),
  }
}

/** @throws the error of a request that wants no answer. */
export async function carryOut<R extends Requests>(
  handlers: Handlers<R>,
  { id, kind, input }: ToThread<R>,
  say: (message: FromThread<R>) => void,
): Promise<void> {
  try {
    const answer = await handlers[kind](input, () => say({ kind: 'working', id }))
    if (id !== NO_ANSWER) say({ kind: 'answer', id, answer })
  } catch (cause) {
    if (id === NO_ANSWER) throw cause
    say({ kind: 'failure', id, reason: describe(cause) })
  }
}

const describe = (cause: unknown): string => {
  if (!(cause instanceof Error)) return String(cause)
  return cause.cause === undefined ? cause.message : `${cause.message}: ${describe(cause.cause)}`
}

const NO_ANSWER = 0
/** Longest wait for a terminated thread to end, ms. */
const END_MS = 2_000
/** After running this long, a thread that dies is restarted after the shortest pause again, ms. */
const STABLE_MS = 60_000
