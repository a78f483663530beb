import { connect, type Sql } from '../src/db/connect.ts'
import { vacuumDue } from '../src/db/embedded/housekeeping.ts'
import { hashKey } from '../src/verify/secret.ts'
import { randomNumbers } from '../test/support/random.ts'
import { type PacedCall, sendPacedLoad } from './support/paced.ts'
import { machine, median, printTable } from './support/table.ts'
import {
  call,
  databaseServer,
  HEADERS,
  LIMIT_PATH,
  MULTI_LIMIT_PATH,
  metricOf,
  ROOT_KEY,
  startTollgate,
  VERIFY_PATH,
} from './support/tollgate.ts'

/**
 * Mixed traffic at half load for `minutes`, in rounds of a few seconds: limits of identifiers that come and go,
 * verifications of keys that are made and deleted meanwhile, with limits, credits and tags, junk keys, many limits at
 * once; beside it changes and questions of an operator. Each round opens new connections.
 *
 * Claims, after a warm-up of a quarter of the time: resident memory grows by at most 1 MiB in 10 minutes; p99 does not
 * grow; no handles are left open. Every answer is looked at. Memory is judged once a minute, between two rounds, when what was
 * counted is flushed and the garbage of all threads collected. It takes an hour to see where memory ends.
 */
export async function run(options: { tiny?: boolean; minutes?: number } = {}): Promise<void> {
  const isTiny = options.tiny ?? false
  const minutes = isTiny ? 0.05 : (options.minutes ?? 5)
  const roundSeconds = isTiny ? 1 : 5
  const where = databaseServer === undefined ? 'embedded database' : 'Postgres'
  console.log(`soak: ${machine()}, ${where}, ${minutes} minutes in rounds of ${roundSeconds} s, seed ${SEED}`)
  await using target = await startTollgate('soak', { TOLLGATE_LOG_LEVEL: 'warn' }, COLLECTING)
  const traffic = await Traffic.begin(target.url, isTiny)
  await using vacuum = await Vacuum.begin(target.databaseUrl)
  const load = { url: target.url, socketPath: null, headers: HEADERS, connections: isTiny ? 4 : CONNECTIONS }

  // More than it can do, for a moment, and again when it is warm: what it did then is saturation.
  const saturate = () => sendPacedLoad({ ...load, calls: traffic.calls(), seconds: 1, rate: 200_000 })
  if (!isTiny) await saturate()
  const saturated = isTiny ? null : await saturate()
  const rate = saturated === null ? 200 : Math.round(saturated.requestsPerSecond / 2)
  console.log(
    saturated === null
      ? `  ${rate} requests/s`
      : `  saturation ${Math.round(saturated.requestsPerSecond)} requests/s; half of it is sent`,
  )

  const memory: Sample[] = []
  const collected: Sample[] = []
  const rounds: Round[] = []
  const startedMs = performance.now()
  const minutesNow = () => (performance.now() - startedMs) / 60_000
  const sampling = setInterval(
    () => memory.push({ atMinutes: minutesNow(), value: target.memoryMib() }),
    1000,
  )
  let reportAtMinutes = 0
  try {
    while (minutesNow() < minutes || rounds.length < ROUNDS_MIN) {
      const sending = sendPacedLoad({ ...load, calls: traffic.calls(), seconds: roundSeconds, rate })
      const [sent] = await Promise.all([sending, traffic.churn()])
      const missing = Math.floor(rate * roundSeconds) - sent.answered
      if (sent.failed > missing) throw new Error(`${sent.failed - missing} wrong answers in a round`)
      const atMinutes = minutesNow()
      const { lagMs, limiterMib } = await readMetrics(target.url)
      rounds.push({ atMinutes, p99: sent.p99, missing, lagMs, limiterMib, handles: target.handles() })
      if (Math.floor(atMinutes) > (collected.at(-1)?.atMinutes ?? -1) || isTiny) {
        await Bun.sleep(isTiny ? 100 : FLUSHED_MS)
        target.signal('SIGUSR2')
        await Bun.sleep(isTiny ? 100 : COLLECTED_MS)
        collected.push({ atMinutes: minutesNow(), value: target.memoryMib() })
        await vacuum.run()
      }
      if (atMinutes < reportAtMinutes || isTiny) continue
      reportAtMinutes = atMinutes + minutes / 10
      console.log(
        `  ${atMinutes.toFixed(1)} min: ${collected.at(-1)?.value.toFixed(1)} MiB when collected, ${limiterMib.toFixed(1)} of them windows, p99 ${sent.p99.toFixed(2)} ms, ${target.handles()} handles`,
      )
    }
  } finally {
    clearInterval(sampling)
  }
  report({ memory, collected, rounds, warmUpMinutes: minutes / 4, isJudged: minutes >= 2 })
}

const SEED = 11
/** With 32, some credits waiting for the disk of Postgres kept all of them busy, and everything else was late with them. */
const CONNECTIONS = 256
const COLLECTING = 'bench/baselines/collecting.ts'
/** Two flushes, of which the second finds little. */
const FLUSHED_MS = 2_500
/** By then what is free has gone back to the system. */
const COLLECTED_MS = 1_000
const ROUNDS_MIN = 3

type Sample = { atMinutes: number; value: number }
type Round = {
  atMinutes: number
  /** Milliseconds, from when a request was due. */
  p99: number
  /** Requests that were not sent in time, for the machine did something else. */
  missing: number
  lagMs: number
  limiterMib: number
  handles: number
}

/** @throws when a claim does not hold. */
function report(run: {
  memory: Sample[]
  collected: Sample[]
  rounds: Round[]
  warmUpMinutes: number
  isJudged: boolean
}): void {
  const isWarm = ({ atMinutes }: { atMinutes: number }) => atMinutes >= run.warmUpMinutes
  const rounds = run.rounds.filter(isWarm)
  const slope = slopeOf(run.collected.filter(isWarm))
  const parts = [0, 1, 2].map((part) =>
    rounds.slice(Math.floor((part * rounds.length) / 3), Math.floor(((part + 1) * rounds.length) / 3)),
  )
  const memoryOf = (samples: Sample[]) => (part: Round[]) => {
    const before = run.rounds.findLast((round) => round.atMinutes < (part[0]?.atMinutes ?? 0))?.atMinutes ?? 0
    const to = (part.at(-1)?.atMinutes ?? 0) + (FLUSHED_MS + 2 * COLLECTED_MS) / 60_000
    const within = samples.filter(({ atMinutes }) => atMinutes > before && atMinutes <= to)
    return median(within.map(({ value }) => value))
  }
  const of = (part: Round[], field: keyof Round) => median(part.map((round) => round[field]))
  printTable(
    ['after the warm-up, medians', 'first third', 'second', 'last'],
    [
      ['resident memory, garbage collected, MiB', ...parts.map(memoryOf(run.collected))],
      ['resident memory under load, MiB', ...parts.map(memoryOf(run.memory))],
      ['of the former open windows, MiB', ...parts.map((part) => of(part, 'limiterMib'))],
      ['p99, ms', ...parts.map((part) => of(part, 'p99'))],
      ['event loop late at worst, ms', ...parts.map((part) => of(part, 'lagMs'))],
      ['open handles', ...parts.map((part) => of(part, 'handles'))],
      ['requests not sent in time', ...parts.map((part) => of(part, 'missing'))],
    ],
  )
  const [first = [], , last = []] = parts
  const p99 = { first: of(first, 'p99'), last: of(last, 'p99') }
  const handles = { first: of(first, 'handles'), last: of(last, 'handles') }
  const verdicts = [
    {
      claim: `memory, garbage collected, grows by ${slope.per10Minutes.toFixed(2)} ± ${slope.error.toFixed(2)} MiB in 10 minutes (at most 1)`,
      // On a busy machine, or in a short time, the line through the samples is not as straight as the claim.
      holds: slope.per10Minutes <= 1 ? true : slope.per10Minutes - 2 * slope.error > 1 ? false : null,
    },
    {
      claim: `p99 ${p99.first.toFixed(2)} ms at first, ${p99.last.toFixed(2)} ms at last (at most a quarter more)`,
      holds: p99.last <= p99.first * 1.25 + 0.5,
    },
    {
      claim: `${handles.first} handles at first, ${handles.last} at last (at most 2 more)`,
      holds: !(handles.last > handles.first + 2),
    },
  ]
  if (!run.isJudged) console.log('  too short to judge')
  for (const { claim, holds } of verdicts)
    console.log(`  ${run.isJudged ? VERDICTS[`${holds}`] : 'seen'}: ${claim}`)
  const broken = verdicts.filter(({ holds }) => holds === false)
  if (run.isJudged && broken.length > 0) throw new Error(broken.map(({ claim }) => claim).join('; '))
}

const VERDICTS = { true: 'holds', null: 'CANNOT BE TOLD, run it longer', false: 'DOES NOT HOLD' }

/** Least squares. `error` is the standard error, were the samples independent; they are not quite. */
function slopeOf(samples: Sample[]): { per10Minutes: number; error: number } {
  const n = samples.length
  const mean = (value: (sample: Sample) => number) => samples.reduce((sum, each) => sum + value(each), 0) / n
  const [x, y] = [mean(({ atMinutes }) => atMinutes), mean(({ value }) => value)]
  const spread = samples.reduce((sum, { atMinutes }) => sum + (atMinutes - x) ** 2, 0)
  const slope = samples.reduce((sum, { atMinutes, value }) => sum + (atMinutes - x) * (value - y), 0) / spread
  const rest = samples.reduce(
    (sum, { atMinutes, value }) => sum + (value - y - slope * (atMinutes - x)) ** 2,
    0,
  )
  return { per10Minutes: 10 * slope, error: 10 * Math.sqrt(rest / Math.max(1, n - 2) / spread) }
}

async function readMetrics(url: string): Promise<{ lagMs: number; limiterMib: number }> {
  const limiterBytes = await metricOf(url, 'tollgate_limiter_memory_bytes')
  return {
    lagMs: 1000 * Math.max(...(await metricOf(url, 'tollgate_event_loop_lag_seconds'))),
    limiterMib: limiterBytes.reduce((sum, bytes) => sum + bytes, 0) / 2 ** 20,
  }
}

/** What autovacuum would do, where it is off. */
class Vacuum implements AsyncDisposable {
  private constructor(private readonly sql: Sql | null) {}

  static async begin(databaseUrl: string | null): Promise<Vacuum> {
    if (databaseUrl === null) return new Vacuum(null)
    const sql = connect({ kind: 'url', url: databaseUrl }, { connectionsMax: 1 })
    const [row] = await sql<{ autovacuum: string }[]>`show autovacuum`
    if (row?.autovacuum === 'off') {
      console.log('  autovacuum is off: vacuumed once a minute')
      return new Vacuum(sql)
    }
    await sql.end({ timeout: 1 })
    return new Vacuum(null)
  }

  async run(): Promise<void> {
    if (this.sql !== null) await vacuumDue(this.sql, { logBytesMax: Number.POSITIVE_INFINITY })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.sql?.end({ timeout: 1 })
  }
}

/** What is asked, and what changes meanwhile. Populations stay as large as they are: only who is in them changes. */
class Traffic {
  private round = 0
  private readonly random = randomNumbers(SEED)
  /** Oldest first; those of the last generation are not asked any more and are deleted. */
  private readonly generations: { keyId: string; key: string }[][] = []

  private constructor(
    private readonly url: string,
    private readonly apiId: string,
    private readonly sizes: { generations: number; keys: number; calls: number },
  ) {}

  static async begin(url: string, isTiny: boolean): Promise<Traffic> {
    const { apiId } = await call(url, '/v1/apis.createApi', { name: 'soak' })
    // The first use of one makes it too, but overrides are set before that is certain.
    await call(url, '/v1/ratelimits.createNamespace', { name: 'soak-1' })
    const traffic = new Traffic(url, String(apiId), isTiny ? TINY : SIZES)
    for (let i = 0; i < traffic.sizes.generations; i++) await traffic.makeGeneration()
    return traffic
  }

  /** Of one round. Most identifiers and some junk keys are new in each. */
  calls(): PacedCall[] {
    this.round++
    return Array.from({ length: this.sizes.calls }, (_, i) => this.one(i))
  }

  private one(i: number): PacedCall {
    const kind = this.random()
    if (kind < 0.55) return { path: LIMIT_PATH, body: JSON.stringify(this.limit(i)), expected: '"success":' }
    if (kind < 0.6) {
      const limits = Array.from({ length: 10 }, (_, at) => this.limit(10 * i + at))
      return { path: MULTI_LIMIT_PATH, body: JSON.stringify(limits), expected: '"success":' }
    }
    if (kind < 0.95) {
      // The newest may still be being made, the oldest be deleted.
      const generation = this.generations[1 + Math.floor(this.random() * (this.sizes.generations - 1))] ?? []
      const key = generation[Math.floor(this.random() * generation.length)]?.key
      const tags = this.random() < 0.3 ? [`plan-${i % 5}`, `round-${this.round % 50}`] : undefined
      return { path: VERIFY_PATH, body: JSON.stringify({ key, tags }), expected: '"valid":true' }
    }
    const junk = this.random() < 0.9 ? `junk_${i % 500}` : `junk_${this.round}_${i}`
    return { path: VERIFY_PATH, body: JSON.stringify({ key: junk }), expected: '"code":"NOT_FOUND"' }
  }

  private limit(i: number): object {
    const isNew = this.random() < 0.7
    return {
      namespace: `soak-${i % 7}`,
      identifier: isNew ? `visitor-${this.round}-${i}` : `regular-${i % 500}`,
      limit: i % 3 === 0 ? 5 : 1_000_000,
      duration: [1_000, 10_000, 30_000][i % 3],
    }
  }

  /** What an operator does meanwhile: a new generation of keys for the oldest, changes, questions. */
  async churn(): Promise<void> {
    const oldest = this.generations.shift() ?? []
    await this.makeGeneration()
    for (const { keyId } of oldest) await call(this.url, '/v1/keys.deleteKey', { keyId })
    const some = this.generations.at(-1)?.[0]
    await call(this.url, '/v1/keys.updateKey', { keyId: some?.keyId, meta: { round: this.round } })
    const override = { namespaceName: 'soak-1', identifier: `visitor-${this.round}-*` }
    await call(this.url, '/v1/ratelimits.setOverride', { ...override, limit: 10, duration: 10_000 })
    await call(this.url, '/v1/ratelimits.deleteOverride', override)
    const headers = { Authorization: `Bearer ${ROOT_KEY}` }
    for (const path of [
      `keys.getVerifications?keyId=${some?.keyId}`,
      `apis.listKeys?apiId=${this.apiId}&limit=100`,
      `ratelimits.listOverrides?namespaceName=soak-1`,
      'liveness',
    ]) {
      const answer = await fetch(`${this.url}/v1/${path}`, { headers })
      if (!answer.ok) throw new Error(`${path} answered ${answer.status}: ${await answer.text()}`)
      await answer.arrayBuffer()
    }
  }

  private async makeGeneration(): Promise<void> {
    const keys = Array.from(
      { length: this.sizes.keys },
      (_, i) => `soak_${this.round}_${crypto.randomUUID()}_${i}`,
    )
    const made = await call(
      this.url,
      '/v1/migrations.createKeys',
      keys.map((key, i) => ({
        apiId: this.apiId,
        hash: { value: hashKey(key), variant: 'sha256_base64' },
        ...(i % 4 === 0 && {
          ratelimit: { limit: 1_000_000, refillRate: 1_000_000, refillInterval: 10_000 },
        }),
        ...(i % 50 === 1 && { remaining: 1_000_000 }),
        ...(i % 10 === 2 && { externalId: `customer-${i}` }),
      })),
    )
    const keyIds = made.keyIds as unknown as string[] // the reply of createKeys
    this.generations.push(keys.map((key, i) => ({ key, keyId: keyIds[i] ?? '' })))
  }
}

const SIZES = { generations: 10, keys: 100, calls: 4_000 }
const TINY = { generations: 3, keys: 2, calls: 100 }
