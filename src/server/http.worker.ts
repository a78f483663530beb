import type { Asked } from '../api/parts.ts'
import type { StatusSample } from '../api/server/status-history.ts'
import { type Listener, listen } from '../doors/http/listen.ts'
import { systemClock } from '../lib/clock.ts'
import { serveOwner } from '../lib/managed-thread.ts'
import { systemTimers, within } from '../lib/timers.ts'
import { logUnhandledRejections } from '../log.ts'
import type { ThreadReport } from '../observe/measures.ts'
import type { Recalled, RecentKind, RecentQuestion, RecentQuestions } from '../recent/recent.ts'
import type { Question } from '../records/questions.ts'
import type { Standing } from '../verify/standing.ts'
import { createApp } from './app.ts'
import { type Deps, openDeps, reportThread, standingHere, type ThreadSetup } from './deps.ts'

/** An additional HTTP thread: the same app on the same port, with its own caches, router and recorder. */

/** What the main thread asks of an HTTP thread. `start` comes first. */
export type HttpRequests = {
  /** Answered when it listens. */
  start(input: { setup: ThreadSetup; host: string; port: number; publicUrl: string }): void
  measure(input: null): ThreadReport
  /** The server drains: answers are the last of their connections. */
  drain(input: null): void
  /** Connects to the caches of another HTTP thread. */
  meet(port: MessagePort): void
  /** The reply to {@link HttpNotice}; null = it failed. */
  scraped(input: { id: number; text: string | null }): void
  /** The reply to {@link HttpNotice}. */
  historyGiven(input: { id: number; samples: readonly StatusSample[] }): void
  /** What this thread remembers. */
  recall(question: RecentQuestion): RecentQuestions[RecentKind]['answer'] | null
  /** The reply to {@link HttpNotice}; null = it failed. */
  recalled(input: { id: number; recalled: Recalled<RecentKind> | null }): void
  /** What this thread answers about the key with this hash. */
  standing(hash: string): Standing
  /** The reply to {@link HttpNotice}; null = it failed. */
  asked(input: { id: number; asked: Asked | null }): void
  stop(input: null): void
}
/**
 * A client asked this thread for the metrics of the process, for its figures by minute, for what all threads remember, or for
 * what all servers answer about a key. Reply with `scraped`, `historyGiven`, `recalled` or `asked`, and the same id.
 */
export type HttpNotice =
  | { scrape: number }
  | { history: number }
  | { recall: RecentQuestion & { id: number } }
  | { ask: Question & { id: number } }

declare const self: Worker

logUnhandledRejections()

let opened: { deps: Deps; listener: Listener; close: () => Promise<void> } | null = null

function started(): NonNullable<typeof opened> {
  if (opened === null) throw new Error('the HTTP thread has not been started')
  return opened
}

const { notify } = serveOwner<HttpRequests, HttpNotice>(self, {
  async start({ setup, host, port, publicUrl }) {
    const { deps, ready, close } = openDeps(setup, {
      clock: systemClock,
      publicUrl: () => publicUrl,
      metricsText,
      statusHistory,
      recall,
      askServers,
    })
    await ready
    const { connectionsMax, memoryBytesMax } = setup.config.listen
    const listener = await listen(createApp(deps), {
      host,
      port,
      socketPath: null,
      connectionsMax,
      memoryBytesMax,
      isShared: true,
      counts: deps.measures.connections,
    })
    deps.life.state = 'ready'
    opened = { deps, listener, close }
  },
  drain() {
    const { deps, listener } = started()
    deps.life.state = 'draining'
    listener.drain()
  },
  measure: () => reportThread(started().deps),
  meet: (port) => started().deps.invalidations.addPeer(port),
  scraped({ id, text }) {
    scrapes.get(id)?.(text)
  },
  historyGiven({ id, samples }) {
    histories.get(id)?.(samples)
  },
  recall: ({ kind, input }) => started().deps.recent?.answer(kind, input) ?? null,
  recalled({ id, recalled }) {
    recalls.get(id)?.(recalled)
  },
  standing: (hash) => standingHere(started().deps, hash),
  asked({ id, asked }) {
    asks.get(id)?.(asked)
  },
  async stop() {
    await opened?.listener.stop()
    await opened?.close()
  },
})

const scrapes = new Map<number, (text: string | null) => void>()
let lastScrape = 0

/** Asks the main thread, which collects from all threads. @throws Error when it does not answer in time. */
async function metricsText(): Promise<string> {
  const id = ++lastScrape
  const { promise, resolve } = Promise.withResolvers<string | null>()
  scrapes.set(id, resolve)
  notify({ scrape: id })
  const text = await within(systemTimers, SCRAPE_MS, promise, { late: () => null })
  scrapes.delete(id)
  if (text === null) throw new Error('the main thread gave no metrics')
  return text
}

const histories = new Map<number, (samples: readonly StatusSample[]) => void>()
let lastHistory = 0

/** Asks the main thread, which keeps them. @throws Error when it does not answer in time. */
async function statusHistory(): Promise<readonly StatusSample[]> {
  const id = ++lastHistory
  const { promise, resolve } = Promise.withResolvers<readonly StatusSample[]>()
  histories.set(id, resolve)
  notify({ history: id })
  try {
    return await within(systemTimers, SCRAPE_MS, promise)
  } finally {
    histories.delete(id)
  }
}

const recalls = new Map<number, (recalled: Recalled<RecentKind> | null) => void>()
let lastRecall = 0

/** Asks the main thread, which asks all threads. @throws Error when it does not answer in time. */
async function recall<Kind extends RecentKind>(
  kind: Kind,
  input: RecentQuestions[Kind]['input'],
): Promise<Recalled<Kind>> {
  const id = ++lastRecall
  const { promise, resolve } = Promise.withResolvers<Recalled<RecentKind> | null>()
  recalls.set(id, resolve)
  notify({ recall: { id, kind, input } as RecentQuestion & { id: number } }) // the parameters belong together
  const recalled = await within(systemTimers, SCRAPE_MS, promise, { late: () => null })
  recalls.delete(id)
  if (recalled === null) throw new Error('the main thread does not answer')
  return recalled as Recalled<Kind> // of the same kind
}

const asks = new Map<number, (asked: Asked | null) => void>()
let lastAsk = 0

/** Asks the main thread, which asks all threads and servers. @throws Error when it does not answer in time. */
async function askServers(question: Question): Promise<Asked> {
  const id = ++lastAsk
  const { promise, resolve } = Promise.withResolvers<Asked | null>()
  asks.set(id, resolve)
  notify({ ask: { id, ...question } })
  const asked = await within(systemTimers, SCRAPE_MS, promise, { late: () => null })
  asks.delete(id)
  if (asked === null) throw new Error('the main thread does not answer')
  return asked
}

/** Longer than the main thread waits for the other threads and servers. */
const SCRAPE_MS = 3000
