import { StartError } from '../db/data-dir.ts'
import type { ThreadSetup } from '../deps.ts'
import { log } from '../log.ts'
import type { FromHttp, ToHttp } from './http.worker.ts'
import type { ThreadReport } from './measures.ts'

export type HttpThread = {
  stop(): Promise<void>
  /** What the thread counted; null when it does not answer in time. */
  report(): Promise<ThreadReport | null>
}

/**
 * Starts one more HTTP thread on a port that this process already listens on.
 * @throws StartError when it does not listen in time.
 */
export async function startHttpThread(
  setup: ThreadSetup,
  options: { host: string; port: number; publicUrl: string },
  metricsText: () => Promise<string>,
): Promise<HttpThread> {
  const worker = new Worker(new URL('./http.worker.ts', import.meta.url))
  const { promise: listening, resolve, reject } = Promise.withResolvers<void>()
  const { promise: stopped, resolve: hasStopped } = Promise.withResolvers<void>()
  let isStarted = false
  const reports = new Map<number, (report: ThreadReport) => void>()
  let lastId = 0
  const scrape = async (id: number) => {
    const text = await metricsText().catch(() => null)
    worker.postMessage({ kind: 'scraped', id, text } satisfies ToHttp)
  }
  worker.addEventListener('message', ({ data }: MessageEvent<FromHttp>) => {
    if (data.kind === 'listening') resolve()
    else if (data.kind === 'failed') reject(new Error(data.reason))
    else if (data.kind === 'measured') reports.get(data.id)?.(data.report)
    else if (data.kind === 'scrape') void scrape(data.id)
    else hasStopped()
  })
  worker.addEventListener('error', (event) => {
    reject(new Error(event.message))
    if (isStarted) log('error', 'an HTTP thread failed', { message: event.message })
  })
  worker.addEventListener('close', () => hasStopped())
  worker.postMessage({ kind: 'start', setup, ...options } satisfies ToHttp, [
    ...setup.shardPorts,
    ...setup.peerPorts,
  ])
  try {
    await Promise.race([
      listening,
      Bun.sleep(START_MS).then(() => reject(new Error(`no answer in ${START_MS} ms`))),
    ])
    await listening
  } catch (cause) {
    worker.terminate()
    throw new StartError(`an HTTP thread does not start: ${cause instanceof Error ? cause.message : cause}`, {
      cause,
    })
  }
  isStarted = true
  return {
    report: async () => {
      const id = ++lastId
      const { promise, resolve } = Promise.withResolvers<ThreadReport | null>()
      reports.set(id, resolve)
      const timer = setTimeout(() => resolve(null), REPORT_MS)
      worker.postMessage({ kind: 'measure', id } satisfies ToHttp)
      const report = await promise
      clearTimeout(timer)
      reports.delete(id)
      return report
    },
    stop: async () => {
      worker.postMessage({ kind: 'stop' } satisfies ToHttp)
      await Promise.race([stopped, Bun.sleep(STOP_MS)])
      worker.terminate()
    },
  }
}

const REPORT_MS = 1000
const START_MS = 10_000
/** Longer than a thread's own patience with requests, its limiter and its last flush. */
const STOP_MS = 8000
