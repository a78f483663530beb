import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { generator, type LoadResult, sendLoad } from './support/load.ts'
import { machine, median, printTable } from './support/table.ts'
import { startTarget, type Target } from './support/target.ts'

/**
 * What a call costs over HTTP, next to the least Bun can do: `ratelimits.limit` and `keys.verifyKey` (warm, with one rate
 * limit, usage recorded) against a bare Elysia route with the same schema and a bare `Bun.serve`. All in one run,
 * interleaved, because machines are noisy: read the ratios.
 *
 * The answers are checked afterwards: every answered call must have been counted by its window, none more than the
 * connections could have in flight when the load was cut.
 */
export async function run(options: { tiny?: boolean } = {}): Promise<void> {
  const rounds = options.tiny ? 1 : 5
  const seconds = options.tiny ? 1 : 4
  const connections = options.tiny ? 4 : 32
  const dataDir = mkdtempSync(join(tmpdir(), 'tollgate-bench-'))
  console.log(`http: ${machine()}, load from ${generator}, ${connections} connections`)
  console.log(
    `  input: ${IDENTIFIERS} identifiers or ${KEYS} keys in turn; ${rounds} rounds of ${seconds} s each, medians`,
  )
  const env = {
    PORT: '0',
    TOLLGATE_DATA_DIR: dataDir,
    TOLLGATE_ROOT_KEY: ROOT_KEY,
    TOLLGATE_HTTP_THREADS: '1',
    TOLLGATE_SHARDS: '1',
  }
  const databaseUrl = process.env.DATABASE_URL
  try {
    await using tollgate = await startTarget('Tollgate', ['src/main.ts', 'serve'], {
      ...env,
      ...(databaseUrl ? { DATABASE_URL: databaseUrl } : {}),
    })
    await using elysia = await startTarget('Elysia, schema only', ['bench/baselines/elysia.ts'])
    await using bare = await startTarget('Bun.serve, JSON only', ['bench/baselines/bun-serve.ts'])
    const keys = await makeKeys(tollgate.url)
    const cases: { path: string; bodies: string[]; counted: () => Promise<number> }[] = [
      { path: LIMIT_PATH, bodies: LIMIT_BODIES, counted: () => countedByLimit(tollgate.url) },
      {
        path: VERIFY_PATH,
        bodies: keys.map((key) => JSON.stringify({ key })),
        counted: () => countedByKeys(tollgate.url, keys),
      },
    ]
    for (const { path, bodies, counted } of cases) {
      const targets = [tollgate, elysia, bare]
      const results = new Map<Target, Measured[]>(targets.map((target) => [target, []]))
      const countedBefore = await counted()
      for (let round = 0; round < rounds; round++) {
        for (const target of targets) {
          const cpuBefore = target.cpuMicroseconds()
          const load = { url: target.url, path, headers: HEADERS, bodies, connections, seconds }
          const result = await sendLoad(load)
          const cpu = (target.cpuMicroseconds() - cpuBefore) / result.answered
          if (result.failed > 0) throw new Error(`${target.name}: ${result.failed} calls of ${path} failed`)
          results.get(target)?.push({ ...result, cpu })
        }
      }
      const answered = (results.get(tollgate) ?? []).reduce((sum, result) => sum + result.answered, 0)
      const surplus = (await counted()) - countedBefore - answered
      if (surplus < 0 || surplus > connections * rounds)
        throw new Error(`${path}: ${answered} calls were answered, ${answered + surplus} counted`)
      report(path, results)
    }
    console.log(`  memory of Tollgate afterwards: ${tollgate.memoryMib().toFixed(0)} MiB`)
  } finally {
    rmSync(dataDir, { recursive: true, force: true })
  }
}

const ROOT_KEY = 'tollgate_bench_operator_key'
const IDENTIFIERS = 1000
const KEYS = 100
const LIMIT_PATH = '/v1/ratelimits.limit'
const VERIFY_PATH = '/v1/keys.verifyKey'
const HEADERS = { 'Content-Type': 'application/json', Authorization: `Bearer ${ROOT_KEY}` }
/** So long that no run sees it end. */
const DURATION_MS = 86_400_000 * 365
const LIMIT_MAX = 2_000_000_000
const LIMIT_BODIES = Array.from({ length: IDENTIFIERS }, (_, i) =>
  JSON.stringify({ namespace: 'bench', identifier: `user_${i}`, limit: LIMIT_MAX, duration: DURATION_MS }),
)

/** With the server's CPU time for each call, microseconds. */
type Measured = LoadResult & { cpu: number }

function report(path: string, results: Map<Target, Measured[]>): void {
  const of = (target: Target, field: keyof LoadResult | 'cpu') =>
    median((results.get(target) ?? []).map((r) => r[field]))
  const targets = [...results.keys()]
  const bare = targets.at(-1)
  console.log(`\n  ${path}`)
  printTable(
    ['', 'requests/s', 'p50 ms', 'p99 ms', 'p99.9 ms', 'CPU µs/request', '× bare CPU'],
    targets.map((target) => [
      target.name,
      of(target, 'requestsPerSecond'),
      of(target, 'p50'),
      of(target, 'p99'),
      of(target, 'p999'),
      of(target, 'cpu'),
      bare === undefined ? Number.NaN : of(target, 'cpu') / of(bare, 'cpu'),
    ]),
  )
}

async function call(url: string, path: string, body: unknown) {
  const response = await fetch(`${url}${path}`, {
    method: 'POST',
    headers: HEADERS,
    body: JSON.stringify(body),
  })
  if (!response.ok) throw new Error(`${path} answered ${response.status}: ${await response.text()}`)
  return (await response.json()) as Record<string, string> & {
    remaining: number
    ratelimit: { remaining: number }
  } // of the two verbs asked
}

async function makeKeys(url: string): Promise<string[]> {
  const { apiId } = await call(url, '/v1/apis.createApi', { name: 'bench' })
  const ratelimit = { limit: LIMIT_MAX, duration: DURATION_MS }
  const made = await Promise.all(
    Array.from({ length: KEYS }, () => call(url, '/v1/keys.createKey', { apiId, ratelimit })),
  )
  return made.map(({ key }) => String(key))
}

/** How many calls the windows have counted, asked with cost 0. */
async function countedByLimit(url: string): Promise<number> {
  const left = await Promise.all(
    LIMIT_BODIES.map(
      async (body) => (await call(url, LIMIT_PATH, { ...JSON.parse(body), cost: 0 })).remaining,
    ),
  )
  return left.reduce((sum, remaining) => sum + LIMIT_MAX - remaining, 0)
}

async function countedByKeys(url: string, keys: string[]): Promise<number> {
  const look = { ratelimits: [{ name: 'default', cost: 0 }] }
  const left = await Promise.all(
    keys.map(async (key) => (await call(url, VERIFY_PATH, { key, ...look })).ratelimit.remaining),
  )
  return left.reduce((sum, remaining) => sum + LIMIT_MAX - remaining, 0)
}
