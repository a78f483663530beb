import { systemTimers, type Timers } from '../../lib/timers.ts'
import { type Figures, figuresOf, METHODS_MAX, type RouteFigures, within } from './get-status.ts'

/** Figures of a minute of this process. Counts are of the minute, the others as they were at its end. */
export type StatusSample = {
  /** End of the minute, Unix ms. */
  at: number
  /** Its length: longer when the process was stopped or busy. */
  lengthMs: number
  all: CallFigures
  /** Called in this minute, most called first. */
  methods: (CallFigures & { path: string })[]
  /** Of the older of usage and counts that are not in the database yet. */
  flushLagMs: number
  limiterBytes: number
  limiterBytesMax: number
  cacheHits: number
  cacheMisses: number
  connections: number
}

export type CallFigures = {
  calls: number
  /** Answers with a status of 500 and above. */
  failed: number
  /** Null = longer than is measured, or no call. */
  p50Ms: number | null
  p99Ms: number | null
}

/** Samples that are kept: three hours. A minute of all methods takes some 10 KB, so these take 2 MB at most. */
export const SAMPLES_MAX = 180
export const SAMPLE_MS = 60_000

/** What the server page shows of the last hours. In memory: a restart forgets it, and metrics keep more. */
export class StatusHistory {
  /** Oldest first. */
  readonly samples: StatusSample[] = []
  readonly #metricsText: () => Promise<string>
  readonly #timers: Timers
  readonly #clock: () => number
  #before: { figures: Figures | null; at: number }
  #cancel: (() => void) | null = null

  constructor(
    metricsText: () => Promise<string>,
    { clock, timers = systemTimers }: { clock: () => number; timers?: Timers },
  ) {
    this.#metricsText = metricsText
    this.#clock = clock
    this.#timers = timers
    this.#before = { figures: null, at: clock() }
  }

  start(): void {
    // One that fails is made up for by the next, which is then longer.
    this.#cancel = this.#timers.every(SAMPLE_MS, () => void this.sample().catch(() => {}))
  }

  stop(): void {
    this.#cancel?.()
  }

  async sample(): Promise<void> {
    const figures = figuresOf(await this.#metricsText())
    const at = this.#clock()
    this.samples.push(sampleOf(this.#before, { figures, at }))
    if (this.samples.length > SAMPLES_MAX) this.samples.shift()
    this.#before = { figures, at }
  }
}

function sampleOf(
  before: { figures: Figures | null; at: number },
  { figures, at }: { figures: Figures; at: number },
): StatusSample {
  const routesBefore = new Map(before.figures?.routes.map((each) => [each.path, each]))
  const routes = figures.routes.map((each) => sinceOf(routesBefore.get(each.path), each))
  const methods = routes
    .filter(({ calls }) => calls > 0)
    .sort((a, b) => b.calls - a.calls)
    .map((each) => ({ path: each.path, ...callsOf(each) }))
  const caches = (count: (each: Figures['caches'][number]) => number, from: Figures | null) =>
    (from?.caches ?? []).reduce((sum, each) => sum + count(each), 0)
  const since = (count: (each: Figures['caches'][number]) => number) =>
    Math.max(0, caches(count, figures) - caches(count, before.figures))
  return {
    at,
    lengthMs: Math.max(1, at - before.at),
    all: callsOf(sumOf(routes)),
    methods: methods.slice(0, METHODS_MAX),
    flushLagMs: Math.max(figures.usage.flushLagMs, figures.limiter.flushLagMs),
    limiterBytes: figures.limiter.bytes,
    limiterBytesMax: figures.limiter.bytesMax,
    cacheHits: since(({ hits }) => hits),
    cacheMisses: since(({ misses }) => misses),
    connections: figures.connections,
  }
}

/** Counts of a route since the sample before. A thread that was restarted may take some with it. */
function sinceOf(before: RouteFigures | undefined, now: RouteFigures): RouteFigures {
  const less = (from: number, count = 0) => Math.max(0, from - count)
  return {
    path: now.path,
    calls: less(now.calls, before?.calls),
    failed: less(now.failed, before?.failed),
    buckets: now.buckets.map(({ ms, calls }, index) => ({
      ms,
      calls: less(calls, before?.buckets[index]?.calls),
    })),
  }
}

/** All routes have the same buckets. */
function sumOf(routes: readonly RouteFigures[]): RouteFigures {
  const sum = (count: (each: RouteFigures) => number) =>
    routes.reduce((total, each) => total + count(each), 0)
  return {
    path: '',
    calls: sum(({ calls }) => calls),
    failed: sum(({ failed }) => failed),
    buckets: (routes[0]?.buckets ?? []).map(({ ms }, index) => ({
      ms,
      calls: sum(({ buckets }) => buckets[index]?.calls ?? 0),
    })),
  }
}

const callsOf = ({ calls, failed, buckets }: RouteFigures): CallFigures => ({
  calls,
  failed,
  p50Ms: calls === 0 ? null : within(buckets, 0.5, calls),
  p99Ms: calls === 0 ? null : within(buckets, 0.99, calls),
})
