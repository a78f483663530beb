import { LoopLag } from '../lib/loop-lag.ts'
import { systemTimers } from '../lib/timers.ts'
import type { Outcome, UsageStats } from '../usage/recorder.ts'
import type { SpanStats } from './tracing/exporter.ts'

/** Counts of one HTTP thread since its start. Plain data, as threads send it to each other. */
export type ThreadReport = {
  routes: Record<string, RouteReport>
  /** By outcome, including `NOT_FOUND`. */
  verifications: Record<string, number>
  /** The first {@link NAMESPACES_MAX} namespaces of the thread, then one entry without id for all others. */
  decisions: Decisions[]
  caches: Record<string, { hits: number; misses: number }>
  /** The first {@link REACHED_MAX} pairs of workspace and bound, then entries without a workspace for all others. */
  boundsReached: Reached[]
  usage: UsageStats
  /** Null = no spans are exported. */
  spans: SpanStats | null
  /** Largest delay of a timer in the last minute, ms. */
  loopLagMs: number
  connections: ConnectionCounts
}
/** How often a workspace was refused something because of a bound. */
export type Reached = { workspaceId: string; bound: string; count: number }
/** Clients' connections. */
export type ConnectionCounts = {
  open: number
  /** Refused since the start, because too many were open. */
  refused: number
  /** Bytes of unfinished requests and of answers not yet taken. */
  heldBytes: number
  /** Given up since the start, because too many bytes were held. */
  givenUp: number
}
export type RouteReport = { statuses: Record<number, number>; counts: number[]; sumMs: number }
export type Decisions = {
  workspaceId: string
  namespaceId: string
  name: string
  passed: number
  denied: number
}

/**
 * Adds the counts of a dead thread to those of its replacement: Prometheus takes a counter that decreases for one that
 * restarted at 0. Values that are not counters, such as open connections, are the replacement's.
 * @param before Null = there was no thread before.
 */
export function continuedFrom(before: ThreadReport | null, now: ThreadReport): ThreadReport {
  if (before === null) return now
  return {
    ...now,
    routes: merged(before.routes, now.routes, (a, b) => ({
      statuses: merged(a.statuses, b.statuses, plus),
      counts: a.counts.map((count, interval) => count + (b.counts[interval] ?? 0)),
      sumMs: a.sumMs + b.sumMs,
    })),
    verifications: merged(before.verifications, now.verifications, plus),
    decisions: mergedDecisions([...before.decisions, ...now.decisions]),
    caches: merged(before.caches, now.caches, (a, b) => ({
      hits: a.hits + b.hits,
      misses: a.misses + b.misses,
    })),
    boundsReached: mergedReached([...before.boundsReached, ...now.boundsReached]),
    spans: now.spans && {
      ...now.spans,
      exported: now.spans.exported + (before.spans?.exported ?? 0),
      dropped: now.spans.dropped + (before.spans?.dropped ?? 0),
    },
    connections: {
      ...now.connections,
      refused: now.connections.refused + before.connections.refused,
      givenUp: now.connections.givenUp + before.connections.givenUp,
    },
  }
}

const plus = (a: number, b: number) => a + b

function merged<T>(
  before: Record<string, T>,
  now: Record<string, T>,
  both: (a: T, b: T) => T,
): Record<string, T> {
  const all = { ...before }
  for (const [name, value] of Object.entries(now)) {
    const earlier = before[name]
    all[name] = earlier === undefined ? value : both(earlier, value)
  }
  return all
}

/** As in one thread, the first namespaces keep their own entry, so that none moves into the entry of all others or back. */
function mergedDecisions(decisions: readonly Decisions[]): Decisions[] {
  const byNamespace = new Map<string, Decisions>()
  const others: Decisions = { ...NO_NAMESPACE }
  for (const each of decisions) {
    let sum = byNamespace.get(each.namespaceId)
    if (sum === undefined && each.namespaceId !== '' && byNamespace.size < NAMESPACES_MAX) {
      sum = { ...each, passed: 0, denied: 0 }
      byNamespace.set(each.namespaceId, sum)
    }
    sum ??= others
    sum.passed += each.passed
    sum.denied += each.denied
  }
  return [...byNamespace.values(), ...(others.passed + others.denied > 0 ? [others] : [])]
}

/** As in one thread, the first pairs keep their own entry. */
function mergedReached(all: readonly Reached[]): Reached[] {
  const sums = new Map<string, Reached>()
  for (const { workspaceId, bound, count } of all) addReached(sums, workspaceId, { bound, count })
  return [...sums.values()]
}

function addReached(
  sums: Map<string, Reached>,
  workspaceId: string,
  { bound, count }: { bound: string; count: number },
): void {
  const name = `${workspaceId} ${bound}`
  const isNamed = sums.has(name) || sums.size < REACHED_MAX
  const key = isNamed ? name : bound
  const sum = sums.get(key) ?? { workspaceId: isNamed ? workspaceId : '', bound, count: 0 }
  sum.count += count
  sums.set(key, sum)
}

/** Upper bounds of the latency intervals, ms. */
export const LATENCY_BOUNDS_MS = [0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000]

/** Counts of one HTTP thread. Counting adds to plain numbers, 0.1 µs a request in all; sums are computed for a report. */
export class Measures {
  /** Updated by `http-server.ts`. */
  readonly connections: ConnectionCounts = { open: 0, refused: 0, heldBytes: 0, givenUp: 0 }
  readonly #routes = new Map<string, RouteMeasures>()
  readonly #verifications: Record<string, number> = {}
  readonly #decisions = new Map<string, Decisions>()
  readonly #others: Decisions = { ...NO_NAMESPACE }
  readonly #boundsReached = new Map<string, Reached>()
  readonly #lag = new LoopLag(systemTimers)

  start(): void {
    this.#lag.start()
  }

  stop(): void {
    this.#lag.stop()
  }

  /** The counts of one route, to be kept by its handler. */
  route(path: string): RouteMeasures {
    const route = this.#routes.get(path) ?? new RouteMeasures()
    this.#routes.set(path, route)
    return route
  }

  verified(outcome: Outcome | 'NOT_FOUND'): void {
    this.#verifications[outcome] = (this.#verifications[outcome] ?? 0) + 1
  }

  decided(workspaceId: string, namespace: { id: string; name: string }, passed: boolean): void {
    let decisions = this.#decisions.get(namespace.id)
    if (decisions === undefined) {
      decisions = this.#others
      if (this.#decisions.size < NAMESPACES_MAX) {
        decisions = { workspaceId, namespaceId: namespace.id, name: namespace.name, passed: 0, denied: 0 }
        this.#decisions.set(namespace.id, decisions)
      }
    }
    if (passed) decisions.passed++
    else decisions.denied++
  }

  boundReached(workspaceId: string, bound: string): void {
    addReached(this.#boundsReached, workspaceId, { bound, count: 1 })
  }

  /** Requests answered since the start. */
  get answered(): number {
    let sum = 0
    for (const route of this.#routes.values()) sum += route.answered
    return sum
  }

  report({ caches, usage, spans }: Pick<ThreadReport, 'caches' | 'usage' | 'spans'>): ThreadReport {
    const used = [...this.#routes].filter(([, { sumMs }]) => sumMs > 0)
    const { passed, denied } = this.#others
    return {
      routes: Object.fromEntries(used.map(([path, route]) => [path, route.report()])),
      verifications: { ...this.#verifications },
      decisions: [...this.#decisions.values(), ...(passed + denied > 0 ? [this.#others] : [])],
      caches,
      boundsReached: [...this.#boundsReached.values()],
      usage,
      spans,
      loopLagMs: this.#lag.worstMs,
      connections: { ...this.connections },
    }
  }
}

/** A tenant can create any number of namespaces, but a metrics store can only take so many series. */
export const NAMESPACES_MAX = 100
const REACHED_MAX = 100
const NO_NAMESPACE: Readonly<Decisions> = { workspaceId: '', namespaceId: '', name: '', passed: 0, denied: 0 }

export class RouteMeasures {
  readonly #statuses = new Map<number, number>()
  readonly #counts: number[] = Array(LATENCY_BOUNDS_MS.length + 1).fill(0)
  sumMs = 0

  add(status: number, ms: number): void {
    this.#statuses.set(status, (this.#statuses.get(status) ?? 0) + 1)
    let interval = 0
    while (interval < LATENCY_BOUNDS_MS.length && ms > (LATENCY_BOUNDS_MS[interval] ?? 0)) interval++
    this.#counts[interval] = (this.#counts[interval] ?? 0) + 1
    this.sumMs += ms
  }

  /** The sum of all intervals: each request is counted in one of them already. */
  get answered(): number {
    return this.#counts.reduce((sum, count) => sum + count, 0)
  }

  report(): RouteReport {
    return { statuses: Object.fromEntries(this.#statuses), counts: [...this.#counts], sumMs: this.sumMs }
  }
}
