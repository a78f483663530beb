import type { DatabaseCondition } from '../../db/guarded-pool.ts'
import { VERSION } from '../../lib/version.ts'
import type { Services } from '../parts.ts'

/** Figures of this process, from all of its threads, as its metrics have them. Counts are since its start. */
export type ServerStatus = {
  id: string
  host: string
  version: string
  database: DatabaseCondition
  startedAt: number
  residentBytes: number
  cpuSeconds: number
  /** Connections of clients. */
  connections: number
  databaseConnections: { active: number; idle: number }
  threads: { name: string; isUp: boolean; lagMs: number }[]
  limiter: { windows: number; bytes: number; bytesMax: number; flushLagMs: number }
  usage: { waiting: number; flushLagMs: number; spillFiles: number }
  /** Null = the data directory cannot be read. */
  disk: { freeBytes: number; sizeBytes: number } | null
  caches: { name: string; hits: number; misses: number }[]
  /** Most called first. */
  methods: MethodStatus[]
}

export type MethodStatus = {
  path: string
  calls: number
  /** Answers with a status of 500 and above. */
  failed: number
  /** Half of the calls, and 99 of 100, took at most this; null = longer than the largest bound that is measured. */
  p50Ms: number | null
  p99Ms: number | null
}

/** Costs as much as a scrape of the metrics. For operators. */
export async function getStatus({
  metricsText,
  databaseCondition,
  self,
}: Pick<Services, 'metricsText' | 'databaseCondition' | 'self'>): Promise<ServerStatus> {
  const [text, database] = await Promise.all([metricsText(), databaseCondition()])
  const figures = figuresOf(text)
  const methods = figures.routes.map(({ path, calls, failed, buckets }) => ({
    path,
    calls,
    failed,
    p50Ms: within(buckets, 0.5, calls),
    p99Ms: within(buckets, 0.99, calls),
  }))
  const { routes: _, ...facts } = figures
  return {
    id: self.nodeId,
    host: self.host,
    version: VERSION,
    database,
    ...facts,
    methods: methods.slice(0, METHODS_MAX),
  }
}

/** The figures that are in the metrics. */
export type Figures = Omit<ServerStatus, 'id' | 'host' | 'version' | 'database' | 'methods'> & {
  /** Most called first. */
  routes: RouteFigures[]
}

export type RouteFigures = {
  path: string
  calls: number
  failed: number
  /** How many calls took at most `ms`, rising; null = any time. */
  buckets: readonly { ms: number | null; calls: number }[]
}

/** @param text The metrics. */
export function figuresOf(text: string): Figures {
  const samples = readSamples(text)
  const of = (name: string) => samples.get(name) ?? []
  const sum = (name: string, isWanted: (labels: Labels) => boolean = () => true) =>
    of(name).reduce((total, { labels, value }) => (isWanted(labels) ? total + value : total), 0)
  const longest = (name: string) => Math.max(0, ...of(name).map(({ value }) => value))
  const lags = new Map(
    of('tollgate_event_loop_lag_seconds').map(({ labels, value }) => [labels.thread, value]),
  )
  const free = of('tollgate_data_dir_free_bytes')
  return {
    startedAt: Math.round(sum('process_start_time_seconds') * 1000),
    residentBytes: sum('process_resident_memory_bytes'),
    cpuSeconds: sum('process_cpu_seconds_total'),
    connections: sum('tollgate_connections'),
    databaseConnections: {
      active: sum('tollgate_database_connections', ({ state }) => state === 'active'),
      idle: sum('tollgate_database_connections', ({ state }) => state === 'idle'),
    },
    threads: of('tollgate_thread_up').map(({ labels: { thread = '' }, value }) => ({
      name: thread,
      isUp: value === 1,
      lagMs: ms(lags.get(thread) ?? 0),
    })),
    limiter: {
      windows: sum('tollgate_limiter_windows_live'),
      bytes: sum('tollgate_limiter_memory_bytes'),
      bytesMax: sum('tollgate_limiter_memory_budget_bytes'),
      flushLagMs: ms(longest('tollgate_limiter_flush_lag_seconds')),
    },
    usage: {
      waiting: sum('tollgate_usage_buffered_cells'),
      flushLagMs: ms(longest('tollgate_usage_flush_lag_seconds')),
      spillFiles: sum('tollgate_spill_files', ({ state }) => state === 'waiting'),
    },
    disk:
      free.length === 0
        ? null
        : { freeBytes: sum('tollgate_data_dir_free_bytes'), sizeBytes: sum('tollgate_data_dir_size_bytes') },
    caches: of('tollgate_cache_hits_total').map(({ labels: { cache = '' }, value: hits }) => ({
      name: cache,
      hits,
      misses: sum('tollgate_cache_misses_total', (labels) => labels.cache === cache),
    })),
    routes: routesOf(samples),
  }
}

/** Methods in an answer. */
export const METHODS_MAX = 100

const ms = (seconds: number) => Math.round(seconds * 1000)

type Labels = Readonly<Record<string, string>>
type Samples = ReadonlyMap<string, { labels: Labels; value: number }[]>

/** Reads the text format of Prometheus, as `observe/exposition.ts` writes it. */
function readSamples(text: string): Samples {
  const samples = new Map<string, { labels: Labels; value: number }[]>()
  for (const line of text.split('\n')) {
    const [, name, labels = '', value] = /^([a-z_]+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? []
    if (name === undefined || !SHOWN.test(name)) continue
    const list = samples.get(name) ?? []
    samples.set(name, list)
    list.push({
      labels: Object.fromEntries(
        [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, of]) => [key, of]),
      ),
      value: Number(value),
    })
  }
  return samples
}

/** The others, above all those of each workspace, are not even split. */
const SHOWN =
  /^(process_(start|resident|cpu)|tollgate_(connections$|database_connections|thread_up|event_loop|limiter_(windows_live|memory|flush_lag)|usage_(buffered|flush_lag)|spill|data_dir|cache|http_request))/

function routesOf(samples: Samples): RouteFigures[] {
  const failed = new Map<string, number>()
  for (const { labels, value } of samples.get('tollgate_http_requests_total') ?? [])
    if (Number(labels.status) >= 500)
      failed.set(labels.route ?? '', (failed.get(labels.route ?? '') ?? 0) + value)
  const buckets = Map.groupBy(
    samples.get('tollgate_http_request_duration_seconds_bucket') ?? [],
    ({ labels }) => labels.route ?? '',
  )
  return (samples.get('tollgate_http_request_duration_seconds_count') ?? [])
    .map(({ labels: { route = '' }, value: calls }) => ({
      path: route,
      calls,
      failed: failed.get(route) ?? 0,
      buckets: (buckets.get(route) ?? []).map(({ labels: { le = '+Inf' }, value }) => ({
        ms: le === '+Inf' ? null : Number(le) * 1000,
        calls: value,
      })),
    }))
    .sort((a, b) => b.calls - a.calls)
}

/** A share of the calls took at most this, ms; null = longer than is measured. */
export const within = (buckets: RouteFigures['buckets'], share: number, calls: number): number | null =>
  buckets.find((each) => each.calls >= share * calls)?.ms ?? null
