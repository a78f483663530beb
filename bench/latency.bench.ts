import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { sendLoad, stayWithLoad } from './support/load.ts'
import { type PacedResult, sendPacedLoad } from './support/paced.ts'
import { machine, median, printTable } from './support/table.ts'
import { startTarget, type Target } from './support/target.ts'
import {
  countedByLimits,
  databaseServer,
  HEADERS,
  LIMIT_PATH,
  limitsOf,
  MULTI_LIMIT_PATH,
  metricOf,
  servePostgresApart,
  startTollgate,
} from './support/tollgate.ts'

/**
 * How long a call of `ratelimits.limit` takes at a steady rate, counted from when it was due. Claims: at half of
 * saturation p50 0.4 ms, p99 2 ms, p99.9 5 ms, also while 50 000 dirty windows a second are flushed to Postgres, which
 * costs at most a tenth of the throughput; and at 10 000 requests a second a Unix socket is quicker than TCP.
 *
 * A shared machine stands still for milliseconds now and then, whoever is being measured. So a bare `Bun.serve` gets the
 * same load in turn: a tail that it has as well is the machine's. Where that may be done, the connections to Postgres are
 * served on the core of the load, after it, and what flushing costs is also told as CPU of the server: the load's core
 * then asks for less. What one row left to be flushed is written before the next one begins. The load knows when it stood
 * still itself: what was not due or under way then is told again by itself, as undisturbed.
 *
 * Windows are dirtied by the load: each request is for another one. Where that is less than 50 000 a second,
 * `ratelimits.multiLimit` adds the rest. They are of a thousand identifiers with a hundred limits each; in another row of
 * 100 000 identifiers, each of which is counted by itself for analytics too, so that Postgres has as much to write again.
 * How many were flushed is what the server itself has counted. Every answer is looked at, and every answered call must have
 * been counted.
 */
export async function run(options: { tiny?: boolean } = {}): Promise<void> {
  const isTiny = options.tiny ?? false
  const rounds = isTiny ? 1 : 5
  const seconds = isTiny ? 1 : 4
  const connections = isTiny ? 4 : 32
  console.log(`latency: ${machine()}, ${connections} connections, ${rounds} rounds of ${seconds} s, medians`)
  using _apart = isTiny ? null : stayWithLoad()
  const socketPath = join(tmpdir(), `tollgate-bench-${process.pid}.sock`)
  await using flushing = await startTollgate('flushing', { TOLLGATE_SOCKET: socketPath })
  await using bare = await startTarget('Bun.serve', ['bench/baselines/bun-serve.ts'])
  await using quiet = await startTollgate('not flushing', { TOLLGATE_FLUSH_MS: '60000' })
  const few = LIMITS.map((body) => JSON.stringify(body))
  const textsOf = (bodies: object[]) =>
    bodies.slice(0, isTiny ? 2000 : undefined).map((body) => JSON.stringify(body))
  const many = textsOf(DIRTY)
  const named = textsOf(NAMED)
  const load = { path: LIMIT_PATH, headers: HEADERS, connections, seconds, warmSeconds: isTiny ? 0.2 : 1 }
  const counted = async () => {
    let total = 0
    for (const bodies of [LIMITS, DIRTY, NAMED, MORE]) total += await countedByLimits(flushing.url, bodies)
    return total
  }
  await countedByLimits(flushing.url, LIMITS.slice(0, 1)) // the namespace is there
  const countedBefore = await counted()
  let answered = 0
  /** Each ends while its last requests are under way, one a connection. */
  let saturations = 0
  const paced = async (
    target: Target,
    bodies: string[],
    rate: number,
    { socketPath = null, times = 1 }: { socketPath?: string | null; times?: number } = {},
  ) => {
    const calls = bodies.map((body) => ({ path: LIMIT_PATH, body, expected: '"success":true' }))
    const { url } = target
    const result = await sendPacedLoad({ ...load, seconds: times * seconds, url, socketPath, calls, rate })
    if (result.failed > 0) throw new Error(`${target.name}: ${result.failed} calls failed at ${rate}/s`)
    if (target === flushing) answered += result.answered
    return result
  }
  const saturate = async (target: Target, bodies: string[]) => {
    const cpuBefore = target.cpuMicroseconds()
    const result = await sendLoad({ ...load, bodies, url: target.url })
    if (target === flushing) {
      answered += result.answered
      saturations++
    }
    return { rate: result.requestsPerSecond, cpu: (target.cpuMicroseconds() - cpuBefore) / result.answered }
  }

  /** All is flushed, and what connections were made meanwhile are on the core of the load too. */
  const settled = async () => {
    const until = performance.now() + SETTLED_WITHIN_MS
    while (!isTiny && sum(await metricOf(flushing.url, DIRTY_METRIC)) > 0) {
      if (performance.now() > until) throw new Error('windows are not flushed within a minute')
      await Bun.sleep(50)
    }
    for (const { databaseUrl } of [flushing, quiet]) await servePostgresApart(databaseUrl)
  }
  /** Windows flushed a second while the work is done, or after some time of it. */
  const flushedDuring = async <T>(
    work: () => Promise<T>,
    skipMs = 0,
  ): Promise<{ result: T; flushed: number }> => {
    const working = work()
    working.catch(() => {}) // awaited below
    await Bun.sleep(skipMs)
    const before = sum(await metricOf(flushing.url, FLUSHED_METRIC))
    const started = performance.now()
    const result = await working
    const took = (performance.now() - started) / 1000
    return { result, flushed: (sum(await metricOf(flushing.url, FLUSHED_METRIC)) - before) / took }
  }
  /** Longer, as nothing is flushed in the first second of it. */
  const pacedFlushing = async (bodies: string[], rate: number, perSecond: number) => {
    await settled()
    const { result, flushed } = await flushedDuring(
      () =>
        whileDirtying(flushing, perSecond - rate, () =>
          paced(flushing, bodies, rate, { times: isTiny ? 1 : 3 }),
        ),
      isTiny ? 0 : FLUSHING_AFTER_MS,
    )
    answered += result.charged
    return { ...result.result, flushed }
  }

  for (const target of [flushing, quiet, bare]) await saturate(target, few) // warm
  const saturation = median((await inTurn(3, () => saturate(flushing, few))).map(({ rate }) => rate))
  const half = isTiny ? 500 : Math.round(saturation / 2)
  const alone: PacedResult[] = []
  const bareAlone: PacedResult[] = []
  const socketRate = isTiny ? 500 : 10_000
  const tcp: PacedResult[] = []
  const unix: PacedResult[] = []
  await settled()
  for (let round = 0; round < rounds; round++) {
    alone.push(await paced(flushing, few, half))
    bareAlone.push(await paced(bare, few, half))
    tcp.push(await paced(flushing, few, socketRate))
    unix.push(await paced(flushing, few, socketRate, { socketPath }))
  }
  // After those: what Postgres was given to write is written for some seconds more, on either core.
  const dirtied: Flushing<PacedResult>[] = []
  const dirtiedNamed: Flushing<PacedResult>[] = []
  const with_: Flushing<Saturated>[] = []
  const without: Saturated[] = []
  for (const bodies of isTiny ? [] : [many, named])
    for (const each of [flushing, quiet]) await saturate(each, bodies)
  for (let round = 0; round < rounds && databaseServer !== undefined; round++) {
    const perSecond = isTiny ? 1000 : DIRTY_PER_SECOND
    dirtied.push(await pacedFlushing(many, half, perSecond))
    dirtiedNamed.push(await pacedFlushing(named, half, perSecond))
    await settled()
    const saturated = await flushedDuring(() => saturate(flushing, many))
    with_.push({ ...saturated.result, flushed: saturated.flushed })
    await settled()
    without.push(await saturate(quiet, many))
  }
  const surplus = (await counted()) - countedBefore - answered
  if (surplus < 0 || surplus > connections * saturations)
    throw new Error(`${answered} calls were answered, ${answered + surplus} counted`)

  const row = (name: string, results: PacedResult[]) => [
    name,
    median(results.map((result) => result.requestsPerSecond)),
    median(results.map((result) => result.p50)).toFixed(3), // two ways in differ by thousandths
    ...(['p99', 'p999'] as const).map((field) => median(results.map((result) => result[field]))),
    `${(100 * median(results.map(({ undisturbed }) => undisturbed.share))).toFixed(1)} %`,
    ...(['p99', 'p999'] as const).map((field) =>
      median(results.map(({ undisturbed }) => undisturbed[field])),
    ),
  ]
  console.log(`  saturation: ${whole(saturation)} requests/s`)
  printTable(
    ['', 'requests/s', 'p50 ms', 'p99 ms', 'p99.9 ms', 'undisturbed', 'p99 ms', 'p99.9 ms'],
    [
      row('half of it', alone),
      row('Bun.serve, the same', bareAlone),
      row('TCP', tcp),
      row('Unix socket', unix),
      ...(dirtied.length === 0
        ? []
        : [
            row(`half of it, flushing ${flushedOf(dirtied)} windows/s`, dirtied),
            row(`${flushedOf(dirtiedNamed)}/s, of 100 000 identifiers`, dirtiedNamed),
          ]),
    ],
  )
  if (dirtied.length === 0) {
    console.log('  flushing many windows: only with DATABASE_URL or TEST_DATABASE_URL')
    return
  }
  const rate = (results: Saturated[]) => median(results.map((each) => each.rate))
  const cpu = (results: Saturated[]) => median(results.map((each) => each.cpu))
  const less = (1 - rate(with_) / rate(without)) * 100
  const more = (cpu(with_) / cpu(without) - 1) * 100
  console.log(
    `  each request another window: ${whole(rate(with_))} requests/s flushing ${flushedOf(with_)} windows/s, ${whole(rate(without))} not (${less.toFixed(1)} % less); ` +
      `CPU of the server ${cpu(with_).toFixed(1)} against ${cpu(without).toFixed(1)} µs a request (${more.toFixed(1)} % more)`,
  )
}

type Saturated = { rate: number; cpu: number }
/** `flushed`: windows a second. */
type Flushing<T> = T & { flushed: number }
const flushedOf = (results: Flushing<object>[]) => whole(median(results.map(({ flushed }) => flushed)))
const sum = (values: number[]) => values.reduce((total, value) => total + value, 0)
const whole = (count: number) => Math.round(count).toLocaleString('en')

const LIMITS = limitsOf(1000)
/** Windows of a thousand identifiers, so that what is counted by identifier stays as little as ever. */
const DIRTY = limitsOf(100_000, 'dirty_', 1000)
const NAMED = limitsOf(100_000, 'named_')
/** What is dirtied beside the load, so that nothing is twice in a flush. */
const MORE = limitsOf(100_000, 'more_', 1000)
const DIRTY_METRIC = 'tollgate_limiter_windows_dirty'
const SETTLED_WITHIN_MS = 60_000
const FLUSHED_METRIC = 'tollgate_limiter_windows_flushed_total'
const DIRTY_PER_SECOND = 50_000
/** By then the load has started and warmed up. */
const FLUSHING_AFTER_MS = 2_500
/** So few that a call holds the server hardly longer than others do. */
const DIRTY_PER_CALL = 100

async function inTurn<T>(times: number, work: () => Promise<T>): Promise<T[]> {
  const results: T[] = []
  for (let i = 0; i < times; i++) results.push(await work())
  return results
}

/** Does the work while so many other windows a second change. @returns also how many charges that took. */
async function whileDirtying<T>(
  target: Target,
  perSecond: number,
  work: () => Promise<T>,
): Promise<{ result: T; charged: number }> {
  const signal = new AbortController()
  const bodies = Array.from({ length: MORE.length / DIRTY_PER_CALL }, (_, i) =>
    JSON.stringify(MORE.slice(i * DIRTY_PER_CALL, (i + 1) * DIRTY_PER_CALL)),
  )
  const intervalMs = (1000 * DIRTY_PER_CALL) / Math.max(1, perSecond)
  let sent = 0
  const started = performance.now()
  const dirtying = (async () => {
    while (!signal.signal.aborted) {
      const dueMs = started + sent * intervalMs - performance.now()
      if (dueMs > 0) await Bun.sleep(Math.min(dueMs, 100))
      if (dueMs > 100) continue
      const body = bodies[sent++ % bodies.length] ?? ''
      const answer = await fetch(target.url + MULTI_LIMIT_PATH, { method: 'POST', headers: HEADERS, body })
      if (!answer.ok) throw new Error(`${MULTI_LIMIT_PATH} answered ${answer.status}`)
      await answer.arrayBuffer()
    }
  })()
  dirtying.catch(() => {}) // awaited below
  try {
    const result = await work()
    signal.abort()
    await dirtying
    const due = Math.floor((performance.now() - started) / intervalMs)
    if (due > 1.25 * sent) console.log(`  only ${sent} of ${due} dirtying calls in time`)
    return { result, charged: sent * DIRTY_PER_CALL }
  } finally {
    signal.abort()
  }
}
