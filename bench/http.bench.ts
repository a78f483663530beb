import { existsSync } from 'node:fs'
import { connect, type Sql } from '../src/db/connect.ts'
import { keepAwake } from './support/awake.ts'
import { clearServerCore, generator, type LoadResult, sendLoad } from './support/load.ts'
import { sendPacedLoad } from './support/paced.ts'
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
  VERIFY_PATH,
} from './support/tollgate.ts'

/**
 * What a call costs over HTTP, next to the least Bun can do: `ratelimits.limit` and `keys.verifyKey` (warm, with one rate
 * limit, usage recorded) against a bare Elysia route with the same schema and a bare `Bun.serve`; and, where `bun install`
 * was run in bench/peers, against what a user would take instead, with the first of these once more at one rate for all.
 * All in one run, interleaved, because machines are noisy: read the ratios. Then `ratelimits.multiLimit`, in decisions, and
 * what warm verifications ask of Postgres: nothing.
 *
 * Each has its turn while the others stand still, and warms up first, as under a load that goes on. Of runs one after the other,
 * p99 of `ratelimits.limit` was 1.5 ms without either, 1.5 without warming up, and 1.2 to 1.3 with both; that of Fastify with Redis
 * 6.0, 4.9, and 3.4 to 3.9; of the bare server 1.2, 1.0, and 0.7 to 1.0.
 *
 * A Postgres on this machine, which takes what is flushed, runs on the core of the load where that may be done: it is no part of
 * what is measured, and had the server's core for up to 4 ms at a time. p99 of `ratelimits.limit` at 80 000 a second 2.11 ms
 * without and 1.87 with it, p99.9 4.1 and 2.9 (medians of seven rounds in turn).
 *
 * The answers are checked afterwards: every answered call must have been counted by its window, none more than the
 * connections could have in flight when the load was cut.
 */
export async function run(options: { tiny?: boolean } = {}): Promise<void> {
  const rounds = options.tiny ? 1 : 5
  const seconds = options.tiny ? 1 : 3
  const warmSeconds = options.tiny ? 0 : 1
  const connections = options.tiny ? 4 : 64
  using awake = keepAwake()
  using cleared = options.tiny ? null : clearServerCore({ ofPostgres: true })
  const quiet = `cores ${awake.text}; ${cleared?.text ?? 'kernel threads anywhere'}`
  console.log(`http: ${machine()}, load from ${generator}, ${connections} connections; ${quiet}`)
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
  const cases: Case[] = [
    {
      path: LIMIT_PATH,
      bodies: LIMITS.map((body) => JSON.stringify(body)),
      targets: all,
      checked: [tollgate, threaded],
      counted: ({ url }) => countedByLimits(url, LIMITS),
      perRequest: 1,
      connections,
    },
    {
      path: VERIFY_PATH,
      bodies: keys.map((key) => JSON.stringify({ key })),
      targets: [tollgate, elysia, bare],
      checked: [tollgate],
      counted: ({ url }) => countedByKeys(url, keys),
      perRequest: 1,
      connections,
    },
    {
      path: MULTI_LIMIT_PATH,
      bodies: [JSON.stringify(LIMITS)],
      targets: [tollgate],
      checked: [tollgate],
      counted: ({ url }) => countedByLimits(url, LIMITS),
      perRequest: LIMITS.length,
      // More thousands at once than this, and a server that is not warm yet answers some of them too late.
      connections: Math.min(32, connections),
    },
  ]
  for (const each of cases) {
    const rates = await compare(each, { rounds, seconds, warmSeconds, turns })
    const [peer] = peers
    if (each.path !== LIMIT_PATH || peer === undefined) continue
    const rate = Math.round(0.8 * (rates.get(peer) ?? 0))
    const load = { rate, bodies: each.bodies, connections, seconds }
    await compareAtOneRate([tollgate, peer, bare], load, { rounds, turns })
  }
  console.log(`  memory of Tollgate afterwards: ${tollgate.memoryMib().toFixed(0)} MiB`)
  // What verifications ask is asked each time; what else comes, comes once.
  const isWithoutSql = () => asksNothing(connections, options.tiny ? 2 : 5)
  if (!(await isWithoutSql()) && !(await isWithoutSql()))
    throw new Error('warm verifications ask something of Postgres')
}

const IDENTIFIERS = 1000
const KEYS = 100
const LIMITS = limitsOf(IDENTIFIERS)

type Case = {
  path: string
  bodies: string[]
  /** Tollgate first, the least there is last. */
  targets: Target[]
  /** Those of them that count. */
  checked: Target[]
  /** How many tokens one of these has taken so far. */
  counted: (target: Target) => Promise<number>
  /** Tokens a request takes. */
  perRequest: number
  connections: number
}

async function compare(
  { path, bodies, targets, checked, counted, perRequest, connections }: Case,
  {
    rounds,
    seconds,
    warmSeconds,
    turns,
  }: { rounds: number; seconds: number; warmSeconds: number; turns: Turns },
): Promise<Map<Target, number>> {
  const results = new Map<Target, Measured[]>(targets.map((target) => [target, []]))
  const countedBefore = new Map<Target, number>()
  for (const target of checked) countedBefore.set(target, await counted(target))
  const loads = new Map<Target, LoadResult[]>(targets.map((target) => [target, []]))
  const load = async (target: Target, seconds: number): Promise<LoadResult> => {
    const result = await sendLoad({ url: target.url, path, headers: HEADERS, bodies, connections, seconds })
    if (result.failed > 0) throw new Error(`${target.name}: ${result.failed} calls of ${path} failed`)
    loads.get(target)?.push(result)
    return result
  }
  const measure = async (target: Target): Promise<Measured> => {
    if (warmSeconds > 0) await load(target, warmSeconds)
    const cpuBefore = target.cpuMicroseconds()
    const result = await load(target, seconds)
    return { ...result, cpu: (target.cpuMicroseconds() - cpuBefore) / result.answered }
  }
  for (let round = 0; round < rounds; round++)
    for (const target of targets) {
      await turns.give(target)
      results.get(target)?.push(await measure(target))
    }
  turns.end()
  for (const [target, before] of countedBefore) {
    const cut = loads.get(target) ?? []
    const answered = cut.reduce((sum, result) => sum + result.answered, 0)
    const surplus = (await counted(target)) - before - answered * perRequest
    if (surplus < 0 || surplus > connections * cut.length * perRequest)
      throw new Error(`${target.name}: ${answered} calls of ${path} answered, ${surplus} more tokens taken`)
  }
  report(path, results)
  if (perRequest > 1) {
    const own = checked.flatMap((target) => results.get(target) ?? [])
    const rate = median(own.map(({ requestsPerSecond }) => requestsPerSecond)) * perRequest
    const cpu = median(own.map((result) => result.cpu)) / perRequest
    console.log(
      `  ${perRequest} decisions a call: ${Math.round(rate).toLocaleString('en')} decisions/s, ` +
        `${cpu.toFixed(2)} µs of CPU each, so ${Math.round(1e6 / cpu).toLocaleString('en')} a second of one core`,
    )
  }
  return new Map(
    [...results].map(([target, each]) => [target, median(each.map((result) => result.requestsPerSecond))]),
  )
}

/** How long a caller waits where nothing is asked too much of: each at a rate that the slowest of them can keep up with. */
async function compareAtOneRate(
  targets: Target[],
  load: { rate: number; bodies: string[]; connections: number; seconds: number },
  { rounds, turns }: { rounds: number; turns: Turns },
): Promise<void> {
  const results = new Map<Target, LoadResult[]>(targets.map((target) => [target, []]))
  const calls = load.bodies.map((body) => ({ path: LIMIT_PATH, body, expected: '"success":true' }))
  for (let round = 0; round < rounds; round++)
    for (const target of targets) {
      await turns.give(target)
      const { url } = target
      const result = await sendPacedLoad({
        ...load,
        url,
        socketPath: null,
        headers: HEADERS,
        calls,
        warmSeconds: 1,
      })
      if (result.failed > 0)
        throw new Error(`${target.name}: ${result.failed} calls failed at ${load.rate}/s`)
      results.get(target)?.push(result)
    }
  turns.end()
  console.log(`\n  ${LIMIT_PATH}, each at ${load.rate} requests/s`)
  printTable(
    ['', 'p50 ms', 'p99 ms', 'p99.9 ms'],
    [...results].map(([target, each]) => [
      target.name,
      ...(['p50', 'p99', 'p999'] as const).map((field) => median(each.map((result) => result[field]))),
    ]),
  )
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

/**
 * Compares the transactions that Postgres itself has counted in the database under a load of warm verifications, and in as long
 * without. Flushes are put off meanwhile, since those do not go by calls.
 * @returns whether there are no more of them, but for what timers ask.
 */
async function asksNothing(connections: number, seconds: number): Promise<boolean> {
  if (databaseServer === undefined) {
    console.log('  SQL of warm verifications: only counted on Postgres (DATABASE_URL or TEST_DATABASE_URL)')
    return true
  }
  await using tollgate = await startTollgate('Tollgate', { TOLLGATE_FLUSH_MS: String(FLUSH_MS_MAX) })
  const startedBy = performance.now()
  const bodies = (await makeKeys(tollgate.url)).map((key) => JSON.stringify({ key }))
  for (const body of bodies) await call(tollgate.url, VERIFY_PATH, JSON.parse(body)) // warm
  const takesMs = 3 * STATISTICS_DELAY_MS + 2 * seconds * 1000
  // Where all of that was slow, its flush would fall into what is counted.
  if (performance.now() - startedBy + takesMs > FLUSH_MS_MAX - 5000)
    await Bun.sleep(FLUSH_MS_MAX + 1000 - (performance.now() - startedBy))
  const sql = connect({ kind: 'url', url: databaseServer }, { connectionsMax: 1 })
  const name = new URL(tollgate.databaseUrl ?? '').pathname.slice(1)
  const transactions = async () => {
    const [row] = await sql<{ count: number }[]>`
      select xact_commit + xact_rollback as count from pg_stat_database where datname = ${name}`
    return row?.count ?? Number.NaN
  }
  try {
    await Bun.sleep(STATISTICS_DELAY_MS) // by now it knows of all that made the keys
    await vacuum(tollgate.databaseUrl ?? '', sql)
    const idleBefore = await transactions()
    await Bun.sleep(seconds * 1000 + STATISTICS_DELAY_MS)
    const before = await transactions()
    const idle = before - idleBefore
    const load = { url: tollgate.url, path: VERIFY_PATH, headers: HEADERS, bodies, connections, seconds }
    const { answered } = await sendLoad(load)
    await Bun.sleep(STATISTICS_DELAY_MS)
    const counted = (await transactions()) - before
    console.log(
      `\n  SQL of warm verifications: ${counted} transactions during ${answered} of them, ${idle} in as long without`,
    )
    return counted <= idle + HOUSEKEEPING_MORE_MAX
  } finally {
    await sql.end({ timeout: 2 })
  }
}

/**
 * Leaves nothing for Postgres to do by itself with what was just made, which takes 16 to 300 transactions of the same count; it
 * still looks once a minute, in 6 to 9.
 */
async function vacuum(databaseUrl: string, watcher: Sql): Promise<void> {
  const sql = connect({ kind: 'url', url: databaseUrl }, { connectionsMax: 1 })
  const [session] = await sql<{ pid: number }[]>`select pg_backend_pid() as pid`
  await sql`vacuum (analyze)`
  await sql.end({ timeout: 2 })
  // It tells its own transactions when it ends.
  const isThere = async () =>
    (await watcher`select from pg_stat_activity where pid = ${session?.pid ?? 0}`).length > 0
  while (await isThere()) await Bun.sleep(10)
}

/** The longest there is. */
const FLUSH_MS_MAX = 60_000
/** An idle session tells its statistics within ten seconds. */
const STATISTICS_DELAY_MS = 11_000
/** By how much what timers of the server ask may differ from one such time to another. */
const HOUSEKEEPING_MORE_MAX = 10

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
