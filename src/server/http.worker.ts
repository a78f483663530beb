import type { StatusSample } from '../api/server/status-history.ts'
import { type Listener, listen } from '../doors/http/listen.ts'
import { systemClock } from '../lib/clock.ts'
import { serveOwner } from '../lib/managed-thread.ts'
import { systemTimers, within } from '../lib/timers.ts'
import { logUnhandledRejections } from '../log.ts'
import type { ThreadReport } from '../observe/measures.ts'
import type { Recalled, RecentKind, RecentQuestion, RecentQuestions } from '../recent/recent.ts'
import { createApp } from './app.ts'
import { type Deps, openDeps, reportThread, type ThreadSetup } from './deps.ts'

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
  stop(input: null): void
}
/**
 * A client asked this thread for the metrics of the process, for its figures by minute, or for what all threads remember.
 * Reply with `scraped`, `historyGiven` or `recalled`, and the same id.
 */
export type HttpNotice =
  | { scrape: number }
  | { history: number }
  | { recall: RecentQuestion & { id: number } }

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

/** Longer than the main thread waits for the other threads. */
const SCRAPE_MS = 3000
