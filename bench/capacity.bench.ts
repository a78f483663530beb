import { readdirSync, readFileSync } from 'node:fs'
import { type LoadResult, sendLoad } from './support/load.ts'
import { machine, printTable } from './support/table.ts'
import type { Target } from './support/target.ts'
import {
  call,
  countedByLimits,
  HEADERS,
  LIMIT_PATH,
  limitsOf,
  startTollgate,
  VERIFY_PATH,
} from './support/tollgate.ts'

/**
 * What your machine takes: by threads, calls a second at full load, processor time of the server and of Postgres, memory.
 * Nothing is pinned: the load runs on the same machine and takes its share of the cores, so the calls a second are what a
 * server with fewer cores of its own would answer. Claims: no call fails, and every answered call was counted once.
 */
export async function run(options: { tiny?: boolean } = {}): Promise<void> {
  const isTiny = options.tiny ?? false
  const seconds = isTiny ? 1 : 5
  const connections = isTiny ? 8 : 64
  console.log(`capacity: ${machine()}, ${connections} connections a thread, ${seconds} s each, ${today()}`)
  const rows: (string | number)[][] = []
  const first = new Map<string, number>()
  for (const [httpThreads, shards] of isTiny ? [[1, 1] as const] : choices(navigator.hardwareConcurrency)) {
    const env = { TOLLGATE_HTTP_THREADS: String(httpThreads), TOLLGATE_SHARDS: String(shards) }
    await using target = await startTollgate('tollgate', env, 'src/main.ts', { isPinned: false })
    for (const work of await worksOf(target.url)) {
      const before = [target.cpuMicroseconds(), postgresCpu(target.databaseUrl), await work.counted()]
      const loads = Array.from({ length: httpThreads }, () =>
        sendLoad({ ...work, url: target.url, headers: HEADERS, connections, seconds, isPinned: false }),
      )
      const all = sumOf(await Promise.all(loads))
      const after = [target.cpuMicroseconds(), postgresCpu(target.databaseUrl)]
      checkCounted(target, work.name, all, {
        counted: (await work.counted()) - (before[2] ?? Number.NaN),
        inFlightMax: connections * httpThreads,
      })
      const [cpu = Number.NaN, ofPostgres = Number.NaN] = after.map(
        (value, index) => (value - (before[index] ?? Number.NaN)) / all.answered,
      )
      if (!first.has(work.name)) first.set(work.name, cpu)
      rows.push([
        `${httpThreads} + ${shards}`,
        work.name,
        all.requestsPerSecond,
        all.p99,
        cpu,
        cpu / (first.get(work.name) ?? cpu),
        Number.isNaN(ofPostgres) ? '–' : ofPostgres,
        target.memoryMib(),
      ])
    }
  }
  printTable(
    ['HTTP + shards', 'calls', 'requests/s', 'p99 ms', 'CPU µs', '× first row', 'Postgres CPU µs', 'MiB'],
    rows,
  )
  console.log('  CPU is for each call. Plan with half of the requests/s.')
}

/** One HTTP thread with and without a shard, then twice as many threads until they fill the cores. */
function choices(cores: number): [number, number][] {
  const found: [number, number][] = [
    [1, 0],
    [1, 1],
  ]
  for (let http = 2; http <= cores; http *= 2) found.push([http, Math.max(1, Math.round(http / 6))])
  return found
}

type Answer = Awaited<ReturnType<typeof call>>
type Work = {
  name: string
  path: string
  bodies: string[]
  /** How many calls were charged so far. */
  counted(): Promise<number>
}

/** The three ways of a hot call: in memory alone, in memory with a key, and with a commit of Postgres. */
async function worksOf(url: string): Promise<Work[]> {
  const limits = limitsOf(1000)
  const { apiId } = await call(url, '/v1/apis.createApi', { name: 'bench' })
  const makeKeys = (more: object) =>
    Promise.all(Array.from({ length: 20 }, () => call(url, '/v1/keys.createKey', { apiId, ...more })))
  const plain = await makeKeys({ ratelimit: { type: 'fast', limit: 2_000_000_000, duration: 3_600_000 } })
  const paid = await makeKeys({ remaining: CREDITS })
  const bodiesOf = (keys: Answer[]) => keys.map(({ key }) => JSON.stringify({ key }))
  const verify = async (keys: Answer[]) => {
    for (const { key } of keys) await call(url, VERIFY_PATH, { key }) // cached now
  }
  await verify(plain)
  let verifications = 0
  return [
    {
      name: 'ratelimits.limit',
      path: LIMIT_PATH,
      bodies: limits.map((body) => JSON.stringify(body)),
      counted: () => countedByLimits(url, limits),
    },
    {
      name: 'keys.verifyKey, cached',
      path: VERIFY_PATH,
      bodies: bodiesOf(plain),
      counted: async () => {
        const answers = await Promise.all(plain.map(({ key }) => call(url, VERIFY_PATH, { key })))
        verifications += answers.length
        const used = answers.reduce((sum, { ratelimit }) => sum + 2_000_000_000 - ratelimit.remaining, 0)
        return used - verifications
      },
    },
    {
      name: 'keys.verifyKey, credits',
      path: VERIFY_PATH,
      bodies: bodiesOf(paid),
      counted: async () => {
        const answers = await Promise.all(paid.map(({ keyId }) => remainingOf(url, keyId)))
        return answers.reduce((sum, remaining) => sum + CREDITS - remaining, 0)
      },
    },
  ]
}

const CREDITS = 2_000_000_000

async function remainingOf(url: string, keyId: string | undefined): Promise<number> {
  const response = await fetch(`${url}/v1/keys.getKey?keyId=${keyId}`, { headers: HEADERS })
  return ((await response.json()) as { remaining: number }).remaining // the key has credits
}

function sumOf(results: LoadResult[]): LoadResult {
  const sum = (field: 'answered' | 'failed' | 'requestsPerSecond') =>
    results.reduce((total, result) => total + result[field], 0)
  const worst = (field: 'p50' | 'p99' | 'p999') => Math.max(...results.map((result) => result[field]))
  return {
    answered: sum('answered'),
    failed: sum('failed'),
    requestsPerSecond: sum('requestsPerSecond'),
    p50: worst('p50'),
    p99: worst('p99'),
    p999: worst('p999'),
  }
}

/** The load ends with calls in flight, which are counted and not answered. */
function checkCounted(
  { name }: Target,
  work: string,
  { answered, failed }: LoadResult,
  { counted, inFlightMax }: { counted: number; inFlightMax: number },
): void {
  const surplus = counted - answered
  if (failed > 0 || surplus < 0 || surplus > inFlightMax)
    throw new Error(
      `${name}, ${work}: ${failed} of ${answered} failed, ${surplus} counted beyond the answered`,
    )
}

/**
 * Processor time so far of the processes that serve a database, microseconds: their titles name it. Not a number where they
 * run on another machine, or inside the server.
 */
function postgresCpu(databaseUrl: string | null): number {
  if (databaseUrl === null) return Number.NaN
  const database = new URL(databaseUrl).pathname.slice(1)
  const ticks = readdirSync('/proc').flatMap((pid) => {
    if (!/^\d+$/.test(pid) || !read(`/proc/${pid}/cmdline`).match(`^postgres: (?:\\S+: )?\\S+ ${database} `))
      return []
    const stat = read(`/proc/${pid}/stat`)
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return [Number(fields[11]) + Number(fields[12])]
  })
  return ticks.length === 0 ? Number.NaN : ticks.reduce((sum, each) => sum + each, 0) * 10_000
}

/** Empty where the process is gone, or the system tells no such thing. */
function read(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

const today = () => new Date().toISOString().slice(0, 10)
