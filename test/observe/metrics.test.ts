import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { closeSync, mkdtempSync, openSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
// @ts-expect-error the package brings no types
import untyped from 'parse-prometheus-text-format'
import { writeSpill } from '../../src/data-dir/spill.ts'
import { clockAhead, StatusReader } from '../../src/db/status.ts'
import { COMMIT, VERSION } from '../../src/lib/version.ts'
import { exposition, histogramSamples, SAMPLES_PER_TURN } from '../../src/observe/exposition.ts'
import { continuedFrom, Measures, NAMESPACES_MAX } from '../../src/observe/measures.ts'
import { metricFamilies, type ProcessReport } from '../../src/observe/metrics.ts'
import { reportThread } from '../../src/server/deps.ts'
import { readDataDir, readProcess } from '../../src/server/figures.ts'
import { startTestServer, type TestServer } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

type Metric = { value?: string; labels?: Record<string, string> }
/** The parser knows only histograms without labels, so others are searched in the text. */
const parse: (text: string) => { name: string; metrics: Metric[] }[] = untyped

async function scrape(server: TestServer): Promise<Map<string, Metric[]>> {
  const response = await fetch(server.server.metricsUrl)
  expect(response.status).toBe(200)
  expect(response.headers.get('content-type')).toStartWith('text/plain; version=0.0.4')
  return new Map(parse(await response.text()).map(({ name, metrics }) => [name, metrics]))
}

/** The value of the one sample with these labels. */
function numberOf(
  families: Map<string, Metric[]>,
  name: string,
  labels: Record<string, string> = {},
): number {
  const found = (families.get(name) ?? []).filter((metric) =>
    Object.entries(labels).every(([label, value]) => metric.labels?.[label] === value),
  )
  expect(found).toHaveLength(1)
  return Number(found[0]?.value)
}

/** What a scrape tells besides the counts of threads. */
const PROCESS: ProcessReport = {
  threads: [],
  shards: [],
  limiterBytesMax: 1,
  database: 'ok',
  databaseStatus: null,
  fleetMembers: null,
  fullest: [],
  state: 'ready',
  process: { startedAtMs: 0, cpuSeconds: 1.5, residentBytes: 1, openFiles: null, openFilesMax: null },
  dataDir: null,
}

/** Closes each connection: the kernel distributes new ones over the threads, so calls reach all of them. */
const closing = { connection: 'close' }

describe('three HTTP threads', () => {
  test('answer a scrape completely, whichever thread gets it', async () => {
    await using server = await startTestServer({ env: { TOLLGATE_HTTP_THREADS: '3' } })
    const workspace = await server.workspace()
    const limit = { namespace: 'a "quoted" \\ one', identifier: 'everyone', limit: 20, duration: 86_400_000 }
    await Promise.all(
      Array.from({ length: 60 }, () => server.post('ratelimits.limit', limit, workspace.rootKey, closing)),
    )
    await Promise.all(
      Array.from({ length: 12 }, () => server.post('keys.verifyKey', { key: 'unknown' }, null, closing)),
    )
    await server.post('keys.verifyKey', {}, null, closing)
    for (let call = 0; call < 10; call++) await server.get('apis.listApis', {}, workspace.rootKey, closing)
    await server.server.shards.flush()

    const text = await (await fetch(server.server.metricsUrl)).text()
    const series = 'tollgate_http_request_duration_seconds'
    expect(text).toContain(`${series}_bucket{route="/v1/ratelimits.limit",le="+Inf"} 60\n`)
    expect(text).toContain(`${series}_count{route="/v1/ratelimits.limit"} 60\n`)

    // New connections reach all threads, which must all answer the same.
    for (let round = 0; round < 6; round++) {
      const families = await scrape(server)
      const route = '/v1/ratelimits.limit'
      expect(numberOf(families, 'tollgate_http_requests_total', { route, status: '200' })).toBe(60)
      const decided = { namespace: limit.namespace, workspace: workspace.workspaceId }
      const decisions = 'tollgate_ratelimit_decisions_total'
      expect(numberOf(families, decisions, { ...decided, decision: 'passed' })).toBe(20)
      expect(numberOf(families, decisions, { ...decided, decision: 'denied' })).toBe(40)
      expect(numberOf(families, 'tollgate_verifications_total', { outcome: 'NOT_FOUND' })).toBe(12)
      const verify = { route: '/v1/keys.verifyKey', status: '400' }
      expect(numberOf(families, 'tollgate_http_requests_total', verify)).toBe(1)
      for (const thread of ['http-0', 'http-1', 'http-2', 'shard-0', 'shard-1'])
        expect(numberOf(families, 'tollgate_thread_up', { thread })).toBe(1)
      expect(numberOf(families, 'tollgate_database_up')).toBe(1)
      expect(families.get('tollgate_event_loop_lag_seconds')).toHaveLength(5)
      expect(numberOf(families, 'tollgate_cache_hits_total', { cache: 'keys' })).toBeGreaterThan(0)
      // A flush in the middle of the calls writes the window more than once.
      const flushed = (families.get('tollgate_limiter_windows_flushed_total') ?? []).map(({ value }) =>
        Number(value),
      )
      expect(Math.min(...flushed)).toBe(0)
      expect(Math.max(...flushed)).toBeGreaterThan(0)
      expect(
        numberOf(families, 'tollgate_build_info', { version: VERSION, commit: COMMIT, bun: Bun.version }),
      ).toBe(1)
    }
  })
})

test('with a port of its own, the metrics are there and not with the API', async () => {
  await using server = await startTestServer({ env: { TOLLGATE_METRICS_PORT: '0' } })
  expect(new URL(server.server.metricsUrl).port).not.toBe(new URL(server.url).port)
  expect((await fetch(`${server.url}/metrics`)).status).toBe(404)
  expect((await scrape(server)).has('tollgate_build_info')).toBe(true)
  expect((await fetch(new URL('/v1/liveness', server.server.metricsUrl))).status).toBe(404)
})

/** Anybody may ask for any path, but a metrics store cannot take that many series. */
test('requests without an endpoint are counted under one name', async () => {
  await using server = await startTestServer()
  for (const path of ['/v1/no.such', '/wp-login.php', '//v1/keys.verifyKey/x'])
    expect((await fetch(server.url + path)).status).toBe(404)
  const families = await scrape(server)
  expect(numberOf(families, 'tollgate_http_requests_total', { route: 'unknown', status: '404' })).toBe(3)
})

/** Otherwise callers who may create namespaces could make a metrics store fail. */
test('namespaces beyond the bound are counted together', async () => {
  await using server = await startTestServer()
  const workspace = await server.workspace()
  const extra = 5
  for (let index = 0; index < NAMESPACES_MAX + extra; index++)
    await workspace.post('ratelimits.limit', {
      namespace: `namespace ${index}`,
      identifier: 'x',
      limit: 1,
      duration: 60_000,
    })
  const families = await scrape(server)
  const decisions = families.get('tollgate_ratelimit_decisions_total') ?? []
  expect(decisions).toHaveLength(2 * (NAMESPACES_MAX + 1))
  const others = { namespace: '', namespace_id: '', decision: 'passed' }
  expect(numberOf(families, 'tollgate_ratelimit_decisions_total', others)).toBe(extra)
})

/** A scrape shares its thread with waiting requests, and the first one runs uncompiled. */
test('with every possible sample, a scrape lets requests run after every few samples', async () => {
  await using server = await startTestServer()
  const { deps } = server.server
  for (let index = 0; index < NAMESPACES_MAX; index++)
    deps.measures.decided('ws_1', { id: `rlns_${index}`, name: `namespace ${index}` }, true)
  for (let index = 0; index < 60; index++) deps.measures.route(`/v1/route.${index}`).add(200, 1)
  const shards = await server.server.shards.stats(deps.clock())
  const sliceMs: number[] = []
  const scrape = async () => {
    let began = performance.now()
    const families = metricFamilies({
      ...PROCESS,
      threads: [{ report: reportThread(deps), isUp: true }],
      shards,
    })
    const breathe = async () => {
      sliceMs.push(performance.now() - began)
      await Bun.sleep(0)
      began = performance.now()
    }
    const text = await exposition(families, { breathe })
    return text.split('\n').filter((line) => line !== '' && !line.startsWith('#')).length
  }
  const samples = await scrape()
  expect(samples).toBeGreaterThan(1000)
  expect(sliceMs).toHaveLength(Math.floor((samples - 1) / SAMPLES_PER_TURN))
  for (let round = 1; round < 20; round++) await scrape()
  // The median, as other tests use the machine too. The first slice of each scrape also collects the reports.
  sliceMs.sort((a, b) => a - b)
  expect(sliceMs[Math.floor(sliceMs.length / 2)]).toBeLessThan(1)
})

test('a thread that does not answer is down, keeps its last counts, and has no current values', async () => {
  await using server = await startTestServer()
  const { deps } = server.server
  await server.post('keys.verifyKey', { key: 'unknown' })
  const textOf = (isUp: boolean) =>
    exposition(
      metricFamilies({
        ...PROCESS,
        threads: [
          { report: reportThread(deps), isUp: true },
          { report: reportThread(deps), isUp },
          { report: null, isUp: false },
        ],
      }),
    )
  for (const isUp of [true, false]) {
    const text = await textOf(isUp)
    expect(text).toContain(`tollgate_thread_up{thread="http-1"} ${isUp ? 1 : 0}\n`)
    expect(text).toContain('tollgate_thread_up{thread="http-2"} 0\n')
    expect(text).toContain('tollgate_verifications_total{outcome="NOT_FOUND"} 2\n')
    expect(text).toContain('tollgate_connections_refused_total{thread="http-1"} 0\n')
    expect(text.includes('tollgate_connections{thread="http-1"}')).toBe(isUp)
    expect(text).not.toContain('tollgate_connections_refused_total{thread="http-2"}')
  }
})

/** Each thread reports its first hundred namespaces; two successive threads may have different ones. */
test('the counts of a thread and its replacement are added up, and no namespace loses its name', () => {
  const usage = { countsBuffered: 3, batchesSpilled: 0, flushTookMs: 0, flushAwayMs: 0 }
  const spans = { exported: 5, dropped: 1, queued: 2 }
  const reportOf = (from: number, to: number) => {
    const measures = new Measures()
    measures.route('/v1/x').add(200, 1)
    measures.route(`/v1/${from}`).add(404, 20_000)
    for (let i = from; i < to; i++) measures.decided('ws_1', { id: `rlns_${i}`, name: `${i}` }, i % 2 === 0)
    measures.connections.open = 4
    measures.connections.refused = 7
    return measures.report({ caches: { keys: { hits: 1, misses: 2 } }, usage, spans })
  }
  const first = reportOf(0, NAMESPACES_MAX - 1)
  expect(continuedFrom(null, first)).toBe(first)
  const both = continuedFrom(first, reportOf(NAMESPACES_MAX - 2, NAMESPACES_MAX + 5))
  expect(both.routes['/v1/x']).toMatchObject({ statuses: { 200: 2 }, sumMs: 2 })
  expect(Object.keys(both.routes)).toHaveLength(3)
  expect(both.routes['/v1/0']?.counts.at(-1)).toBe(1)
  expect(both.caches).toEqual({ keys: { hits: 2, misses: 4 } })
  expect(both.spans).toEqual({ exported: 10, dropped: 2, queued: 2 })
  expect(both).toMatchObject({ usage, connections: { open: 4, refused: 14 } })
  expect(both.decisions).toHaveLength(NAMESPACES_MAX + 1)
  expect(both.decisions[NAMESPACES_MAX - 2]).toMatchObject({ namespaceId: 'rlns_98', passed: 2, denied: 0 })
  expect(both.decisions.at(-1)).toMatchObject({ namespaceId: '', passed: 3, denied: 2 })
})

test('windows and usage that wait to be written are reported, by shard and thread', async () => {
  let now = Date.UTC(2030, 0, 1, 12)
  const env = { TOLLGATE_FLUSH_MS: '60000' }
  await using server = await startTestServer({ env, clock: () => now })
  const workspace = await server.workspace()
  const limit = { namespace: 'n', limit: 10, duration: 60_000 }
  for (let index = 0; index < 20; index++)
    await workspace.post('ratelimits.limit', { ...limit, identifier: `user_${index}` })
  const { shards, deps } = server.server
  const scraped = async () => {
    const families = await scrape(server)
    const sum = (name: string) =>
      (families.get(name) ?? []).reduce((total, { value }) => total + Number(value), 0)
    const counted = [sum('tollgate_limiter_windows_live'), sum('tollgate_limiter_windows_dirty')]
    return [...counted, sum('tollgate_usage_buffered_cells') > 0]
  }
  expect(await scraped()).toEqual([20, 20, true])
  await Promise.all([shards.flush(), deps.usage.flush()])
  expect(await scraped()).toEqual([20, 0, false])
  await workspace.post('ratelimits.limit', { ...limit, identifier: 'user_7' })
  expect(await scraped()).toEqual([20, 1, true])
  now += 60_000
  await scraped() // sends the time to the shards, which get no other calls
  await shards.flush()
  expect((await scraped()).slice(0, 2)).toEqual([0, 0])
  const families = await scrape(server)
  for (const kind of ['limiter', 'usage']) {
    const name = `tollgate_${kind}_flush_duration_seconds`
    expect(Number(families.get(name)?.[0]?.value)).toBeGreaterThan(0)
    expect(Number(families.get(`tollgate_${kind}_flush_lag_seconds`)?.[0]?.value)).toBe(0)
  }
})

test('names given by callers cannot break the format, and a histogram adds up', async () => {
  const text = await exposition([
    { name: 'a', help: 'one\ntwo', type: 'gauge', samples: [{ labels: { x: 'a"b\\c\nd' }, value: 1 }] },
    { name: 'none', help: '', type: 'gauge', samples: [] },
    {
      name: 'h',
      help: 'h',
      type: 'histogram',
      samples: histogramSamples({ r: 'x' }, { bounds: [1, 2], counts: [3, 4, 5], sum: 20 }),
    },
  ])
  expect(text).toBe(
    [
      '# HELP a one\\ntwo',
      '# TYPE a gauge',
      'a{x="a\\"b\\\\c\\nd"} 1',
      '# HELP h h',
      '# TYPE h histogram',
      'h_bucket{r="x",le="1"} 3',
      'h_bucket{r="x",le="2"} 7',
      'h_bucket{r="x",le="+Inf"} 12',
      'h_sum{r="x"} 20',
      'h_count{r="x"} 12',
      '',
    ].join('\n'),
  )
})

/** The sample of each state, by the label `state`. */
const statesOf = (families: Map<string, Metric[]>, name: string) =>
  Object.fromEntries(
    (families.get(name) ?? []).map(({ labels, value }) => [labels?.state ?? '', Number(value)]),
  )

describe('besides the counts of threads, a scrape tells', () => {
  let server: TestServer
  beforeAll(async () => {
    server = await startTestServer({ env: { TOLLGATE_DRAIN_MS: '60000', TOLLGATE_METRICS_PORT: '0' } })
  })
  afterAll(() => server[Symbol.asyncDispose]())

  test('open files, processor time, disk and schema', async () => {
    const families = await scrape(server)
    const numbers = (name: string) => numberOf(families, name)
    const migrations = readdirSync(join(import.meta.dir, '../../sql')).map((name) => parseInt(name, 10))
    expect(numbers('tollgate_schema_version')).toBe(Math.max(...migrations))
    expect(numbers('process_cpu_seconds_total')).toBeGreaterThan(0)
    expect(numbers('process_cpu_seconds_total')).toBeLessThan(100_000)
    expect(numbers('process_open_fds')).toBeGreaterThan(3)
    expect(numbers('process_open_fds')).toBeLessThanOrEqual(numbers('process_max_fds'))
    const [free, size] = [numbers('tollgate_data_dir_free_bytes'), numbers('tollgate_data_dir_size_bytes')]
    expect(free).toBeGreaterThan(2 ** 20)
    expect(free).toBeLessThanOrEqual(size)
  })

  /** The embedded database has one session and the clock of the process. */
  test('connections of the role by state, and how far the clocks are apart, with a Postgres', async () => {
    const families = await scrape(server)
    const connections = statesOf(families, 'tollgate_database_connections')
    if (server.server.facts.database === 'embedded') {
      expect([connections, families.has('tollgate_clock_offset_seconds')]).toEqual([{}, false])
      return
    }
    expect(Object.keys(connections)).toEqual(['active', 'idle', 'idle_in_transaction', 'other'])
    expect(connections.active).toBeGreaterThanOrEqual(1) // the one that asks
    expect(Math.abs(numberOf(families, 'tollgate_clock_offset_seconds'))).toBeLessThan(60)

    const isOpen = Promise.withResolvers<void>()
    const ends = Promise.withResolvers<void>()
    const transaction = server.server.deps.database.write(async (tx) => {
      await tx`select 1`
      isOpen.resolve()
      await ends.promise
    })
    await isOpen.promise
    const held = statesOf(await scrape(server), 'tollgate_database_connections')
    ends.resolve()
    await transaction
    expect(held.idle_in_transaction).toBeGreaterThanOrEqual(1)
  })

  test('the state of the server, while it drains too', async () => {
    const states = { starting: 0, ready: 0, draining: 0, stopping: 0 }
    expect(statesOf(await scrape(server), 'tollgate_state')).toEqual({ ...states, ready: 1 })
    const early = new AbortController()
    const drained = server.server.drain(early.signal)
    expect(statesOf(await scrape(server), 'tollgate_state')).toEqual({ ...states, draining: 1 })
    early.abort()
    await drained
  })
})

test('open files follow what is opened', async () => {
  const before = (await readProcess(0)).openFiles ?? 0
  const files = Array.from({ length: 50 }, () => openSync('/dev/null', 'r'))
  const open = (await readProcess(0)).openFiles ?? 0
  for (const file of files) closeSync(file)
  expect(open - before).toBeGreaterThanOrEqual(45) // other tests of this process may close some meanwhile
})

test('a clock is ahead or behind by more than the round trip, or equal', () => {
  const at = (nowMs: number) => clockAhead({ sentAt: 1000, nowMs, receivedAt: 1040 })
  expect([at(1000), at(1020), at(1040)]).toEqual([0, 0, 0])
  expect([at(1041), at(61_020), at(999)]).toEqual([21, 60_000, -21])
})

/** Whether the database answers is in other metrics. These must not hold up the scrape. */
test('a database that is away or hangs costs only the metrics that it would tell', async () => {
  const status = { schemaVersion: 7, server: null }
  const textOf = (databaseStatus: ProcessReport['databaseStatus']) =>
    exposition(
      metricFamilies({ ...PROCESS, database: databaseStatus === null ? 'away' : 'ok', databaseStatus }),
    )
  expect(await textOf(status)).toContain('tollgate_schema_version 7\n')
  const text = await textOf(null)
  expect(text).toContain('tollgate_database_up 0\n')
  for (const name of ['schema_version', 'clock_offset_seconds', 'database_connections'])
    expect(text).not.toContain(`tollgate_${name}`)

  let asked = 0
  const hanging = Promise.withResolvers<never>()
  const sql = () => {
    asked++
    return hanging.promise
  }
  // biome-ignore lint/suspicious/noExplicitAny: only the call of a statement is needed
  const reader = new StatusReader(sql as any, { kind: 'url' }) // see above
  const reads = [reader.read(), reader.read()]
  expect(asked).toBe(1)
  hanging.reject(new Error('given up'))
  expect(await Promise.all(reads)).toEqual([null, null])
  expect([await reader.read(), asked]).toEqual([null, 2])
})

test('spill files are counted by what becomes of them', async () => {
  const dataDir = mkdtempSync(join(tmpdir(), 'tollgate-test-spills-'))
  const address = { kind: 'url', url: '', databaseId: 'db_1' } as const
  const spillsOf = async () => (await readDataDir(dataDir, address))?.spills
  try {
    expect(await spillsOf()).toEqual({ waiting: 0, rejected: 0, unreadable: 0, otherDatabase: 0 })
    for (const kind of ['usage', 'windows', 'rejected-usage']) writeSpill(dataDir, kind, [], address)
    for (const kind of ['usage', 'rejected-usage']) writeSpill(dataDir, kind, [], { databaseId: 'db_2' })
    writeFileSync(join(dataDir, 'spill', 'usage-1.msgpack.unreadable'), '')
    writeFileSync(join(dataDir, 'spill', 'usage-2.msgpack.part'), '')
    const spills = { waiting: 2, rejected: 1, unreadable: 1, otherDatabase: 2 }
    expect(await spillsOf()).toEqual(spills)
    const figures = { freeBytes: 1, sizeBytes: 4, spills }
    const text = await exposition(metricFamilies({ ...PROCESS, dataDir: figures }))
    for (const [state, count] of Object.entries({
      waiting: 2,
      rejected: 1,
      unreadable: 1,
      other_database: 2,
    }))
      expect(text).toContain(`tollgate_spill_files{state="${state}"} ${count}\n`)
  } finally {
    rmSync(dataDir, { recursive: true })
  }
  expect(await readDataDir(dataDir, address)).toBeNull()
})
