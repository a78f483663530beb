import type { SpillCounts } from '../data-dir/spill.ts'
import type { DatabaseCondition } from '../db/guarded-pool.ts'
import type { Fullness } from '../db/kept-rows.ts'
import { CONNECTION_STATES, type DatabaseStatus } from '../db/status.ts'
import { SERVER_STATES, type ServerState } from '../lib/server-state.ts'
import { COMMIT, VERSION } from '../lib/version.ts'
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
  /** Servers that share their limits, as last seen; null = each counts its own. */
  fleetMembers: number | null
  /** Null = the database does not answer. */
  databaseStatus: DatabaseStatus | null
  state: ServerState
  process: ProcessFigures
  /** Null = the folder cannot be read. */
  dataDir: DataDirFigures | null
}

export type ProcessFigures = {
  startedAtMs: number
  /** Processor time of all threads since the start. */
  cpuSeconds: number
  residentBytes: number
  /** Null = unknown on this system. */
  openFiles: number | null
  openFilesMax: number | null
}

/** Of the file system of the data directory, and of its spill files. */
export type DataDirFigures = { freeBytes: number; sizeBytes: number; spills: SpillCounts }

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

  yield gauge(
    'tollgate_build_info',
    'Always 1. The labels name the running version of Tollgate, its commit, and the version of Bun.',
    [{ labels: { version: VERSION, commit: COMMIT, bun: Bun.version }, value: 1 }],
  )
  yield gauge(
    'process_start_time_seconds',
    'Start time of the server, in Unix seconds.',
    single(report.process.startedAtMs / 1000),
  )
  yield counter(
    'process_cpu_seconds_total',
    'Processor time of all threads, user and system.',
    single(report.process.cpuSeconds),
  )
  yield gauge(
    'process_resident_memory_bytes',
    'Resident memory of the process.',
    single(report.process.residentBytes),
  )
  yield gauge('process_open_fds', 'Open files and connections.', single(report.process.openFiles))
  yield gauge(
    'process_max_fds',
    'Largest number of open files and connections (ulimit -n).',
    single(report.process.openFilesMax),
  )
  yield gauge(
    'tollgate_state',
    '1 for the state that the server is in, 0 for the others.',
    SERVER_STATES.map((state) => ({ labels: { state }, value: state === report.state ? 1 : 0 })),
  )
  yield* dataDirFamilies(report.dataDir)
  yield gauge(
    'tollgate_database_up',
    '1 while the database answers, else 0.',
    single(report.database === 'away' ? 0 : 1),
  )
  yield gauge(
    'tollgate_database_writable',
    '1 while the database takes writes, else 0.',
    single(report.database === 'ok' ? 1 : 0),
  )
  yield* statusFamilies(report.databaseStatus)
  yield gauge('tollgate_thread_up', '1 while the thread answers, else 0.', [
    ...report.threads.map((thread, index) => ({
      labels: { thread: `http-${index}` },
      value: thread.isUp ? 1 : 0,
    })),
    ...shardThreads((stats) => (stats === null ? 0 : 1)),
  ])
  yield gauge(
    'tollgate_connections',
    'Open client connections, by HTTP thread.',
    each(({ connections }) => connections.open),
  )
  yield counter(
    'tollgate_connections_refused_total',
    'Client connections refused because TOLLGATE_CONNECTIONS_MAX were open.',
    counted(({ connections }) => connections.refused),
  )
  yield gauge(
    'tollgate_http_held_bytes',
    'Memory of incomplete requests, waiting requests and responses that the client has not read yet.',
    each(({ connections }) => connections.heldBytes),
  )
  yield counter(
    'tollgate_http_given_up_total',
    'Connections closed because tollgate_http_held_bytes reached TOLLGATE_HTTP_MEMORY_MIB.',
    counted(({ connections }) => connections.givenUp),
  )
  yield gauge('tollgate_event_loop_lag_seconds', 'Longest delay of a timer in the last minute, by thread.', [
    ...each(({ loopLagMs }) => loopLagMs / 1000),
    ...shardThreads((stats) => (stats === null ? null : stats.loopLagMs / 1000)),
  ])
  yield* requestFamilies(threads)
  yield counter(
    'tollgate_verifications_total',
    'Key verifications of keys.verifyKey and auth.forward, by outcome.',
    summed(threads.flatMap(({ verifications }) => Object.entries(verifications))).map(([outcome, value]) => ({
      labels: { outcome },
      value,
    })),
  )
  yield counter(
    'tollgate_ratelimit_decisions_total',
    'Rate limit decisions by namespace. After the first 100 namespaces, the rest are counted together without a name.',
    decisionSamples(threads),
  )
  yield counter(
    'tollgate_cache_hits_total',
    'Lookups answered from the cache.',
    cacheSamples(threads, 'hits'),
  )
  yield counter(
    'tollgate_cache_misses_total',
    'Lookups that queried the database.',
    cacheSamples(threads, 'misses'),
  )
  yield gauge(
    'tollgate_workspace_bound_used_ratio',
    'Used share of a workspace bound, 1 = full. Only bounds used by half or more, the 100 fullest; refreshed every five minutes.',
    report.fullest.map(({ workspaceId, bound, used, value }) => ({
      labels: { workspace: workspaceId, bound },
      value: used / Math.max(1, value),
    })),
  )
  yield counter(
    'tollgate_workspace_bound_reached_total',
    'Calls refused because a workspace had reached a bound. After the first 100 pairs of workspace and bound, the rest have no workspace.',
    reachedSamples(threads),
  )
  yield gauge(
    'tollgate_limiter_windows_live',
    'Windows in memory, including windows that ended since the last flush.',
    shards(({ windowsLive }) => windowsLive),
  )
  yield gauge(
    'tollgate_limiter_windows_dirty',
    'Windows in memory with changes that are not in the database yet.',
    shards(({ windowsDirty }) => windowsDirty),
  )
  yield gauge(
    'tollgate_limiter_memory_bytes',
    'Memory used by windows, by shard.',
    shards(({ tableBytes }) => tableBytes),
  )
  yield gauge(
    'tollgate_limiter_memory_budget_bytes',
    'Memory limit for the windows of all shards together (TOLLGATE_LIMITER_MEMORY_MIB).',
    single(report.limiterBytesMax),
  )
  yield gauge(
    'tollgate_limiter_over_budget',
    '1 while window memory is full, else 0. When full, new identifiers may be limited too early, never too late.',
    shards(({ isOverBudget }) => (isOverBudget ? 1 : 0)),
  )
  yield counter(
    'tollgate_limiter_over_budget_charges_total',
    'Charges counted without a window of their own because window memory was full.',
    shards(({ chargesOverBudget }) => chargesOverBudget),
  )
  const shares = workspaceShares(report.shards)
  yield gauge(
    'tollgate_limiter_workspace_bytes',
    'Memory used by windows, for the workspaces that use the most.',
    shares.map(({ workspace, bytes }) => ({ labels: { workspace }, value: bytes })),
  )
  yield counter(
    'tollgate_limiter_workspace_over_budget_charges_total',
    'Charges counted without a window of their own, for the workspaces in tollgate_limiter_workspace_bytes.',
    shares.map(({ workspace, charges }) => ({ labels: { workspace }, value: charges })),
  )
  yield counter(
    'tollgate_limiter_windows_flushed_total',
    'Windows written to the database.',
    shards(({ cellsFlushed }) => cellsFlushed),
  )
  yield gauge(
    'tollgate_limiter_flush_duration_seconds',
    'Duration of the last flush of windows, by shard.',
    shards(({ flushTookMs }) => flushTookMs / 1000),
  )
  yield gauge(
    'tollgate_limiter_flush_lag_seconds',
    'Age of the oldest change of a window that is not in the database yet: what a crash would lose.',
    shards(({ flushLagMs }) => flushLagMs / 1000),
  )
  yield* fleetFamilies(report)
  yield gauge(
    'tollgate_usage_buffered_cells',
    'Usage counts in memory that are not in the database yet.',
    each(({ usage }) => usage.countsBuffered),
  )
  yield gauge(
    'tollgate_usage_batches_aside',
    'Usage batches in spill files, waiting for the database.',
    each(({ usage }) => usage.batchesSpilled),
  )
  yield gauge(
    'tollgate_usage_flush_duration_seconds',
    'Duration of the last flush of usage, by HTTP thread.',
    each(({ usage }) => usage.flushTookMs / 1000),
  )
  yield gauge(
    'tollgate_usage_flush_lag_seconds',
    'Time since usage could last be written to the database; 0 while flushes succeed.',
    each(({ usage }) => usage.flushAwayMs / 1000),
  )
  yield counter(
    'tollgate_spans_exported_total',
    'Trace spans that the collector accepted.',
    counted(({ spans }) => spans?.exported ?? null),
  )
  yield counter(
    'tollgate_spans_dropped_total',
    'Trace spans dropped because the queue was full or the collector did not accept them.',
    counted(({ spans }) => spans?.dropped ?? null),
  )
  yield gauge(
    'tollgate_spans_queued',
    'Trace spans waiting to be exported.',
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
/** @param value Null = unknown: no sample. */
const single = (value: number | null): Sample[] => (value === null ? [] : [{ value }])

function* dataDirFamilies(dataDir: DataDirFigures | null): Generator<Family, void> {
  yield gauge(
    'tollgate_data_dir_free_bytes',
    'Free space of the file system that holds the data directory.',
    single(dataDir?.freeBytes ?? null),
  )
  yield gauge(
    'tollgate_data_dir_size_bytes',
    'Size of the file system that holds the data directory.',
    single(dataDir?.sizeBytes ?? null),
  )
  const { waiting = 0, rejected = 0, unreadable = 0, otherDatabase = 0 } = dataDir?.spills ?? {}
  const counts = { waiting, rejected, unreadable, other_database: otherDatabase }
  yield gauge(
    'tollgate_spill_files',
    'Spill files in the data directory. waiting: sent when the database takes them. Others need a person.',
    dataDir === null ? [] : Object.entries(counts).map(([state, value]) => ({ labels: { state }, value })),
  )
}

/** Of shared limits. None of them where each server counts its own. */
function* fleetFamilies({ fleetMembers, shards }: ProcessReport): Generator<Family, void> {
  const each = (value: (stats: FleetFigures) => number): Sample[] =>
    shards.flatMap((stats, shard) =>
      stats === null || stats.fleet === null ? [] : [{ labels: { shard }, value: value(stats.fleet) }],
    )
  yield gauge(
    'tollgate_fleet_members',
    'Servers that share their limits, this one included, as last seen in the database.',
    single(fleetMembers),
  )
  yield gauge(
    'tollgate_fleet_condition',
    '1 for what the engine of shared limits is to the shard, 0 for the others. learning: it has forgotten, and gives nothing for a moment. away: the outage rule decides.',
    shards.flatMap((stats, shard) =>
      stats === null || stats.fleet === null
        ? []
        : FLEET_CONDITIONS.map((condition) => ({
            labels: { shard, condition },
            value: condition === stats.fleet?.condition ? 1 : 0,
          })),
    ),
  )
  yield counter(
    'tollgate_fleet_exchanges_total',
    'Messages to the engine of shared limits.',
    each(({ exchanges }) => exchanges),
  )
  yield counter(
    'tollgate_fleet_exchanges_failed_total',
    'Messages to the engine of shared limits that had no answer in time, or none that counts.',
    each(({ failed }) => failed),
  )
  yield counter(
    'tollgate_fleet_entries_total',
    'Counters in messages to the engine of shared limits: one for all calls of a counter that wait together.',
    each(({ entries }) => entries),
  )
  yield counter(
    'tollgate_fleet_exchange_seconds_total',
    'Time that messages to the engine of shared limits took, all together.',
    each(({ exchangeMs }) => exchangeMs / 1000),
  )
  yield counter(
    'tollgate_fleet_given_total',
    'Cost that the engine of shared limits gave to this server, leases included.',
    each(({ given }) => given),
  )
  yield counter(
    'tollgate_fleet_returned_total',
    'Cost that this server gave back unspent.',
    each(({ returned }) => returned),
  )
  yield counter(
    'tollgate_fleet_learned_total',
    'How often a part of the engine had forgotten and was told what servers hold.',
    each(({ learned }) => learned),
  )
  yield counter(
    'tollgate_fleet_outage_decisions_total',
    'Calls decided by TOLLGATE_FLEET_OUTAGE or the rule of their namespace, because the engine did not answer.',
    each(({ outageDecisions }) => outageDecisions),
  )
}

type FleetFigures = NonNullable<ShardStats['fleet']>
const FLEET_CONDITIONS = ['ok', 'learning', 'away'] as const

function* statusFamilies(status: DatabaseStatus | null): Generator<Family, void> {
  const { server = null } = status ?? {}
  yield gauge(
    'tollgate_schema_version',
    'Number of the newest database migration.',
    single(status?.schemaVersion ?? null),
  )
  yield gauge(
    'tollgate_clock_offset_seconds',
    'How far the clock of the database is ahead of the clock of this server.',
    single(server && server.clockAheadMs / 1000),
  )
  yield gauge(
    'tollgate_database_connections',
    'Connections to the database with the role of this server, from all servers, by state.',
    server === null
      ? []
      : CONNECTION_STATES.map((state) => ({ labels: { state }, value: server.connections[state] })),
  )
}

function* requestFamilies(threads: readonly ThreadReport[]): Generator<Family, void> {
  const byRoute = Map.groupBy(
    threads.flatMap(({ routes }) => Object.entries(routes)),
    ([route]) => route,
  )
  yield counter('tollgate_http_requests_total', 'Answered HTTP requests, by route and status.', requests())
  yield {
    name: 'tollgate_http_request_duration_seconds',
    help: 'Time from a completely received request to its response, by route. Receiving and sending are not included.',
    type: 'histogram',
    samples: durations(),
  }

  function* requests(): Generator<Sample, void> {
    for (const [route, entries] of byRoute) {
      const statuses = entries.flatMap(([, { statuses }]) => Object.entries(statuses))
      // Every route has a 500, as Prometheus does not see a counter rise that was not there before.
      for (const [status, value] of summed([...statuses, ['500', 0]]))
        yield { labels: { route, status }, value }
    }
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
