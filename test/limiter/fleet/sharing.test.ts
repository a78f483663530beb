import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openSpills } from '../../../src/data-dir/spill.ts'
import { joinFleet } from '../../../src/fleet/members.ts'
import { leaveFleet } from '../../../src/fleet/store.ts'
import type { FleetAddress } from '../../../src/lib/fleet-url.ts'
import { workerLink } from '../../../src/lib/link.ts'
import { systemTimers } from '../../../src/lib/timers.ts'
import { WindowStore } from '../../../src/limiter/flush/store.ts'
import type { Sharing } from '../../../src/limiter/threads/charge.ts'
import { LimiterRouter } from '../../../src/limiter/threads/router.ts'
import { type ShardPlatform, startShards } from '../../../src/limiter/threads/shards.ts'
import { openTestSql, TEST_DATABASE_URL, type TestSql } from '../../support/database.ts'
import { REDIS_SERVER, startRedis, type TestRedis } from '../../support/redis.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import { windowsOf } from '../support.ts'

setDefaultTimeout(SLOW_MS)

/** Real shards of servers that share limits, some of whose counters are of one server alone. */

const NOW = Date.UTC(2030, 0, 1, 12, 30)
const HOUR = 3_600_000
const LIMIT = 10

let redis: TestRedis
let database: TestSql
let dataDir: string
beforeAll(async () => {
  if (REDIS_SERVER !== null) redis = await startRedis()
  database = await openTestSql()
  dataDir = mkdtempSync(join(tmpdir(), 'tollgate-sharing-'))
})
afterAll(async () => {
  await redis?.[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
  rmSync(dataDir, { recursive: true, force: true })
})

/** One server. Null = it shares nothing. */
async function startServer(address: FleetAddress | null, options: { nodeId: string; shards?: number }) {
  const count = options.shards ?? 2
  const workers: Worker[] = []
  const withWorkers: ShardPlatform = {
    timers: systemTimers,
    startThread: () => {
      const worker = new Worker(new URL('../../../src/limiter/threads/shard.worker.ts', import.meta.url))
      workers.push(worker)
      return workerLink(worker)
    },
    makeLink: () => {
      const { port1, port2 } = new MessageChannel()
      return [port1, port2]
    },
    openStore: (of) => new WindowStore(of),
    openSpills,
  }
  const fleet = address === null ? null : { address, timeoutMs: 1_000, replicas: 0 }
  const processId = crypto.randomUUID()
  const joined = fleet && (await joinFleet(fleet, { database: database.address, processId }))
  const shards = await startShards(
    {
      count,
      address: database.address,
      nodeId: options.nodeId,
      hashSecret: 'secret',
      flushEveryMs: HOUR,
      dataDir,
      memoryBytes: 2 ** 22,
      now: NOW,
      fleet: fleet && {
        ...fleet,
        id: joined?.fleetId ?? '',
        leaseMs: 100,
        outage: 'share',
        servers: 2,
        nowMs: NOW,
      },
    },
    count === 0 ? undefined : withWorkers,
  )
  const router = new LimiterRouter({
    ends: shards.connect(),
    hashSecret: 'secret',
    clock: () => NOW,
    replyTimeoutMs: 5_000,
    isFleet: fleet !== null,
  })
  return {
    workers,
    shards,
    /** How many of so many calls pass, one after the other. */
    async passes(counter: string, sharing: Sharing | null, calls: number): Promise<number> {
      let passed = 0
      for (let i = 0; i < calls; i++) {
        const asked = { counter, limit: LIMIT, durationMs: HOUR, cost: 1, sharing }
        if ((await router.submit(asked).decided()).passed) passed++
      }
      return passed
    },
    async [Symbol.asyncDispose]() {
      await router.stop()
      await shards.stop()
      await leaveFleet(database.sql, processId)
    },
  }
}

const numbersOf = (counters: readonly string[], value: number) => counters.map(() => value)
const counters = (kind: string) => [0, 1, 2, 3].map((i) => `${kind} ${i} ${crypto.randomUUID()}`)

for (const kind of ['Redis', 'Postgres'] as const) {
  // Servers do not share the embedded database.
  const it = test.skipIf(kind === 'Redis' ? REDIS_SERVER === null : TEST_DATABASE_URL === null)
  const engine = (): FleetAddress => (kind === 'Redis' ? redis.address : { kind: 'postgres' })

  it(`on ${kind} each server counts local counters for itself, beside shared ones, and only those are restored`, async () => {
    const [shared, local] = [counters('shared'), counters('local')]
    const nodeId = crypto.randomUUID()
    await using other = await startServer(engine(), { nodeId: crypto.randomUUID() })
    const one = await startServer(engine(), { nodeId })
    // In one turn, so that both kinds are on their way together.
    const taken = await Promise.all([
      ...shared.map((counter) => one.passes(counter, null, 7)),
      ...local.map((counter) => one.passes(counter, 'local', 7)),
    ])
    expect(taken).toEqual(numbersOf([...shared, ...local], 7))
    for (const counter of shared) expect(await other.passes(counter, null, LIMIT)).toBe(LIMIT - 7)
    for (const counter of local) expect(await other.passes(counter, 'local', LIMIT + 5)).toBe(LIMIT)
    await one[Symbol.asyncDispose]()
    const stored = [...(await windowsOf(database.sql, nodeId)).values()].map(({ used }) => used)
    expect(stored).toEqual(numbersOf(local, 7))
    await using again = await startServer(engine(), { nodeId })
    for (const counter of local) expect(await again.passes(counter, 'local', LIMIT)).toBe(LIMIT - 7)
    for (const counter of shared) expect(await again.passes(counter, null, LIMIT)).toBe(0)
  })

  it(`on ${kind} a counter whose sharing changes to and fro costs one budget more in its window, not one a change`, async () => {
    const names = counters('changed')
    await using one = await startServer(engine(), { nodeId: crypto.randomUUID(), shards: 0 })
    await using other = await startServer(engine(), { nodeId: crypto.randomUUID(), shards: 1 })
    for (const counter of names) {
      const passed = { local: 0, shared: 0 }
      for (let change = 0; change < 6; change++)
        for (const server of [one, other]) {
          passed.shared += await server.passes(counter, change % 4 === 0 ? 'open' : null, 3)
          passed.local += await server.passes(counter, 'local', 3)
        }
      expect(passed).toEqual({ shared: LIMIT, local: 2 * LIMIT })
    }
  })

  it(`on ${kind} a shard that died answers calls of both kinds again, and knows what was flushed and given`, async () => {
    const [shared, local] = [counters('shared'), counters('local')]
    await using server = await startServer(engine(), { nodeId: crypto.randomUUID(), shards: 1 })
    for (const counter of shared) expect(await server.passes(counter, null, 4)).toBe(4)
    for (const counter of local) expect(await server.passes(counter, 'local', 4)).toBe(4)
    await server.shards.flush()
    server.workers[0]?.terminate()
    const untilMs = performance.now() + 10_000
    const isBack = () =>
      server.passes('is back', 'local', 1).then(
        () => server.passes('is back', null, 1).then(() => true),
        () => false,
      )
    while (!(await isBack()) && performance.now() < untilMs) await Bun.sleep(20)
    for (const counter of local) expect(await server.passes(counter, 'local', LIMIT)).toBe(LIMIT - 4)
    for (const counter of shared) expect(await server.passes(counter, null, LIMIT)).toBe(LIMIT - 4)
  })
}

test('servers that share nothing count every counter for themselves, whatever it says', async () => {
  await using one = await startServer(null, { nodeId: crypto.randomUUID() })
  await using other = await startServer(null, { nodeId: crypto.randomUUID() })
  for (const sharing of [null, 'local', 'share', 'refuse', 'open'] as const) {
    const [counter = ''] = counters(String(sharing))
    // One count a server: a change of the sharing goes on with it.
    for (const server of [one, other]) {
      expect(await server.passes(counter, sharing, 6)).toBe(6)
      expect(await server.passes(counter, null, LIMIT)).toBe(LIMIT - 6)
    }
  }
})
