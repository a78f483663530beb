import { hostname } from 'node:os'
import { CreateAnswers } from '../api/idempotency/answers.ts'
import type { Asked, Services } from '../api/parts.ts'
import { Namespaces } from '../api/ratelimits/namespaces.ts'
import type { StatusSample } from '../api/server/status-history.ts'
import type { Config, TracingConfig } from '../config.ts'
import { openSpills, readAllSpills } from '../data-dir/spill.ts'
import type { DatabaseAddress, OnStatement } from '../db/connect.ts'
import { GuardedPool } from '../db/guarded-pool.ts'
import type { HttpParts } from '../doors/http/handle.ts'
import { v1 } from '../doors/v1/dialect.ts'
import { v2 } from '../doors/v2/dialect.ts'
import { Eraser } from '../erasure/eraser.ts'
import { FleetClock } from '../fleet/fleet-clock.ts'
import { type Clock, neverBackwards } from '../lib/clock.ts'
import type { ServerState } from '../lib/server-state.ts'
import { systemTimers, within } from '../lib/timers.ts'
import { VERSION } from '../lib/version.ts'
import { fleetCondition } from '../limiter/fleet/open-fleet.ts'
import type { RouterEnds } from '../limiter/threads/protocol.ts'
import { LimiterRouter } from '../limiter/threads/router.ts'
import { Measures, type ThreadReport } from '../observe/measures.ts'
import { Tracer } from '../observe/tracing/tracer.ts'
import { type Recall, Recent } from '../recent/recent.ts'
import type { Watch } from '../recent/watches.ts'
import { Database } from '../records/database.ts'
import { Invalidations } from '../records/invalidations.ts'
import type { Question } from '../records/questions.ts'
import { Sweeper } from '../sweep/sweeper.ts'
import { UsageRecorder } from '../usage/recorder.ts'
import { Vault } from '../vault/vault.ts'
import { CreditSpender } from '../verify/credits.ts'
import { KeyLookup } from '../verify/lookup.ts'
import { type Standing, standingOf } from '../verify/standing.ts'

/** All parts of one HTTP thread. Passed as a value; nothing in it is global. */
export type Deps = Services &
  HttpParts & {
    readonly config: Config
    /** Changed by `server.ts`, in every thread. */
    readonly life: { state: ServerState }
    readonly invalidations: Invalidations
    readonly measures: Measures
    /** Secrets that seal sessions of the dashboard: the first seals, all open. */
    readonly sessionSecrets: readonly Uint8Array[]
    /** Metrics of the whole process in Prometheus' text format. Asks every thread. */
    readonly metricsText: () => Promise<string>
  }

/** What the main thread sends to a new HTTP thread. All but the ports is plain data. */
export type ThreadSetup = {
  config: Config
  address: DatabaseAddress
  /** Unique for each process start and thread: names the thread's usage batches. */
  writerId: string
  /** This thread sends the usage that earlier processes left in spill files. */
  recoversUsage: boolean
  /** Unique for each process start: identifies the process to others on its database. */
  processId: string
  /** Id of the data directory: the same after a restart. */
  nodeId: string
  hashSecret: string
  /** Vault keys: the first seals, all open. Empty = no recoverable keys. */
  vaultKeys: readonly Uint8Array[]
  /** As {@link Deps.sessionSecrets}: the vault keys, or a secret of this process. */
  sessionSecrets: readonly Uint8Array[]
  /** Links to the shards. With several HTTP threads all of them are ports. */
  shardEnds: RouterEnds
  /** Name of the thread in the process. */
  thread: string
  /** Watches of events that run. */
  watches: Watch[]
  /** One port to each other HTTP thread of the process. */
  peerPorts: MessagePort[]
}

/** Largest number of connections to Postgres of one server. */
export const connectionsOf = ({ threads, usageRetentionMonths, fleet }: Config): number =>
  threads.http * (2 * POOL_CONNECTIONS + HISTORY_CONNECTIONS + 1) +
  threads.shards +
  (fleet?.address.kind === 'postgres' ? Math.max(1, threads.shards) : 0) + // shared limits (fleet/postgres.ts)
  2 + // for listening to changes (change-listener.ts)
  1 + // upkeep of usage (usage/upkeep.ts)
  (usageRetentionMonths === null ? 1 : 2) // months (db/months.ts)

/** The same number again is for transactions. */
const POOL_CONNECTIONS = 4
const HISTORY_CONNECTIONS = 2

/**
 * Opens the parts of one thread. `ready` resolves when it may serve. `close` answers calls in flight, flushes counts and closes everything. Its argument runs
 * at the same time as the flush, after this thread's last limit call, because a stop has ten seconds in all.
 */
export function openDeps(
  setup: ThreadSetup,
  options: {
    clock: Clock
    publicUrl: () => string
    metricsText: () => Promise<string>
    statusHistory: () => Promise<readonly StatusSample[]>
    recall: Recall
    askServers: (question: Question) => Promise<Asked>
    onStatement?: OnStatement | undefined
  },
): { deps: Deps; ready: Promise<void>; close: (beside?: () => Promise<void>) => Promise<void> } {
  const { config, address, writerId, recoversUsage, processId, hashSecret, shardEnds, peerPorts } = setup
  const clock = neverBackwards(options.clock)
  const pool = new GuardedPool(address, {
    connectionsMax: POOL_CONNECTIONS,
    timeoutMs: config.databaseTimeoutMs,
    onStatement: options.onStatement,
  })
  const { sql } = pool
  // A pool of its own, so that reading a year of usage does not take the connections for credits and cold keys. Given-up
  // reads are ended, so that a page that reloads again and again does not fill Postgres with them.
  const historyPool = new GuardedPool(address, {
    connectionsMax: HISTORY_CONNECTIONS,
    timeoutMs: config.databaseTimeoutMs,
    endsGivenUp: true,
    onStatement: options.onStatement,
  })
  // Usage may wait longer than requests, and neither should wait behind the other.
  const usagePool = new GuardedPool(address, { connectionsMax: 1, timeoutMs: 10_000 })
  const invalidations = new Invalidations({ processId, confirmTimeoutMs: 2000 })
  for (const port of peerPorts) invalidations.addPeer(port)
  const measures = new Measures()
  const database = new Database(pool, invalidations, {
    notifies: address.kind === 'url',
    onBoundReached: ({ workspaceId, bound }) => measures.boundReached(workspaceId, bound),
  })
  const keys = new KeyLookup(sql, invalidations, { bytesMax: config.keyCacheBytesMax, missingMax: 100_000 })
  const fleetClock = config.fleet === null ? null : new FleetClock(sql, systemTimers)
  const limiter = new LimiterRouter({
    ends: shardEnds,
    hashSecret,
    clock: fleetClock?.now ?? clock,
    replyTimeoutMs: 2000,
    isFleet: fleetClock !== null,
  })
  const credits = new CreditSpender(sql, clock, { timeoutMs: config.databaseTimeoutMs })
  const usage = new UsageRecorder({
    sql: usagePool.sql,
    writerId,
    spills: openSpills(config.dataDir, address),
    flushEveryMs: config.flushEveryMs,
    clock,
    recovers: recoversUsage,
  })
  // About 200 000 overrides. A namespace larger than this could not be cached, and every call would read it.
  const namespaces = new Namespaces(sql, invalidations, { bytesMax: 64 * 2 ** 20 })
  const eraser = new Eraser({
    database,
    invalidations: invalidations,
    spills: () => readAllSpills(config.dataDir, address),
    clock,
  })
  const sweeper = new Sweeper({ database, clock })
  const creates = new CreateAnswers({ sql, clock })
  const vault = new Vault(sql, { vaultKeys: setup.vaultKeys, clock })
  const tracer = config.tracing === null ? null : openTracer(config.tracing, processId)
  // Without a dashboard nobody looks.
  const recent =
    config.dashboard === null ? null : new Recent({ thread: setup.thread, clock, watches: setup.watches })
  measures.start()
  usage.start()
  const deps: Deps = {
    config,
    life: { state: 'starting' },
    clock,
    sql,
    history: historyPool.sql,
    database,
    // A server without other writes still writes usage, so that pool notices first that the database is read-only.
    databaseCondition: () => (usagePool.isReadOnly && !pool.isAway ? 'read-only' : pool.condition()),
    fleetCondition: () => (config.fleet === null ? null : fleetCondition()),
    invalidations: invalidations,
    keys,
    limiter,
    credits,
    usage,
    namespaces,
    vault,
    eraser,
    sweeper,
    creates,
    recent,
    recall: recent === null ? null : options.recall,
    askServers: options.askServers,
    measures,
    sessionSecrets: setup.sessionSecrets,
    tracer,
    metricsText: options.metricsText,
    statusHistory: config.dashboard === null ? null : options.statusHistory,
    self: { nodeId: setup.nodeId, processId, host: hostname() },
    publicUrl: options.publicUrl,
    dialectOf: (path) => (path.startsWith(v2.prefix) ? v2 : v1),
  }
  const close = async (beside = async () => {}) => {
    measures.stop()
    recent?.watches.close()
    await limiter.stop()
    fleetClock?.stop()
    await Promise.all([usage.stop(), tracer?.stop(), eraser.stop(), sweeper.stop(), beside()])
    invalidations.stop()
    await Promise.all([pool, historyPool, usagePool].map((each) => each.end({ timeout: 1 })))
  }
  // Without an answer the clock of this machine counts until there is one.
  const ready =
    fleetClock === null
      ? Promise.resolve()
      : within(systemTimers, CLOCK_MS, fleetClock.start(), { late: () => {} })
  return { deps, ready, close }
}

const CLOCK_MS = 2_000

function openTracer({ resource, ...tracing }: TracingConfig, processId: string): Tracer {
  const attributes = {
    'service.version': VERSION,
    'service.instance.id': processId,
    'process.runtime.name': 'bun',
    'process.runtime.version': Bun.version,
    ...resource,
  }
  return new Tracer({
    ...tracing,
    resource: JSON.stringify({
      attributes: Object.entries(attributes).map(([key, value]) => ({ key, value: { stringValue: value } })),
    }),
    scope: JSON.stringify({ name: 'tollgate', version: VERSION }),
  })
}

/** What a verification of the key with this hash answers on this thread, by the key's own state. */
export const standingHere = async (
  { keys, clock }: Pick<Deps, 'keys' | 'clock'>,
  hash: string,
): Promise<Standing> => standingOf(await keys.findByHash(hash), clock())

/** What this thread counted. */
export const reportThread = ({ measures, keys, namespaces, usage, tracer }: Deps): ThreadReport =>
  measures.report({
    caches: {
      keys: { hits: keys.cache.hits, misses: keys.cache.misses },
      namespaces: { hits: namespaces.cache.hits, misses: namespaces.cache.misses },
    },
    usage: usage.stats(),
    spans: tracer?.stats() ?? null,
  })
