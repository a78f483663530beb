import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { slotOf, TAGS } from '../../src/fleet/buckets.ts'
import { openTestDatabase, TEST_DATABASE_URL, type TestDatabase } from '../support/database.ts'
import { load, startFleetServer, untilEngineIs } from '../support/fleet-servers.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import type { ServerProcess } from '../support/process.ts'
import { REDIS_SERVER, startRedis, type TestRedis } from '../support/redis.ts'
import { startRedisCluster, type TestRedisCluster } from '../support/redis-cluster.ts'
import { startSentinels, type TestSentinels } from '../support/redis-sentinel.ts'
import { SLOW_MS } from '../support/timeout.ts'

/**
 * Three real servers on real Redis processes that are killed, frozen, emptied and replaced under load. Windows are long and
 * more is asked for than the limit, so what Redis forgets of a window would be let through twice. Calls that cannot be decided
 * fail, so that each that passes was given. All of this takes minutes: by day one Redis, at night a cluster and Sentinels.
 */
setDefaultTimeout(3 * SLOW_MS)

const CAN_RUN = TEST_DATABASE_URL !== null && REDIS_SERVER !== null
const NAMES = Array.from({ length: 24 }, (_, i) => i)
let rounds = 0

/** Three servers on one engine, and what they let through while something fails. */
class Fleet implements AsyncDisposable {
  static async start(engine: string): Promise<Fleet> {
    const database = await openTestDatabase()
    const start = () =>
      startFleetServer(database, {
        TOLLGATE_FLEET: engine,
        TOLLGATE_FLEET_TIMEOUT_MS: '400',
        TOLLGATE_FLEET_OUTAGE: 'refuse',
      })
    const servers = [await start()]
    servers.push(...(await Promise.all([start(), start()])))
    return new Fleet(database, servers)
  }

  private constructor(
    private readonly database: TestDatabase,
    readonly servers: readonly ServerProcess[],
  ) {}

  /**
   * Calls counters all the time, and goes on until all are used up. Each must have let through its limit then: no more, and as
   * every server lives, no less.
   */
  async keepsLimits(limit: number, fails: () => Promise<void>): Promise<void> {
    const round = ++rounds
    const names = NAMES.map((i) => `round ${round}, ${i}`)
    const calling = load(() => this.servers, names, limit, 12)
    const { seen, by } = calling
    try {
      while (seen.passed < names.length * 10) await Bun.sleep(10)
      const before = { ...seen }
      await fails()
      const after = { ...seen }
      console.log(`round ${round}: ${JSON.stringify({ before, after })}`)
      expect(before.passed, 'the limits were used up too early').toBeLessThan((names.length * limit) / 2)
      for (const server of this.servers) await untilEngineIs(server, 'ok')
      for (let passed = -1; passed < seen.passed; await Bun.sleep(1_500)) passed = seen.passed
    } finally {
      await calling.stop()
    }
    console.log(`round ${round}: ${JSON.stringify(seen)}`)
    expect([...by.values()].map(({ passed }) => passed)).toEqual(names.map(() => limit))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.servers.map((server) => server[Symbol.asyncDispose]()))
    await this.database[Symbol.asyncDispose]()
  }
}

describe.skipIf(!CAN_RUN || !IS_NIGHTLY)('servers on one Redis', () => {
  let redis: TestRedis
  let fleet: Fleet
  beforeAll(async () => {
    redis = await startRedis()
    fleet = await Fleet.start(`redis://127.0.0.1:${redis.port}`)
  })
  afterAll(async () => {
    await fleet?.[Symbol.asyncDispose]()
    await redis?.[Symbol.asyncDispose]()
  })

  test('that is emptied twice and then restarted without its data let through exactly the limit', async () => {
    await fleet.keepsLimits(600, async () => {
      await redis.ask('flushall')
      await Bun.sleep(300) // it learns for longer
      await redis.ask('flushall')
      await Bun.sleep(1_800)
      await redis.kill()
      await redis.start()
      await Bun.sleep(2_000)
    })
  })
})

describe.skipIf(!CAN_RUN || !IS_NIGHTLY)('servers on a cluster of three masters and three replicas', () => {
  let cluster: TestRedisCluster
  let fleet: Fleet
  beforeAll(async () => {
    cluster = await startRedisCluster({ masters: 3, hasReplicas: true, nodeTimeoutMs: 2_000 })
    const hosts = cluster.address.hosts.map(({ host, port }) => `${host}:${port}`)
    fleet = await Fleet.start(`redis-cluster://${hosts.join()}`)
  })
  afterAll(async () => {
    await fleet?.[Symbol.asyncDispose]()
    await cluster?.[Symbol.asyncDispose]()
  })

  /** The pair that has a third of the slots. */
  const pair = async (i: number): Promise<{ master: TestRedis; replica: TestRedis }> => {
    const nodes = [cluster.masters[i], cluster.replicas[i]] as TestRedis[] // there are three of each
    const [first, second] = nodes as [TestRedis, TestRedis] // as above
    return (await isMaster(first)) ? { master: first, replica: second } : { master: second, replica: first }
  }
  const isWhole = async () => {
    for (const i of [0, 1, 2]) {
      const { master, replica } = await pair(i)
      if (!(await isMaster(master)) || !(await isLinked(replica))) return false
    }
    return true
  }
  const untilWhole = async () => {
    while (!(await isWhole())) await Bun.sleep(50)
  }

  test('let through exactly the limit when a master is killed whose replica lacks a second of writes', async () => {
    const { master, replica } = await pair(0)
    await fleet.keepsLimits(600, async () => {
      replica.freeze()
      await Bun.sleep(1_300)
      await master.kill()
      replica.thaw()
      while (!(await isMaster(replica))) await Bun.sleep(20)
      await Bun.sleep(1_000)
      await master.start()
      await untilWhole()
    })
  })

  test('let through exactly the limit when a master is killed whose link to its replica was cut', async () => {
    const { master, replica } = await pair(1)
    await fleet.keepsLimits(600, async () => {
      await master.ask('acl', 'setuser', 'default', '-psync', '-sync')
      await master.ask('client', 'kill', 'type', 'replica')
      await Bun.sleep(1_300)
      expect(await isLinked(replica)).toBe(false)
      await master.kill()
      while (!(await isMaster(replica))) await Bun.sleep(20)
      await master.start()
      await untilWhole()
    })
  })

  test('let through exactly the limit when a master is frozen, replaced and thawed', async () => {
    const { master, replica } = await pair(2)
    await fleet.keepsLimits(800, async () => {
      master.freeze()
      await Bun.sleep(6_000)
      expect(await isMaster(replica)).toBe(true)
      master.thaw()
      await untilWhole()
    })
  })

  test('let through exactly the limit when a frozen master thaws as soon as it is replaced', async () => {
    const { master, replica } = await pair(0)
    await fleet.keepsLimits(800, async () => {
      master.freeze()
      while (!(await isMaster(replica))) await Bun.sleep(5)
      master.thaw()
      await untilWhole()
    })
  })

  test('let through exactly the limit when a replica takes over as asked, twice', async () => {
    await fleet.keepsLimits(600, async () => {
      for (const _ of [1, 2]) {
        const { replica } = await pair(1)
        await replica.ask('cluster', 'failover')
        while (!(await isMaster(replica))) await Bun.sleep(20)
        await untilWhole()
        await Bun.sleep(4_500) // masters vote for the same slots once in twice the node timeout
      }
    })
  })

  test('let through exactly the limit when all masters are emptied', async () => {
    await fleet.keepsLimits(400, async () => {
      for (const i of [0, 1, 2]) await (await pair(i)).master.ask('flushall')
      await Bun.sleep(1_000)
    })
  })

  test('let through exactly the limit when a master restarts without its data before it is replaced', async () => {
    const { master } = await pair(2)
    await fleet.keepsLimits(600, async () => {
      await master.kill()
      await master.start()
      await untilWhole()
    })
  })

  test('let through exactly the limit when slots move to another master and back', async () => {
    await fleet.keepsLimits(600, async () => {
      for (const [a, b] of [
        [0, 1],
        [1, 0],
      ] as const) {
        const { master: from } = await pair(a)
        const { master: to } = await pair(b)
        for (const bucket of TAGS.keys()) {
          const slot = slotOf(bucket)
          const isOfFirst = slot < 16_384 / 3
          if (isOfFirst) await moveSlot(slot, from, to)
        }
        await Bun.sleep(1_000)
      }
    })
  })

  /** As `redis-cli --cluster reshard` does. */
  async function moveSlot(slot: number, from: TestRedis, to: TestRedis): Promise<void> {
    const [fromId, toId] = [
      String(await from.ask('cluster', 'myid')),
      String(await to.ask('cluster', 'myid')),
    ]
    await to.ask('cluster', 'setslot', slot, 'importing', fromId)
    await from.ask('cluster', 'setslot', slot, 'migrating', toId)
    for (;;) {
      const keys = (await from.ask('cluster', 'getkeysinslot', slot, 100)) as string[] // a reply of that command
      if (keys.length === 0) break
      await from.ask('migrate', '127.0.0.1', to.port, '', 0, 5_000, 'keys', ...keys)
    }
    for (const master of [to, from]) await master.ask('cluster', 'setslot', slot, 'node', toId)
  }
})

describe.skipIf(!CAN_RUN || !IS_NIGHTLY)('servers behind three Sentinels', () => {
  let sentinels: TestSentinels
  let fleet: Fleet
  beforeAll(async () => {
    sentinels = await startSentinels({ sentinels: 3, downAfterMs: 1_000 })
    const hosts = sentinels.ports.map((port) => `127.0.0.1:${port}`)
    fleet = await Fleet.start(`redis-sentinel://${hosts.join()}/main`)
  })
  afterAll(async () => {
    await fleet?.[Symbol.asyncDispose]()
    await sentinels?.[Symbol.asyncDispose]()
  })

  const nodes = async (): Promise<{ master: TestRedis; replica: TestRedis }> => {
    const [first, second] = sentinels.nodes
    return (await isMaster(first)) ? { master: first, replica: second } : { master: second, replica: first }
  }
  const untilWhole = async () => {
    for (;;) {
      const { master, replica } = await nodes()
      if ((await isMaster(master)) && (await isLinked(replica))) return
      await Bun.sleep(50)
    }
  }

  test('let through exactly the limit when the master is killed and its replica lacks a second of writes', async () => {
    const { master, replica } = await nodes()
    await Bun.sleep(3_000) // Sentinels find each other, and the replica
    await fleet.keepsLimits(600, async () => {
      replica.freeze()
      await Bun.sleep(900) // a replica that is down for longer is not chosen
      await master.kill()
      replica.thaw()
      while (!(await isMaster(replica))) await Bun.sleep(20)
      await master.start()
      await untilWhole()
    })
  })

  test('let through exactly the limit when the master is frozen, replaced and thawed', async () => {
    const { master, replica } = await nodes()
    await fleet.keepsLimits(1_000, async () => {
      master.freeze()
      const frozenAt = performance.now()
      while (!(await isMaster(replica))) await Bun.sleep(20)
      await Bun.sleep(Math.max(0, 6_000 - (performance.now() - frozenAt)))
      master.thaw()
      await untilWhole()
    })
  })
})

const replication = async (redis: TestRedis) => String(await redis.ask('info', 'replication'))
const isMaster = async (redis: TestRedis) => (await replication(redis)).includes('role:master')
const isLinked = async (redis: TestRedis) => (await replication(redis)).includes('master_link_status:up')
