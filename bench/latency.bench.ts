import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { sendLoad } from './support/load.ts'
import { type PacedResult, sendPacedLoad } from './support/paced.ts'
import { machine, median, printTable } from './support/table.ts'
import { startTarget, type Target } from './support/target.ts'
import {
  countedByLimits,
  databaseServer,
  HEADERS,
  LIMIT_PATH,
  limitsOf,
  metricOf,
  startTollgate,
} from './support/tollgate.ts'

/**
 * How long a call of `ratelimits.limit` takes at half of saturation, counted from when it was due; over a Unix socket; and
 * while each call dirties another window, which is then flushed to Postgres.
 *
 * Claims: next to a bare `Bun.serve` under the same load, p50 is the same within a tenth; a Unix socket is not slower than
 * TCP; flushing costs at most a tenth of the throughput. Read the ratios: a tail that the bare server has too is the machine's.
 * Not claimed: milliseconds. Every answer is looked at, and every answered call must have been counted.
 * Figures and what was refused: docs/decisions/0020.
 */
export async function run({ tiny = false }: { tiny?: boolean } = {}): Promise<void> {
  const how: How = tiny
    ? { rounds: 1, seconds: 0.3, connections: 4, windows: 2_000 }
    : { rounds: 5, seconds: 4, connections: 32, windows: 100_000 }
  console.log(
    `latency: ${machine()}, ${how.connections} connections, ${how.rounds} rounds of ${how.seconds} s, medians`,
  )
  await atHalf(how, tiny)
  if (databaseServer === undefined)
    console.log('  cost of flushing: only with DATABASE_URL or TEST_DATABASE_URL')
  else await costOfFlushing(how)
}

type How = { rounds: number; seconds: number; connections: number; windows: number }

/** Half of what the server can do, looked for once; each way in and the bare server in turn. */
async function atHalf(how: How, isTiny: boolean): Promise<void> {
  const socketPath = join(tmpdir(), `tollgate-bench-${process.pid}.sock`)
  await using server = await startTollgate('Tollgate', { TOLLGATE_SOCKET: socketPath })
  await using bare = await startTarget('Bun.serve', ['bench/baselines/bun-serve.ts'])
  const few = limitsOf(1000)
  const calls = new Calls(server, how, few)
  const baseline = new Calls(bare, how, [])
  await calls.begin()
  await baseline.saturate(few)
  await calls.saturate(few) // warm
  const { rate: saturation } = await calls.saturate(few)
  const rate = isTiny ? 300 : Math.round(saturation / 2)
  const rows: {
    name: string
    results: (PacedResult & { cpu: number })[]
    take: () => Promise<PacedResult & { cpu: number }>
  }[] = [
    { name: 'TCP', results: [], take: () => calls.paced(few, rate) },
    { name: 'Unix socket', results: [], take: () => calls.paced(few, rate, socketPath) },
    { name: 'Bun.serve, TCP', results: [], take: () => baseline.paced(few, rate) },
  ]
  for (let round = 0; round < how.rounds; round++)
    for (const { results, take } of round % 2 === 0 ? rows : rows.toReversed()) results.push(await take())
  await calls.check()
  console.log(`  saturation ${whole(saturation)} requests/s; half of it, ${whole(rate)} requests/s:`)
  printTable(
    ['', 'p50 ms', 'p99 ms', 'p99.9 ms', 'CPU µs/request', 'p50 × TCP', 'p99 × TCP'],
    rows.map(({ name, results }) => {
      const of = (field: 'p50' | 'p99' | 'p999' | 'cpu') => median(results.map((result) => result[field]))
      const ratio = (field: 'p50' | 'p99') =>
        median(results.map((result, i) => result[field] / (rows[0]?.results[i]?.[field] ?? Number.NaN)))
      return [name, of('p50').toFixed(3), of('p99'), of('p999'), of('cpu'), ratio('p50'), ratio('p99')]
    }),
  )
}

/** At saturation, against a server that does not flush meanwhile: rounds right after each other, each first in turn. */
async function costOfFlushing(how: How): Promise<void> {
  await using flushing = await startTollgate('flushing')
  await using quiet = await startTollgate('not flushing', { TOLLGATE_FLUSH_MS: '60000' })
  const dirty = limitsOf(how.windows, 'dirty_', 1000)
  const pair = [flushing, quiet].map((target) => new Calls(target, how, dirty))
  for (const calls of pair) {
    await calls.begin()
    await calls.saturate(dirty) // warm
  }
  const results: { rate: number; cpu: number }[][] = [[], []]
  const flushedBefore = await flushedBy(flushing)
  let seconds = 0
  for (let round = 0; round < 2 * how.rounds; round++)
    for (const which of round % 2 === 0 ? [0, 1] : [1, 0]) {
      const result = await pair[which]?.saturate(dirty)
      if (result !== undefined) results[which]?.push(result)
      seconds += how.seconds
    }
  const flushed = ((await flushedBy(flushing)) - flushedBefore) / seconds
  for (const calls of pair) await calls.check()
  const [with_ = [], without = []] = results
  const ratio = (field: 'rate' | 'cpu') =>
    median(with_.map((result, i) => result[field] / (without[i]?.[field] ?? Number.NaN)))
  console.log(
    `  each request another window: flushing ${whole(flushed)} windows/s costs ${((1 - ratio('rate')) * 100).toFixed(1)} % of the ` +
      `throughput and × ${ratio('cpu').toFixed(2)} CPU a request (medians of ${with_.length} pairs of rounds)`,
  )
}

const flushedBy = async ({ url }: Target) =>
  (await metricOf(url, 'tollgate_limiter_windows_flushed_total')).reduce((total, value) => total + value, 0)

/** Calls of one server, each of which must be counted where it is Tollgate. */
class Calls {
  private answered = 0
  /** What the last requests of each saturation may have charged, one a connection. */
  private cut = 0
  private countedBefore = 0

  /** @param windows All that the calls charge; empty = nothing is counted. */
  constructor(
    private readonly target: Target,
    private readonly how: How,
    private readonly windows: { limit: number }[],
  ) {}

  async begin(): Promise<void> {
    await countedByLimits(this.target.url, this.windows.slice(0, 1)) // the namespace is there
    this.countedBefore = await countedByLimits(this.target.url, this.windows)
  }

  /** @throws Error unless all that was answered is counted, and no more. */
  async check(): Promise<void> {
    const surplus =
      (await countedByLimits(this.target.url, this.windows)) - this.countedBefore - this.answered
    if (surplus < 0 || surplus > this.cut)
      throw new Error(`${this.target.name}: ${this.answered} answered, ${this.answered + surplus} counted`)
  }

  async saturate(bodies: object[]): Promise<{ rate: number; cpu: number }> {
    const cpuBefore = this.target.cpuMicroseconds()
    const {
      answered,
      failed,
      requestsPerSecond: rate,
    } = await sendLoad({
      ...this.load,
      path: LIMIT_PATH,
      bodies: bodies.map((body) => JSON.stringify(body)),
      seconds: Math.max(1, this.how.seconds),
    })
    if (failed > 0) throw new Error(`${this.target.name}: ${failed} calls failed`)
    this.answered += answered
    this.cut += this.how.connections
    return { rate, cpu: (this.target.cpuMicroseconds() - cpuBefore) / answered }
  }

  async paced(bodies: object[], rate: number, socketPath: string | null = null) {
    const calls = bodies.map((body) => ({
      path: LIMIT_PATH,
      body: JSON.stringify(body),
      expected: '"success":true',
    }))
    const cpuBefore = this.target.cpuMicroseconds()
    const { seconds } = this.how
    const result = await sendPacedLoad({
      ...this.load,
      socketPath,
      calls,
      rate,
      seconds,
      warmSeconds: seconds / 4,
    })
    if (result.failed > 0) throw new Error(`${this.target.name}: ${result.failed} calls failed at ${rate}/s`)
    this.answered += result.answered
    return { ...result, cpu: (this.target.cpuMicroseconds() - cpuBefore) / result.answered }
  }

  private get load() {
    return { url: this.target.url, headers: HEADERS, connections: this.how.connections }
  }
}

const whole = (count: number) => Math.round(count).toLocaleString('en')
