import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import type { Answered, EngineSetup, Entry } from '../../src/fleet/engine.ts'
import { RedisEngine } from '../../src/fleet/redis.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { REDIS_SERVER, startRedis, type TestRedis } from '../support/redis.ts'
import {
  answersOf,
  compareWithModel,
  entryOf,
  exchangeOf,
  NOW,
  newCell,
  type Subject,
  testEngine,
} from './engine-contract.ts'
import { TotalsProcess } from './engine-model.ts'

setDefaultTimeout(IS_NIGHTLY ? 600_000 : 20_000)

const runIf = REDIS_SERVER !== null
const it = test.skipIf(!runIf)
let redis: TestRedis
let servers = 0

const subject: Subject = {
  open: (setup) => openEngine(redis, setup),
  model: () => new TotalsProcess(1, () => NOW),
}

beforeAll(async () => {
  if (runIf) redis = await startRedis()
})
afterAll(async () => {
  await redis?.[Symbol.asyncDispose]()
})

/** Connected. It never learns unless told to, and waits long. */
async function openEngine(
  to: TestRedis,
  setup: Partial<EngineSetup & { replicas: number }> = {},
): Promise<RedisEngine> {
  const engine = await RedisEngine.open(to.address, {
    serverId: ++servers,
    timeoutMs: 5_000,
    learnMs: 0,
    replicas: 0,
    ...setup,
  })
  while ((await engine.exchange(exchangeOf([]))).kind === 'failed') await Bun.sleep(1)
  return engine
}

testEngine('Redis', () => subject, runIf)

test.skipIf(!runIf || !IS_NIGHTLY)('100 000 random entries are answered as by the model', async () => {
  for (let seed = 1; seed <= 84; seed++) await compareWithModel(subject, { seed, exchanges: 100 })
})

/** The bucket of all cells here. */
const BUCKET = 't:{ms3}'

it('a Redis that was killed and restarted empty takes up what it is told, and gives nothing until it has learned', async () => {
  await using own = await startRedis()
  const [first, second] = [await openEngine(own), await openEngine(own)]
  const cell = newCell()
  await answersOf(first, [entryOf(cell, { asked: 60 })])
  await answersOf(second, [entryOf(cell, { asked: 30 })])
  await own.kill()
  expect(await first.exchange(exchangeOf([]))).toMatchObject({ kind: 'failed' })
  await own.start()
  const learner = await openEngine(own, { learnMs: 3_600_000 })
  expect(await learner.exchange(exchangeOf([entryOf(cell, { asked: 100 })]))).toMatchObject({
    isLearning: true,
    answers: [{ given: 0, gift: 0, sum: 0 }],
  })
  expect(await retried(first, [entryOf(cell, { given: 60, asked: 5 })])).toMatchObject({
    isLearning: true,
    answers: [{ given: 60, gift: 0, sum: 60 }],
  })
  // What it took up is not lowered before all have spoken.
  expect(await retried(first, [entryOf(cell, { given: 50, returned: 10 })])).toMatchObject({
    answers: [{ given: 60, sum: 60 }],
  })
  expect(await retried(second, [entryOf(cell, { given: 30 })])).toMatchObject({
    answers: [{ given: 30, sum: 90 }],
  })
  await own.ask('hset', BUCKET, 'learn', 0, 'past', NOW)
  expect(await answersOf(learner, [entryOf(cell, { asked: 100 })])).toMatchObject([{ given: 10, sum: 100 }])
  await Promise.all([first, second, learner].map((engine) => engine.close()))
})

it('a Redis that was emptied, and one that nobody spoke to for a second, learn', async () => {
  await using own = await startRedis()
  const engine = await openEngine(own, { learnMs: 3_600_000 })
  const learns = async () => (await retried(engine, [])).isLearning
  await own.ask('hset', BUCKET, 'learn', 0)
  expect(await learns()).toBe(false)
  await own.ask('flushall')
  expect(await learns()).toBe(true)
  await own.ask('hset', BUCKET, 'learn', 0, 'at', Date.now() - 1_500)
  expect(await learns()).toBe(true)
  await own.ask('hset', BUCKET, 'learn', 0, 'at', Date.now() + 60_000) // its clock went back
  expect(await learns()).toBe(true)
  await own.ask(
    'hset',
    BUCKET,
    'learn',
    0,
    'run',
    'a replica that has taken over finds the run id of its master',
  )
  expect(await learns()).toBe(true)
  await engine.close()
})

/** Servers tell of open windows only: one that thaws with calls of an ended window would be given it anew. */
it('a window that ended while a Redis learned is given nothing afterwards, the next one is', async () => {
  await using own = await startRedis()
  const engine = await openEngine(own, { learnMs: 3_600_000 })
  await own.ask('hset', BUCKET, 'learn', 0)
  const cell = newCell()
  const late = await retried(engine, [entryOf(cell, { asked: 5, endMs: NOW + 3_600_000 })])
  expect(late).toMatchObject({ isLearning: false, answers: [{ given: 0, gift: 0, sum: 0 }] })
  const next = await retried(engine, [entryOf(cell, { asked: 5, endMs: NOW + 3_600_001 })])
  expect(next.answers).toMatchObject([{ given: 5, gift: 5, sum: 5 }])
  await engine.close()
})

it('each time that a Redis forgets is another learning, also while it learns', async () => {
  await using own = await startRedis()
  const engine = await openEngine(own, { learnMs: 3_600_000 })
  const learning = async () => (await retried(engine, [])).learning
  const first = await learning()
  await Bun.sleep(2) // they are told apart by the millisecond
  expect(await learning()).toBe(first)
  await own.ask('flushall')
  expect(await learning()).toBeGreaterThan(first)
  await own.ask('hset', BUCKET, 'learn', 0)
  expect(await learning()).toBe(0)
  await engine.close()
})

it('a frozen Redis is late in time, and what its late answer gave is free again', async () => {
  await using own = await startRedis()
  const patient = await openEngine(own)
  const engine = await openEngine(own, { timeoutMs: 60 })
  const cell = newCell()
  const held = await retried(engine, [entryOf(cell, { asked: 10 })])
  expect(held.answers).toMatchObject([{ given: 10 }])
  own.freeze()
  const asked = [entryOf(cell, { given: 10, asked: 10 })]
  expect(await engine.exchange(exchangeOf(asked))).toMatchObject({ kind: 'failed', fault: 'late' })
  own.thaw()
  while ((await retried(patient, [entryOf(cell)])).answers[0]?.sum !== 20) await Bun.sleep(1)
  const again = await retried(engine, [entryOf(cell, { given: 10, asked: 10 })])
  expect(again.answers).toMatchObject([{ given: 20, gift: 10, sum: 20 }])
  await Promise.all([engine.close(), patient.close()])
})

it('a message of an earlier connection does nothing once the server has spoken with a later one', async () => {
  await using own = await startRedis()
  const engine = await openEngine(own, { serverId: 77 })
  const cell = newCell()
  await answersOf(engine, [entryOf(cell, { asked: 50 })])
  const epochOf = async () => Number(String(await own.ask('hget', BUCKET, 'e77')).split(' ')[0])
  const before = await epochOf()
  await own.ask('client', 'kill', 'type', 'normal', 'skipme', 'yes')
  expect(await retried(engine, [entryOf(cell, { given: 50 })])).toMatchObject({ answers: [{ given: 50 }] })
  expect(await epochOf()).toBeGreaterThan(before)
  // The same server with the epoch of its first connection: what was said before, come late.
  const late = await RedisEngine.open(own.address, {
    serverId: 77,
    timeoutMs: 5_000,
    learnMs: 0,
    replicas: 0,
  })
  await late.claim('fleet')
  const words = exchangeOf([entryOf(cell, { given: 5, returned: 5 })])
  const said = await late.exchange(words)
  expect(said).toMatchObject({ kind: 'failed', fault: 'stale' })
  expect(await answersOf(engine, [entryOf(cell, { given: 50 })])).toMatchObject([{ given: 50, sum: 50 }])
  // Its next message carries a higher one: only the fault is an end, not the server.
  expect(await late.exchange(exchangeOf([]))).toMatchObject({ kind: 'answered' })
  await Promise.all([engine.close(), late.close()])
})

it('an exchange whose connection is cut fails, and nothing is sent again', async () => {
  await using own = await startRedis()
  const engine = await openEngine(own)
  const cell = newCell()
  await own.ask('client', 'pause', 60_000, 'all')
  const under = engine.exchange(exchangeOf([entryOf(cell, { asked: 10 })]))
  own.freeze() // what it has read it will not carry out
  await own.kill()
  expect(await under).toMatchObject({ kind: 'failed', fault: 'broken' })
  await own.start()
  expect((await retried(engine, [])).answers).toEqual([])
  expect(await own.ask('dbsize')).toBe(1) // the bucket alone
  await engine.close()
})

it('without a connection nothing is sent, and the cause says why', async () => {
  await using own = await startRedis()
  const engine = await openEngine(own)
  await own.kill()
  let result = await engine.exchange(exchangeOf([]))
  while (result.kind === 'failed' && result.fault !== 'away') {
    await Bun.sleep(1)
    result = await engine.exchange(exchangeOf([]))
  }
  while (result.kind === 'failed' && !result.cause.message.includes('ECONNREFUSED')) {
    await Bun.sleep(1)
    result = await engine.exchange(exchangeOf([]))
  }
  expect(result).toMatchObject({ fault: 'away' })
  await engine.close()
})

it('an engine without its script gets it, and one without a window takes up what it is told', async () => {
  await using own = await startRedis()
  const engine = await openEngine(own)
  const cell = newCell()
  await answersOf(engine, [entryOf(cell, { asked: 10 })])
  await own.ask('script', 'flush')
  expect(await answersOf(engine, [entryOf(cell, { given: 10, asked: 5 })])).toMatchObject([{ given: 15 }])
  const keys = (await own.ask('keys', `${BUCKET}?*`)) as string[] // of the one window
  expect(keys).toHaveLength(1)
  await own.ask('del', keys[0] ?? '') // as an eviction does
  expect(await answersOf(engine, [entryOf(cell, { given: 15, asked: 5 })])).toMatchObject([
    { given: 20, sum: 20 },
  ])
  await engine.close()
})

it('a window is kept until a minute after its end, by relative time; a refusal and an empty entry write nothing', async () => {
  await using own = await startRedis()
  const engine = await openEngine(own)
  const cell = newCell()
  await answersOf(engine, [entryOf(cell, { asked: 101, least: 101 })])
  await answersOf(engine, [entryOf(cell)])
  expect(await own.ask('keys', `${BUCKET}?*`)).toEqual([])
  await answersOf(engine, [entryOf(cell, { asked: 1 })])
  const [key = ''] = (await own.ask('keys', `${BUCKET}?*`)) as string[] // of the one window
  const restMs = Number(await own.ask('pttl', key))
  expect(restMs).toBeGreaterThan(3_600_000) // an hour by the server's time, and a minute less what the test took
  expect(restMs).toBeLessThanOrEqual(3_660_000)
  await engine.close()
})

it('epochs of servers that ended days ago are forgotten, those of others are not', async () => {
  await using own = await startRedis()
  const day = Math.floor(Date.now() / 86_400_000)
  await own.ask('hset', BUCKET, 'e1000001', `4 ${day - 3}`, 'e1000002', `5 ${day - 1}`)
  const engine = await openEngine(own)
  const fields = (await own.ask('hkeys', BUCKET)) as string[] // a reply of HKEYS
  expect(fields.filter((field) => field.startsWith('e1000'))).toEqual(['e1000002'])
  await engine.close()
})

it('a Redis of another fleet is not used, and gets its fleet back when it was emptied', async () => {
  await using own = await startRedis()
  const [ours, theirs] = [await openEngine(own), await openEngine(own)]
  expect(await ours.claim('fleet_a')).toEqual({ kind: 'claimed', fleetId: 'fleet_a' })
  expect(await ours.claim('fleet_a')).toEqual({ kind: 'claimed', fleetId: 'fleet_a' })
  expect(await theirs.claim('fleet_b')).toEqual({ kind: 'claimed', fleetId: 'fleet_a' })
  await own.ask('flushall')
  expect(await ours.exchange(exchangeOf([]))).toMatchObject({ kind: 'answered' })
  expect(await own.ask('hget', BUCKET, 'fleet')).toBe('fleet_a')
  await own.ask('hset', BUCKET, 'fleet', 'fleet_b')
  const cell = newCell()
  expect(await ours.exchange(exchangeOf([entryOf(cell, { asked: 1 })]))).toMatchObject({
    kind: 'failed',
    fault: 'foreign',
  })
  expect(await own.ask('keys', `${BUCKET}?*`)).toEqual([])
  await own.ask('flushall')
  await own.ask('hset', BUCKET, 'fleet', 'fleet_c')
  expect(await theirs.claim('fleet_b')).toEqual({ kind: 'claimed', fleetId: 'fleet_c' })
  expect(await own.ask('dbsize')).toBe(1) // whoever comes second leaves nothing
  await Promise.all([ours.close(), theirs.close()])
})

it('a gift counts only when as many replicas as wanted have it', async () => {
  await using master = await startRedis({ flags: ['--repl-diskless-sync-delay', '0'] })
  const engine = await openEngine(master)
  await engine.close()
  const wanting = await RedisEngine.open(master.address, {
    serverId: ++servers,
    timeoutMs: 400,
    learnMs: 0,
    replicas: 1,
  })
  await wanting.claim('fleet')
  const cell = newCell()
  const asked = exchangeOf([entryOf(cell, { asked: 10 })])
  let result = await wanting.exchange(asked)
  while (result.kind === 'failed' && result.fault === 'late') result = await wanting.exchange(asked)
  expect(result).toMatchObject({ kind: 'failed', fault: 'replicas' })
  await using replica = await startRedis({ flags: ['--replicaof', '127.0.0.1', String(master.port)] })
  expect((await retried(wanting, [entryOf(cell, { asked: 10 })])).answers).toMatchObject([
    { given: 10, gift: 10 },
  ])
  expect(await replica.ask('dbsize')).toBe(2) // the bucket that was claimed, and the window
  await wanting.close()
})

it('a password is used and never told; a wrong one is a cause without it', async () => {
  const password = 'correct-horse:@/?#'
  await using own = await startRedis({ flags: ['--requirepass', password], address: { password } })
  const engine = await openEngine(own)
  expect(await engine.exchange(exchangeOf([]))).toMatchObject({ kind: 'answered' })
  await engine.close()
  const wrong = await RedisEngine.open(
    { ...own.address, password: 'battery-staple' },
    { serverId: ++servers, timeoutMs: 400, learnMs: 0, replicas: 0 },
  )
  let result = await wrong.claim('fleet')
  while (result.kind !== 'failed' || !result.cause.message.includes('WRONGPASS'))
    result = await wrong.claim('fleet')
  expect(Bun.inspect(result, { depth: 10 })).not.toContain('battery-staple')
  await wrong.close()
})

it('a full Redis that may evict windows is warned of, one that may not or is never full is not', async () => {
  await using own = await startRedis()
  const engine = await openEngine(own)
  expect(await engine.warnings()).toEqual([])
  await own.ask('config', 'set', 'maxmemory-policy', 'allkeys-lru')
  expect(await engine.warnings()).toEqual([])
  await own.ask('config', 'set', 'maxmemory', '100mb')
  expect(await engine.warnings()).toEqual([expect.stringContaining('maxmemory-policy is allkeys-lru')])
  await own.ask('config', 'set', 'maxmemory-policy', 'noeviction', 'maxmemory', '1')
  expect(await engine.warnings()).toEqual([])
  // Full: it refuses, and a refusal gives nothing.
  expect(await engine.exchange(exchangeOf([entryOf(newCell(), { asked: 1 })]))).toMatchObject({
    fault: 'broken',
  })
  await engine.close()
})

/** Says it until it is answered: the connection may still be on its way back. */
async function retried(engine: RedisEngine, entries: Entry[]): Promise<Answered> {
  for (;;) {
    const result = await engine.exchange(exchangeOf(entries))
    if (result.kind === 'answered') return result
    await Bun.sleep(1)
  }
}
