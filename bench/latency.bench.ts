import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Awake, keepAwake } from './support/awake.ts'
import { clearServerCore, sendLoad } from './support/load.ts'
import { type PacedCall, type PacedResult, sendPacedLoad, type Told } from './support/paced.ts'
import { whileWriting } from './support/segments.ts'
import { stolenSince } from './support/stolen.ts'
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
  startTollgate,
} from './support/tollgate.ts'

/**
 * How long a call of `ratelimits.limit` takes at a steady rate, counted from when it was due. Claims: at half of
 * saturation p50 0.4 ms, p99 2 ms, p99.9 5 ms, also while 50 000 dirty windows a second are flushed to Postgres, which
 * costs at most a tenth of the throughput; and at 10 000 requests a second a Unix socket is quicker than TCP, by p50 and p99.
 * What of that is in milliseconds holds as far as the machine lets it: flushing, three runs on a quiet AMD EPYC told p99s of
 * 1.6 ms and p99.9s of 3.7 to 4.5 (garbage was not yet collected after the answers, nor the end of a walk one segment); five
 * on a crowded one 2.0 to 3.8 and 5.4 to 15, where a bare server beside a Postgres that was given as much had 1.1 to 1.8 and
 * 4.1 to 8.4. The p99s by socket and by TCP at the same time, which collections of garbage make, were then 0.98 to 1.01 of each
 * other, where the quiet one had 0.98 to 0.99; p50 is 0.96 to 0.97 of TCP's on either.
 *
 * A shared machine stands still for milliseconds now and then, whoever is being measured. So a bare `Bun.serve` gets the
 * same load in turn: a tail that it has as well is the machine's. Most of that comes from cores that halt and are given away
 * (`keepAwake`); where they can be kept from it, four rows tell what it is when they are not, which is less where the host takes away
 * cores that are always busy (one such: from two that did not halt 1 % of the time, up to 17 ms in one go; from one 0.03 %).
 * Each row ends with what the host took of both cores meanwhile. Where that may be done, all of Postgres runs on the core of the
 * load, after it. What one row left to be flushed is written before the next one begins. The load knows when it stood still
 * itself: what was not due or under way then is told again by itself, as undisturbed.
 *
 * Windows are dirtied by the load: each request is for another one. Where that is more than 50 000 a second, the others among
 * them are for one of a thousand; where it is less, calls of `ratelimits.multiLimit` among them add the rest, sent and told like
 * the others: by a loop of its own beside the load, on a core that has Postgres too, they were up to 0.7 s late and then came
 * one right after the other. They are of a thousand identifiers with a hundred limits each; in another row of 100 000
 * identifiers, each of which is counted by itself for analytics too, so that Postgres has as much to write again. At half of
 * saturation is then what both take together: with them added to half, a slow machine's core was 70 to 85 % busy, which is
 * another claim.
 * What saturation is changes too, on such a machine by a third within minutes: so it is looked for again before each round, and
 * half of it is half of what there was just then.
 * How many were flushed is what the server itself has counted. The bare server gets the same calls while Postgres is given as
 * many windows by somebody else: it has no share in what that costs, so that its tail is the machine's. What flushing costs
 * is measured at saturation, of two servers that hold the same windows, as the median of what two rounds right after each other
 * say (of two medians, one fell into the machine's slower minutes and the other did not); as CPU of the server
 * too, since the load's core asks for less beside Postgres. Every answer is looked at, and every answered call must have been
 * counted.
 */
export async function run(options: { tiny?: boolean } = {}): Promise<void> {
  const isTiny = options.tiny ?? false
  const how: How = {
    isTiny,
    rounds: isTiny ? 1 : 5,
    seconds: isTiny ? 1 : 4,
    connections: isTiny ? 4 : 32,
  }
  using awake = keepAwake()
  using cleared = isTiny ? null : clearServerCore({ ofPostgres: true })
  console.log(
    `latency: ${machine()}, ${how.connections} connections, ${how.rounds} rounds of ${how.seconds} s, medians`,
  )
  console.log(`  cores ${awake.text}; ${cleared?.text ?? 'kernel threads anywhere'}`)
  const rows: Row[] = []
  await alone(how, awake, rows)
  if (databaseServer !== undefined) await whileFlushing(how, awake, rows)
  printTable(
    [
      ...['', 'requests/s', 'CPU µs/request', 'p50 ms', 'p99 ms', 'p99.9 ms'],
      ...['undisturbed', 'p99 ms', 'p99.9 ms', 'taken by the host'],
    ],
    rows.map(cellsOf),
  )
  if (databaseServer === undefined)
    console.log('  flushing many windows: only with DATABASE_URL or TEST_DATABASE_URL')
  else await costOfFlushing(how)
}

type How = { isTiny: boolean; rounds: number; seconds: number; connections: number }
type Row = { name: string; results: Paced[] }
/** `cpu`: of the server, µs a request, all its threads. `stolen`: of the cores' time, from `stolenSince`. */
type Paced = PacedResult & { cpu: number; stolen: number }

/**
 * At half of saturation, and at 10 000 requests a second either way in. By p99 these two differ by a hundredth or two, and a
 * round from the next, of the same way in, by half and more (0.4 to 1.3 ms on a noisy machine). So they are compared in pairs of
 * rounds next to each other, each first in turn; and, as that is not near enough for a p99, with half of the calls by each at the
 * same time: then both meet the same collections of garbage, flushes and pauses of the machine. What the socket's server saves of
 * CPU, so that a queue is gone sooner, helps both ways alike there.
 */
async function alone(how: How, awake: Awake, rows: Row[]): Promise<void> {
  const { isTiny, rounds } = how
  const socketPath = join(tmpdir(), `tollgate-bench-${process.pid}.sock`)
  await using server = await startTollgate('Tollgate', { TOLLGATE_SOCKET: socketPath })
  await using bare = await startTarget('Bun.serve', ['bench/baselines/bun-serve.ts'])
  const calls = new Calls(server, how, [LIMITS])
  const baseline = new Calls(bare, how, [])
  await calls.begin()
  for (const each of [calls, baseline]) await each.saturate(LIMIT_BODIES) // warm
  const saturations: number[] = []
  const halfNow = async () => {
    const saturation = await calls.saturationNow(LIMIT_BODIES)
    saturations.push(saturation)
    return isTiny ? 500 : Math.round(saturation / 2)
  }
  const socketRate = isTiny ? 500 : 10_000
  const row = (name: string) => {
    const results: Paced[] = []
    rows.push({ name, results })
    return results
  }
  const rowsAt = (name: string) => ({ ours: row(name), bare: row('Bun.serve, the same') })
  const at = {
    half: rowsAt('half of it'),
    halting: awake.isKept ? rowsAt('half of it, cores may halt') : null,
    tcp: row('TCP'),
    unix: row('Unix socket'),
    tcpBeside: row('half of them by TCP'),
    unixBeside: row('… and half by the Unix socket'),
  }
  await calls.settled()
  for (let round = isTiny ? 0 : UNTOLD_ROUND; round < rounds; round++) {
    const half = await halfNow()
    at.half.ours.push(await calls.paced(LIMIT_BODIES, half))
    at.half.bare.push(await baseline.paced(LIMIT_BODIES, half))
    if (at.halting !== null) {
      const half = await halfNow()
      at.halting.ours.push(await awake.without(() => calls.paced(LIMIT_BODIES, half)))
      at.halting.bare.push(await awake.without(() => baseline.paced(LIMIT_BODIES, half)))
    }
    for (let pair = 0; pair < (isTiny ? 1 : SOCKET_PAIRS); pair++)
      for (const isUnix of (round + pair) % 2 === 0 ? [false, true] : [true, false])
        if (isUnix) at.unix.push(await calls.paced(LIMIT_BODIES, socketRate, { socketPath, times: 0.5 }))
        else at.tcp.push(await calls.paced(LIMIT_BODIES, socketRate, { times: 0.5 }))
    for (let i = 0; i < (isTiny ? 1 : SHARED_ROUNDS); i++) {
      const both = await calls.paced(LIMIT_BODIES, socketRate, { secondSocketPath: socketPath })
      at.tcpBeside.push(ofOneWay(both, both))
      at.unixBeside.push(ofOneWay(both, both.second))
    }
    if (round === UNTOLD_ROUND)
      for (const told of [saturations, ...rows.map(({ results }) => results)]) told.length = 0
  }
  await calls.check()
  printSaturation(saturations)
  printSockets('in pairs of rounds', at.unix, at.tcp)
  printSockets('at the same time', at.unixBeside, at.tcpBeside)
}

/** The same while many windows are flushed. After what needs quiet: Postgres writes what it was given for seconds more. */
async function whileFlushing(how: How, awake: Awake, rows: Row[]): Promise<void> {
  const { isTiny, rounds } = how
  await using server = await startTollgate('Tollgate')
  await using bare = await startTarget('Bun.serve', ['bench/baselines/bun-serve.ts'])
  const calls = new Calls(server, how, [LIMITS, DIRTY, NAMED, MORE])
  const baseline = new Calls(bare, how, [])
  await calls.begin()
  const dirty = textsOf(DIRTY, isTiny)
  const named = textsOf(NAMED, isTiny)
  type Input = {
    bodies: string[]
    mayHalt: boolean
    name: string
    results: Flushing<Paced>[]
    /** Of the bare server while Postgres is given as much; not where it is given more than windows. */
    bareResults: Flushing<Paced>[] | null
  }
  const inputs: Input[] = [
    { bodies: dirty, mayHalt: false, name: 'windows/s', results: [], bareResults: [] },
    { bodies: dirty, mayHalt: true, name: 'windows/s, cores may halt', results: [], bareResults: [] },
    { bodies: named, mayHalt: false, name: 'of 100 000 identifiers', results: [], bareResults: null },
  ].filter(({ mayHalt }) => awake.isKept || !mayHalt)
  if (!isTiny) for (const bodies of [dirty, named]) await calls.saturate(bodies) // warm
  await baseline.saturate(dirty)
  const many = { path: MULTI_LIMIT_PATH, charges: DIRTY_PER_CALL }
  const manyBodies = Array.from({ length: MORE.length / DIRTY_PER_CALL }, (_, i) => callForMany(i).body)
  const shares = await inTurn(isTiny ? 1 : 3, async () => {
    const ofMany = await calls.saturate(manyBodies, many)
    return (await calls.saturationNow(LIMIT_BODIES)) / (ofMany.rate * DIRTY_PER_CALL)
  })
  const dirtyPerSecond = isTiny ? 1000 : DIRTY_PER_SECOND
  const saturations: number[] = []
  const halfNow = async () => {
    const saturation = await calls.saturationNow(LIMIT_BODIES)
    saturations.push(saturation)
    return isTiny ? 500 : halfBesideMany(saturation, median(shares), dirtyPerSecond)
  }
  for (let round = isTiny ? 0 : UNTOLD_ROUND; round < rounds; round++)
    for (const { bodies: dirtying, mayHalt, results, bareResults } of inputs) {
      await calls.settled() // or what is still flushed would make saturation less than it is
      const half = await halfNow()
      await calls.settled()
      // Longer than the others, as nothing is flushed in the first second of it.
      const load = { times: isTiny ? 1 : 3, dirtyPerSecond }
      const measured = () =>
        flushedDuring(server, () => calls.paced(dirtying, half, load), isTiny ? 0 : FLUSHING_AFTER_MS)
      const { result, flushed } = await (mayHalt ? awake.without(measured) : measured())
      if (round === UNTOLD_ROUND) continue
      results.push({ ...result, flushed })
      if (bareResults === null) continue
      const beside = () =>
        whileWriting(server.databaseUrl ?? '', load.dirtyPerSecond, () =>
          baseline.paced(dirtying, half, load),
        )
      const written = await (mayHalt ? awake.without(beside) : beside())
      bareResults.push({ ...written.result, flushed: written.flushed })
    }
  await calls.check()
  printSaturation(saturations)
  for (const { name, results, bareResults } of inputs) {
    rows.push({ name: `half of it, flushing ${flushedOf(results)} ${name}`, results })
    if (bareResults === null) continue
    rows.push({
      name: `Bun.serve, the same beside ${flushedOf(bareResults)} windows/s written`,
      results: bareResults,
    })
  }
}

/** What flushing costs at saturation, against a server that does not flush meanwhile and has been through the same. */
async function costOfFlushing(how: How): Promise<void> {
  const { isTiny, rounds } = how
  await using flushing = await startTollgate('flushing')
  await using quiet = await startTollgate('not flushing', { TOLLGATE_FLUSH_MS: '60000' })
  const calls = new Calls(flushing, how, [DIRTY])
  const baseline = new Calls(quiet, how, [DIRTY])
  const bodies = textsOf(DIRTY, isTiny)
  for (const each of [calls, baseline]) {
    await each.begin()
    await each.saturate(bodies) // warm
  }
  const pairs: { flushing: Flushing<Saturated>; quiet: Saturated }[] = []
  const flushingNow = async () => {
    await calls.settled()
    const { result, flushed } = await flushedDuring(flushing, () => calls.saturate(bodies))
    return { ...result, flushed }
  }
  const quietNow = async () => {
    await calls.settled()
    return baseline.saturate(bodies)
  }
  for (let round = 0; round < 3 * rounds; round++) {
    const before = round % 2 === 0 ? null : await quietNow()
    pairs.push({ flushing: await flushingNow(), quiet: before ?? (await quietNow()) })
  }
  for (const each of [calls, baseline]) await each.check()
  const ratioOf = (field: keyof Saturated) =>
    median(pairs.map(({ flushing, quiet }) => flushing[field] / quiet[field]))
  const medianOf = (field: keyof Saturated, side: 'flushing' | 'quiet') =>
    median(pairs.map((pair) => pair[side][field]))
  const less = (1 - ratioOf('rate')) * 100
  const more = (ratioOf('cpu') - 1) * 100
  console.log(
    `  each request another window: ${whole(medianOf('rate', 'flushing'))} requests/s flushing ${flushedOf(pairs.map((pair) => pair.flushing))} windows/s, ` +
      `${whole(medianOf('rate', 'quiet'))} not, which is ${less.toFixed(1)} % less (median of ${pairs.length} pairs of rounds); ` +
      `CPU of the server ${medianOf('cpu', 'flushing').toFixed(1)} against ${medianOf('cpu', 'quiet').toFixed(1)} µs a request (${more.toFixed(1)} % more)`,
  )
}

/** Calls of one server, every one of which must be counted where it is Tollgate. */
class Calls {
  private charged = 0
  /** What the last requests of each saturation may have charged, one a connection under way when it ended. */
  private unanswered = 0
  private countedBefore = 0

  /** @param windows All that the calls charge. */
  constructor(
    private readonly target: Target & { databaseUrl?: string | null },
    private readonly how: How,
    private readonly windows: { limit: number }[][],
  ) {}

  async begin(): Promise<void> {
    await countedByLimits(this.target.url, LIMITS.slice(0, 1)) // the namespace is there
    this.countedBefore = await this.counted()
  }

  /** @throws Error unless all that was answered is counted, and no more. */
  async check(): Promise<void> {
    const surplus = (await this.counted()) - this.countedBefore - this.charged
    if (surplus < 0 || surplus > this.unanswered)
      throw new Error(`${this.charged} limits were answered, ${this.charged + surplus} counted`)
  }

  async paced(
    bodies: string[],
    rate: number,
    options: {
      socketPath?: string | null
      secondSocketPath?: string | undefined
      times?: number
      dirtyPerSecond?: number
    } = {},
  ): Promise<Paced> {
    const { url, name } = this.target
    const { socketPath = null, secondSocketPath, times = 1, dirtyPerSecond = 0 } = options
    const manyPerSecond = Math.max(0, dirtyPerSecond - rate) / DIRTY_PER_CALL
    const share = dirtyPerSecond === 0 ? 1 : dirtyPerSecond / rate
    const calls = callsOf(thinned(bodies, share), rate / manyPerSecond)
    const seconds = times * this.how.seconds
    const warmSeconds = this.how.isTiny ? 0.2 : 1
    const where = { url, socketPath, secondSocketPath }
    const load = { ...this.load, ...where, calls, rate: rate + manyPerSecond, seconds, warmSeconds }
    const stolen = stolenSince()
    const cpuBefore = this.target.cpuMicroseconds()
    const result = await sendPacedLoad(load)
    const cpu = (this.target.cpuMicroseconds() - cpuBefore) / result.answered
    if (result.failed > 0) throw new Error(`${name}: ${result.failed} calls failed at ${rate}/s`)
    this.charged += result.charged
    return { ...result, cpu, stolen: stolen() }
  }

  /** @param options.charges What each body should be counted as. */
  async saturate(
    bodies: string[],
    { path = LIMIT_PATH, charges = 1, seconds = this.how.seconds } = {},
  ): Promise<Saturated> {
    const { target } = this
    const cpuBefore = target.cpuMicroseconds()
    const result = await sendLoad({ ...this.load, path, bodies, url: target.url, seconds })
    this.charged += charges * result.answered
    this.unanswered += charges * this.how.connections
    return { rate: result.requestsPerSecond, cpu: (target.cpuMicroseconds() - cpuBefore) / result.answered }
  }

  /** Requests a second, in a look of two seconds. */
  async saturationNow(bodies: string[]): Promise<number> {
    return (await this.saturate(bodies, { seconds: this.how.isTiny ? 1 : 2 })).rate
  }

  /** All is flushed. */
  async settled(): Promise<void> {
    const { url } = this.target
    const until = performance.now() + SETTLED_WITHIN_MS
    while (!this.how.isTiny && sum(await metricOf(url, DIRTY_METRIC)) > 0) {
      if (performance.now() > until) throw new Error('windows are not flushed within a minute')
      await Bun.sleep(50)
    }
  }

  private get load() {
    return { path: LIMIT_PATH, headers: HEADERS, connections: this.how.connections }
  }

  private async counted(): Promise<number> {
    let total = 0
    for (const bodies of this.windows) total += await countedByLimits(this.target.url, bodies)
    return total
  }
}

/** Windows flushed a second while the work is done, or after some time of it. */
async function flushedDuring<T>(
  { url }: Target,
  work: () => Promise<T>,
  skipMs = 0,
): Promise<{ result: T; flushed: number }> {
  const working = work()
  working.catch(() => {}) // awaited below
  await Bun.sleep(skipMs)
  const before = sum(await metricOf(url, FLUSHED_METRIC))
  const started = performance.now()
  const result = await working
  const took = (performance.now() - started) / 1000
  return { result, flushed: (sum(await metricOf(url, FLUSHED_METRIC)) - before) / took }
}

const cellsOf = ({ name, results }: Row) => [
  name,
  median(results.map((result) => result.requestsPerSecond)),
  median(results.map((result) => result.cpu)),
  median(results.map((result) => result.p50)).toFixed(3), // two ways in differ by thousandths
  ...(['p99', 'p999'] as const).map((field) => median(results.map((result) => result[field]))),
  `${(100 * median(results.map(({ undisturbed }) => undisturbed.share))).toFixed(1)} %`,
  ...(['p99', 'p999'] as const).map((field) => median(results.map(({ undisturbed }) => undisturbed[field]))),
  `${(100 * median(results.map(({ stolen }) => stolen))).toFixed(1)} %`,
]

type Saturated = { rate: number; cpu: number }
/** `flushed`: windows a second. */
type Flushing<T> = T & { flushed: number }
const flushedOf = (results: Flushing<object>[]) => whole(median(results.map(({ flushed }) => flushed)))
const sum = (values: number[]) => values.reduce((total, value) => total + value, 0)
const whole = (count: number) => Math.round(count).toLocaleString('en')

const LIMITS = limitsOf(1000)
const LIMIT_BODIES = LIMITS.map((body) => JSON.stringify(body))
/** Windows of a thousand identifiers, so that what is counted by identifier stays as little as ever. */
const DIRTY = limitsOf(100_000, 'dirty_', 1000)
const NAMED = limitsOf(100_000, 'named_')
/** What is dirtied beside the load, so that nothing is twice in a flush. */
const MORE = limitsOf(100_000, 'more_', 1000)
const DIRTY_METRIC = 'tollgate_limiter_windows_dirty'
const SETTLED_WITHIN_MS = 60_000
const FLUSHED_METRIC = 'tollgate_limiter_windows_flushed_total'
const DIRTY_PER_SECOND = 50_000
/** In each round, as those after it. */
const SOCKET_PAIRS = 3
const SHARED_ROUNDS = 5
/** Comes first, where there are several: what runs once a second is compiled half a minute after the start. */
const UNTOLD_ROUND = -1
/** By then the load has started and warmed up. */
const FLUSHING_AFTER_MS = 2_500
/** So few that a call holds the server hardly longer than others do. */
const DIRTY_PER_CALL = 100

const textsOf = (bodies: object[], isTiny: boolean) =>
  bodies.slice(0, isTiny ? 2000 : undefined).map((body) => JSON.stringify(body))

/** Among as many calls of {@link LIMITS} that each is such a share of all; 1 and more = without. */
function thinned(bodies: string[], share: number): string[] {
  const among: string[] = []
  for (const [i, body] of bodies.entries()) {
    among.push(body)
    while (share < 1 && among.length * share < i + 1)
      among.push(LIMIT_BODIES[among.length % LIMITS.length] ?? body)
  }
  return among
}

/** A call for each body; after every so many (Infinity = never) one for a hundred windows of `MORE`. */
function callsOf(bodies: string[], every: number): PacedCall[] {
  const calls: PacedCall[] = []
  let many = 0
  for (const [i, body] of bodies.entries()) {
    calls.push({ path: LIMIT_PATH, body, expected: SUCCESS })
    if (i + 1 >= (many + 1) * every) calls.push(callForMany(many++))
  }
  return calls
}

function callForMany(i: number): PacedCall {
  const from = (i * DIRTY_PER_CALL) % MORE.length
  const body = JSON.stringify(MORE.slice(from, from + DIRTY_PER_CALL))
  return { path: MULTI_LIMIT_PATH, body, expected: SUCCESS, charges: DIRTY_PER_CALL }
}

/**
 * Calls a second of `ratelimits.limit` that are half of saturation together with those for many that it takes to dirty so
 * many windows.
 * @param share What a window in a call for many costs, in calls for one.
 */
function halfBesideMany(saturation: number, share: number, dirtyPerSecond: number): number {
  if (saturation / 2 >= dirtyPerSecond) return Math.round(saturation / 2)
  const rate = (saturation / 2 - dirtyPerSecond * share) / (1 - share)
  if (!(rate > 0)) throw new Error(`${dirtyPerSecond} windows a second are more than half of saturation`)
  return Math.round(rate)
}

function printSaturation(rates: number[]): void {
  const bounds = `${whole(Math.min(...rates))} to ${whole(Math.max(...rates))}`
  console.log(`  saturation: ${whole(median(rates))} requests/s, median of ${rates.length} (${bounds})`)
}

/** What is told of the calls that went one way, of two at the same time. */
const ofOneWay = (both: Paced, told: Told | null): Paced => ({
  ...both,
  ...told,
  requestsPerSecond: both.requestsPerSecond / 2,
})

/** By how much the socket's latencies are less than TCP's. */
function printSockets(how: string, unix: Paced[], tcp: Paced[]): void {
  const ratioOf = (field: 'p50' | 'p99') =>
    median(unix.map((result, i) => result[field] / (tcp[i]?.[field] ?? Number.NaN)))
  console.log(
    `  Unix socket against TCP, ${how}, median of ${unix.length}: ` +
      `p50 × ${ratioOf('p50').toFixed(3)}, p99 × ${ratioOf('p99').toFixed(3)}`,
  )
}

const SUCCESS = '"success":true'

async function inTurn<T>(times: number, work: () => Promise<T>): Promise<T[]> {
  const results: T[] = []
  for (let i = 0; i < times; i++) results.push(await work())
  return results
}
