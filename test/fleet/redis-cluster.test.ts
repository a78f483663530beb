import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { slotOf, TAGS } from '../../src/fleet/buckets.ts'
import type { Answered, EngineSetup, Entry } from '../../src/fleet/engine.ts'
import { RedisEngine } from '../../src/fleet/redis.ts'
import { REDIS_SERVER, type TestRedis } from '../support/redis.ts'
import { startRedisCluster, type TestRedisCluster } from '../support/redis-cluster.ts'
import { entryOf, exchangeOf, NOW, newCell, type Subject, testEngine } from './engine-contract.ts'
import { TotalsProcess } from './engine-model.ts'

setDefaultTimeout(60_000)

const runIf = REDIS_SERVER !== null
const it = test.skipIf(!runIf)
let cluster: TestRedisCluster
let servers = 0

const subject: Subject = {
  open: (setup) => openEngine(setup),
  model: () => new TotalsProcess(1, () => NOW),
}

beforeAll(async () => {
  if (runIf) cluster = await startRedisCluster({ masters: 3, hasReplicas: false, nodeTimeoutMs: 5_000 })
})
afterAll(async () => {
  await cluster?.[Symbol.asyncDispose]()
})

/** Connected to all masters. */
async function openEngine(setup: Partial<EngineSetup> = {}): Promise<RedisEngine> {
  const engine = await RedisEngine.open(cluster.address, {
    serverId: ++servers,
    timeoutMs: 5_000,
    learnMs: 0,
    replicas: 0,
    ...setup,
  })
  for (const bucket of TAGS.keys())
    while ((await engine.exchange(exchangeOf([], { bucket }))).kind === 'failed') await Bun.sleep(1)
  return engine
}

testEngine('Redis Cluster', () => subject, runIf)

it('the buckets are spread over the masters, and all belong to the fleet that claims them', async () => {
  const engine = await openEngine()
  expect(await engine.claim('fleet_a')).toEqual({ kind: 'claimed', fleetId: 'fleet_a' })
  const buckets = await Promise.all(
    cluster.masters.map(async (master) => ((await master.ask('keys', 't:{???}')) as string[]).length), // a reply of KEYS
  )
  expect(buckets.toSorted()).toEqual([5, 5, 6])
  const other = await openEngine()
  expect(await other.claim('fleet_b')).toEqual({ kind: 'claimed', fleetId: 'fleet_a' })
  await Promise.all([engine.close(), other.close()])
})

it('a slot that moves to another master takes its counts along; there the bucket learns', async () => {
  const engine = await openEngine({ learnMs: 3_600_000 })
  const [from, to] = cluster.masters
  if (from === undefined || to === undefined) throw new Error('two masters are needed')
  await from.ask('hset', 't:{ms3}', 'learn', 0, 'past', NOW)
  const cell = newCell()
  expect((await retried(engine, [entryOf(cell, { asked: 40 })])).answers).toMatchObject([{ given: 40 }])

  const slot = slotOf(0)
  const [fromId, toId] = [String(await from.ask('cluster', 'myid')), String(await to.ask('cluster', 'myid'))]
  await to.ask('cluster', 'setslot', slot, 'importing', fromId)
  await from.ask('cluster', 'setslot', slot, 'migrating', toId)
  // A message with a window that neither master has yet is refused by both until the slot has moved, and gives nothing.
  const keys = (await from.ask('cluster', 'getkeysinslot', slot, 1_000)) as string[] // a reply of CLUSTER GETKEYSINSLOT
  await from.ask('migrate', '127.0.0.1', to.port, '', 0, 5_000, 'keys', ...keys)
  expect(await engine.exchange(exchangeOf([entryOf(newCell(), { asked: 1 })]))).toMatchObject({
    kind: 'failed',
    fault: 'broken',
  })
  for (const master of [to, from, ...cluster.masters.slice(2)])
    await master.ask('cluster', 'setslot', slot, 'node', toId)

  const after = await retried(engine, [entryOf(cell, { given: 40, asked: 5 })])
  expect(after).toMatchObject({ isLearning: true, answers: [{ given: 40, gift: 0, sum: 40 }] })
  await to.ask('hset', 't:{ms3}', 'learn', 0, 'past', NOW)
  expect(await retried(engine, [entryOf(cell, { given: 40, asked: 70 })])).toMatchObject({
    isLearning: false,
    answers: [{ given: 100, gift: 60, sum: 100 }],
  })
  await engine.close()
})

it('nodes that announce names are reached by them, and one without a name by its address', async () => {
  const set = async (name: string, value: string) => {
    for (const master of cluster.masters) await master.ask('config', 'set', name, value)
  }
  await set('cluster-preferred-endpoint-type', 'hostname')
  const [first, ...others] = cluster.masters
  await first?.ask('config', 'set', 'cluster-announce-hostname', 'localhost')
  const announced = async (node: TestRedis) => JSON.stringify(await node.ask('cluster', 'slots'))
  for (const other of others) while (!(await announced(other)).includes('localhost')) await Bun.sleep(10)
  expect(await announced(others[0] as TestRedis)).toContain('"?"') // there are three
  const engine = await openEngine()
  await engine.close()
  await first?.ask('config', 'set', 'cluster-announce-hostname', '')
  await set('cluster-preferred-endpoint-type', 'ip')
})

it('a master that is gone fails its own buckets only', async () => {
  const engine = await openEngine({ timeoutMs: 300 })
  await cluster.masters[2]?.kill()
  const results = async () =>
    await Promise.all(TAGS.map(async (_, bucket) => (await engine.exchange(exchangeOf([], { bucket }))).kind))
  const expected = TAGS.map((_, bucket) => (slotOf(bucket) * 3 >= 2 * 16_384 ? 'failed' : 'answered'))
  while (!Bun.deepEquals(await results(), expected)) await Bun.sleep(1)
  await engine.close()
})

/** Says it until it is answered. */
async function retried(engine: RedisEngine, entries: Entry[]): Promise<Answered> {
  for (;;) {
    const result = await engine.exchange(exchangeOf(entries))
    if (result.kind === 'answered') return result
    await Bun.sleep(1)
  }
}
