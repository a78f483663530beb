import { afterAll, beforeAll, beforeEach, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openSpills } from '../../src/data-dir/spill.ts'
import type { DatabaseAddress } from '../../src/db/connect.ts'
import type { Clock } from '../../src/lib/clock.ts'
import { toLink } from '../../src/lib/link.ts'
import { type Charge, type Decision, LimiterRouter } from '../../src/limiter/threads/router.ts'
import { type Shards, startShards } from '../../src/limiter/threads/shards.ts'
import { openTestSql, type TestSql } from '../support/database.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { openWire } from '../support/wire.ts'
import { storedOf } from './support.ts'

setDefaultTimeout(SLOW_MS)

/** Inside an hour's window that the tests never leave unless they say so. */
const NOW = Date.UTC(2030, 0, 1, 12, 30)
const HOUR = 3_600_000

let database: TestSql
let dataDir: string
beforeAll(async () => {
  database = await openTestSql()
  dataDir = mkdtempSync(join(tmpdir(), 'tollgate-limiter-'))
})
afterAll(async () => {
  await database[Symbol.asyncDispose]()
  rmSync(dataDir, { recursive: true, force: true })
})

type Limiter = AsyncDisposable & { shards: Shards; router: LimiterRouter; anotherRouter(): LimiterRouter }

/** Shards with one router. Flushes only when told or stopped, unless `flushEveryMs` says otherwise. */
async function startLimiter(
  options: {
    shards?: number
    nodeId?: string
    clock?: Clock
    address?: DatabaseAddress
    flushEveryMs?: number
    dataDir?: string
  } = {},
): Promise<Limiter> {
  const clock = options.clock ?? (() => NOW)
  const shards = await startShards({
    count: options.shards ?? 2,
    address: options.address ?? database.address,
    nodeId: options.nodeId ?? 'node_one',
    hashSecret: 'secret',
    flushEveryMs: options.flushEveryMs ?? 3_600_000,
    dataDir: options.dataDir ?? dataDir,
    memoryBytes: 2 ** 22,
    now: clock(),
  })
  const routers: LimiterRouter[] = []
  const anotherRouter = () => {
    const router = new LimiterRouter({
      ends: shards.connect(),
      hashSecret: 'secret',
      clock,
      replyTimeoutMs: 5_000,
    })
    routers.push(router)
    return router
  }
  return {
    shards,
    router: anotherRouter(),
    anotherRouter,
    async [Symbol.asyncDispose]() {
      await Promise.all(routers.map((router) => router.stop()))
      await shards.stop()
    },
  }
}

/** A counter that no other test uses. */
const newCounter = () => `counter ${crypto.randomUUID()}`
const times = (count: number, take: () => Promise<Decision>) =>
  Promise.all(Array.from({ length: count }, take))
const passedOf = (taken: Decision[]) => taken.filter(({ passed }) => passed).length
const ask = async (router: LimiterRouter, call: Charge): Promise<Decision> =>
  await router.submit(call).decided()
const take = (router: LimiterRouter, counter: string, options: { limit?: number; cost?: number } = {}) =>
  ask(router, { counter, limit: options.limit ?? 100, durationMs: HOUR, cost: options.cost ?? 1 })
const segmentsOf = async (nodeId: string) => {
  const [row] = await database.sql<{ count: number }[]>`
    select count(*) as count from ratelimit_segments where node_id = ${nodeId}`
  return row?.count
}
const rowsOf = async (nodeId: string) => {
  const [row] = await database.sql<{ count: number }[]>`
    select count(*) as count from ratelimit_windows where node_id = ${nodeId}`
  return row?.count
}

describe('exactness', () => {
  /** What a rate limiter is for. */
  test.each([0, 1, 2, 3])(
    '1000 calls at once over two routers pass exactly 100 times, with %i shard threads',
    async (count) => {
      await using limiter = await startLimiter({ shards: count })
      const routers = [limiter.router, limiter.anotherRouter()]
      const counters = Array.from({ length: 5 }, newCounter)
      const taken = await Promise.all(
        counters.map((counter) =>
          Promise.all(
            Array.from({ length: 1000 }, (_, i) => take(routers[i % 2] ?? limiter.router, counter)),
          ),
        ),
      )
      for (const ofOne of taken) {
        expect(passedOf(ofOne)).toBe(100)
        expect(Math.max(...ofOne.map(({ used }) => used))).toBe(100)
      }
    },
  )

  test.each([0, 3])('answers come back to the call they belong to, with %i shard threads', async (shards) => {
    await using limiter = await startLimiter({ shards })
    const calls = Array.from({ length: 500 }, (_, i) => ({ counter: newCounter(), cost: i + 1 }))
    const taken = await Promise.all(
      calls.map(({ counter, cost }) => take(limiter.router, counter, { cost, limit: 400 })),
    )
    for (const [i, { passed, used }] of taken.entries()) {
      expect({ passed, used }).toEqual(i < 400 ? { passed: true, used: i + 1 } : { passed: false, used: 0 })
    }
  })

  test('a counter is the same whether its name comes whole or as prefix and rest', async () => {
    await using limiter = await startLimiter({ shards: 0 })
    const name = newCounter()
    const call = { limit: 100, durationMs: HOUR, cost: 1 }
    const divided = [0, 8, 16, 20, name.length].map((at) => ({
      ...call,
      prefix: name.slice(0, at),
      counter: name.slice(at),
    }))
    const taken = await limiter.router.submitAll([{ ...call, counter: name }, ...divided, ...divided])
    expect(taken.map(({ used }) => used)).toEqual(Array.from(taken, (_, i) => i + 1))
    const known = [{ ...call, counter: name }, ...divided].map(
      (each) => limiter.router.chargeLater(each).used,
    )
    expect(known).toEqual(Array.from(known, (_, i) => i + 1))
  })

  const decidedWhenMade =
    'calls of one turn are decided at the time they were made, and a clock set back changes nothing'
  test.each([0, 2])(`${decidedWhenMade}, with %i shard threads`, async (shards) => {
    let now = NOW
    await using limiter = await startLimiter({ shards, clock: () => now })
    const counter = newCounter()
    const call = { counter, limit: 1, durationMs: 1_000, cost: 1 }
    now = NOW + 999
    const last = ask(limiter.router, call)
    now = NOW + 1_000
    const first = ask(limiter.router, call)
    now = NOW
    const after = ask(limiter.router, call)
    expect(await Promise.all([last, first, after])).toEqual([
      { passed: true, used: 1, resetAtMs: NOW + 1_000, atMs: NOW + 999 },
      { passed: true, used: 1, resetAtMs: NOW + 2_000, atMs: NOW + 1_000 },
      { passed: false, used: 1, resetAtMs: NOW + 2_000, atMs: NOW + 1_000 },
    ])
  })

  test('limits and costs out of bounds are refused with an error', async () => {
    await using limiter = await startLimiter({ shards: 1 })
    for (const wrong of [{ limit: 2 ** 53 }, { cost: 2 ** 53 }, { cost: -1 }, { limit: Number.NaN }]) {
      expect(take(limiter.router, 'c', wrong)).rejects.toThrow('out of bounds')
    }
  })
})

describe('restart', () => {
  /** A deployment must not hand out every limit anew, and not count anything twice either. */
  test('counts survive clean restarts, with the same or another number of shards', async () => {
    const counters = Array.from({ length: 40 }, newCounter)
    for (const [restart, shards] of [1, 3, 0, 2, 0, 5, 1].entries()) {
      await using limiter = await startLimiter({ shards })
      for (const counter of counters) {
        expect(await take(limiter.router, counter)).toMatchObject({ passed: true, used: restart + 1 })
      }
    }
  })

  test('counts of a lost node id still count, and are not written again under the new one', async () => {
    const counter = newCounter()
    for (const [restart, nodeId] of ['node_lost', 'node_new', 'node_new', 'node_newer'].entries()) {
      await using limiter = await startLimiter({ nodeId })
      expect(await take(limiter.router, counter, { limit: 4 })).toMatchObject({ used: restart + 1 })
    }
    await using limiter = await startLimiter({ nodeId: 'node_lost' })
    expect(await take(limiter.router, counter, { limit: 4 })).toMatchObject({ passed: false, used: 4 })
  })

  test('segments do not pile up over restarts', async () => {
    await database.sql`delete from ratelimit_segments`
    const counters = Array.from({ length: 100 }, newCounter)
    for (let restart = 1; restart <= 6; restart++) {
      await using limiter = await startLimiter({ shards: 1, nodeId: 'node_again' })
      for (const counter of counters)
        expect(await take(limiter.router, counter)).toMatchObject({ used: restart })
      await limiter.shards.flush()
      expect(await segmentsOf('node_again')).toBeLessThan(6)
    }
  })

  /** Releases up to 0.1 write near-limit counters and spill files as rows, and may run beside this one. */
  test('rows and segments of the same windows count once', async () => {
    const counter = newCounter()
    {
      await using limiter = await startLimiter({ nodeId: 'node_rows' })
      for (let i = 0; i < 3; i++) await take(limiter.router, counter)
    }
    await database.sql`
      insert into ratelimit_windows (cell, node_id, ends_at, used)
      select encode(substring(cells from 1 + at for 16), 'hex')::uuid, node_id,
             ('x' || encode(substring(cells from 19 + at for 6), 'hex'))::bit(48)::bigint,
             ('x' || encode(substring(cells from 25 + at for 8), 'hex'))::bit(64)::bigint
        from ratelimit_segments, generate_series(0, octet_length(cells) - 32, 32) as at
       where node_id = 'node_rows'`
    for (const nodeId of ['node_rows', 'node_else']) {
      await using limiter = await startLimiter({ nodeId })
      expect(await take(limiter.router, counter, { cost: 0 })).toMatchObject({ used: 3 })
    }
    await database.sql`delete from ratelimit_segments where node_id = 'node_rows'`
    await using limiter = await startLimiter({ nodeId: 'node_rows' })
    expect(await take(limiter.router, counter)).toMatchObject({ used: 4 })
  })

  test('counts of servers add up after a restart, exactly up to 2^53 - 1 and never beyond', async () => {
    const most = Number.MAX_SAFE_INTEGER
    const counters = { half: newCounter(), whole: newCounter() }
    for (const nodeId of ['node_large_1', 'node_large_2', 'node_large_1']) {
      await using limiter = await startLimiter({ nodeId })
      await take(limiter.router, counters.half, { limit: most, cost: 2 ** 51 + 1 })
      await take(limiter.router, counters.whole, { limit: most, cost: most - 1 })
    }
    await using limiter = await startLimiter({ nodeId: 'node_large_3' })
    const half = { limit: most, cost: 2 ** 51 - 4 }
    expect(await take(limiter.router, counters.half, half)).toMatchObject({ passed: true, used: most })
    expect(await take(limiter.router, counters.half, { limit: most })).toMatchObject({
      passed: false,
      used: most,
    })
    expect(await take(limiter.router, counters.whole, { limit: most, cost: 2 })).toMatchObject({
      passed: false,
      used: most - 1,
    })
    expect(await take(limiter.router, counters.whole, { limit: most })).toMatchObject({
      passed: true,
      used: most,
    })
  })

  /** A rolling upgrade, or one that was started again before its windows were over. */
  test('segments, rows and spill files of the release before are read', async () => {
    const counter = newCounter()
    {
      await using limiter = await startLimiter({ nodeId: 'node_new' })
      await take(limiter.router, counter, { cost: 3 })
    }
    // The same window as that version wrote it: 28 bytes, without an owner.
    await database.sql`
      insert into ratelimit_segments (node_id, pass, first_hash, last_hash, ends_at, cells)
      select 'node_old', pass, first_hash, last_hash, ends_at,
             substring(cells from 1 for 16) || decode('0000', 'hex') || substring(cells from 19 for 6) || substring(cells from 29 for 4)
        from ratelimit_segments where node_id = 'node_new'`
    await database.sql`
      insert into ratelimit_windows (cell, node_id, ends_at, used)
      select encode(substring(cells from 1 for 16), 'hex')::uuid, 'node_older', ends_at, 5
        from ratelimit_segments where node_id = 'node_new'`
    const [segment] = await database.sql<{ cells: Uint8Array; endsAt: number }[]>`
      select cells, ends_at as "endsAt" from ratelimit_segments where node_id = 'node_new'`
    if (segment === undefined) throw new Error('it was flushed')
    const folder = mkdtempSync(join(tmpdir(), 'tollgate-limiter-old-'))
    const cells = Buffer.from(segment.cells.subarray(0, 16)).toString('hex')
    openSpills(folder, database.address).write('windows', {
      nodeId: 'node_oldest',
      cells,
      ends: [segment.endsAt],
      used: [7],
    })
    await using limiter = await startLimiter({ nodeId: 'node_newer', dataDir: folder })
    expect(await take(limiter.router, counter)).toMatchObject({ used: 3 + 3 + 5 + 7 + 1 })
  })

  /** A server that goes back to the release before must not take from the newer one what it counted. */
  test('a segment of a newer release is neither read nor deleted while its windows are open', async () => {
    const counter = newCounter()
    {
      await using limiter = await startLimiter({ nodeId: 'node_back' })
      await take(limiter.router, counter, { cost: 3 })
    }
    await database.sql`
      update ratelimit_segments set format = 2, cells = '\\x00' where node_id = 'node_back'`
    const newer = () =>
      database.sql`select from ratelimit_segments where node_id = 'node_back' and format = 2`
    const before = (await newer()).length
    expect(before).toBeGreaterThan(0)
    for (let restart = 1; restart <= 3; restart++) {
      await using limiter = await startLimiter({ nodeId: 'node_back', shards: 1 })
      expect(await take(limiter.router, counter)).toMatchObject({ used: restart })
      await limiter.shards.flush()
      await limiter.shards.flush()
      expect(await newer()).toHaveLength(before)
    }
    await database.sql`delete from ratelimit_segments where node_id = 'node_back'`
  })

  test('an ended window is not restored', async () => {
    const counter = newCounter()
    {
      await using limiter = await startLimiter()
      await take(limiter.router, counter)
    }
    await using limiter = await startLimiter({ clock: () => NOW + HOUR })
    expect(await take(limiter.router, counter)).toMatchObject({ used: 1 })
  })

  test('a window that ends before the flush is never written', async () => {
    let now = NOW
    await using limiter = await startLimiter({ shards: 1, nodeId: 'node_brief', clock: () => now })
    await ask(limiter.router, { counter: newCounter(), limit: 1, durationMs: 1_000, cost: 1 })
    now += 1_000
    await take(limiter.router, newCounter())
    await limiter.shards.flush()
    expect(await storedOf(database.sql, 'node_brief')).toEqual({ windows: 1, used: 1, copies: 1 })
  })

  test('a second flush counts nothing twice, and the next window replaces the one before', async () => {
    let now = NOW
    const clock = () => now
    const counter = newCounter()
    await using limiter = await startLimiter({ shards: 1, nodeId: 'node_twice', clock })
    await take(limiter.router, counter)
    await limiter.shards.flush()
    await take(limiter.router, counter)
    await limiter.shards.flush()
    await limiter.shards.flush()
    {
      await using another = await startLimiter({ nodeId: 'node_two', clock })
      expect(await take(another.router, counter, { cost: 0 })).toMatchObject({ used: 2 })
    }
    now += HOUR
    await take(limiter.router, counter)
    await limiter.shards.flush()
    expect(await storedOf(database.sql, 'node_twice')).toMatchObject({ windows: 1, used: 1 })
    await using another = await startLimiter({ nodeId: 'node_two', clock })
    expect(await take(another.router, counter, { cost: 0 })).toMatchObject({ used: 1 })
  })

  /** Found by simulation: a server whose clock was ahead deleted what others were still counting. */
  test('rows and segments of ended windows are deleted, but none whose window is open by the database clock', async () => {
    const insert = (nodeId: string, endMs: number) => database.sql`
      insert into ratelimit_windows (cell, node_id, ends_at, used)
      select gen_random_uuid(), ${nodeId}, ${endMs}, 1 from generate_series(1, 12000)`
    const insertSegments = (nodeId: string, endMs: number) => database.sql`
      insert into ratelimit_segments (node_id, pass, first_hash, last_hash, ends_at, cells)
      select ${nodeId}, 1, 0, 0, ${endMs}, '' from generate_series(1, 120)`
    for (const [nodeId, endMs] of [
      ['node_gone', Date.now() - 120_000],
      ['node_open', Date.now() + HOUR],
    ] as const) {
      await insert(nodeId, endMs)
      await insertSegments(nodeId, endMs)
    }
    await using limiter = await startLimiter() // its clock is years ahead
    await limiter.shards.flush()
    expect([await rowsOf('node_gone'), await segmentsOf('node_gone')]).toEqual([0, 0])
    expect([await rowsOf('node_open'), await segmentsOf('node_open')]).toEqual([12_000, 120])
    await database.sql`delete from ratelimit_segments where node_id = 'node_open'`
    await database.sql`delete from ratelimit_windows where node_id = 'node_open'`
  })
})

describe('Postgres away', () => {
  const goOn = 'limits go on from memory, and what was counted meanwhile is flushed when it is back'
  test.each([0, 2])(`${goOn}, with %i shard threads`, async (shards) => {
    await using wire = await openWire(database.address)
    await using limiter = await startLimiter({ shards, address: wire.address })
    const counter = newCounter()
    await take(limiter.router, counter)
    await limiter.shards.flush()
    await wire.cut()
    expect(passedOf(await times(10, () => take(limiter.router, counter, { limit: 5 })))).toBe(4)
    expect(limiter.shards.flush()).rejects.toThrow('not available')
    expect(await take(limiter.router, counter, { limit: 6 })).toMatchObject({ passed: true, used: 6 })
    await wire.open()
    await limiter.shards.flush()
    await using another = await startLimiter({ nodeId: 'node_two' })
    expect(await take(another.router, counter, { cost: 0 })).toMatchObject({ used: 6 })
  })

  const kept =
    'a stop keeps the counts in the data dir, and the next start sends them, also when it does so twice'
  test.each([0, 3])(`${kept}, with %i shard threads`, async (shards) => {
    const folder = mkdtempSync(join(tmpdir(), 'tollgate-spill-'))
    const counters = Array.from({ length: 20 }, newCounter)
    {
      await using wire = await openWire(database.address)
      await using limiter = await startLimiter({ address: wire.address, dataDir: folder, shards })
      await Promise.all(counters.map((counter) => take(limiter.router, counter, { cost: 7 })))
      await wire.cut()
    }
    const spilled = readdirSync(join(folder, 'spill'))
    expect(spilled.length).toBeGreaterThan(0)
    for (const used of [8, 9]) {
      await using limiter = await startLimiter({ dataDir: folder })
      for (const counter of counters) expect(await take(limiter.router, counter)).toMatchObject({ used })
      expect(readdirSync(join(folder, 'spill'))).toEqual([])
    }
    rmSync(folder, { recursive: true })
  })

  test.each([0, 2])('a start without Postgres ends with an error, with %i shard threads', async (shards) => {
    await using wire = await openWire(database.address)
    await wire.cut()
    await expect(startLimiter({ shards, address: wire.address })).rejects.toThrow(
      /does not start.*not available/,
    )
  })
})

describe('dead and late shards', () => {
  /** Whatever happens to a shard, its calls must not be let through unseen. */
  const deadAndBack = 'calls to a dead shard fail, and go on where they were last flushed once it runs again'
  test.each([0, 1])(`${deadAndBack}, with %i shard threads`, async (shards) => {
    await using limiter = await startLimiter({ shards })
    const counter = newCounter()
    await times(3, () => take(limiter.router, counter))
    await limiter.shards.flush()
    await take(limiter.router, counter) // not flushed: lost with the thread
    const { shards: ends, control } = limiter.shards.connect()
    for (const end of ends) toLink(end).post(null) // breaks the shard, as a bug in it would
    const look = () => take(limiter.router, counter, { cost: 0 })
    let error: unknown = null
    while (error === null) {
      error = await look().then(
        () => null,
        (cause) => cause,
      )
    }
    expect(String(error)).toContain('shard is dead')
    let back: Decision | null = null
    while (back === null) {
      back = await look().catch(() => null)
      await Bun.sleep(1)
    }
    expect(back).toMatchObject({ passed: true, used: 3 })
    expect(await take(limiter.router, counter, { limit: 4 })).toMatchObject({ passed: true, used: 4 })
    expect(await take(limiter.router, counter, { limit: 4 })).toMatchObject({ passed: false, used: 4 })
    control.close()
  })

  test('a call fails when its shard does not answer in time, and after a stop', async () => {
    const silent = new MessageChannel()
    const control = new MessageChannel()
    const router = new LimiterRouter({
      ends: { shards: [silent.port1], control: control.port1 },
      hashSecret: 'secret',
      clock: () => NOW,
      replyTimeoutMs: 20,
    })
    const before = performance.now()
    expect(await take(router, 'c').catch(String)).toContain('late')
    expect(performance.now() - before).toBeGreaterThan(19)
    const inFlight = take(router, 'c').catch(String)
    await router.stop()
    expect(await inFlight).toContain('late')
    expect(await take(router, 'c').catch(String)).toContain('stopped')
    silent.port2.close()
    control.port2.close()
  })

  test.each([0, 2])('a stop waits for the calls in flight, with %i shard threads', async (shards) => {
    await using limiter = await startLimiter({ shards })
    const counter = newCounter()
    const router = limiter.anotherRouter()
    const inFlight = times(100, () => take(router, counter))
    await router.stop()
    expect(passedOf(await inFlight)).toBe(100)
  })
})

describe('async: true', () => {
  const asked = (counter: string) => ({ counter, limit: 3, durationMs: HOUR, cost: 1 })

  test('is answered at once from what this thread let through, and charged afterwards', async () => {
    await using limiter = await startLimiter()
    const counter = newCounter()
    const resetAtMs = NOW + HOUR / 2
    for (const used of [1, 2, 3]) {
      expect(limiter.router.chargeLater(asked(counter))).toEqual({ passed: true, used, resetAtMs, atMs: NOW })
    }
    expect(limiter.router.chargeLater(asked(counter))).toEqual({
      passed: false,
      used: 3,
      resetAtMs,
      atMs: NOW,
    })
    expect(await take(limiter.router, counter, { cost: 0 })).toMatchObject({ used: 3 })
  })

  test('learns from the shard what other threads used, and begins at 0 with the next window', async () => {
    let now = NOW
    await using limiter = await startLimiter({ clock: () => now })
    const counter = newCounter()
    await take(limiter.anotherRouter(), counter, { cost: 2 })
    expect(limiter.router.chargeLater(asked(counter))).toMatchObject({ passed: true, used: 1 }) // nothing known yet
    await take(limiter.router, counter, { cost: 0 }) // a round trip: the answer to the charge is in
    expect(limiter.router.chargeLater(asked(counter))).toMatchObject({ passed: false, used: 3 })
    now += HOUR
    expect(limiter.router.chargeLater(asked(counter))).toMatchObject({ passed: true, used: 1 })
  })

  test('a dead shard is an error for async limits too', async () => {
    const silent = new MessageChannel()
    const control = new MessageChannel()
    const router = new LimiterRouter({
      ends: { shards: [silent.port1], control: control.port1 },
      hashSecret: 'secret',
      clock: () => NOW,
      replyTimeoutMs: 20,
    })
    silent.port2.close()
    await Bun.sleep(5)
    expect(() => router.chargeLater(asked('c'))).toThrow('dead')
    await router.stop()
    control.port2.close()
  })
})

describe('memory', () => {
  beforeEach(async () => {
    await database.sql`delete from ratelimit_windows`
    await database.sql`delete from ratelimit_segments`
  })

  /** An operator must learn of it from the numbers, not from the callers. */
  test('the stats say how much is in use and whether windows are over-counted', async () => {
    await using limiter = await startLimiter({ shards: 2 })
    await take(limiter.router, newCounter())
    const calm = await limiter.shards.stats(Date.now())
    expect(calm.map((stats) => stats?.isOverBudget)).toEqual([false, false])
    const flood = Array.from({ length: 120_000 }, (_, i) => `flood ${i}`)
    for (let from = 0; from < flood.length; from += 10_000) {
      const taken = await Promise.all(
        flood.slice(from, from + 10_000).map((counter) => take(limiter.router, counter, { limit: 50 })),
      )
      expect(passedOf(taken)).toBe(10_000)
    }
    for (const stats of await limiter.shards.stats(Date.now())) {
      expect(stats?.isOverBudget).toBe(true)
      expect(stats?.chargesOverBudget).toBeGreaterThan(1_000)
      expect(stats?.tableBytes).toBeLessThan(2 ** 21)
      expect(stats?.flushLagMs).toBeLessThan(10_000)
    }
  })

  /** An abuser that came when memory was full must not get its limit anew from a restart. */
  test('counters near their limit survive a restart even without a cell of their own', async () => {
    const abuser = newCounter()
    const flood = Array.from({ length: 60_000 }, (_, i) => `flood ${i}`)
    {
      await using limiter = await startLimiter({ shards: 1 })
      for (let from = 0; from < flood.length; from += 10_000) {
        await Promise.all(flood.slice(from, from + 10_000).map((counter) => take(limiter.router, counter)))
      }
      for (let used = 0; used < 20; used++) await take(limiter.router, abuser, { limit: 15 })
    }
    await using limiter = await startLimiter({ shards: 1 })
    expect(await take(limiter.router, abuser, { limit: 15 })).toMatchObject({ passed: false, used: 15 })
  })
})
