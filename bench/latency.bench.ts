import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type LoadResult, sendLoad } from './support/load.ts'
import { sendPacedLoad } from './support/paced.ts'
import { machine, median, printTable } from './support/table.ts'
import { startTarget, type Target } from './support/target.ts'
import {
  countedByLimits,
  databaseServer,
  HEADERS,
  LIMIT_PATH,
  limitsOf,
  MULTI_LIMIT_PATH,
  servePostgresApart,
  startTollgate,
} from './support/tollgate.ts'

/**
 * How long a call of `ratelimits.limit` takes at a steady rate, counted from when it was due. Claims: at half of
 * saturation p50 0.4 ms, p99 2 ms, p99.9 5 ms, also while 50 000 dirty windows a second are flushed to Postgres, which
 * costs at most a tenth of the throughput; and at 10 000 requests a second a Unix socket is quicker than TCP.
 *
 * A shared machine stands still for tens of milliseconds now and then, whoever is being measured. So a bare `Bun.serve`
 * gets the same load in turn: a tail that it has as well is the machine's. Where that may be done, the connections to
 * Postgres are served on the core of the load, and what flushing costs is also told as CPU of the server: the load's core
 * then asks for less.
 *
 * The windows are dirtied by `ratelimits.multiLimit`, on both sides of the comparison; only one of them flushes. Every
 * answer is looked at, and every answered call must have been counted.
 */
export async function run(options: { tiny?: boolean } = {}): Promise<void> {
  const isTiny = options.tiny ?? false
  const rounds = isTiny ? 1 : 3
  const seconds = isTiny ? 1 : 4
  const connections = isTiny ? 4 : 32
  console.log(`latency: ${machine()}, ${connections} connections, ${rounds} rounds of ${seconds} s, medians`)
  const socketPath = join(tmpdir(), `tollgate-bench-${process.pid}.sock`)
  await using flushing = await startTollgate('flushing', { TOLLGATE_SOCKET: socketPath })
  await using bare = await startTarget('Bun.serve', ['bench/baselines/bun-serve.ts'])
  await using quiet = await startTollgate('not flushing', { TOLLGATE_FLUSH_MS: '60000' })
  const bodies = LIMITS.map((body) => JSON.stringify(body))
  const load = { path: LIMIT_PATH, headers: HEADERS, bodies, connections, seconds }
  const countedBefore = await countedByLimits(flushing.url, LIMITS)
  let answered = 0
  const paced = async (target: Target, rate: number, socket: string | null = null) => {
    const calls = bodies.map((body) => ({ path: LIMIT_PATH, body, expected: '"success":true' }))
    const { url } = target
    const result = await sendPacedLoad({
      url,
      socketPath: socket,
      headers: HEADERS,
      calls,
      connections,
      seconds,
      rate,
    })
    if (result.failed > 0) throw new Error(`${target.name}: ${result.failed} calls failed at ${rate}/s`)
    if (target === flushing) answered += result.answered
    return result
  }
  const saturate = async (target: Target) => {
    const cpuBefore = target.cpuMicroseconds()
    const result = await sendLoad({ ...load, url: target.url })
    if (target === flushing) answered += result.answered
    return { rate: result.requestsPerSecond, cpu: (target.cpuMicroseconds() - cpuBefore) / result.answered }
  }

  for (const target of [flushing, quiet, bare]) await saturate(target) // warm
  for (const { databaseUrl } of [flushing, quiet]) await servePostgresApart(databaseUrl)
  const saturation = median((await inTurn(rounds, () => saturate(flushing))).map(({ rate }) => rate))
  const half = isTiny ? 500 : Math.round(saturation / 2)
  const alone: LoadResult[] = []
  const bareAlone: LoadResult[] = []
  const dirtied: LoadResult[] = []
  const with_: Saturated[] = []
  const without: Saturated[] = []
  for (let round = 0; round < rounds; round++) {
    alone.push(await paced(flushing, half))
    bareAlone.push(await paced(bare, half))
    if (databaseServer === undefined) continue
    dirtied.push(await whileDirtying(flushing, isTiny, () => paced(flushing, half)))
    with_.push(await whileDirtying(flushing, isTiny, () => saturate(flushing)))
    without.push(await whileDirtying(quiet, isTiny, () => saturate(quiet)))
  }
  const socketRate = isTiny ? 500 : 10_000
  const tcp: LoadResult[] = []
  const unix: LoadResult[] = []
  for (let round = 0; round < rounds; round++) {
    tcp.push(await paced(flushing, socketRate))
    unix.push(await paced(flushing, socketRate, socketPath))
  }
  const surplus = (await countedByLimits(flushing.url, LIMITS)) - countedBefore - answered
  if (surplus < 0 || surplus > connections * (3 * rounds + 1))
    throw new Error(`${answered} calls were answered, ${answered + surplus} counted`)

  const row = (name: string, results: LoadResult[]) => [
    name,
    ...(['requestsPerSecond', 'p50', 'p99', 'p999'] as const).map((field) =>
      median(results.map((result) => result[field])),
    ),
  ]
  console.log(`  saturation: ${whole(saturation)} requests/s`)
  printTable(
    ['', 'requests/s', 'p50 ms', 'p99 ms', 'p99.9 ms'],
    [
      row('half of it', alone),
      row('Bun.serve, the same', bareAlone),
      ...(dirtied.length === 0 ? [] : [row('half of it, 50 000 dirty windows/s', dirtied)]),
      row('TCP', tcp),
      row('Unix socket', unix),
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
    `  beside 50 000 dirty windows/s: ${whole(rate(with_))} requests/s flushing them, ${whole(rate(without))} not (${less.toFixed(1)} % less); ` +
      `CPU of the server, their charging included, ${cpu(with_).toFixed(1)} against ${cpu(without).toFixed(1)} µs a request (${more.toFixed(1)} % more)`,
  )
}

type Saturated = { rate: number; cpu: number }
const whole = (count: number) => Math.round(count).toLocaleString('en')

const LIMITS = limitsOf(1000)
const DIRTY = limitsOf(100_000, 'dirty_')
const DIRTY_PER_CALL = 500
const DIRTY_PER_SECOND = 50_000

async function inTurn<T>(times: number, work: () => Promise<T>): Promise<T[]> {
  const results: T[] = []
  for (let i = 0; i < times; i++) results.push(await work())
  return results
}

/** Does the work while other windows change at {@link DIRTY_PER_SECOND}; the flush of the first comes in the span. */
async function whileDirtying<T>(target: Target, isTiny: boolean, work: () => Promise<T>): Promise<T> {
  const signal = new AbortController()
  const bodies = Array.from({ length: DIRTY.length / DIRTY_PER_CALL }, (_, i) =>
    JSON.stringify(DIRTY.slice(i * DIRTY_PER_CALL, (i + 1) * DIRTY_PER_CALL)),
  )
  const intervalMs = (1000 * DIRTY_PER_CALL) / (isTiny ? 2_000 : DIRTY_PER_SECOND)
  let sent = 0
  const started = performance.now()
  const dirtying = (async () => {
    while (!signal.signal.aborted) {
      const dueMs = started + sent * intervalMs - performance.now()
      if (dueMs > 0) await Bun.sleep(dueMs)
      const body = bodies[sent++ % bodies.length] ?? ''
      const answer = await fetch(target.url + MULTI_LIMIT_PATH, { method: 'POST', headers: HEADERS, body })
      if (!answer.ok) throw new Error(`${MULTI_LIMIT_PATH} answered ${answer.status}`)
      await answer.arrayBuffer()
    }
  })()
  dirtying.catch(() => {}) // awaited below
  try {
    await Bun.sleep(isTiny ? 100 : 1000)
    const result = await work()
    const behind = (performance.now() - started) / intervalMs - sent
    if (!isTiny && behind > sent / 4)
      console.log(`  only ${sent} of ${Math.round(sent + behind)} dirtying calls in time`)
    return result
  } finally {
    signal.abort()
    await dirtying
  }
}
