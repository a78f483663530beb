import type { DatabaseCondition } from '../db/guarded-pool.ts'
import type { Fullness } from '../db/kept-rows.ts'
import { VERSION } from '../lib/version.ts'
import { LARGEST_OWNERS, type ShardStats } from '../limiter/threads/protocol.ts'
import { type Family, histogramSamples, type Sample } from './exposition.ts'
import { LATENCY_BOUNDS_MS, type ThreadReport } from './measures.ts'

/** Everything that a scrape reports, from all threads. */
export type ProcessReport = {
  /** The main thread first. */
  threads: ThreadState[]
  shards: (ShardStats | null)[]
  limiterBytesMax: number
  database: DatabaseCondition
  /** Workspaces that use half of a bound or more. */
  fullest: readonly Fullness[]
  startedAtMs: number
  residentBytes: number
}

/** Of one HTTP thread. */
export type ThreadState = {
  /** The last known report, with the counts of dead threads that this one replaced. Null = there was none. */
  report: ThreadReport | null
  /** True when the thread answered this scrape. */
  isUp: boolean
}

/**
 * Generates the metric families one by one, so that the writer can let requests run in between.
 *
 * Requests of all threads are added up. Only figures of load are for each thread.
 */
export function* metricFamilies(report: ProcessReport): Generator<Family, void> {
  const threads = report.threads.map((thread) => thread.report).filter((thread) => thread !== null)
  const samplesOf = (of: readonly ThreadState[], value: (thread: ThreadReport) => number | null): Sample[] =>
    of.flatMap((thread) => {
      const number = thread.report && value(thread.report)
      if (number === null) return []
      return [{ labels: { thread: `http-${report.threads.indexOf(thread)}` }, value: number }]
    })
  // Counters of a thread that does not answer stay at their last value. Its other values are unknown.
  const counted = (value: (thread: ThreadReport) => number | null) => samplesOf(report.threads, value)
  const each = (value: (thread: ThreadReport) => number | null) =>
    samplesOf(
      report.threads.filter(({ isUp }) => isUp),
      value,
    )
  const shards = (value: (stats: ShardStats) => number): Sample[] =>
    report.shards.flatMap((stats, shard) =>
      stats === null ? [] : [{ labels: { shard }, value: value(stats) }],
    )
  const shardThreads = (value: (stats: ShardStats | null) => number | null): Sample[] =>
    report.shards.flatMap((stats, index) => {
      const number = value(stats)
      return number === null ? [] : [{ labels: { thread: `shard-${index}` }, value: number }]
    })

  yield gauge('tollgate_build_info', 'Which version runs; always 1.', [
    { labels: { version: VERSION, bun: Bun.version }, value: 1 },
  ])
  yield gauge(
    'process_start_time_seconds',
    'When the server started, Unix seconds.',
    single(report.startedAtMs / 1000),
  )
  yield gauge('process_resident_memory_bytes', 'Memory the process holds.', single(report.residentBytes))
  yield gauge(
    'tollgate_database_up',
    'Whether the database answers: 1 or 0.',
    single(report.database === 'away' ? 0 : 1),
  )
  yield gauge(
    'tollgate_database_writable',
    'Whether the database takes writes: 1 or 0.',
    single(report.database === 'ok' ? 1 : 0),
  )
  yield gauge('tollgate_thread_up', 'Whether a thread answers: 1 or 0.', [
    ...report.threads.map((thread, index) => ({
      labels: { thread: `http-${index}` },
      value: thread.isUp ? 1 : 0,
    })),
    ...shardThreads((stats) => (stats === null ? 0 : 1)),
  ])
  yield gauge(
    'tollgate_connections',
    'Open connections of clients.',
    each(({ connections }) => connections.open),
  )
  yield counter(
    'tollgate_connections_refused_total',
    'Connections refused because there were too many.',
    counted(({ connections }) => connections.refused),
  )
  yield gauge(
    'tollgate_http_held_bytes',
    'Memory of requests that did not arrive as a whole, wait for their turn, or have an answer that the client has not read.',
    each(({ connections }) => connections.heldBytes),
  )
  yield counter(
    'tollgate_http_given_up_total',
    'Connections given up because that memory reached TOLLGATE_HTTP_MEMORY_MIB.',
    counted(({ connections }) => connections.givenUp),
  )
  yield gauge(
    'tollgate_event_loop_lag_seconds',
    'How late a timer of the thread was at worst in the last minute.',
    [
      ...each(({ loopLagMs }) => loopLagMs / 1000),
      ...shardThreads((stats) => (stats === null ? null : stats.loopLagMs / 1000)),
    ],
  )
  yield* requestFamilies(threads)
  yield counter(
    'tollgate_verifications_total',
    'Keys verified, by keys.verifyKey and auth.forward, by outcome.',
    summed(threads.flatMap(({ verifications }) => Object.entries(verifications))).map(([outcome, value]) => ({
      labels: { outcome },
      value,
    })),
  )
  yield counter(
    'tollgate_ratelimit_decisions_total',
    'Rate limit decisions by namespace; those beyond the first hundred are together, without a name.',
    decisionSamples(threads),
  )
  yield counter('tollgate_cache_hits_total', 'Lookups answered from a cache.', cacheSamples(threads, 'hits'))
  yield counter(
    'tollgate_cache_misses_total',
    'Lookups that asked the database.',
    cacheSamples(threads, 'misses'),
  )
  yield gauge(
    'tollgate_workspace_bound_used_ratio',
    'How much of its bound a workspace has in use, from 0.5 on, as of the last five minutes; the hundred fullest.',
    report.fullest.map(({ workspaceId, bound, used, value }) => ({
      labels: { workspace: workspaceId, bound },
      value: used / Math.max(1, value),
    })),
  )
  yield counter(
    'tollgate_workspace_bound_reached_total',
    'Refusals because a workspace had as much of something as it may have; beyond a hundred, without its name.',
    reachedSamples(threads),
  )
  yield gauge(
    'tollgate_limiter_windows_live',
    'Open windows in memory, those included that ended since the last flush.',
    shards(({ windowsLive }) => windowsLive),
  )
  yield gauge(
    'tollgate_limiter_windows_dirty',
    'Of them, changed since they were last written to the database.',
    shards(({ windowsDirty }) => windowsDirty),
  )
  yield gauge(
    'tollgate_limiter_memory_bytes',
    'Memory of open windows.',
    shards(({ tableBytes }) => tableBytes),
  )
  yield gauge(
    'tollgate_limiter_memory_budget_bytes',
    'What the windows of all shards together may take.',
    single(report.limiterBytesMax),
  )
  yield gauge(
    'tollgate_limiter_over_budget',
    'Whether new windows are over-counted for want of memory: 1 or 0.',
    shards(({ isOverBudget }) => (isOverBudget ? 1 : 0)),
  )
  yield counter(
    'tollgate_limiter_over_budget_charges_total',
    'Charges counted that way.',
    shards(({ chargesOverBudget }) => chargesOverBudget),
  )
  const shares = workspaceShares(report.shards)
  yield gauge(
    'tollgate_limiter_workspace_bytes',
    'Memory of open windows of the workspaces that have the most.',
    shares.map(({ workspace, bytes }) => ({ labels: { workspace }, value: bytes })),
  )
  yield counter(
    'tollgate_limiter_workspace_over_budget_charges_total',
    'Charges of these workspaces that were counted without a window of their own.',
    shares.map(({ workspace, charges }) => ({ labels: { workspace }, value: charges })),
  )
  yield counter(
    'tollgate_limiter_windows_flushed_total',
    'Changed windows written to the database.',
    shards(({ cellsFlushed }) => cellsFlushed),
  )
  yield gauge(
    'tollgate_limiter_flush_duration_seconds',
    'What the last flush took.',
    shards(({ flushTookMs }) => flushTookMs / 1000),
  )
  yield gauge(
    'tollgate_limiter_flush_lag_seconds',
    'For how long the database has taken no windows; 0 while it does.',
    shards(({ flushAwayMs }) => flushAwayMs / 1000),
  )
  yield gauge(
    'tollgate_usage_buffered_cells',
    'Usage counts in memory that are not yet written.',
    each(({ usage }) => usage.cellsBuffered),
  )
  yield gauge(
    'tollgate_usage_batches_aside',
    'Batches of usage that were moved out of memory while the database did not take them.',
    each(({ usage }) => usage.batchesSpilled),
  )
  yield gauge(
    'tollgate_usage_flush_duration_seconds',
    'What the last flush of usage took.',
    each(({ usage }) => usage.flushTookMs / 1000),
  )
  yield gauge(
    'tollgate_usage_flush_lag_seconds',
    'For how long the database has taken no usage; 0 while it does.',
    each(({ usage }) => usage.flushAwayMs / 1000),
  )
  yield counter(
    'tollgate_spans_exported_total',
    'Spans that the collector took.',
    counted(({ spans }) => spans?.exported ?? null),
  )
  yield counter(
    'tollgate_spans_dropped_total',
    'Spans that it will never get.',
    counted(({ spans }) => spans?.dropped ?? null),
  )
  yield gauge(
    'tollgate_spans_queued',
    'Spans that wait to be exported.',
    each(({ spans }) => spans?.queued ?? null),
  )
}

const gauge = (name: string, help: string, samples: Iterable<Sample>): Family => ({
  name,
  help,
  type: 'gauge',
  samples,
})
const counter = (name: string, help: string, samples: Iterable<Sample>): Family => ({
  name,
  help,
  type: 'counter',
  samples,
})
const single = (value: number): Sample[] => [{ value }]

function* requestFamilies(threads: readonly ThreadReport[]): Generator<Family, void> {
  const byRoute = Map.groupBy(
    threads.flatMap(({ routes }) => Object.entries(routes)),
    ([route]) => route,
  )
  yield counter('tollgate_http_requests_total', 'Answered requests by route and status.', requests())
  yield {
    name: 'tollgate_http_request_duration_seconds',
    help: 'Time from the first byte handed to us to the answer handed back.',
    type: 'histogram',
    samples: durations(),
  }

  function* requests(): Generator<Sample, void> {
    for (const [route, entries] of byRoute)
      for (const [status, value] of summed(entries.flatMap(([, { statuses }]) => Object.entries(statuses))))
        yield { labels: { route, status }, value }
  }

  function* durations(): Generator<Sample, void> {
    for (const [route, entries] of byRoute) {
      const counts = LATENCY_BOUNDS_MS.concat(0).map((_, interval) =>
        entries.reduce((sum, [, report]) => sum + (report.counts[interval] ?? 0), 0),
      )
      const sum = entries.reduce((ms, [, { sumMs }]) => ms + sumMs, 0) / 1000
      yield* histogramSamples({ route }, { bounds: BOUNDS_SECONDS, counts, sum })
    }
  }
}

const BOUNDS_SECONDS = LATENCY_BOUNDS_MS.map((ms) => ms / 1000)

/** The largest workspaces over all shards. A workspace without a call since the start has no name yet. */
function workspaceShares(
  shards: readonly (ShardStats | null)[],
): { workspace: string; bytes: number; charges: number }[] {
  const byOwner = new Map<number, { workspace: string; bytes: number; charges: number }>()
  for (const { owner, workspaceId, bytes, chargesOverBudget } of shards.flatMap(
    (stats) => stats?.largest ?? [],
  )) {
    const share = byOwner.get(owner) ?? { workspace: `unknown_${owner}`, bytes: 0, charges: 0 }
    byOwner.set(owner, share)
    if (workspaceId !== null) share.workspace = workspaceId
    share.bytes += bytes
    share.charges += chargesOverBudget
  }
  return [...byOwner.values()].sort((a, b) => b.bytes - a.bytes).slice(0, LARGEST_OWNERS)
}

/** Adds up values with equal names. Keeps the order of the names. */
function summed(entries: readonly [string, number][]): [string, number][] {
  const sums = new Map<string, number>()
  for (const [name, value] of entries) sums.set(name, (sums.get(name) ?? 0) + value)
  return [...sums]
}

function* decisionSamples(threads: readonly ThreadReport[]): Generator<Sample, void> {
  const byNamespace = Map.groupBy(
    threads.flatMap(({ decisions }) => decisions),
    ({ namespaceId }) => namespaceId,
  )
  for (const [namespaceId, decisions] of byNamespace) {
    const { workspaceId = '', name = '' } = decisions[0] ?? {}
    const labels = { workspace: workspaceId, namespace: name, namespace_id: namespaceId }
    for (const decision of ['passed', 'denied'] as const) {
      const value = decisions.reduce((sum, each) => sum + each[decision], 0)
      yield { labels: { ...labels, decision }, value }
    }
  }
}

const reachedSamples = (threads: readonly ThreadReport[]): Sample[] => {
  const byName = Map.groupBy(
    threads.flatMap(({ boundsReached }) => boundsReached),
    ({ workspaceId, bound }) => `${workspaceId} ${bound}`,
  )
  return [...byName.values()].flatMap((all) => {
    const [first] = all
    if (first === undefined) return []
    const labels = { workspace: first.workspaceId, bound: first.bound }
    return [{ labels, value: all.reduce((sum, { count }) => sum + count, 0) }]
  })
}

const cacheSamples = (threads: readonly ThreadReport[], kind: 'hits' | 'misses'): Sample[] =>
  summed(
    threads.flatMap(({ caches }) =>
      Object.entries(caches).map(([name, counts]): [string, number] => [name, counts[kind]]),
    ),
  ).map(([cache, value]) => ({ labels: { cache }, value }))
