import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { slotOf, TAGS } from '../../src/fleet/buckets.ts'
import { openTestDatabase, TEST_DATABASE_URL, type TestDatabase } from '../support/database.ts'
import { load, pass, startFleetServer, untilEngineIs } from '../support/fleet-servers.ts'
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
  /** @param engines One for all three, or one for each: ways to the same. */
  static async start(engines: string | [string, string, string], replicas = 0): Promise<Fleet> {
    const database = await openTestDatabase()
    const start = (i: number) =>
      startFleetServer(database, {
        TOLLGATE_FLEET: typeof engines === 'string' ? engines : (engines[i] ?? ''),
        TOLLGATE_FLEET_TIMEOUT_MS: '400',
        TOLLGATE_FLEET_OUTAGE: 'refuse',
        TOLLGATE_FLEET_REPLICAS: String(replicas),
      })
    const servers = [await start(0)]
    servers.push(...(await Promise.all([start(1), start(2)])))
    return new Fleet(database, servers, start)
  }

  private constructor(
    private readonly database: TestDatabase,
    readonly servers: ServerProcess[],
    private readonly start: (i: number) => Promise<ServerProcess>,
  ) {}

  async kill(i: number): Promise<void> {
    await this.servers[i]?.end('SIGKILL')
  }

  async restart(i: number): Promise<void> {
    this.servers[i] = await this.start(i)
  }

  /**
   * Calls counters all the time, and goes on until all are used up. Each must have let through its limit then: no more, and as
   * every server lives, no less.
   */
  async keepsLimits(limit: number, fails: () => Promise<void>): Promise<void> {
    expect(await this.passes(limit, fails)).toEqual(NAMES.map(() => limit))
  }

  /** As {@link keepsLimits}. @returns what each counter has let through. */
  async passes(limit: number, fails: () => Promise<void>): Promise<number[]> {
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
    return [...by.values()].map(({ passed }) => passed)
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

  const pair = (i: number) => pairOf(cluster, i)
  const untilWhole = () => untilClusterIsWhole(cluster)

  test('let through exactly the limit when a master is killed while its replica is frozen', async () => {
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
      await cutReplica(master)
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

describe.skipIf(!CAN_RUN || !IS_NIGHTLY)('servers on a cluster where a replica must have each count', () => {
  let cluster: TestRedisCluster
  let fleet: Fleet
  beforeAll(async () => {
    cluster = await startRedisCluster({ masters: 3, hasReplicas: true, nodeTimeoutMs: 2_000 })
    for (const node of nodes()) await addUsers(node)
    fleet = await Fleet.start(urlsOf(cluster), 1)
  })
  afterAll(async () => {
    await fleet?.[Symbol.asyncDispose]()
    await cluster?.[Symbol.asyncDispose]()
  })

  /** The first server is one user, so that a node may refuse the others. */
  const USERS = ['first', 'others'] as const
  const urlsOf = ({ address }: TestRedisCluster): [string, string, string] => {
    const hosts = address.hosts.map(({ host, port }) => `${host}:${port}`).join()
    const [first, others] = USERS.map((user) => `redis-cluster://${user}:secret@${hosts}`) as [string, string] // two users
    return [first, others, others]
  }
  const nodes = () => [...cluster.masters, ...cluster.replicas]
  const addUsers = async (node: TestRedis) => {
    for (const user of USERS) await node.ask('acl', 'setuser', user, 'on', '>secret', '~*', '+@all')
  }

  /** All that the replicas know to have been given. */
  const givenAtReplicas = async () => {
    let sum = 0
    for (const i of [0, 1, 2]) {
      const { replica } = await pairOf(cluster, i)
      await replica.ask('readonly')
      const windows = (await replica.ask('keys', 't:{*}?*')) as string[] // a reply of KEYS
      for (const window of windows) sum += Number(await replica.ask('hget', window, 'u'))
    }
    return sum
  }

  test('let nothing pass that no replica has; counters of a replica that is stopped go by the outage rule until it is back', async () => {
    const [server] = fleet.servers as [ServerProcess] // there are three
    const { replica } = await pairOf(cluster, 0)
    await fleet.keepsLimits(600, async () => {
      const before = await givenAtReplicas()
      replica.freeze()
      for (const each of fleet.servers) await untilEngineIs(each, 'away')
      const names = NAMES.map((i) => `its replica is stopped ${i}`)
      const passes = await Promise.all(names.map((name) => pass(server, name, 5)))
      expect(new Set(passes)).toEqual(new Set([true, null]))
      expect(passes.filter((passed) => passed).length).toBeGreaterThan(8) // two of three masters
      replica.thaw()
      await untilEngineIs(server, 'ok')
      for (const [i, name] of names.entries()) {
        let passed = 0
        while (await pass(server, name, 5)) passed++
        expect([name, passed]).toEqual([name, passes[i] === true ? 4 : 5])
      }
      expect(await givenAtReplicas()).toBeGreaterThan(before)
    })
    expect(await givenAtReplicas()).toBe(NAMES.length * 600 + NAMES.length * 5)
  })

  /** Nobody is left who knows what that server was given. */
  test('let through no more than the limit when a server dies together with a master whose link to its replica was cut', async () => {
    const { master, replica } = await pairOf(cluster, 1)
    const passed = await fleet.passes(600, async () => {
      await cutReplica(master)
      await Bun.sleep(1_300)
      expect(await isLinked(replica)).toBe(false)
      await Promise.all([master.kill(), fleet.kill(0)])
      while (!(await isMaster(replica))) await Bun.sleep(20)
      await master.start()
      await addUsers(master)
      await untilClusterIsWhole(cluster)
      await fleet.restart(0)
    })
    for (const each of passed) {
      expect(each).toBeLessThanOrEqual(600)
      expect(each).toBeGreaterThan(500) // the leases of the one that died
    }
  })

  test('let through exactly the limit when Redis is split in two and both halves take writes', async () => {
    await fleet.keepsLimits(USED_UP, () => split(true))
  })

  test('the same split lets through more where no replica must have a count', async () => {
    await fleet[Symbol.asyncDispose]()
    for (const i of [0, 1, 2]) await (await pairOf(cluster, i)).master.ask('flushall')
    fleet = await Fleet.start(urlsOf(cluster), 0)
    const passed = await fleet.passes(USED_UP, () => split(false))
    expect(passed.filter((each) => each > USED_UP).length).toBeGreaterThan(2)
    expect(Math.min(...passed)).toBe(USED_UP)
  })

  /** A limit that either half uses up before it meets the other again. */
  const USED_UP = 30

  /**
   * A master is cut off from the cluster with the first server, and does not know that its replica has taken over: both have
   * its slots and take writes. So it is for some seconds, then they find each other again.
   */
  async function split(hasReplica: boolean): Promise<void> {
    const { master: old, replica: next } = await pairOf(cluster, 0)
    const { master: other, replica: spare } = await pairOf(cluster, 2)
    const lockOut = async (node: TestRedis, user: string) => {
      await node.ask('acl', 'setuser', user, 'off')
      await node.ask('client', 'kill', 'user', user)
    }
    const idOf = async (node: TestRedis) => String(await node.ask('cluster', 'myid'))
    const rest = nodes().filter((node) => node !== old)
    await lockOut(old, 'others')
    for (const node of rest) {
      await lockOut(node, 'first')
      await old.ask('cluster', 'forget', await idOf(node))
    }
    await next.ask('cluster', 'failover', 'takeover')
    while (!(await isMaster(next))) await Bun.sleep(10)
    if (hasReplica) {
      await spare.ask('cluster', 'replicate', await idOf(next))
      while (!(await isLinked(spare))) await Bun.sleep(20)
    }
    await Bun.sleep(5_000)
    expect([await isMaster(old), await isMaster(next)]).toEqual([true, true])
    if (hasReplica) await spare.ask('cluster', 'replicate', await idOf(other))
    for (const node of rest) await old.ask('cluster', 'meet', '127.0.0.1', node.port)
    for (const node of nodes()) for (const user of USERS) await node.ask('acl', 'setuser', user, 'on')
    await untilClusterIsWhole(cluster)
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
      await cutReplica(master)
      await Bun.sleep(900) // a replica that is down for longer is not chosen
      expect(await isLinked(replica)).toBe(false)
      await master.kill()
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

/** Until it restarts. */
async function cutReplica(master: TestRedis): Promise<void> {
  await master.ask('acl', 'setuser', 'default', '-psync', '-sync')
  await master.ask('client', 'kill', 'type', 'replica')
}

type Pair = { master: TestRedis; replica: TestRedis }

/** The pair of nodes that has a third of the slots. */
async function pairOf(cluster: TestRedisCluster, i: number): Promise<Pair> {
  const nodes = [cluster.masters[i], cluster.replicas[i]] as TestRedis[] // there are three of each
  const [first, second] = nodes as [TestRedis, TestRedis] // as above
  return (await isMaster(first)) ? { master: first, replica: second } : { master: second, replica: first }
}

async function untilClusterIsWhole(cluster: TestRedisCluster): Promise<void> {
  const isWhole = async (i: number) => {
    const { master, replica } = await pairOf(cluster, i)
    return (await isMaster(master)) && (await isLinked(replica))
  }
  for (const i of cluster.masters.keys()) while (!(await isWhole(i))) await Bun.sleep(50)
}
