import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openSpills } from '../../src/data-dir/spill.ts'
import { workerLink } from '../../src/lib/link.ts'
import { systemTimers } from '../../src/lib/timers.ts'
import { WindowStore } from '../../src/limiter/flush/store.ts'
import { type Charge, type Decision, LimiterRouter } from '../../src/limiter/threads/router.ts'
import { type ShardPlatform, startShards } from '../../src/limiter/threads/shards.ts'
import { openTestSql, type TestSql } from '../support/database.ts'
import { randomNumbers } from '../support/random.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const NOW = Date.UTC(2030, 0, 1, 12, 30)
const HOUR = 3_600_000

let database: TestSql
let dataDir: string
beforeAll(async () => {
  database = await openTestSql()
  dataDir = mkdtempSync(join(tmpdir(), 'tollgate-together-'))
})
afterAll(async () => {
  await database[Symbol.asyncDispose]()
  rmSync(dataDir, { recursive: true, force: true })
})

/** Real shards; threads where `shards` is not 0. */
async function startLimiter({
  shards: count,
  routers = 1,
  memoryBytes = 2 ** 22,
  nodeId = crypto.randomUUID(),
}: {
  shards: number
  routers?: number
  memoryBytes?: number
  nodeId?: string
}) {
  const workers: Worker[] = []
  const withWorkers: ShardPlatform = {
    timers: systemTimers,
    startThread: () => {
      const worker = new Worker(new URL('../../src/limiter/threads/shard.worker.ts', import.meta.url))
      workers.push(worker)
      return workerLink(worker)
    },
    makeLink: () => {
      const { port1, port2 } = new MessageChannel()
      return [port1, port2]
    },
    openStore: (address) => new WindowStore(address),
    openSpills,
  }
  const shards = await startShards(
    {
      count,
      address: database.address,
      nodeId,
      hashSecret: 'secret',
      flushEveryMs: HOUR,
      dataDir,
      memoryBytes,
      now: NOW,
    },
    count === 0 ? undefined : withWorkers,
  )
  const all = Array.from(
    { length: routers },
    () =>
      new LimiterRouter({
        ends: shards.connect(),
        hashSecret: 'secret',
        clock: () => NOW,
        replyTimeoutMs: 5_000,
      }),
  )
  return {
    shards,
    workers,
    routers: all,
    router: all[0] as LimiterRouter, // there is one
    async [Symbol.asyncDispose]() {
      await Promise.all(all.map((router) => router.stop()))
      await shards.stop()
    },
  }
}

const newCounter = () => `counter ${crypto.randomUUID()}`
const chargeOf = (counter: string, options: Partial<Charge> = {}): Charge => ({
  counter,
  workspaceId: 'ws',
  limit: 10,
  durationMs: HOUR,
  cost: 1,
  ...options,
})
const short = (decisions: Decision[]) =>
  decisions.map(({ passed, used }) => `${passed ? 'passed' : 'refused'} ${used}`)
const usedOf = async (router: LimiterRouter, counters: readonly string[], options: Partial<Charge> = {}) => {
  const looks = counters.map((counter) => chargeOf(counter, { limit: 1e9, ...options, cost: 0 }))
  return (await router.submitAll(looks)).map(({ used }) => used)
}

test.each([0, 1, 2, 3])(
  'all are charged where all pass, and none where one refuses, with %i shard threads',
  async (shards) => {
    await using limiter = await startLimiter({ shards })
    const { router } = limiter
    for (let round = 0; round < 20; round++) {
      const [a, b, c] = [newCounter(), newCounter(), newCounter()]
      const first = [
        chargeOf(a),
        chargeOf(b, { cost: 9 }),
        chargeOf(c, { cost: 0 }),
        chargeOf(a, { cost: 2 }),
      ]
      expect(short(await router.chargeTogether(first))).toEqual([
        'passed 1',
        'passed 9',
        'passed 0',
        'passed 3',
      ])
      const second = [chargeOf(a), chargeOf(b, { cost: 2 }), chargeOf(c, { cost: 10 }), chargeOf(c)]
      expect(short(await router.chargeTogether(second))).toEqual([
        'passed 3',
        'refused 9',
        'passed 0',
        'refused 0',
      ])
      expect(await usedOf(router, [a, b, c])).toEqual([3, 9, 0])
      expect(short(await router.chargeTogether([chargeOf(a, { limit: 3 })]))).toEqual(['refused 3'])
      expect(short(await router.chargeTogether([chargeOf(a)]))).toEqual(['passed 4'])
    }
    expect(await router.chargeTogether([])).toEqual([])
  },
)

test('charges out of bounds are refused before any is charged', async () => {
  await using limiter = await startLimiter({ shards: 2 })
  const counter = newCounter()
  const wrong = [chargeOf(counter), chargeOf(newCounter(), { cost: -1 })]
  expect(limiter.router.chargeTogether(wrong)).rejects.toThrow('out of bounds')
  expect(await usedOf(limiter.router, [counter])).toEqual([0])
})

test.each([0, 2])(
  'a hundred charges of one call are decided together, with %i shard threads',
  async (shards) => {
    await using limiter = await startLimiter({ shards })
    const counters = Array.from({ length: 100 }, newCounter)
    const charges = counters.map((counter) => chargeOf(counter))
    expect((await limiter.router.chargeTogether(charges)).map(({ used }) => used)).toEqual(Array(100).fill(1))
    const refused = await limiter.router.chargeTogether([...charges, chargeOf(newCounter(), { limit: 0 })])
    expect(refused.filter(({ passed }) => passed).map(({ used }) => used)).toEqual(Array(100).fill(1))
    expect(await usedOf(limiter.router, counters)).toEqual(Array(100).fill(1))
  },
)

const routerOf = (routers: readonly LimiterRouter[], i: number) =>
  routers[i % routers.length] as LimiterRouter // in range

/**
 * Calls of 1 to 5 counters by many callers at once. `hopeless` of them name a counter that is used up.
 * @returns what passed, by counter.
 */
async function callAtOnce(
  routers: readonly LimiterRouter[],
  {
    seed,
    calls,
    hopeless,
    counters,
    usedUp,
  }: { seed: number; calls: number; hopeless: number; counters: string[]; usedUp: string },
): Promise<Map<string, number>> {
  const random = randomNumbers(seed)
  const below = (count: number) => Math.floor(random() * count)
  const passed = new Map(counters.map((counter) => [counter, 0]))
  const planned = Array.from({ length: calls }, () => {
    const charges = Array.from({ length: 1 + below(5) }, () =>
      chargeOf(counters[below(counters.length)] ?? '', { limit: 100, cost: below(4) }),
    )
    if (random() < hopeless) charges.splice(below(charges.length), 0, chargeOf(usedUp, { limit: 0 }))
    return charges
  })
  const caller = async (router: LimiterRouter) => {
    for (let charges = planned.pop(); charges !== undefined; charges = planned.pop()) {
      const decisions = await router.chargeTogether(charges)
      for (const [i, { passed, used }] of decisions.entries()) {
        const { limit, counter } = charges[i] as Charge // one for each
        if (passed && used > limit) throw new Error(`${counter}: ${used} of ${limit} used`)
      }
      if (!decisions.every(({ passed }) => passed)) continue
      for (const { counter, cost } of charges) passed.set(counter, (passed.get(counter) ?? 0) + cost)
    }
  }
  await Promise.all(Array.from({ length: 64 }, (_, i) => caller(routerOf(routers, i))))
  return passed
}

test.each([
  [0, 0],
  [1, 0.5],
  [2, 0],
  [2, 0.5],
  [3, 0.5],
])(
  'what passed is what counters say, with %i shard threads and a share of %d hopeless calls',
  async (shards, hopeless) => {
    await using limiter = await startLimiter({ shards, routers: shards === 0 ? 1 : 2 })
    const counters = Array.from({ length: 200 }, newCounter)
    const asked = { calls: 5_000, hopeless, counters, usedUp: newCounter(), seed: 1 }
    const passed = await callAtOnce(limiter.routers, asked)
    // An undo is not waited for. Behind each router's own question its undos have arrived.
    for (const router of limiter.routers) await usedOf(router, counters)
    expect(await usedOf(limiter.router, counters)).toEqual(
      counters.map((counter) => passed.get(counter) ?? 0),
    )
    expect(Math.max(...passed.values())).toBeGreaterThan(90) // some were filled
  },
)

/** Where undone charges cannot be taken out of the sketch again, hopeless calls block what others share. */
test.each([0, 2])(
  'over the memory budget nothing is lost and hopeless calls use nothing up, with %i shard threads',
  async (shards) => {
    await using limiter = await startLimiter({ shards, routers: 1, memoryBytes: 64 * 1024 })
    const { router } = limiter
    const fill = Array.from({ length: 5_000 }, (_, i) => chargeOf(`fill ${i}`, { durationMs: 24 * HOUR }))
    for (let from = 0; from < fill.length; from += 1_000)
      await router.submitAll(fill.slice(from, from + 1_000))
    const stats = await limiter.shards.stats(NOW)
    expect(stats.every((each) => each?.isOverBudget)).toBe(true)
    const counters = Array.from({ length: 50 }, newCounter)
    const before = await usedOf(router, counters)
    const asked = { calls: 3_000, counters, usedUp: newCounter(), seed: 2 }
    await callAtOnce(limiter.routers, { ...asked, hopeless: 1 })
    expect(await usedOf(router, counters)).toEqual(before)
    const passed = await callAtOnce(limiter.routers, { ...asked, hopeless: 0.5 })
    const after = await usedOf(router, counters)
    for (const [i, counter] of counters.entries()) {
      expect(after[i]).toBeGreaterThanOrEqual(passed.get(counter) ?? 0)
      expect(after[i]).toBeLessThanOrEqual(100)
    }
  },
)

test('a shard killed in the middle fails calls, and leaves on the other shards what passed', async () => {
  await using limiter = await startLimiter({ shards: 2, routers: 2 })
  const { router, routers, workers } = limiter
  const counters = Array.from({ length: 60 }, newCounter)
  // Which counters are on the shard that lives: those that keep their count.
  await router.submitAll(counters.map((counter) => chargeOf(counter, { limit: 1e9 })))
  const passed = new Map(counters.map((counter) => [counter, 1]))
  const random = randomNumbers(3)
  let failed = 0
  let isOver = false
  const caller = async (asking: LimiterRouter) => {
    while (!isOver) {
      const charges = Array.from({ length: 4 }, () =>
        chargeOf(counters[Math.floor(random() * counters.length)] ?? '', { limit: 1e9 }),
      )
      try {
        const decisions = await asking.chargeTogether(charges)
        if (!decisions.every((each) => each.passed)) continue
        for (const { counter, cost } of charges) passed.set(counter, (passed.get(counter) ?? 0) + cost)
      } catch {
        failed++
        await Bun.sleep(1)
      }
    }
  }
  const callers = Array.from({ length: 64 }, (_, i) => caller(routerOf(routers, i)))
  await Bun.sleep(100)
  workers[0]?.terminate()
  while (failed === 0 || router.shards.running < 2) await Bun.sleep(1)
  await Bun.sleep(50)
  isOver = true
  await Promise.all(callers)
  expect(failed).toBeGreaterThan(0)
  const after = await usedOf(router, counters)
  const kept = counters.filter((counter, i) => after[i] === passed.get(counter))
  const lost = counters.filter((counter, i) => (after[i] ?? 0) < (passed.get(counter) ?? 0))
  // Those of the killed shard began anew; none of the other has anything of a failed call.
  expect(kept.length + lost.length).toBe(counters.length)
  expect(kept.length).toBeGreaterThan(10)
  expect(lost.length).toBeGreaterThan(10)
})

test('what passed is there after a restart, and what was undone is not', async () => {
  const nodeId = crypto.randomUUID()
  const counters = Array.from({ length: 100 }, newCounter)
  let passed: Map<string, number>
  {
    await using limiter = await startLimiter({ shards: 2, nodeId })
    passed = await callAtOnce(limiter.routers, {
      calls: 2_000,
      hopeless: 0.5,
      counters,
      usedUp: newCounter(),
      seed: 4,
    })
  }
  await using limiter = await startLimiter({ shards: 3, nodeId })
  expect(await usedOf(limiter.router, counters)).toEqual(counters.map((counter) => passed.get(counter) ?? 0))
})

test('a stop waits for the outcome of calls in flight', async () => {
  const nodeId = crypto.randomUUID()
  const [free, usedUp] = [Array.from({ length: 50 }, newCounter), newCounter()]
  {
    await using limiter = await startLimiter({ shards: 2, nodeId })
    const asked = free.map((counter) =>
      limiter.router.chargeTogether([chargeOf(counter), chargeOf(usedUp, { limit: 0 })]),
    )
    await limiter.router.stop()
    for (const decisions of await Promise.all(asked))
      expect(short(decisions)).toEqual(['passed 0', 'refused 0'])
  }
  await using limiter = await startLimiter({ shards: 2, nodeId })
  expect(await usedOf(limiter.router, free)).toEqual(free.map(() => 0))
})
