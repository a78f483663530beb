import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import type { Engine } from '../../../src/fleet/engine.ts'
import { PostgresEngine } from '../../../src/fleet/postgres.ts'
import { RedisEngine } from '../../../src/fleet/redis.ts'
import { directLinks, toLink } from '../../../src/lib/link.ts'
import { systemTimers } from '../../../src/lib/timers.ts'
import { FleetDecider } from '../../../src/limiter/fleet/fleet-decider.ts'
import { FleetShard } from '../../../src/limiter/fleet/fleet-shard.ts'
import type { Answers, Calls } from '../../../src/limiter/threads/protocol.ts'
import { LimiterRouter } from '../../../src/limiter/threads/router.ts'
import { openTestSql, TEST_DATABASE_URL, type TestSql } from '../../support/database.ts'
import { IS_NIGHTLY } from '../../support/nightly.ts'
import { REDIS_SERVER, startRedis, type TestRedis } from '../../support/redis.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

/** Routers and shards of several servers on a real Redis and a real Postgres. */

const NOW_MS = 1_800_000_000_000
const HOUR = 3_600_000
const TIMEOUT_MS = 2_000
let redis: TestRedis
let database: TestSql
let lastServerId = 0

beforeAll(async () => {
  if (REDIS_SERVER !== null) redis = await startRedis()
  if (TEST_DATABASE_URL !== null) database = await openTestSql()
})
afterAll(async () => {
  await redis?.[Symbol.asyncDispose]()
  await database?.[Symbol.asyncDispose]()
})

const ENGINES = {
  Redis: (learnMs: number) =>
    RedisEngine.open(redis.address, {
      serverId: ++lastServerId,
      timeoutMs: TIMEOUT_MS,
      learnMs,
      replicas: 0,
    }),
  Postgres: () => Promise.resolve(new PostgresEngine(database.address, { timeoutMs: TIMEOUT_MS })),
} satisfies Record<string, (learnMs: number) => Promise<Engine>>

async function startServer(kind: keyof typeof ENGINES, options: { learnMs?: number } = {}) {
  const engine = await ENGINES[kind](options.learnMs ?? 100)
  const shard = new FleetShard({
    engine,
    timers: systemTimers,
    buckets: Array.from({ length: engine.buckets }, (_, bucket) => bucket),
    nowMs: NOW_MS,
    leaseMs: 100,
    timeoutMs: TIMEOUT_MS,
    outage: 'refuse',
    servers: () => 3,
    cellsMax: 10_000,
  })
  const [ours, theirs] = directLinks(systemTimers)
  const link = toLink<Answers, Calls | object>(theirs)
  const decider = new FleetDecider(shard, (answers) => link.post(answers))
  link.onMessage = (message) => {
    if (Array.isArray(message)) link.post(decider.decide(message))
  }
  const [control] = directLinks(systemTimers)
  const router = new LimiterRouter({
    ends: { shards: [ours], control },
    hashSecret: 'fleet',
    clock: () => NOW_MS,
    replyTimeoutMs: 10_000,
    isFleet: true,
  })
  return {
    shard,
    async pass(counter: string, limit: number): Promise<boolean> {
      return (await router.submit({ counter, limit, durationMs: HOUR, cost: 1 }).decided()).passed
    },
    async [Symbol.asyncDispose]() {
      await router.stop()
      await shard.stop(1_000)
    },
  }
}

for (const kind of ['Redis', 'Postgres'] as const) {
  // Servers do not share the embedded database.
  const it = test.skipIf(kind === 'Redis' ? REDIS_SERVER === null : TEST_DATABASE_URL === null)

  it(`three servers on one ${kind} pass exactly 1 000 of 3 000 calls to a limit of 1 000`, async () => {
    await using one = await startServer(kind)
    await using two = await startServer(kind)
    await using three = await startServer(kind)
    const servers = [one, two, three]
    // A Redis that nobody spoke to learns first, and connections take a moment.
    while (!(await ready(servers)));
    let passed = 0
    let calls = 0
    const call = async (server: (typeof servers)[number]) => {
      calls++
      if (await server.pass('hot', 1_000)) passed++
    }
    for (let round = 0; round < 100; round++)
      await Promise.all(servers.flatMap((server) => Array.from({ length: 10 }, () => call(server))))
    expect(calls).toBe(3_000)
    expect(passed).toBeLessThanOrEqual(1_000)
    // What one server held ahead at the end comes back within a lease's time, so demand goes on a little.
    const deadline = performance.now() + 5_000
    while (passed < 1_000 && performance.now() < deadline) for (const server of servers) await call(server)
    expect(passed).toBe(1_000)
    for (const { shard } of servers) expect(shard.stats.failed).toBeLessThan(50)
  })

  it(`on ${kind} a server that stops brings back what it did not use, and one that is killed wastes no more than its lease`, async () => {
    const one = await startServer(kind)
    await using two = await startServer(kind)
    while (!(await ready([one, two])));
    for (let i = 0; i < 30; i++) await Promise.all(Array.from({ length: 5 }, () => one.pass('left', 400)))
    await one[Symbol.asyncDispose]()
    let passed = 150
    for (let i = 0; i < 400; i++) if (await two.pass('left', 400)) passed++
    expect(passed).toBe(400)

    const killed = await startServer(kind)
    while (!(await ready([killed])));
    let before = 0
    for (let i = 0; i < 30; i++)
      await Promise.all(
        Array.from({ length: 5 }, async () => {
          if (await killed.pass('wasted', 400)) before++
        }),
      )
    killed.shard.abandon()
    let after = 0
    for (let i = 0; i < 400; i++) if (await two.pass('wasted', 400)) after++
    expect(before + after).toBeLessThanOrEqual(400)
    expect(before + after).toBeGreaterThan(400 - (400 - 150) / 6 - 1) // a lease is a sixth of what is free, at most
  })
}

/** Every bucket that is used has learned, and answers. */
async function ready(
  servers: { pass(counter: string, limit: number): Promise<boolean>; shard: FleetShard }[],
) {
  const passed = await Promise.all(
    servers.map(({ pass }, i) => pass(`ready ${i} ${performance.now()}`, 1).catch(() => false)),
  )
  return passed.every(Boolean) && servers.every(({ shard }) => shard.condition === 'ok')
}

test.skipIf(REDIS_SERVER === null || !IS_NIGHTLY)(
  'a Redis that forgets again while it learns is told again what a server holds whose counter nobody calls',
  async () => {
    await using one = await startServer('Redis', { learnMs: 1_500 })
    await using two = await startServer('Redis', { learnMs: 1_500 })
    while (!(await ready([one, two])));
    for (let i = 0; i < 60; i++) expect(await one.pass('quiet', 100)).toBe(true)
    const isTold = async () => {
      const windows = (await redis.ask('keys', 't:{*}?*')) as string[] // a reply of KEYS
      const sums = await Promise.all(windows.map((window) => redis.ask('hget', window, 'u')))
      return sums.includes('60')
    }
    while (!(await isTold())) await Bun.sleep(5) // its lease is returned
    for (const _ of [1, 2]) {
      await redis.ask('flushall')
      while (!(await isTold())) await Bun.sleep(5)
    }
    while (!(await ready([one, two])));
    let passed = 60
    for (let i = 0; i < 60; i++) if (await two.pass('quiet', 100)) passed++
    expect(passed).toBe(100)
  },
)
