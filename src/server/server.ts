import { randomUUID } from 'node:crypto'
import { KeyImporter } from '../api/migrations/import-queue.ts'
import type { Asked } from '../api/parts.ts'
import { StatusHistory } from '../api/server/status-history.ts'
import { auditMonths } from '../audit/months.ts'
import type { Config } from '../config.ts'
import { openDataDir } from '../data-dir/data-dir.ts'
import { connect, type DatabaseAddress, type OnStatement, type Sql } from '../db/connect.ts'
import { startEmbedded } from '../db/embedded/embedded.ts'
import { ensureSchema } from '../db/inspect.ts'
import { KeptRows } from '../db/kept-rows.ts'
import { joinServers, migrate } from '../db/migrate.ts'
import { MonthlyJob } from '../db/months.ts'
import { Presence } from '../db/servers.ts'
import { lockStart } from '../db/settings.ts'
import { StatusReader } from '../db/status.ts'
import { listen, listenAside } from '../doors/http/listen.ts'
import { joinFleet, Members } from '../fleet/members.ts'
import { type Clock, systemClock } from '../lib/clock.ts'
import { databaseName } from '../lib/database-url.ts'
import { pause, systemTimers } from '../lib/timers.ts'
import { COMMIT, VERSION } from '../lib/version.ts'
import { type Shards, startShards } from '../limiter/threads/shards.ts'
import { log } from '../log.ts'
import { exposition } from '../observe/exposition.ts'
import { metricFamilies } from '../observe/metrics.ts'
import type { Recall, Recent } from '../recent/recent.ts'
import { ChangeListener } from '../records/change-listener.ts'
import { ChangePoller, deleteOldNotices } from '../records/change-poller.ts'
import { deleteOldMarks } from '../records/continuity.ts'
import { type Question, Questions } from '../records/questions.ts'
import { usageRetention } from '../usage/retention.ts'
import { UsageUpkeep } from '../usage/upkeep.ts'
import { admitVault } from '../vault/admit.ts'
import { findVaultKeys, type GivenVaultKeys } from '../vault/vault-keys.ts'
import { RefillSchedule } from '../verify/refill-schedule.ts'
import { type Standing, worstOf } from '../verify/standing.ts'
import { admitDatabase, explained } from './admit.ts'
import { createApp, createDashboardApp, createMetricsApp } from './app.ts'
import { bootstrap } from './bootstrap.ts'
import { connectionsOf, type Deps, openDeps, reportThread, standingHere, type ThreadSetup } from './deps.ts'
import { readDataDir, readProcess } from './figures.ts'
import { withinOpenFiles } from './open-files.ts'
import { tryPlaces } from './places.ts'
import { ReplacedDatabase } from './replaced-database.ts'
import { type HttpThreads, startHttpThreads } from './threads.ts'

/** Facts about a start, for people. Without secrets. */
export type StartFacts = {
  version: string
  /** Its first 12 digits, or `unknown`. */
  commit: string
  dataDir: string
  /** `new`: no server has used the data directory before. */
  dataDirState: 'new' | 'found'
  /** `embedded`, or host and database name. */
  database: string
  shards: number
  httpThreads: number
}

export type Server = AsyncDisposable & {
  url: string
  /** URL of the metrics. */
  metricsUrl: string
  /** URL of the dashboard; null = there is none, or no port leads to it. */
  dashboardUrl: string | null
  /** Where it listens: a URL, the path of a Unix socket, or both. */
  places: string[]
  /** File with the generated operator root key; null = it holds none of this database. */
  rootKeyFile: string | null
  /** True when this start generated the root key. */
  isKeyNew: boolean
  /** For the first lines of a start. */
  facts: StartFacts
  /** The main thread's parts, for tests and benchmarks. */
  deps: Deps
  /** As {@link deps}. */
  history: StatusHistory
  shards: Shards
  /**
   * Readiness answers 503 and every answer ends its connection, for TOLLGATE_DRAIN_MS. Call it before {@link stop}.
   * @param signal Ends it early.
   * @returns null when TOLLGATE_DRAIN_MS is 0.
   */
  drain(signal: AbortSignal): Promise<void> | null
  /** Answers requests in flight, flushes windows and usage, closes everything. */
  stop(): Promise<void>
}

/**
 * Starts everything in order: data directory, database, migrations, shards with their stored windows, HTTP. A stop, and a
 * failure of a later step, close in reverse order.
 * @param options.onStatement Called with each statement of the main thread's requests.
 * @param options.signal Aborts a start that does not serve yet. A later signal does not interrupt it.
 * @throws ConfigError, StartError: one line that says what to change; the signal's reason.
 */
export async function startServer(
  asked: Config,
  options: { clock?: Clock; onStatement?: OnStatement; signal?: AbortSignal } = {},
): Promise<Server> {
  await using opening = new AsyncDisposableStack()
  const clock = options.clock ?? systemClock
  const { signal } = options
  // First, because creating a database takes seconds: an occupied port must be reported before that.
  await tryPlaces(asked)
  const dataDir = opening.use(openDataDir(asked.dataDir, { exclusive: asked.databaseUrl === null }))
  const facts: StartFacts = {
    version: VERSION,
    commit: COMMIT,
    dataDir: asked.dataDir,
    dataDirState: dataDir.isNew ? 'new' : 'found',
    database: asked.databaseUrl === null ? 'embedded' : databaseName(asked.databaseUrl),
    shards: asked.threads.shards,
    httpThreads: asked.threads.http,
  }
  const sayStarting = () => log('info', 'starting', 'Tollgate starts', facts)
  // With an external Postgres nothing is printed before it was reached: a failed start then prints one line only.
  if (asked.databaseUrl === null) sayStarting()
  const givenVaultKeys = findVaultKeys(asked, dataDir)
  const found = await openDatabase(asked, opening, signal)
  const preparations = {
    config: asked,
    nodeId: dataDir.nodeId,
    keyFile: (make: () => string) => dataDir.secret(ROOT_KEY_FILE, make),
    foundKey: () => dataDir.found(ROOT_KEY_FILE),
    givenVaultKeys,
    now: clock(),
    onReached: () => {
      if (asked.databaseUrl !== null) sayStarting()
    },
  }
  const preparing = prepareDatabase(found, preparations)
  const { hashSecret, databaseId, keyFile, vaultKeys } = await untilAborted(preparing, signal)
  // Here, so that a start that fails before prints only its error.
  const config = withinOpenFiles(asked)
  // Without a vault key, which servers share, sessions of the dashboard end with this process.
  const sessionSecrets = vaultKeys.length > 0 ? vaultKeys : [crypto.getRandomValues(new Uint8Array(32))]
  const address: DatabaseAddress = { ...found, databaseId }

  const processId = randomUUID()
  const { fleet } = config
  const joining = fleet === null ? null : joinFleet(fleet, { database: address, processId })
  const joined = joining === null ? null : await untilAborted(joining, signal)

  const shards = await startShards({
    count: config.threads.shards,
    address,
    nodeId: dataDir.nodeId,
    hashSecret,
    flushEveryMs: config.flushEveryMs,
    dataDir: config.dataDir,
    memoryBytes: config.limiterBytesMax,
    now: clock(),
    fleet:
      fleet === null || joined === null
        ? null
        : { ...fleet, id: joined.fleetId, servers: joined.servers, nowMs: joined.nowMs },
  })
  opening.defer(() => shards.stop())
  signal?.throwIfAborted()

  // The main thread's, once it is open: it knows all watches.
  let mainRecent: () => Recent | null = () => null
  const makeSetup = (name: string): Omit<ThreadSetup, 'peerPorts'> => ({
    config,
    address,
    writerId: `${dataDir.nodeId}:${processId}:${name}`,
    recoversUsage: false,
    processId,
    nodeId: dataDir.nodeId,
    hashSecret,
    vaultKeys,
    sessionSecrets,
    shardEnds: shards.connect(),
    thread: name,
    watches: mainRecent()?.watches.all() ?? [],
  })
  let url = ''
  let threads: HttpThreads | null = null
  const startedAtMs = Date.now()
  const metricsText = async () => {
    const [others, shardStats, database, databaseStatus, ofProcess, ofDataDir] = await Promise.all([
      threads?.report() ?? [],
      shards.stats(deps.clock()),
      deps.databaseCondition(),
      statusReader.read(),
      readProcess(startedAtMs),
      readDataDir(config.dataDir, address),
    ])
    const families = metricFamilies({
      threads: [{ report: reportThread(deps), isUp: true }, ...others],
      shards: shardStats,
      limiterBytesMax: config.limiterBytesMax,
      database,
      databaseStatus,
      fleetMembers: members?.servers ?? null,
      fullest: keptRows.fullest,
      state: deps.life.state,
      process: ofProcess,
      dataDir: ofDataDir,
    })
    return exposition(families)
  }
  const history = new StatusHistory(metricsText, { clock })
  const statusHistory = async () => history.samples
  const recall: Recall = async (kind, input) => {
    if (deps.recent === null) throw new Error('nothing is remembered')
    const own = deps.recent.answer(kind, input)
    // Refused here, so not to be begun in other threads.
    if (kind === 'watch' && own === false) return { answers: [own], isComplete: true }
    const others = (await threads?.recall(kind, input)) ?? []
    const answers = others.filter((answer) => answer !== null)
    return { answers: [own, ...answers], isComplete: answers.length === others.length }
  }
  /** The worst of all HTTP threads, once each has dropped what was changed before; null = one of them cannot say. */
  const standing = async (hash: string): Promise<Standing | null> => {
    try {
      await deps.invalidations.settled()
      const [own, others] = await Promise.all([standingHere(deps, hash), threads?.standings(hash) ?? []])
      return worstOf([own, ...others])
    } catch {
      return null // whoever asked takes it for no answer
    }
  }
  let questions: Questions | null = null
  const askOthers = async (question: Question): Promise<Asked['others']> => {
    const { nodeIds, processes } = question.expected
    if (nodeIds.length === 0 && processes === 0) return []
    return questions === null ? 'deaf' : ((await questions.ask(question)) ?? 'busy')
  }
  const askServers = async (question: Question): Promise<Asked> => {
    const [own, others] = await Promise.all([standing(question.subject), askOthers(question)])
    return { own, others }
  }
  const { deps, ready, close } = openDeps(
    { ...makeSetup('0'), peerPorts: [], recoversUsage: true },
    {
      clock,
      publicUrl: () => config.publicUrl ?? url,
      metricsText,
      statusHistory,
      recall,
      askServers,
      onStatement: options.onStatement,
    },
  )
  mainRecent = () => deps.recent
  const statusReader = new StatusReader(deps.sql, address)
  // The last windows and the last usage are written at the same time, because a stop has ten seconds in all.
  const presence = address.kind === 'url' ? new Presence(deps.sql, dataDir.nodeId) : null
  const members =
    fleet === null || joined === null
      ? null
      : new Members(deps.sql, {
          fleet,
          processId,
          joined,
          onCount: (servers) => shards.servers(servers),
        })
  const closeShards = async () => {
    await shards.stop()
    await Promise.all([presence?.stop(), members?.stop()]) // after the last windows: until then the server needs what it knows of the database
  }
  opening.defer(() => close(closeShards))
  presence?.start()
  members?.start()
  await ready
  const importer = new KeyImporter(deps)
  importer.start()
  opening.defer(() => importer.stop())
  deps.eraser.start()
  deps.sweeper.start()
  const refills = new RefillSchedule(deps.sql, deps.clock)
  refills.start()
  opening.defer(() => refills.stop())
  const keptRows = new KeptRows(address)
  keptRows.start()
  opening.defer(() => keptRows.stop())
  const upkeep = new UsageUpkeep(address, clock)
  upkeep.start()
  opening.defer(() => upkeep.stop())
  const months = [auditMonths(config.auditRetentionMonths)]
  if (config.usageRetentionMonths !== null) months.push(usageRetention(config.usageRetentionMonths))
  for (const work of months) {
    const job = new MonthlyJob(address, work, clock)
    job.start()
    opening.defer(() => job.stop())
  }
  const isShared = config.threads.http > 1
  const listener = await listen(createApp(deps), {
    ...config.listen,
    isShared,
    counts: deps.measures.connections,
  })
  url = listener.url
  opening.defer(async () => {
    await Promise.all([listener.stop(), threads?.stop()])
  })
  const { port } = listener
  const { host } = config.listen
  // Without a port there is one thread only (config.ts).
  threads = await startHttpThreads({
    count: config.threads.http - 1,
    makeSetup,
    addPeer: (each) => deps.invalidations.addPeer(each),
    host,
    port: port ?? 0,
    publicUrl: config.publicUrl ?? url,
    metricsText,
    statusHistory,
    recall,
    askServers,
  })
  if (address.kind === 'url') {
    const isPooled = address.isPooled === true
    if (!isPooled) questions = new Questions({ self: deps.self, sql: deps.sql, answer: standing })
    const Hearing = isPooled ? ChangePoller : ChangeListener
    const replaced = new ReplacedDatabase(processId, {
      emptyCaches: () => deps.invalidations.broadcast(null),
      rewriteWindows: () => shards.rewrite(),
      prepare: async () =>
        void (await prepareDatabase(found, { ...preparations, now: clock(), onReached: () => {} })),
    })
    opening.defer(() => replaced.stop(deps.sql))
    const hearing = new Hearing(
      deps.invalidations,
      { ...address, databaseId },
      { afterBeat: (sql) => replaced.check(sql), alsoListen: async (sql) => await questions?.listen(sql) },
    )
    opening.defer(() => hearing.stop())
    await hearing.start()
  }
  let metricsUrl = `${url}/metrics`
  if (config.metricsPort !== null) {
    const metrics = listenAside(createMetricsApp(deps), {
      host,
      port: config.metricsPort,
      variable: 'TOLLGATE_METRICS_PORT',
    })
    opening.defer(() => metrics.stop())
    metricsUrl = `${metrics.url}/metrics`
  }
  let dashboardUrl = config.dashboard === null || port === null ? null : `${url}/dashboard`
  if (config.dashboard !== null && config.dashboard.port !== null) {
    const dashboard = listenAside(createDashboardApp(deps), {
      host,
      port: config.dashboard.port,
      variable: 'TOLLGATE_DASHBOARD_PORT',
    })
    opening.defer(() => dashboard.stop())
    dashboardUrl = `${dashboard.url}/dashboard`
  }

  if (config.dashboard !== null) {
    history.start()
    opening.defer(() => history.stop())
  }
  deps.life.state = 'ready'
  const opened = opening.move()
  const drainAll = async (signal: AbortSignal) => {
    log('info', 'draining', 'readiness answers 503; requests are answered until the drain ends', {
      drainMs: config.drainMs,
    })
    deps.life.state = 'draining'
    listener.drain()
    await threads?.drain()
    await pause(systemTimers, config.drainMs, signal)
  }
  const drain = (signal: AbortSignal) => (config.drainMs === 0 ? null : drainAll(signal))
  const stop = () => {
    deps.life.state = 'stopping'
    return opened.disposeAsync()
  }
  const rootKeyFile = keyFile === null ? null : `${config.dataDir}/${ROOT_KEY_FILE}`
  return {
    url,
    metricsUrl,
    dashboardUrl,
    places: listener.places,
    rootKeyFile,
    isKeyNew: keyFile === 'new',
    facts,
    deps,
    history,
    shards,
    drain,
    stop,
    [Symbol.asyncDispose]: stop,
  }
}

/** File in the data directory with the generated operator root key. */
const ROOT_KEY_FILE = 'root-key'

/** Rejects when the signal is aborted. Running work may continue until the process ends. */
function untilAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work
  const aborted = Promise.withResolvers<never>()
  const abort = () => aborted.reject(signal.reason)
  signal.addEventListener('abort', abort)
  if (signal.aborted) abort()
  return Promise.race([work, aborted.promise]).finally(() => signal.removeEventListener('abort', abort))
}

async function openDatabase(
  config: Config,
  opening: AsyncDisposableStack,
  signal: AbortSignal | undefined,
): Promise<DatabaseAddress> {
  if (config.databaseUrl !== null)
    return await untilAborted(
      admitDatabase(config.databaseUrl, { connections: connectionsOf(config) }),
      signal,
    )
  const embedded = await startEmbedded(config.dataDir, signal)
  opening.defer(() => embedded.stop())
  return embedded.address
}

/** All work on the database that precedes serving. */
async function prepareDatabase(
  address: DatabaseAddress,
  {
    config,
    nodeId,
    keyFile,
    foundKey,
    givenVaultKeys,
    now,
    onReached,
  }: {
    config: Config
    nodeId: string
    keyFile: (make: () => string) => string
    foundKey: () => string | null
    givenVaultKeys: GivenVaultKeys
    now: number
    onReached: () => void
  },
) {
  const sql: Sql = connect(address, { connectionsMax: 1 })
  try {
    return await explained(address, async () => {
      if (address.kind === 'url') await ensureSchema(sql, address)
      const isPooled = address.kind === 'url' && address.isPooled === true
      const { applied } = await migrate(sql, { isPooled })
      onReached()
      if (applied.length > 0)
        log('info', 'database_migrated', 'database migrations were applied', { applied })
      const made = await bootstrap(sql, {
        rootKey: config.rootKey,
        keyFile,
        foundKey,
        bounds: config.bounds,
        now,
      })
      if (address.kind === 'url') {
        await deleteOldNotices(sql)
        await deleteOldMarks(sql)
        await joinServers(sql, nodeId)
      }
      const vaultKeys = await openVault(sql, givenVaultKeys, { isLost: config.isVaultLost, now })
      return { ...made, vaultKeys }
    })
  } finally {
    await sql.end({ timeout: 2 })
  }
}

/** @returns the vault keys to use. @throws StartError when they are not those of the database. */
async function openVault(
  sql: Sql,
  given: GivenVaultKeys,
  options: { isLost: boolean; now: number },
): Promise<readonly Uint8Array[]> {
  const { vaultKeys, missing, lost } = await sql.begin(async (tx) => {
    await lockStart(tx)
    return await admitVault(tx, given, options)
  })
  if (lost !== null)
    log(
      'warn',
      'vault_key_lost',
      'recoverable keys that this vault key sealed cannot be shown any more; new ones can',
      lost,
    )
  for (const vaultKeyId of missing)
    log('warn', 'vault_key_missing', 'this server cannot show keys that this vault key sealed', {
      vaultKeyId,
    })
  return vaultKeys
}
