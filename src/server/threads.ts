import { StartError } from '../errors.ts'
import { type LinkEnd, portsOf } from '../lib/link.ts'
import { log } from '../log.ts'
import { continuedFrom, type ThreadReport } from '../observe/measures.ts'
import type { ThreadState } from '../observe/metrics.ts'
import type { ThreadSetup } from './deps.ts'
import type { FromHttp, ToHttp } from './http.worker.ts'

/** The HTTP threads besides the main thread. */
export type HttpThreads = {
  stop(): Promise<void>
  /** Counts of each thread. For a dead or silent thread, its last known counts. */
  report(): Promise<ThreadState[]>
}

type Options = {
  /** Number of threads. */
  count: number
  /** @param name Unique for each process start, and new for each restart of a thread. */
  makeSetup(name: string): Omit<ThreadSetup, 'peerPorts'>
  /** Connects the main thread's caches with those of another thread. */
  addPeer(port: MessagePort): void
  host: string
  port: number
  publicUrl: string
  metricsText(): Promise<string>
}

/**
 * Starts more HTTP threads on a port that this process already listens on. A dead thread is restarted; meanwhile the kernel
 * gives new connections to the others. Its counts since its last flush are lost.
 * @throws StartError when a thread does not listen in time. No thread is left running then.
 */
export async function startHttpThreads(options: Options): Promise<HttpThreads> {
  const threads = Array.from({ length: options.count }, (_, index) => new HttpThread(index + 1, options))
  // One at a time, so that each new thread finds the others either running or dead.
  let restarting = Promise.resolve()
  for (const thread of threads) {
    thread.onDeath = () => {
      restarting = restarting.then(() => thread.restart(threads.filter((each) => each.isRunning)))
    }
  }
  const stop = async () => {
    await Promise.all(threads.map((thread) => thread.stop()))
  }
  try {
    // Each connects to the threads before it, which have a worker by then.
    await Promise.all(threads.map((thread, index) => thread.start(threads.slice(0, index))))
  } catch (cause) {
    await stop()
    const reason = cause instanceof Error ? cause.message : cause
    throw new StartError(`an HTTP thread does not start: ${reason}`, { cause })
  }
  return { stop, report: () => Promise.all(threads.map((thread) => thread.report())) }
}

/** One thread and its states: starting → running → stopped; running → dead → starting, when it ends by itself. */
class HttpThread {
  /** Called after each death: the thread must be restarted. */
  onDeath = () => {}
  private worker: Worker | null = null
  private state: 'starting' | 'running' | 'dead' | 'stopped' = 'starting'
  private starts = 0
  /** Callbacks that wait for a message of the worker, by kind and id. Called with null when the thread dies. */
  private readonly waiting = new Map<string, (message: FromHttp | null) => void>()
  private lastId = 0
  /** Its last report, including {@link countedBefore}. */
  private counted: ThreadReport | null = null
  /** The counts of earlier threads in this place. */
  private countedBefore: ThreadReport | null = null
  private wake = () => {}
  private death: Error | null = null

  constructor(
    private readonly index: number,
    private readonly options: Options,
  ) {}

  get isRunning(): boolean {
    return this.state === 'running'
  }

  private get isStopped(): boolean {
    return this.state === 'stopped'
  }

  /**
   * Starts the thread. Its caches must hear of every change after their first read. So its peers are connected first and
   * confirm that; then the thread gets its ends of the channels and begins to serve.
   * @throws Error when it does not listen in time, or a peer does not confirm.
   */
  async start(peers: HttpThread[]): Promise<void> {
    this.state = 'starting'
    this.death = null
    this.countedBefore = this.counted
    const worker = new Worker(new URL('./http.worker.ts', import.meta.url))
    this.worker = worker
    worker.addEventListener('message', ({ data }: MessageEvent<FromHttp>) => {
      if (worker === this.worker) this.receive(data) // a thread that was given up may still send messages
    })
    worker.addEventListener('error', ({ message }) => this.die(worker, new Error(message)))
    worker.addEventListener('close', () => this.die(worker, new Error('the thread has ended')))

    const { makeSetup, addPeer, host, port, publicUrl } = this.options
    const toMain = new MessageChannel()
    addPeer(toMain.port1)
    const peerPorts = [toMain.port2, ...(await Promise.all(peers.map((peer) => peer.connect())))]
    const name = this.starts === 0 ? `${this.index}` : `${this.index}.${this.starts}`
    this.starts++
    const setup: ThreadSetup = { ...makeSetup(name), peerPorts }
    const listening = this.answer('listening', START_MS)
    const { shards, control } = setup.shardEnds
    this.send({ kind: 'start', setup, host, port, publicUrl }, [...shards, control, ...peerPorts])
    const answer = await listening
    if (answer === null) throw this.death ?? new Error(`it does not listen within ${START_MS} ms`)
    if (answer.kind === 'failed') throw new Error(answer.reason)
    if (this.worker === worker) this.state = 'running'
  }

  /** Repeats until the thread runs or is stopped. */
  async restart(peers: HttpThread[]): Promise<void> {
    let isTold = false
    while (this.state === 'dead') {
      try {
        await this.start(peers.filter((peer) => peer.isRunning))
        log('info', 'http_thread_restarted', 'the HTTP thread runs again', { thread: this.index })
      } catch (cause) {
        this.worker?.terminate()
        this.worker = null
        if (this.isStopped) return
        this.state = 'dead'
        if (!isTold)
          log(
            'error',
            'http_thread_restart_failing',
            'an HTTP thread does not start again; the others answer for it',
            { thread: this.index, cause },
          )
        isTold = true
        await this.pause()
      }
    }
  }

  async report(): Promise<ThreadState> {
    const now = await this.measure()
    // A silent thread keeps its last report: Prometheus would take a decreasing counter for a new one.
    if (now !== null) this.counted = continuedFrom(this.countedBefore, now)
    return { report: this.counted, isUp: now !== null }
  }

  private async measure(): Promise<ThreadReport | null> {
    if (this.state !== 'running') return null
    const id = ++this.lastId
    const measured = this.answer(`measured ${id}`, REPORT_MS)
    this.send({ kind: 'measure', id })
    const answer = await measured
    return answer?.kind === 'measured' ? answer.report : null
  }

  async stop(): Promise<void> {
    const wasRunning = this.state === 'running'
    this.state = 'stopped'
    this.wake()
    if (wasRunning) {
      const stopped = this.answer('stopped', STOP_MS)
      this.send({ kind: 'stop' })
      await stopped
    }
    const worker = this.worker
    this.worker = null
    worker?.terminate()
    this.answerAll()
  }

  /** Connects this thread to a new one. @returns the new thread's end of the channel. @throws Error */
  private async connect(): Promise<MessagePort> {
    const { port1, port2 } = new MessageChannel()
    const id = ++this.lastId
    const met = this.answer(`met ${id}`, START_MS)
    this.send({ kind: 'meet', id, port: port1 }, [port1])
    if ((await met) === null) throw new Error(`HTTP thread ${this.index} does not answer`)
    return port2
  }

  private send(message: ToHttp, ends: LinkEnd[] = []): void {
    this.worker?.postMessage(message, portsOf(ends))
  }

  /** @param name Kind and id of the awaited message. @returns null when it does not arrive in time. */
  private answer(name: string, timeoutMs: number): Promise<FromHttp | null> {
    return new Promise((resolve) => {
      const settle = (message: FromHttp | null) => {
        clearTimeout(timer)
        this.waiting.delete(name)
        resolve(message)
      }
      const timer = setTimeout(() => settle(null), timeoutMs)
      this.waiting.set(name, settle)
    })
  }

  private answerAll(): void {
    for (const settle of [...this.waiting.values()]) settle(null)
  }

  private receive(message: FromHttp): void {
    if (message.kind === 'scrape') return void this.scrape(message.id)
    const kind = message.kind === 'failed' ? 'listening' : message.kind
    this.waiting.get('id' in message ? `${kind} ${message.id}` : kind)?.(message)
  }

  private async scrape(id: number): Promise<void> {
    const text = await this.options.metricsText().catch(() => null)
    this.send({ kind: 'scraped', id, text })
  }

  private die(worker: Worker, cause: Error): void {
    if (worker !== this.worker) return // it was given up already
    this.death = cause
    this.answerAll()
    if (this.state !== 'running') return
    this.state = 'dead'
    this.worker = null
    worker.terminate()
    log(
      'error',
      'http_thread_died',
      'an HTTP thread died and is started again; what it counted since its last flush is lost',
      {
        thread: this.index,
        cause,
      },
    )
    this.onDeath()
  }

  private async pause(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.wake = resolve
    const timer = setTimeout(resolve, RESTART_DELAY_MS)
    await promise
    clearTimeout(timer)
  }
}

const REPORT_MS = 1000
const START_MS = 10_000
const RESTART_DELAY_MS = 1000
/** Longer than a thread's own time limits for requests, limiter and last flush. */
const STOP_MS = 8000
