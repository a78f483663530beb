import { existsSync } from 'node:fs'
import { generator, type LoadResult, sendLoad } from './support/load.ts'
import { machine, median, printTable } from './support/table.ts'
import { startTarget, type Target, Turns } from './support/target.ts'
import {
  call,
  countedByLimits,
  DURATION_MS,
  databaseServer,
  HEADERS,
  LIMIT_MAX,
  LIMIT_PATH,
  limitsOf,
  MULTI_LIMIT_PATH,
  startTollgate,
  V2_LIMIT_PATH,
  V2_VERIFY_PATH,
  VERIFY_PATH,
} from './support/tollgate.ts'

/**
 * What a call costs over HTTP, next to the least Bun can do: limiting, and verifying a key (cached, with one rate limit, usage
 * recorded), each in v1 and v2, against a bare Elysia route with v1's schema and a bare `Bun.serve`; and, where `bun install`
 * was run in bench/peers, against what a user would take instead. Then `ratelimits.multiLimit`, in decisions.
 *
 * All in one run and in turn: each warms up and is measured while the others stand still. Read the ratios of CPU.
 * The answers are checked: every answered call must have been counted by its window, none more than the connections could
 * have in flight when the load was cut. That cached keys ask nothing of Postgres is held by test/doors/v1/statements.test.ts.
 * Figures and what was refused: docs/decisions/0020.
 */
export async function run(options: { tiny?: boolean } = {}): Promise<void> {
  const rounds = options.tiny ? 1 : 5
  const seconds = options.tiny ? 1 : 3
  const warmSeconds = options.tiny ? 0 : 1
  const connections = options.tiny ? 4 : 64
  console.log(`http: ${machine()}, load from ${generator}, ${connections} connections`)
  console.log(
    `  input: ${IDENTIFIERS} identifiers or ${KEYS} keys in turn; ${rounds} rounds of ${seconds} s each, medians; the others stand still meanwhile`,
  )
  console.log(`  database: ${databaseServer === undefined ? 'embedded, inside the server' : 'Postgres'}`)
  await using stack = new AsyncDisposableStack()
  const tollgate = stack.use(await startTollgate('Tollgate'))
  const threaded = stack.use(await startTollgate('… with a thread for its shard', { TOLLGATE_SHARDS: '1' }))
  const elysia = stack.use(await startTarget('Elysia, schema only', ['bench/baselines/elysia.ts']))
  const bare = stack.use(await startTarget('Bun.serve, JSON only', ['bench/baselines/bun-serve.ts']))
  const peers: Target[] = []
  if (!options.tiny) for (const each of await startPeers()) peers.push(stack.use(each))
  const all = [tollgate, threaded, ...peers, elysia, bare]
  using turns = new Turns(all)
  const keys = await makeKeys(tollgate.url)
  const limits = LIMITS.map((body) => JSON.stringify(body))
  const limit = (target: Target): Row => ({ name: target.name, target, path: LIMIT_PATH, bodies: limits })
  const verify = (target: Target, name = target.name, path = VERIFY_PATH): Row => ({
    name,
    target,
    path,
    bodies: keys.map((key) => JSON.stringify({ key })),
  })
  const limitV2: Row = {
    name: 'Tollgate, v2',
    target: tollgate,
    path: V2_LIMIT_PATH,
    bodies: V2_LIMITS.map((body) => JSON.stringify(body)),
  }
  const cases: Case[] = [
    {
      what: 'limiting',
      rows: [limit(tollgate), limitV2, ...[threaded, ...peers, elysia, bare].map(limit)],
      checked: [tollgate, threaded],
      counted: async ({ url }) => (await countedByLimits(url, LIMITS)) + (await countedByV2Limits(url)),
      perRequest: 1,
      connections,
    },
    {
      what: 'verifying keys',
      rows: [verify(tollgate), verify(tollgate, limitV2.name, V2_VERIFY_PATH), verify(elysia), verify(bare)],
      checked: [tollgate],
      counted: ({ url }) => countedByKeys(url, keys),
      perRequest: 1,
      connections,
    },
    {
      what: 'many limits in a call',
      rows: [
        { name: tollgate.name, target: tollgate, path: MULTI_LIMIT_PATH, bodies: [JSON.stringify(LIMITS)] },
      ],
      checked: [tollgate],
      counted: ({ url }) => countedByLimits(url, LIMITS),
      perRequest: LIMITS.length,
      // More thousands at once than this, and a server that is not warm yet answers some of them too late.
      connections: Math.min(32, connections),
    },
  ]
  for (const each of cases) await compare(each, { rounds, seconds, warmSeconds, turns })
  console.log(`  memory of Tollgate afterwards: ${tollgate.memoryMib().toFixed(0)} MiB`)
}

const IDENTIFIERS = 1000
const KEYS = 100
const LIMITS = limitsOf(IDENTIFIERS)
/** v2's windows last thirty days at most. */
const V2_LIMITS = LIMITS.map((body) => ({ ...body, duration: 30 * 86_400_000 }))

/** What is measured: calls of one path of a server. */
type Row = { name: string; target: Target; path: string; bodies: string[] }

type Case = {
  what: string
  /** v1 of Tollgate first, the least there is last. */
  rows: Row[]
  /** The servers among them that count. */
  checked: Target[]
  /** How many tokens one of these has taken so far. */
  counted: (target: Target) => Promise<number>
  /** Tokens a request takes. */
  perRequest: number
  connections: number
}

async function compare(
  { what, rows, checked, counted, perRequest, connections }: Case,
  {
    rounds,
    seconds,
    warmSeconds,
    turns,
  }: { rounds: number; seconds: number; warmSeconds: number; turns: Turns },
): Promise<void> {
  const results = new Map<Row, Measured[]>(rows.map((row) => [row, []]))
  const countedBefore = new Map<Target, number>()
  for (const target of checked) countedBefore.set(target, await counted(target))
  const loads = new Map<Target, LoadResult[]>(rows.map(({ target }) => [target, []]))
  const load = async ({ name, target, path, bodies }: Row, seconds: number): Promise<LoadResult> => {
    const result = await sendLoad({ url: target.url, path, headers: HEADERS, bodies, connections, seconds })
    if (result.failed > 0) throw new Error(`${name}: ${result.failed} calls of ${path} failed`)
    loads.get(target)?.push(result)
    return result
  }
  const measure = async (row: Row): Promise<Measured> => {
    if (warmSeconds > 0) await load(row, warmSeconds)
    const cpuBefore = row.target.cpuMicroseconds()
    const result = await load(row, seconds)
    return { ...result, cpu: (row.target.cpuMicroseconds() - cpuBefore) / result.answered }
  }
  for (let round = 0; round < rounds; round++)
    for (const row of rows) {
      await turns.give(row.target)
      results.get(row)?.push(await measure(row))
    }
  turns.end()
  for (const [target, before] of countedBefore) {
    const cut = loads.get(target) ?? []
    const answered = cut.reduce((sum, result) => sum + result.answered, 0)
    const surplus = (await counted(target)) - before - answered * perRequest
    if (surplus < 0 || surplus > connections * cut.length * perRequest)
      throw new Error(`${target.name}: ${answered} calls for ${what} answered, ${surplus} more tokens taken`)
  }
  report(what, results)
  if (perRequest > 1) {
    const own = [...results.values()].flat()
    const rate = median(own.map(({ requestsPerSecond }) => requestsPerSecond)) * perRequest
    const cpu = median(own.map((result) => result.cpu)) / perRequest
    console.log(
      `  ${perRequest} decisions a call: ${Math.round(rate).toLocaleString('en')} decisions/s, ` +
        `${cpu.toFixed(2)} µs of CPU each, so ${Math.round(1e6 / cpu).toLocaleString('en')} a second of one core`,
    )
  }
}

/** The peers in bench/peers, a package of its own: the product needs none of them. */
async function startPeers(): Promise<Target[]> {
  if (!existsSync(`${import.meta.dir}/peers/node_modules`)) {
    console.log('  peers: none; `bun install` in bench/peers brings them')
    return []
  }
  const { startAll } = (await import(`${import.meta.dir}/peers/targets.ts`)) as {
    startAll: () => Promise<Target[]>
  } // what it exports
  return await startAll()
}

/** With the server's CPU time for each call, microseconds. */
type Measured = LoadResult & { cpu: number }

function report(what: string, results: Map<Row, Measured[]>): void {
  const of = (row: Row, field: keyof LoadResult | 'cpu') =>
    median((results.get(row) ?? []).map((r) => r[field]))
  const rows = [...results.keys()]
  const [first, bare] = [rows[0], rows.at(-1)]
  const ratio = (row: Row, to: Row | undefined) =>
    to === undefined ? Number.NaN : of(row, 'cpu') / of(to, 'cpu')
  console.log(`\n  ${what}: ${[...new Set(rows.map(({ path }) => path))].join(', ')}`)
  printTable(
    ['', 'requests/s', 'p50 ms', 'p99 ms', 'p99.9 ms', 'CPU µs/request', '× first CPU', '× bare CPU'],
    rows.map((row) => [
      row.name,
      of(row, 'requestsPerSecond'),
      of(row, 'p50'),
      of(row, 'p99'),
      of(row, 'p999'),
      of(row, 'cpu'),
      ratio(row, first),
      ratio(row, bare),
    ]),
  )
}

async function makeKeys(url: string): Promise<string[]> {
  const { apiId } = await call(url, '/v1/apis.createApi', { name: 'bench' })
  const ratelimit = { limit: LIMIT_MAX, duration: DURATION_MS }
  const made = await Promise.all(
    Array.from({ length: KEYS }, () => call(url, '/v1/keys.createKey', { apiId, ratelimit })),
  )
  return made.map(({ key }) => String(key))
}

async function countedByKeys(url: string, keys: string[]): Promise<number> {
  const look = { ratelimits: [{ name: 'default', cost: 0 }] }
  const left = await Promise.all(
    keys.map(async (key) => (await call(url, VERIFY_PATH, { key, ...look })).ratelimit.remaining),
  )
  return left.reduce((sum, remaining) => sum + LIMIT_MAX - remaining, 0)
}

/** As `countedByLimits`, of the counters of v2. */
async function countedByV2Limits(url: string): Promise<number> {
  const looks = await Promise.all(V2_LIMITS.map((body) => call(url, V2_LIMIT_PATH, { ...body, cost: 0 })))
  return looks.reduce((sum, { data }) => sum + LIMIT_MAX - data.remaining, 0)
}
