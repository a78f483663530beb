import { type Family, histogramSamples, type Sample } from '../lib/exposition.ts'
import type { ShardStats } from '../limiter/protocol.ts'
import { VERSION } from './answer.ts'
import { LATENCY_BOUNDS_MS, type ThreadReport } from './measures.ts'

/** Everything a scrape tells, gathered from all threads. */
export type ProcessReport = {
  /** By thread, the main one first; null = it did not answer in time. */
  threads: (ThreadReport | null)[]
  shards: (ShardStats | null)[]
  limiterBytesMax: number
  isDatabaseThere: boolean
  startedAtMs: number
  residentBytes: number
}

/** Requests of all threads added up: which thread answered says nothing to anybody, but for how busy each was. */
export function metricFamilies(report: ProcessReport): Family[] {
  const threads = report.threads.filter((thread) => thread !== null)
  const each = (value: (thread: ThreadReport) => number): Sample[] =>
    report.threads.flatMap((thread, index) =>
      thread === null ? [] : [{ labels: { thread: `http-${index}` }, value: value(thread) }],
    )
  const shards = (value: (stats: ShardStats) => number): Sample[] =>
    report.shards.flatMap((stats, shard) =>
      stats === null ? [] : [{ labels: { shard }, value: value(stats) }],
    )
  const gauge = (name: string, help: string, samples: Sample[]): Family => ({
    name,
    help,
    type: 'gauge',
    samples,
  })
  const counter = (name: string, help: string, samples: Sample[]): Family => ({
    name,
    help,
    type: 'counter',
    samples,
  })
  const single = (value: number): Sample[] => [{ value }]

  return [
    gauge('tollgate_build_info', 'Which version runs; always 1.', [
      { labels: { version: VERSION.slice('tollgate/'.length), bun: Bun.version }, value: 1 },
    ]),
    gauge(
      'process_start_time_seconds',
      'When the server started, Unix seconds.',
      single(report.startedAtMs / 1000),
    ),
    gauge('process_resident_memory_bytes', 'Memory the process holds.', single(report.residentBytes)),
    gauge(
      'tollgate_database_up',
      'Whether the database answers: 1 or 0.',
      single(report.isDatabaseThere ? 1 : 0),
    ),
    gauge('tollgate_thread_up', 'Whether a thread answers: 1 or 0.', [
      ...report.threads.map((thread, index) => ({
        labels: { thread: `http-${index}` },
        value: thread === null ? 0 : 1,
      })),
      ...report.shards.map((stats, index) => ({
        labels: { thread: `shard-${index}` },
        value: stats === null ? 0 : 1,
      })),
    ]),
    gauge(
      'tollgate_event_loop_lag_seconds',
      'How late a timer of the thread was at worst in the last minute.',
      each(({ loopLagMs }) => loopLagMs / 1000),
    ),
    ...requestFamilies(threads),
    counter(
      'tollgate_verifications_total',
      'Answers of keys.verifyKey by outcome.',
      summed(threads.flatMap(({ verifications }) => Object.entries(verifications))).map(
        ([outcome, value]) => ({
          labels: { outcome },
          value,
        }),
      ),
    ),
    counter(
      'tollgate_ratelimit_decisions_total',
      'Rate limit decisions by namespace; those beyond the first hundred are together, without a name.',
      decisionSamples(threads),
    ),
    counter('tollgate_cache_hits_total', 'Lookups answered from a cache.', cacheSamples(threads, 'hits')),
    counter(
      'tollgate_cache_misses_total',
      'Lookups that asked the database.',
      cacheSamples(threads, 'misses'),
    ),
    gauge(
      'tollgate_limiter_memory_bytes',
      'Memory of open windows.',
      shards(({ tableBytes }) => tableBytes),
    ),
    gauge(
      'tollgate_limiter_memory_budget_bytes',
      'What the windows of all shards together may take.',
      single(report.limiterBytesMax),
    ),
    gauge(
      'tollgate_limiter_over_budget',
      'Whether new windows are over-counted for want of memory: 1 or 0.',
      shards(({ isOverBudget }) => (isOverBudget ? 1 : 0)),
    ),
    counter(
      'tollgate_limiter_over_budget_charges_total',
      'Charges counted that way.',
      shards(({ chargesOverBudget }) => chargesOverBudget),
    ),
    counter(
      'tollgate_limiter_windows_flushed_total',
      'Changed windows written to the database.',
      shards(({ cellsFlushed }) => cellsFlushed),
    ),
    gauge(
      'tollgate_limiter_flush_duration_seconds',
      'What the last flush took.',
      shards(({ flushTookMs }) => flushTookMs / 1000),
    ),
    gauge(
      'tollgate_limiter_flush_lag_seconds',
      'For how long the database has taken no windows; 0 while it does.',
      shards(({ flushAwayMs }) => flushAwayMs / 1000),
    ),
  ]
}

function requestFamilies(threads: readonly ThreadReport[]): Family[] {
  const requests: Sample[] = []
  const durations: Sample[] = []
  const byRoute = Map.groupBy(
    threads.flatMap(({ routes }) => Object.entries(routes)),
    ([route]) => route,
  )
  for (const [route, entries] of byRoute) {
    const reports = entries.map(([, report]) => report)
    for (const [status, value] of summed(reports.flatMap(({ statuses }) => Object.entries(statuses))))
      requests.push({ labels: { route, status }, value })
    const counts = LATENCY_BOUNDS_MS.concat(0).map((_, interval) =>
      reports.reduce((sum, report) => sum + (report.counts[interval] ?? 0), 0),
    )
    const sum = reports.reduce((ms, { sumMs }) => ms + sumMs, 0) / 1000
    durations.push(...histogramSamples({ route }, { bounds: BOUNDS_SECONDS, counts, sum }))
  }
  return [
    {
      name: 'tollgate_http_requests_total',
      help: 'Answered requests by route and status.',
      type: 'counter',
      samples: requests,
    },
    {
      name: 'tollgate_http_request_duration_seconds',
      help: 'Time from the first byte handed to us to the answer handed back.',
      type: 'histogram',
      samples: durations,
    },
  ]
}

const BOUNDS_SECONDS = LATENCY_BOUNDS_MS.map((ms) => ms / 1000)

/** Adds up the values of equal names, in the order they first come. */
function summed(entries: readonly [string, number][]): [string, number][] {
  const sums = new Map<string, number>()
  for (const [name, value] of entries) sums.set(name, (sums.get(name) ?? 0) + value)
  return [...sums]
}

function decisionSamples(threads: readonly ThreadReport[]): Sample[] {
  const byNamespace = Map.groupBy(
    threads.flatMap(({ decisions }) => decisions),
    ({ namespaceId }) => namespaceId,
  )
  return [...byNamespace].flatMap(([namespaceId, decisions]) => {
    const { workspaceId = '', name = '' } = decisions[0] ?? {}
    const labels = { workspace: workspaceId, namespace: name, namespace_id: namespaceId }
    const total = (kind: 'passed' | 'denied') => decisions.reduce((sum, each) => sum + each[kind], 0)
    return [
      { labels: { ...labels, decision: 'passed' }, value: total('passed') },
      { labels: { ...labels, decision: 'denied' }, value: total('denied') },
    ]
  })
}

const cacheSamples = (threads: readonly ThreadReport[], kind: 'hits' | 'misses'): Sample[] =>
  summed(
    threads.flatMap(({ caches }) =>
      Object.entries(caches).map(([name, counts]): [string, number] => [name, counts[kind]]),
    ),
  ).map(([cache, value]) => ({ labels: { cache }, value }))
