import { type Listener, listen } from '../doors/http/listen.ts'
import { systemClock } from '../lib/clock.ts'
import { systemTimers, within } from '../lib/timers.ts'
import { logUnhandledRejections } from '../log.ts'
import type { ThreadReport } from '../observe/measures.ts'
import type { Changes } from '../records/changes.ts'
import { createApp } from './app.ts'
import { type Deps, openDeps, reportThread, type ThreadSetup } from './deps.ts'

/** An additional HTTP thread: the same app on the same port, with its own caches, router and recorder. */

/** Main thread → HTTP thread. */
export type ToHttp =
  /** Reply with `measured` and the same id. */
  | { kind: 'measure'; id: number }
  /** Connects to the caches of another HTTP thread. Reply with `met` and the same id. May arrive before `start`. */
  | { kind: 'meet'; id: number; port: MessagePort }
  /** The reply to `scrape`; null = it failed. */
  | { kind: 'scraped'; id: number; text: string | null }
  | { kind: 'start'; setup: ThreadSetup; host: string; port: number; publicUrl: string }
  | { kind: 'stop' }
/** HTTP thread → main thread: one `listening` or `failed` after `start`, one `stopped` after `stop`. */
export type FromHttp =
  | { kind: 'measured'; id: number; report: ThreadReport }
  | { kind: 'met'; id: number }
  /** A client asked this thread for the metrics of the process. */
  | { kind: 'scrape'; id: number }
  | { kind: 'listening' }
  | { kind: 'failed'; reason: string }
  | { kind: 'stopped' }

declare const self: Worker

logUnhandledRejections()
const send = (message: FromHttp) => self.postMessage(message)

/** Ports of threads that were met before `start`. */
const early: MessagePort[] = []
let changes: Changes | null = null
let opened: { deps: Deps; listener: Listener; close: () => Promise<void> } | null = null

self.onmessage = async ({ data }: MessageEvent<ToHttp>) => {
  switch (data.kind) {
    case 'start':
      try {
        const { deps, close } = openDeps(data.setup, {
          clock: systemClock,
          publicUrl: () => data.publicUrl,
          metricsText,
        })
        const { host, port } = data
        const { connectionsMax, memoryBytesMax } = data.setup.config.listen
        changes = deps.changes
        for (const port of early) changes.addPeer(port)
        opened = {
          deps,
          listener: await listen(createApp(deps), {
            host,
            port,
            socketPath: null,
            connectionsMax,
            memoryBytesMax,
            isShared: true,
            counts: deps.measures.connections,
          }),
          close,
        }
        send({ kind: 'listening' })
      } catch (cause) {
        send({ kind: 'failed', reason: cause instanceof Error ? cause.message : String(cause) })
      }
      break
    case 'measure':
      if (opened !== null) send({ kind: 'measured', id: data.id, report: reportThread(opened.deps) })
      break
    case 'meet':
      if (changes === null) early.push(data.port)
      else changes.addPeer(data.port)
      send({ kind: 'met', id: data.id })
      break
    case 'scraped':
      scrapes.get(data.id)?.(data.text)
      break
    case 'stop':
      void stop()
      break
    default:
      data satisfies never
  }
}

const scrapes = new Map<number, (text: string | null) => void>()
let lastScrape = 0

/** Asks the main thread, which collects from all threads. @throws Error when it does not answer in time. */
async function metricsText(): Promise<string> {
  const id = ++lastScrape
  const { promise, resolve } = Promise.withResolvers<string | null>()
  scrapes.set(id, resolve)
  send({ kind: 'scrape', id })
  const text = await within(systemTimers, SCRAPE_MS, promise, { late: () => null })
  scrapes.delete(id)
  if (text === null) throw new Error('the main thread gave no metrics')
  return text
}

/** Longer than the main thread waits for the other threads. */
const SCRAPE_MS = 3000

async function stop(): Promise<void> {
  await opened?.listener.stop()
  await opened?.close()
  send({ kind: 'stopped' })
}
