import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { Redis } from 'ioredis'
import { bucketOf } from '../src/fleet/buckets.ts'
import type { Entry } from '../src/fleet/engine.ts'
import { RedisEngine } from '../src/fleet/redis.ts'
import { randomNumbers } from '../test/support/random.ts'
import { REDIS_SERVER, startRedis, type TestRedis } from '../test/support/redis.ts'
import { startRedisCluster } from '../test/support/redis-cluster.ts'
import { Histogram } from './support/histogram.ts'
import { type LoadResult, sendLoad } from './support/load.ts'
import { machine, median, printTable } from './support/table.ts'
import type { Target } from './support/target.ts'
import {
  call,
  DURATION_MS,
  databaseServer,
  HEADERS,
  LIMIT_MAX,
  LIMIT_PATH,
  limitsOf,
  metricOf,
  startTollgate,
  VERIFY_PATH,
} from './support/tollgate.ts'

/**
 * What it costs that servers share their limits: `TOLLGATE_FLEET` on Redis, a Redis Cluster of three masters and Postgres, next to
 * servers that count for themselves, with 1 and 3 servers, over HTTP.
 *
 * In turn within each round, while all others stand still: read the ratios of CPU. Three claims are checked, and a wrong
 * answer ends the run: of 3 000 calls to three servers exactly 1 000 pass a limit of 1 000; no call passed that its engine
 * had not given; a key that is deleted is refused everywhere. Figures: docs/decisions/0034.
 */
export async function run(options: { tiny?: boolean } = {}): Promise<void> {
  const isTiny = options.tiny ?? false
  if (REDIS_SERVER === null || databaseServer === undefined) {
    console.log('fleet: skipped, it wants redis-server and a Postgres in DATABASE_URL')
    return
  }
  const size: Size = isTiny
    ? {
        servers: [2],
        rounds: 1,
        hotRounds: 1,
        seconds: 1,
        warmSeconds: 1,
        connections: 4,
        identifiers: 1000,
        messages: 50,
        samples: 20,
      }
    : {
        servers: [1, 3],
        rounds: 3,
        hotRounds: 13,
        seconds: 3,
        warmSeconds: 10,
        connections: 32,
        identifiers: 100_000,
        messages: 2000,
        samples: 1000,
      }
  console.log(
    `fleet: ${machine()}, ${size.rounds} rounds of ${size.seconds} s, ${size.hotRounds} with one identifier, medians; database: Postgres`,
  )
  for (const count of size.servers) {
    if (count === 1) await overHttp(count, ['Redis', 'Redis Cluster', 'Postgres'], size)
    else {
      // Nine servers are what the connections of a Postgres with its defaults are enough for.
      await overHttp(count, ['Redis', 'Postgres'], size)
      await overHttp(count, ['Redis Cluster'], size)
    }
  }
  await anEntry(size)
  await revocation(size)
}

type Size = {
  servers: number[]
  rounds: number
  /** With one identifier, where the ratios are so near to 1 that three rounds do not tell. */
  hotRounds: number
  seconds: number
  /** Before the first round: compiling what runs often takes as much CPU as the calls at first. */
  warmSeconds: number
  /** To each server. */
  connections: number
  identifiers: number
  /** Sent to Redis for each row of the table of entries. */
  messages: number
  /** Cold calls, and revocations. */
  samples: number
}

/** Servers that share a database, and what decides their limits. */
type Group = AsyncDisposable & {
  name: string
  isShared: boolean
  servers: Target[]
  /** CPU of the engine so far, microseconds. */
  engineCpu(): Promise<number>
  /** One round trip to the engine; null where there is none. */
  ping: (() => Promise<unknown>) | null
}

async function startGroup(
  name: string,
  count: number,
  fleet: string | null,
  engine: Pick<Group, 'engineCpu' | 'ping'>,
): Promise<Group> {
  const env = {
    TOLLGATE_SHARDS: '1',
    TOLLGATE_SLOW_MS: '0', // they stand still in between
    ...(fleet !== null && { TOLLGATE_FLEET: fleet }),
  }
  const first = await startTollgate(`${name} 1`, env)
  const shared = { ...env, DATABASE_URL: first.databaseUrl ?? '' }
  const others = await Promise.all(
    Array.from({ length: count - 1 }, (_, i) => startTollgate(`${name} ${i + 2}`, shared)),
  )
  return {
    name,
    isShared: fleet !== null,
    servers: [first, ...others],
    ...engine,
    [Symbol.asyncDispose]: async () => {
      await Promise.all(others.map((each) => each[Symbol.asyncDispose]()))
      await first[Symbol.asyncDispose]()
    },
  }
}

type EngineName = 'Redis' | 'Redis Cluster' | 'Postgres'

async function overHttp(count: number, engines: EngineName[], size: Size): Promise<void> {
  await using stack = new AsyncDisposableStack()
  const redis = stack.use(await startRedis())
  const cluster = stack.use(
    await startRedisCluster({ masters: 3, hasReplicas: false, nodeTimeoutMs: 60_000 }),
  )
  const cpuOf = (nodes: TestRedis[]) => async () =>
    (await Promise.all(nodes.map(redisCpu))).reduce((a, b) => a + b)
  const nodes = cluster.masters.map(({ port }) => `127.0.0.1:${port}`).join()
  const groups: Group[] = []
  const start = async (...given: Parameters<typeof startGroup>) => {
    groups.push(stack.use(await startGroup(...given)))
  }
  const ofEngine: Record<EngineName, [fleet: string, engine: Pick<Group, 'engineCpu' | 'ping'>]> = {
    Redis: [`redis://127.0.0.1:${redis.port}`, { engineCpu: cpuOf([redis]), ping: () => redis.ask('ping') }],
    'Redis Cluster': [
      `redis-cluster://${nodes}`,
      { engineCpu: cpuOf(cluster.masters), ping: () => cluster.masters[0]?.ask('ping') ?? Promise.resolve() },
    ],
    Postgres: ['postgres', { engineCpu: async () => postgresCpu(), ping: null }],
  }
  await start('each for itself', count, null, { engineCpu: async () => 0, ping: null })
  for (const name of engines) await start(name, count, ...ofEngine[name])
  const give = async (to: Group) => {
    for (const group of groups)
      for (const server of group.servers) server.signal(group === to ? 'SIGCONT' : 'SIGSTOP')
    await Bun.sleep(500) // what they had to do meanwhile is behind them
    // An engine that nobody spoke to learns first.
    for (const { url } of to.servers) while ((await conditionOf(url)) === 'another') await Bun.sleep(100)
  }
  stack.defer(() => {
    for (const { servers } of groups) for (const server of servers) server.signal('SIGCONT')
  })

  for (const group of groups) {
    await give(group)
    if (group.isShared) await exactly(group)
  }
  for (const [pattern, bodies] of patternsOf(size.identifiers)) {
    const results = new Map<Group, Measured[]>(groups.map((group) => [group, []]))
    const rounds = bodies.length === 1 ? size.hotRounds : size.rounds
    for (let round = 0; round < rounds; round++)
      for (const group of groups) {
        await give(group)
        await loadAll(group, bodies, { ...size, seconds: round === 0 ? size.warmSeconds : 1 }) // warm
        results.get(group)?.push(await measure(group, bodies, size))
      }
    const of = (group: Group, field: keyof Measured) =>
      median((results.get(group) ?? []).map((each) => each[field]))
    const [local] = groups
    console.log(`\n  ${count} server${count === 1 ? '' : 's'}, ${pattern}`)
    printTable(
      [
        '',
        'calls/s',
        'CPU µs/call',
        '× for itself',
        'engine µs/call',
        'entries/call',
        'round trips/call',
        'p50 ms',
        'p99 ms',
      ],
      groups.map((group) => [
        group.name,
        of(group, 'requestsPerSecond'),
        of(group, 'cpu'),
        local === undefined ? Number.NaN : of(group, 'cpu') / of(local, 'cpu'),
        of(group, 'engineCpu'),
        of(group, 'entries').toFixed(4),
        of(group, 'exchanges').toFixed(4),
        of(group, 'p50'),
        of(group, 'p99'),
      ]),
    )
  }
  const [local, shared] = groups
  if (local === undefined || shared === undefined) return
  console.log('\n  a call of an identifier that nobody asked for yet, one after the other, in turn')
  const [first, second] = [local.servers[0] as Target, shared.servers[0] as Target] // each group has one
  await give(shared)
  first.signal('SIGCONT')
  const cold = await timedInTurn(size.samples, {
    [local.name]: (i) => call(first.url, LIMIT_PATH, coldBody(i)),
    [shared.name]: (i) => call(second.url, LIMIT_PATH, coldBody(i)),
    'one round trip to Redis': () => shared.ping?.() ?? Promise.resolve(),
  })
  printTable(
    ['', 'p50 ms', 'p99 ms'],
    cold.map(([name, times]) => [name, times.percentile(0.5), times.percentile(0.99)]),
  )
  await give(local) // nobody but the first runs while servers end one by one
}

async function conditionOf(url: string): Promise<'ok' | 'another'> {
  const text = await (await fetch(`${url}/metrics`)).text()
  return /^tollgate_fleet_condition\{[^}]*condition="(learning|away)"\} 1$/m.test(text) ? 'another' : 'ok'
}

const coldBody = (i: number) => ({
  namespace: 'cold',
  identifier: `cold_${i}`,
  limit: 100,
  duration: DURATION_MS,
})

/** Each of `runs` in turn, `count` times, so that what slows one down slows down all. */
async function timedInTurn(
  count: number,
  runs: Record<string, (i: number) => Promise<unknown>>,
): Promise<[name: string, times: Histogram][]> {
  const rows = Object.entries(runs).map(([name, run]) => ({ name, run, times: new Histogram() }))
  for (let i = -Math.min(100, count); i < count; i++)
    for (const { run, times } of rows) {
      const before = performance.now()
      await run(i)
      if (i >= 0) times.add((performance.now() - before) * 1000) // the first are to warm up
    }
  return rows.map(({ name, times }) => [name, times])
}

type Measured = { cpu: number; engineCpu: number; entries: number; exchanges: number } & LoadResult

async function measure(group: Group, bodies: string[], size: Size): Promise<Measured> {
  const count = async (name: string) => {
    const each = await Promise.all(
      group.servers.map(({ url }) => metricOf(url, `tollgate_fleet_${name}_total`)),
    )
    return each.flat().reduce((sum, value) => sum + value, 0)
  }
  const look = async () => ({
    cpu: group.servers.reduce((sum, each) => sum + each.cpuMicroseconds(), 0),
    engineCpu: await group.engineCpu(),
    entries: await count('entries'),
    exchanges: await count('exchanges'),
    given: await count('given'),
  })
  const before = await look()
  const loads = await loadAll(group, bodies, size)
  const after = await look()
  const answered = loads.reduce((sum, each) => sum + each.answered, 0)
  const sum = (field: 'failed' | 'requestsPerSecond') => loads.reduce((all, each) => all + each[field], 0)
  if (sum('failed') > 0) throw new Error(`${group.name}: ${sum('failed')} calls failed`)
  // What was given before and lies unspent may be spent now: a lease holds no more than its quarter second.
  if (group.isShared && after.given < answered)
    throw new Error(`${group.name}: ${answered} calls passed, and ${after.given} were given`)
  const each = (field: 'cpu' | 'engineCpu' | 'entries' | 'exchanges') =>
    (after[field] - before[field]) / answered
  return {
    answered,
    failed: 0,
    requestsPerSecond: sum('requestsPerSecond'),
    p50: median(loads.map(({ p50 }) => p50)),
    p99: median(loads.map(({ p99 }) => p99)),
    p999: median(loads.map(({ p999 }) => p999)),
    cpu: each('cpu'),
    engineCpu: each('engineCpu'),
    entries: each('entries'),
    exchanges: each('exchanges'),
  }
}

/** To each server, which begins elsewhere in the list, so that they do not ask for the same identifier at the same time. */
const loadAll = (
  group: Group,
  bodies: string[],
  { connections, seconds }: Pick<Size, 'connections' | 'seconds'>,
) =>
  Promise.all(
    group.servers.map(({ url }, i) => {
      const from = Math.floor((i * bodies.length) / group.servers.length)
      const turned = [...bodies.slice(from), ...bodies.slice(0, from)]
      return sendLoad({ url, path: LIMIT_PATH, headers: HEADERS, bodies: turned, connections, seconds })
    }),
  )

/** Bodies of calls: of one identifier, of all alike, and the n-th of them 1/n as often as the first. */
function patternsOf(identifiers: number): [string, string[]][] {
  const bodies = limitsOf(identifiers).map((body) => JSON.stringify(body))
  const below = randomNumbers(7)
  const shuffled = bodies.map((body) => ({ body, at: below() })).toSorted((a, b) => a.at - b.at)
  const sums: number[] = []
  for (let i = 1; i <= identifiers; i++) sums.push((sums.at(-1) ?? 0) + 1 / i)
  const total = sums.at(-1) ?? 0
  const drawn = Array.from({ length: identifiers }, () => bodies[indexAbove(sums, below() * total)] ?? '')
  return [
    ['one identifier', bodies.slice(0, 1)],
    [`${identifiers.toLocaleString('en')} identifiers, uniform`, shuffled.map(({ body }) => body)],
    [`${identifiers.toLocaleString('en')} identifiers, zipf`, drawn],
  ]
}

/** The first index whose sum is above a value. */
function indexAbove(sums: number[], value: number): number {
  let [low, high] = [0, sums.length - 1]
  while (low < high) {
    const middle = (low + high) >> 1
    if ((sums[middle] ?? 0) > value) high = middle
    else low = middle + 1
  }
  return low
}

/** 3 000 calls over all servers of the group: exactly 1 000 pass. */
async function exactly({ name, servers }: Group): Promise<void> {
  const body = { namespace: 'bench', identifier: crypto.randomUUID(), limit: 1000, duration: DURATION_MS }
  let passed = 0
  let sent = 0
  const caller = async (): Promise<void> => {
    while (sent < 3000) {
      const { url } = servers[sent++ % servers.length] as Target // there is one
      if ((await call(url, LIMIT_PATH, body)).success) passed++
    }
  }
  await Promise.all(Array.from({ length: 50 }, caller))
  if (passed !== 1000) throw new Error(`${name}: ${passed} calls passed a limit of 1 000`)
  console.log(`  ${name}, ${servers.length} servers: of 3 000 calls exactly 1 000 passed a limit of 1 000`)
}

/** CPU of Redis for an entry of a message, next to a script that adds to plain counters, as others keep them. */
async function anEntry(size: Size): Promise<void> {
  await using redis = await startRedis()
  const engine = await RedisEngine.open(redis.address, {
    serverId: 1,
    timeoutMs: 5000,
    learnMs: 1,
    replicas: 0,
  })
  const client = new Redis({ host: '127.0.0.1', port: redis.port })
  const sha = createHash('sha1').update(PLAIN).digest('hex')
  await client.script('LOAD', PLAIN)
  const rows: (string | number)[][] = []
  for (const entries of [64, 16, 4]) {
    const messages = Math.ceil((size.messages * 16) / entries)
    const results: Record<'plain' | 'take', number[]> = { plain: [], take: [] }
    for (let round = 0; round < size.rounds; round++) {
      const keys = (message: number) =>
        Array.from(
          { length: entries },
          (_, i) => `{a}${round}:${entries}:${(message * entries + i) % WINDOWS}`,
        )
      results.plain.push(
        await cpuOfEach(redis, messages * entries, async () => {
          for (let m = 0; m < messages; m++)
            await client.evalsha(sha, entries, ...keys(m), 1, LIMIT_MAX, DURATION_MS)
        }),
      )
      const cells = cellsOf(0, WINDOWS, round * 3 + entries)
      const held = new Float64Array(WINDOWS)
      results.take.push(
        await cpuOfEach(redis, messages * entries, async () => {
          for (let m = 0; m < messages; m++) {
            const places = Array.from({ length: entries }, (_, i) => (m * entries + i) % WINDOWS)
            const asked = places.map((at) => entryOf(at, cells, held))
            const result = await engine.exchange({
              bucket: 0,
              nowMs: Date.now(),
              looseMs: 500,
              share: 6,
              entries: asked,
            })
            if (result.kind !== 'answered') throw new Error(`an exchange failed: ${result.fault}`)
            for (const [i, at] of places.entries())
              held[at] = (held[at] ?? 0) + (result.answers[i]?.gift ?? 0)
          }
        }),
      )
      const total = held.reduce((sum, each) => sum + each, 0)
      // A message of the first millisecond may have come to a Redis that learns.
      if (total > messages * entries || total < (messages - 2) * entries)
        throw new Error(`${total} given of ${messages * entries}`)
    }
    const [plain, take] = [median(results.plain), median(results.take)]
    rows.push([`messages of ${entries}`, plain, take, take / plain])
  }
  await engine.close()
  client.disconnect()
  console.log('\n  CPU of Redis for an entry, µs')
  printTable(['', 'plain counter', 'shared limit', 'ratio'], rows)
}

/** As others count: one key a window, added to while it stays within the limit. */
const PLAIN = `
local replies = {}
for i = 1, #KEYS do
  local sum = redis.call('INCRBY', KEYS[i], ARGV[1])
  if sum == tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[i], ARGV[3]) end
  replies[i] = sum <= tonumber(ARGV[2]) and 1 or 0
end
return replies`

const WINDOWS = 20_000

type Cell = { h0: number; h1: number; h2: number; h3: number }

/** Names that belong to a bucket. */
function cellsOf(bucket: number, count: number, seed: number): Cell[] {
  const below = randomNumbers(seed)
  const word = () => Math.floor(below() * 2 ** 32) | 0
  const cells: Cell[] = []
  while (cells.length < count) {
    const cell = { h0: word(), h1: word(), h2: word(), h3: word() }
    if (bucketOf(cell.h0, 16) === bucket) cells.push(cell)
  }
  return cells
}

const END_MS = Date.now() + 86_400_000

function entryOf(at: number, cells: readonly Cell[], held: Float64Array): Entry {
  const [cell, given] = [cells[at], held[at]]
  if (cell === undefined || given === undefined) throw new Error(`there is no window ${at}`)
  return {
    ...cell,
    endMs: END_MS,
    limit: LIMIT_MAX,
    given,
    hasForgotten: false,
    returned: 0,
    owed: 0,
    asked: 1,
    least: 1,
    ahead: 0,
    isTentative: false,
  }
}

async function cpuOfEach(redis: TestRedis, count: number, run: () => Promise<void>): Promise<number> {
  const before = await redisCpu(redis)
  await run()
  return ((await redisCpu(redis)) - before) / count
}

/**
 * Two servers on one Postgres: a key that is verified at one all the time is deleted at the other. How long after that was
 * answered did the last verification begin that passed?
 */
async function revocation(size: Size): Promise<void> {
  await using first = await startTollgate('A')
  await using second = await startTollgate('B', { DATABASE_URL: first.databaseUrl ?? '' })
  const { apiId } = await call(first.url, '/v1/apis.createApi', { name: 'bench' })
  const late = new Histogram()
  let stale = 0
  for (let i = 0; i < size.samples; i++) {
    const { key, keyId } = await call(first.url, '/v1/keys.createKey', { apiId })
    let lastPassed = 0
    let isRefused = false
    const caller = async (): Promise<void> => {
      while (!isRefused) {
        const begun = performance.now()
        if ((await call(second.url, VERIFY_PATH, { key, apiId })).valid)
          lastPassed = Math.max(lastPassed, begun)
        else isRefused = true
      }
    }
    const callers = Promise.all(Array.from({ length: 4 }, caller))
    while (lastPassed === 0) await Bun.sleep(1)
    await call(first.url, '/v1/keys.deleteKey', { keyId })
    const answered = performance.now()
    const watch = setTimeout(() => {
      throw new Error(`a deleted key still works after 30 s: ${keyId}`)
    }, 30_000)
    await callers
    clearTimeout(watch)
    if (lastPassed > answered) stale++
    late.add(Math.max(0, lastPassed - answered) * 1000)
  }
  console.log(
    `\n  ${size.samples} keys deleted at one server, verified at another: ${stale} passed there after the answer, the last begun ` +
      `${late.percentile(0.5).toFixed(1)} ms after it (p50), ${late.percentile(0.99).toFixed(1)} (p99), ${late.percentile(0.999).toFixed(1)} (p99.9)`,
  )
}

async function redisCpu(redis: TestRedis): Promise<number> {
  const info = String(await redis.ask('info', 'cpu'))
  const seconds = (name: string) => Number(new RegExp(`^${name}:(\\S+)`, 'm').exec(info)?.[1])
  return (seconds('used_cpu_user') + seconds('used_cpu_sys')) * 1e6
}

/** Of all processes of Postgres on this machine; 0 where it runs on another. Those that end in between are not counted. */
function postgresCpu(): number {
  let ticks = 0
  for (const pid of readdirSync('/proc')) {
    if (!/^\d+$/.test(pid)) continue
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
      if (!stat.includes('(postgres)')) continue
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
      ticks += Number(fields[11]) + Number(fields[12])
    } catch {
      // it has ended
    }
  }
  return ticks * 10_000
}
