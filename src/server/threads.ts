import type { Asked } from '../api/parts.ts'
import type { StatusSample } from '../api/server/status-history.ts'
import { StartError } from '../errors.ts'
import { type LinkEnd, workerLink } from '../lib/link.ts'
import { ManagedThread } from '../lib/managed-thread.ts'
import { log } from '../log.ts'
import { continuedFrom, type ThreadReport } from '../observe/measures.ts'
import type { ThreadState } from '../observe/metrics.ts'
import type { Recall, RecentKind, RecentQuestion, RecentQuestions } from '../recent/recent.ts'
import type { Question } from '../records/questions.ts'
import type { Standing } from '../verify/standing.ts'
import type { ThreadSetup } from './deps.ts'
import type { HttpNotice, HttpRequests } from './http.worker.ts'

/** The HTTP threads besides the main thread. */
export type HttpThreads = {
  /** As {@link Listener.drain}, in every thread. One that is restarted meanwhile drains too. */
  drain(): Promise<void>
  stop(): Promise<void>
  /** Counts of each thread. For a dead or silent thread, its last known counts. */
  report(): Promise<ThreadState[]>
  /** Asks each thread what it remembers. Null = it does not answer. */
  recall<Kind extends RecentKind>(
    kind: Kind,
    input: RecentQuestions[Kind]['input'],
  ): Promise<(RecentQuestions[Kind]['answer'] | null)[]>
  /** What each thread answers about the key with this hash. Null = it does not say. */
  standings(hash: string): Promise<(Standing | null)[]>
}

type Options = {
  /** Number of threads. */
  count: number
  /** @param name Unique for each process start, and new for each restart of a thread. */
  makeSetup(name: string): Omit<ThreadSetup, 'peerPorts'>
  /** Connects the main thread's caches with those of another thread. */
  addPeer(end: LinkEnd): void
  host: string
  port: number
  publicUrl: string
  metricsText(): Promise<string>
  statusHistory(): Promise<readonly StatusSample[]>
  /** Asks all threads, the main thread too. */
  recall: Recall
  /** Asks all threads, the main thread too, and the other servers. */
  askServers(question: Question): Promise<Asked>
}

/**
 * Starts more HTTP threads on a port that this process already listens on. A dead thread is restarted; meanwhile the kernel
 * gives new connections to the others. Its counts since its last flush are lost.
 * @throws StartError when a thread does not listen in time. No thread is left running then.
 */
export async function startHttpThreads(options: Options): Promise<HttpThreads> {
  const threads: HttpThread[] = []
  // Set up one at a time, so that each new thread finds the others either listening or without connections.
  let settingUp: Promise<unknown> = Promise.resolve()
  for (let index = 1; index <= options.count; index++) {
    const thread = new HttpThread(index, options, () => {
      const setUp = settingUp.then(() => thread.setUp(threads.filter((each) => each.isListening)))
      settingUp = setUp.catch(() => {})
      return setUp
    })
    threads.push(thread)
  }
  const stop = async () => {
    await Promise.all(threads.map((thread) => thread.stop()))
  }
  try {
    await Promise.all(threads.map((thread) => thread.start()))
  } catch (cause) {
    await stop()
    const reason = cause instanceof Error ? cause.message : cause
    throw new StartError(`an HTTP thread cannot be started: ${reason}`, { cause })
  }
  const drain = async () => {
    await Promise.all(threads.map((thread) => thread.drain()))
  }
  return {
    drain,
    stop,
    report: () => Promise.all(threads.map((thread) => thread.report())),
    recall: (kind, input) => Promise.all(threads.map((thread) => thread.recall(kind, input))),
    standings: (hash) => Promise.all(threads.flatMap((thread) => thread.standing(hash) ?? [])),
  }
}

class HttpThread {
  isListening = false
  private isDraining = false
  private starts = 0
  /** Its last report, including {@link countedBefore}. */
  private counted: ThreadReport | null = null
  /** The counts of earlier threads in this place. */
  private countedBefore: ThreadReport | null = null
  private readonly thread: ManagedThread<HttpRequests, HttpNotice>

  /** @param setUp Calls {@link setUp} when no other thread is being set up. */
  constructor(
    private readonly index: number,
    private readonly options: Options,
    setUp: () => Promise<void>,
  ) {
    this.thread = new ManagedThread<HttpRequests, HttpNotice>({
      open: () => workerLink(new Worker(new URL('./http.worker.ts', import.meta.url))),
      setUp,
      restartDelaysMs: RESTART_DELAYS_MS,
      onNotice: (notice) => void this.answer(notice),
      onDeath: (cause) => {
        this.isListening = false
        log(
          'error',
          'http_thread_died',
          'an HTTP thread died and restarts; its usage since the last flush is lost',
          { thread: index, cause },
        )
      },
      onRestarted: () =>
        log('info', 'http_thread_restarted', 'the HTTP thread was restarted', { thread: index }),
      onRestartFailing: (cause) =>
        log(
          'error',
          'http_thread_restart_failing',
          'an HTTP thread cannot be restarted; the other threads answer requests',
          { thread: index, cause },
        ),
    })
  }

  start(): Promise<void> {
    return this.thread.start()
  }

  async drain(): Promise<void> {
    this.isDraining = true
    if (this.isListening) await this.thread.ask('drain', null, { timeoutMs: REPORT_MS }).catch(() => {}) // it died
  }

  async stop(): Promise<void> {
    await this.thread.stop(STOP_MS).catch(() => {}) // it has ended, and its counts since its last flush are lost
  }

  /**
   * Sets the thread up. Its caches must hear of every change after their first read. So its peers are connected first and
   * confirm that; then the thread gets its ends of the channels and begins to serve.
   * @throws Error when it does not listen in time, or a peer does not confirm.
   */
  async setUp(peers: readonly HttpThread[]): Promise<void> {
    const { makeSetup, addPeer, host, port, publicUrl } = this.options
    this.countedBefore = this.counted
    const peerPorts: MessagePort[] = []
    const newPort = () => {
      const { port1, port2 } = new MessageChannel()
      peerPorts.push(port1)
      return port2
    }
    const name = this.starts === 0 ? `${this.index}` : `${this.index}.${this.starts}`
    this.starts++
    try {
      addPeer(newPort())
      await Promise.all(peers.map((peer) => peer.meet(newPort())))
      const setup: ThreadSetup = { ...makeSetup(name), peerPorts }
      const { shards, control, local = [] } = setup.shardEnds
      await this.thread.ask(
        'start',
        { setup, host, port, publicUrl },
        { timeoutMs: START_MS, transfer: [...shards, ...local, control, ...peerPorts] },
      )
      this.isListening = true
      if (this.isDraining) await this.drain()
    } catch (cause) {
      for (const each of peerPorts) each.close() // otherwise peers wait for it to confirm changes
      throw cause
    }
  }

  async report(): Promise<ThreadState> {
    const now = await this.measure()
    // A silent thread keeps its last report: Prometheus would take a decreasing counter for a new one.
    if (now !== null) this.counted = continuedFrom(this.countedBefore, now)
    return { report: this.counted, isUp: now !== null }
  }

  private async measure(): Promise<ThreadReport | null> {
    if (!this.thread.isRunning) return null
    return await this.thread.ask('measure', null, { timeoutMs: REPORT_MS }).catch(() => null)
  }

  async recall<Kind extends RecentKind>(
    kind: Kind,
    input: RecentQuestions[Kind]['input'],
  ): Promise<RecentQuestions[Kind]['answer'] | null> {
    if (!this.thread.isRunning) return null
    const question = { kind, input } as RecentQuestion // the parameters belong together
    const answer = await this.thread.ask('recall', question, { timeoutMs: REPORT_MS }).catch(() => null)
    return answer as RecentQuestions[Kind]['answer'] | null // of the same kind
  }

  /** Null = it does not listen, so that nobody gets an answer from it. */
  standing(hash: string): Promise<Standing | null> | null {
    if (!this.isListening) return null
    return this.thread.ask('standing', hash, { timeoutMs: REPORT_MS }).catch(() => null)
  }

  /** Resolves when this thread's caches report every change to the other end. @throws Error */
  private meet(port: MessagePort): Promise<void> {
    return this.thread.ask('meet', port, { timeoutMs: START_MS, transfer: [port] })
  }

  private answer(notice: HttpNotice): Promise<void> {
    if ('scrape' in notice) return this.scrape(notice.scrape)
    if ('ask' in notice) return this.askAll(notice.ask)
    return 'history' in notice ? this.giveHistory(notice.history) : this.recallAll(notice.recall)
  }

  private async scrape(id: number): Promise<void> {
    const text = await this.options.metricsText().catch(() => null)
    this.thread.send('scraped', { id, text })
  }

  private async giveHistory(id: number): Promise<void> {
    this.thread.send('historyGiven', { id, samples: await this.options.statusHistory() })
  }

  private async recallAll({ id, kind, input }: RecentQuestion & { id: number }): Promise<void> {
    const recalled = await this.options.recall(kind, input).catch(() => null)
    this.thread.send('recalled', { id, recalled })
  }

  private async askAll({ id, ...question }: Question & { id: number }): Promise<void> {
    const asked = await this.options.askServers(question).catch(() => null)
    this.thread.send('asked', { id, asked })
  }
}

const REPORT_MS = 1000
const START_MS = 10_000
const RESTART_DELAYS_MS = [0, 1000]
/** Longer than a thread's own time limits for requests, limiter and last flush. */
const STOP_MS = 8000
