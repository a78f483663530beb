import { afterEach, expect, test } from 'bun:test'
import { directLinks, toLink } from '../../../src/lib/link.ts'
import { systemTimers } from '../../../src/lib/timers.ts'
import { FleetDecider } from '../../../src/limiter/fleet/fleet-decider.ts'
import { FleetShard, type OutageRule } from '../../../src/limiter/fleet/fleet-shard.ts'
import { WindowTable } from '../../../src/limiter/table/window-table.ts'
import type { Charge, Sharing } from '../../../src/limiter/threads/charge.ts'
import { Decider } from '../../../src/limiter/threads/decider.ts'
import type { Answers, Calls } from '../../../src/limiter/threads/protocol.ts'
import { LimiterRouter } from '../../../src/limiter/threads/router.ts'
import type { Process, Reply } from '../../fleet/engine-model.ts'
import { AdditionsProcess, ModelEngine, TotalsProcess } from '../../fleet/engine-model.ts'

/** Routers, deciders and shards of several servers on one engine. Only the connections to the engine are not real. */

const NOW_MS = 1_800_000_000_000
const MINUTE = 60_000
let lastServerId = 0
const open: { stop(): Promise<void> }[] = []
afterEach(async () => {
  for (const each of open.splice(0)) await each.stop()
})

type Wire = { process: Process; isAway: boolean; delayMs: number }

function startServer(
  wire: Wire,
  options: { shards?: number; outage?: OutageRule; servers?: number; cellsMax?: number; nowMs?: number } = {},
) {
  const { shards: count = 2, outage = 'share', servers = 3, cellsMax = 10_000, nowMs = NOW_MS } = options
  const kind = wire.process instanceof TotalsProcess ? 'redis' : 'postgres'
  const buckets = kind === 'redis' ? 16 : 1
  const shards = Array.from({ length: count }, () => {
    const setup = { serverId: ++lastServerId, timeoutMs: 200, learnMs: 600 }
    const engine = new ModelEngine(setup, {
      kind,
      buckets,
      timers: systemTimers,
      fleetId: { value: null },
      wire: (message, replied) => {
        if (wire.isAway) return false
        const reply: Reply = wire.process.take(message)
        systemTimers.after(wire.delayMs, () => replied(reply))
        return true
      },
    })
    return new FleetShard({
      engine,
      timers: systemTimers,
      buckets: Array.from({ length: buckets }, (_, bucket) => bucket),
      nowMs,
      leaseMs: 100,
      timeoutMs: 200,
      outage,
      servers: () => servers,
      cellsMax,
    })
  })
  const ends = shards.map((shard) => {
    const [ours, theirs] = directLinks(systemTimers)
    const link = toLink<Answers, Calls | object>(theirs)
    const decider = new FleetDecider(shard, (answers) => link.post(answers))
    link.onMessage = (message) => {
      if (Array.isArray(message)) link.post(decider.decide(message))
    }
    return ours
  })
  const local = shards.map(() => {
    const [ours, theirs] = directLinks(systemTimers)
    const link = toLink<Answers, Calls | object>(theirs)
    const decider = new Decider(new WindowTable({ memoryBytes: 2 ** 20, nowMs: NOW_MS, shards: count }))
    link.onMessage = (message) => {
      if (Array.isArray(message)) link.post(decider.decide(message))
    }
    return ours
  })
  const [control] = directLinks(systemTimers)
  const router = new LimiterRouter({
    ends: { shards: ends, control, local },
    hashSecret: 'fleet',
    clock: () => NOW_MS,
    replyTimeoutMs: 2_000,
    isFleet: true,
  })
  const server = {
    router,
    shards,
    async stop() {
      await router.stop()
      await Promise.all(shards.map((shard) => shard.stop(100)))
    },
  }
  open.push(server)
  return server
}

/** A process that has learned all buckets. */
function totals(): TotalsProcess {
  const process = new TotalsProcess(1, () => NOW_MS)
  for (let bucket = 0; bucket < 16; bucket++)
    process.buckets.set(bucket, {
      runId: 1,
      usedAtMs: NOW_MS,
      learnsUntilMs: 0,
      pastMs: 0,
      epochs: new Map(),
    })
  return process
}

const charge = (counter: string, cost = 1, limit = 100) => ({ counter, limit, durationMs: MINUTE, cost })
async function pass(router: LimiterRouter, counter: string, cost = 1, limit = 100): Promise<boolean> {
  return (await router.submit(charge(counter, cost, limit)).decided()).passed
}

for (const [kind, make] of [
  ['counts by totals', totals],
  ['adds', () => new AdditionsProcess()],
] as const) {
  test(`three servers on an engine that ${kind} pass exactly the limit of each counter`, async () => {
    const wire = { process: make(), isAway: false, delayMs: 1 }
    const servers = [startServer(wire), startServer(wire, { shards: 1 }), startServer(wire)]
    const passed = new Map<string, number>()
    const deadline = performance.now() + 10_000
    // Leases of one server come back to the others, so demand goes on until the limit is reached.
    while (performance.now() < deadline && [...passed.values()].filter((each) => each === 100).length < 5)
      await Promise.all(
        servers.flatMap(({ router }) =>
          ['a', 'b', 'c', 'd', 'e'].flatMap((counter) =>
            Array.from({ length: 10 }, async () => {
              if (await pass(router, counter)) passed.set(counter, (passed.get(counter) ?? 0) + 1)
            }),
          ),
        ),
      )
    expect([...passed.values()]).toEqual([100, 100, 100, 100, 100])
  })

  test(`a call that charges several counters, on an engine that ${kind}: all are charged or none`, async () => {
    const wire = { process: make(), isAway: false, delayMs: 1 }
    const [one, other] = [startServer(wire, { shards: 3 }), startServer(wire, { shards: 3 })]
    const charges = ['narrow', 'w1', 'w2', 'w3'].map((name) => charge(name, 1, name === 'narrow' ? 5 : 20))
    let all = 0
    for (let round = 0; round < 6; round++)
      for (const { router } of [one, other]) {
        const decisions = await router.chargeTogether(charges)
        if (decisions.every(({ passed }) => passed)) all++
      }
    expect(all).toBe(5)
    await one.stop()
    await other.stop()
    open.length = 0
    // What the refused calls held is back, so the others of the wide counters pass.
    const last = startServer(wire, { shards: 3 })
    for (const name of ['w1', 'w2', 'w3']) {
      let passed = 0
      for (let i = 0; i < 30; i++) if (await pass(last.router, name, 1, 20)) passed++
      expect([name, passed]).toEqual([name, 15])
    }
  })
}

test('a hot counter is decided from its lease while the engine is slow, also in a batch with a counter that waits', async () => {
  const wire = { process: totals(), isAway: false, delayMs: 1 }
  const { router, shards } = startServer(wire, { shards: 1, servers: 1 })
  await Promise.all(Array.from({ length: 40 }, () => pass(router, 'hot', 1, 10_000)))
  await pass(router, 'hot', 1, 10_000) // with it comes a lease
  wire.delayMs = 150
  const order: string[] = []
  const exchanges = shards[0]?.stats.exchanges
  await Promise.all([
    pass(router, 'cold').then(() => order.push('cold')),
    pass(router, 'hot', 1, 10_000).then(() => order.push('hot')),
  ])
  expect(order).toEqual(['hot', 'cold'])
  expect(exchanges).toBeGreaterThan(0)
})

test('an engine that is away: each rule does what it says', async () => {
  const away = { process: totals(), isAway: true, delayMs: 1 }
  const share = startServer(away, { outage: 'share' })
  const passed = await Promise.all(Array.from({ length: 100 }, () => pass(share.router, 'a')))
  expect(passed.filter(Boolean)).toHaveLength(33) // of three servers
  const all = startServer(away, { outage: 'open' })
  const each = await Promise.all(Array.from({ length: 120 }, () => pass(all.router, 'a')))
  expect(each.filter(Boolean)).toHaveLength(100)
  const refuse = startServer(away, { outage: 'refuse' })
  expect(pass(refuse.router, 'a')).rejects.toThrow('the limiter cannot be asked')
  expect(refuse.router.chargeTogether([charge('a'), charge('b')])).rejects.toThrow(
    'the limiter cannot be asked',
  )
})

test('a call that is answered at once is charged afterwards', async () => {
  const wire = { process: totals(), isAway: false, delayMs: 1 }
  const [one, other] = [startServer(wire), startServer(wire)]
  const counters = ['a', 'b', 'c']
  for (const counter of counters)
    for (let i = 0; i < 40; i++) expect(one.router.chargeLater(charge(counter)).passed).toBe(true)
  await one.router.stop() // waits for the answers
  for (const counter of counters) {
    let passed = 0
    for (let i = 0; i < 70; i++) if (await pass(other.router, counter)) passed++
    expect([counter, passed]).toEqual([counter, 60])
  }
})

test('what was let through in an outage counts when the engine is back', async () => {
  const wire = { process: totals(), isAway: true, delayMs: 1 }
  const [one, other] = [startServer(wire, { servers: 2 }), startServer(wire, { servers: 2 })]
  for (let i = 0; i < 60; i++) await pass(one.router, 'a')
  wire.isAway = false
  const untilMs = performance.now() + 5_000
  while (one.shards.some(({ condition }) => condition === 'away') && performance.now() < untilMs)
    await new Promise<void>((resolve) => setImmediate(resolve))
  await pass(one.router, 'a')
  let passed = 0
  for (let i = 0; i < 100; i++) if (await pass(other.router, 'a')) passed++
  expect(passed).toBeLessThanOrEqual(50)
  expect(passed).toBeGreaterThan(0)
})

/** How many of so many calls pass, one after the other. */
async function passesOf(router: LimiterRouter, asked: Charge, calls: number): Promise<number> {
  let passed = 0
  for (let i = 0; i < calls; i++) {
    if ((await router.submit(asked).decided()).passed) passed++
  }
  return passed
}
const sharedBy = (sharing: Sharing | null, counter: string, limit = 100): Charge => ({
  ...charge(counter, 1, limit),
  sharing,
})

test("an engine that is away: a counter's own rule decides, others go by the rule of the environment", async () => {
  const away = { process: totals(), isAway: true, delayMs: 1 }
  for (const outage of ['share', 'refuse', 'open'] as const) {
    const { router } = startServer(away, { outage, servers: 4 })
    expect(await passesOf(router, sharedBy('share', 'a'), 120)).toBe(25)
    expect(await passesOf(router, sharedBy('open', 'b'), 120)).toBe(100)
    const refused = router.submit(sharedBy('refuse', 'c'))
    expect(refused.decided()).rejects.toThrow('the limiter cannot be asked')
    expect(await passesOf(router, sharedBy('local', 'd'), 120)).toBe(100)
    const byEnvironment = passesOf(router, sharedBy(null, 'e'), 120)
    if (outage === 'refuse') expect(byEnvironment).rejects.toThrow('the limiter cannot be asked')
    else expect(await byEnvironment).toBe(outage === 'share' ? 25 : 100)
  }
})

test('a call for counters of which one cannot be decided fails, and charges none', async () => {
  const away = { process: totals(), isAway: true, delayMs: 1 }
  for (const shards of [1, 3]) {
    const { router } = startServer(away, { shards, servers: 1 })
    const others = ['share', 'open', 'local'] as const
    for (let i = 0; i < 20; i++)
      for (const sharing of others) {
        const pair = [sharedBy(sharing, `${sharing} ${i}`, 3), sharedBy('refuse', `refuse ${i}`)]
        if (i % 2 === 0) pair.reverse()
        expect(router.chargeTogether(pair)).rejects.toThrow('the limiter cannot be asked')
      }
    // Answered after the outcomes of the calls above.
    for (let i = 0; i < 20; i++)
      for (const sharing of others)
        expect(await passesOf(router, sharedBy(sharing, `${sharing} ${i}`, 3), 4)).toBe(3)
  }
})

test.each([1, 3])(
  'a call for shared and local counters charges all or none, with %i shards',
  async (shards) => {
    const wire = { process: totals(), isAway: false, delayMs: 1 }
    const [one, other] = [startServer(wire, { shards }), startServer(wire, { shards })]
    const asked = (narrow: Sharing | null) => [
      sharedBy(narrow, 'narrow', 5),
      sharedBy('local', 'local', 50),
      sharedBy(null, 'shared', 50),
    ]
    const allOf = async (router: LimiterRouter, narrow: Sharing | null, calls: number) => {
      let all = 0
      for (let i = 0; i < calls; i++) {
        const decisions = await router.chargeTogether(asked(narrow))
        if (decisions.every(({ passed }) => passed)) all++
        else expect(decisions.map(({ passed }) => passed)).toEqual([false, true, true])
      }
      return all
    }
    expect(await allOf(one.router, 'local', 8)).toBe(5)
    expect(await allOf(other.router, 'local', 8)).toBe(5) // a count of its own
    expect((await allOf(one.router, null, 8)) + (await allOf(other.router, null, 8))).toBe(5)
    // Of each, what the calls that passed took: 15 at both servers together.
    const local = await Promise.all(
      [one, other].map(({ router }) => passesOf(router, sharedBy('local', 'local', 50), 60)),
    )
    expect(local.reduce((sum, passed) => sum + passed)).toBe(100 - 15)
    await other.stop()
    open.splice(open.indexOf(other), 1)
    expect(await passesOf(one.router, sharedBy(null, 'shared', 50), 60)).toBe(50 - 15)
  },
)

/** An engine that adds cannot tell a server what it let through before. */
test.each([
  ['counts by totals', totals],
  ['adds', () => new AdditionsProcess()],
])(
  'a counter without memory gives its part of a window once, however often an engine that %s is away',
  async (_, make) => {
    const wire = { process: make(), isAway: true, delayMs: 1 }
    const one = startServer(wire, { shards: 1, servers: 2, cellsMax: 0 })
    const untilIs = async (condition: string) => {
      while (one.shards.some((shard) => shard.condition !== condition))
        await new Promise<void>((resolve) => setImmediate(resolve))
    }
    let passed = 0
    for (let i = 0; i < 70; i++) if (await pass(one.router, 'a')) passed++
    expect(passed).toBe(50)
    await untilIs('away')
    wire.isAway = false
    await untilIs('ok')
    // The second waits in the counter until the first is answered. Then the engine is away again.
    wire.delayMs = 50
    const first = pass(one.router, 'a')
    await new Promise<void>((resolve) => setTimeout(resolve, 10))
    const second = pass(one.router, 'a')
    wire.isAway = true
    expect([await first, await second]).toEqual([true, false])
  },
)

test('a call that a frozen server decides long after the end of its window is refused, and the engine is not asked', async () => {
  const wire = { process: totals(), isAway: false, delayMs: 1 }
  const late = startServer(wire, { shards: 1, nowMs: NOW_MS + MINUTE + 30_001 })
  expect(await pass(late.router, 'a')).toBe(false)
  expect(late.shards[0]?.stats.entries).toBe(0)
  const inTime = startServer(wire, { shards: 1, nowMs: NOW_MS + MINUTE + 20_000 })
  expect(await pass(inTime.router, 'a')).toBe(true)
})
