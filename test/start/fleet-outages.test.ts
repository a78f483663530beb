import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Cluster, POSTGRES_BIN, startCluster } from '../support/cluster.ts'
import { openTestDatabase, TEST_DATABASE_URL, type TestDatabase } from '../support/database.ts'
import {
  FLEET_DAYS_MS,
  load,
  pass,
  passAll,
  startFleetServer,
  untilEngineIs,
} from '../support/fleet-servers.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import type { ServerProcess } from '../support/process.ts'
import { REDIS_SERVER, startRedis, type TestRedis } from '../support/redis.ts'
import { OPERATOR_KEY } from '../support/server.ts'
import { openTcpLink, type TcpLink } from '../support/tcp-link.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { openWire, type Wire } from '../support/wire.ts'

/**
 * The table "When something fails" of `docs/how-to/several-servers.md`, row by row, with three real servers that each have their own link
 * to one Redis, and their own outage rule; then to one Postgres. Servers that are killed and frozen: `fleet.test.ts`; failovers:
 * `fleet-failover.test.ts`.
 */
setDefaultTimeout(SLOW_MS)

const TIMEOUT_MS = 600
/** Of a call that waits for nothing, on a slow machine. */
const AT_ONCE_MS = 350

describe.skipIf(TEST_DATABASE_URL === null || REDIS_SERVER === null)(
  'servers that share limits, when',
  () => {
    let database: TestDatabase
    let redis: TestRedis
    const links: TcpLink[] = []
    const servers: ServerProcess[] = []
    const at = (i: number): ServerProcess => {
      const server = servers[i]
      if (server === undefined) throw new Error(`there is no server ${i}`)
      return server
    }
    const share = () => at(0)
    const refuse = () => at(1)
    const open = () => at(2)

    const start = (
      link: TcpLink,
      env: Record<string, string>,
      options = {},
      databaseUrl = database.databaseUrl,
    ) =>
      startFleetServer(
        { ...database, databaseUrl },
        {
          TOLLGATE_FLEET: `redis://127.0.0.1:${link.port}`,
          TOLLGATE_FLEET_TIMEOUT_MS: String(TIMEOUT_MS),
          ...env,
        },
        options,
      )

    beforeAll(async () => {
      database = await openTestDatabase()
      redis = await startRedis()
      for (const rule of ['share', 'refuse', 'open']) {
        const link = await openTcpLink(redis.port)
        links.push(link)
        servers.push(await start(link, { TOLLGATE_FLEET_OUTAGE: rule }))
      }
      await untilAllKnow(servers)
    })
    afterAll(async () => {
      for (const each of [...servers, ...links, redis, database]) await each?.[Symbol.asyncDispose]()
    })

    const is = async (condition: 'ok' | 'away', which = servers) => {
      for (const server of which) await untilEngineIs(server, condition)
    }

    test('the engine is slow, answers are late by that and exact', async () => {
      for (const link of links) link.delay(80)
      const first = await timed(share(), 'slow')
      expect(first.passed).toBe(true)
      expect(first.tookMs).toBeGreaterThan(150)
      const rest = await Promise.all(servers.map((server) => count(server, 'slow')))
      expect(1 + rest.reduce((sum, each) => sum + each, 0)).toBe(30)
      // A refusal that is final needs no answer.
      await Bun.sleep(2 * TIMEOUT_MS)
      await timed(open(), 'slow')
      expect(await timed(open(), 'slow')).toMatchObject({ passed: false })
      expect(await quickest(open(), 'slow')).toBeLessThan(150)
      for (const link of links) link.delay(0)
    })

    test.each(IS_NIGHTLY ? ['frozen', 'gone'] : ['frozen'])(
      'the engine is %s, each rule does what it says, and exactness comes back with it',
      async (how) => {
        const before = `before it was ${how}`
        expect(await count(open(), before, 6)).toBe(6)
        const half = `half used before it was ${how}`
        for (let i = 0; i < 15; i++) expect(await pass(refuse(), half, 30)).toBe(true)
        if (how === 'frozen') redis.freeze()
        else await redis.kill()
        if (how === 'frozen') {
          const first = await timed(share(), 'first')
          expect(first.tookMs).toBeGreaterThan(TIMEOUT_MS / 2)
        }
        await is('away')
        const name = `while it is ${how}`
        expect(await count(share(), name)).toBe(10) // its third
        expect(await quickest(share(), name)).toBeLessThan(AT_ONCE_MS)
        expect(await count(open(), name)).toBe(30)
        const body = { namespace: 'fleet', identifier: name, limit: 30, duration: FLEET_DAYS_MS }
        const refused = await refuse().post('ratelimits.limit', body, OPERATOR_KEY)
        expect(await quickest(refuse(), name)).toBeLessThan(AT_ONCE_MS)
        expect([refused.status, refused.body.error.code]).toEqual([500, 'INTERNAL_SERVER_ERROR'])
        // At most the third of one on top of what was let through before.
        expect(await count(share(), half)).toBe(10)
        for (const server of servers) expect((await server.get('readiness')).status).toBe(200)

        if (how === 'frozen') redis.thaw()
        else await redis.start()
        await is('ok')
        // What was let through is told, and counts.
        const late = `${name}, for all`
        for (const server of servers) expect(await count(server, name)).toBe(0)
        expect(await count(refuse(), half)).toBe(5)
        for (const server of servers) expect([how, await count(server, before, 6)]).toEqual([how, 0])
        const passed = await Promise.all(servers.map((server) => count(server, late)))
        expect(passed.reduce((sum, each) => sum + each, 0)).toBe(30)
      },
    )

    test.each(IS_NIGHTLY ? (['cut', 'held'] as const) : (['cut'] as const))(
      'one server has its link %s, it goes by its rule and others see nothing',
      async (how) => {
        const [link] = links as [TcpLink, ...TcpLink[]] // there are three
        const half = `half used, then ${how}`
        for (let i = 0; i < 12; i++) expect(await pass(share(), half, 30)).toBe(true)
        if (how === 'cut') await link.cut()
        else link.hold()
        await is('away', [share()])
        await is('ok', [refuse(), open()])
        const name = `one is ${how}`
        expect(await count(refuse(), name)).toBe(30)
        expect(await count(share(), name)).toBe(10) // over by its part
        expect(await count(share(), half)).toBe(0) // 12 is more than its part
        const others = await count(refuse(), half)
        expect(others).toBeGreaterThanOrEqual(15) // it may hold a sixth of the 18 that were free
        await link.open()
        await is('ok')
        await Bun.sleep(TIMEOUT_MS)
        expect(others + (await count(refuse(), half))).toBe(18)
        for (const server of servers) expect(await count(server, name)).toBe(0)
      },
    )

    test.skipIf(!IS_NIGHTLY)(
      'the clock of one server is an hour ahead, and Postgres is away: nothing',
      async () => {
        const wire: Wire = await openWire({ kind: 'url', url: database.databaseUrl ?? '' })
        const [link] = links as [TcpLink, ...TcpLink[]] // there are three
        const url = wire.address.kind === 'url' ? wire.address.url : ''
        await using _wire = wire
        await using ahead = await start(
          link,
          { CLOCK_AHEAD_MS: '3600000', TOLLGATE_FLEET_OUTAGE: 'refuse', TOLLGATE_DB_TIMEOUT_MS: '1000' },
          { preload: `${import.meta.dir}/../support/clock-ahead.child.ts` },
          url,
        )
        // No window of ten minutes is the same an hour later; it must not end during the test.
        const duration = 600_000
        if (duration - (Date.now() % duration) < 10_000) await Bun.sleep(11_000)
        const take = async (server: ServerProcess, identifier: string) => {
          const body = { namespace: 'fleet', identifier, limit: 10, duration }
          const answer = await server.post('ratelimits.limit', body, OPERATOR_KEY)
          return [answer.status, answer.body.success, answer.body.reset]
        }
        const reset = (Math.floor(Date.now() / duration) + 1) * duration
        for (let i = 0; i < 5; i++) expect(await take(ahead, 'clock')).toEqual([200, true, reset])
        await wire.cut()
        await Bun.sleep(1_500) // longer than its calls to the database may take
        for (let i = 0; i < 3; i++) expect(await take(ahead, 'clock')).toEqual([200, true, reset])
        for (let i = 0; i < 2; i++) expect(await take(open(), 'clock')).toEqual([200, true, reset])
        for (const server of [ahead, share(), open()])
          expect(await take(server, 'clock')).toEqual([200, false, reset])
        await wire.open()
      },
    )
  },
)

describe.skipIf(!IS_NIGHTLY || TEST_DATABASE_URL === null || POSTGRES_BIN === null)(
  'servers that share limits on Postgres, when',
  () => {
    let dataDir: string
    const wires: Wire[] = []
    const servers: ServerProcess[] = []
    let cluster: Cluster
    const [at, wireAt] = [
      (i: number) => servers[i] as ServerProcess, // there are three
      (i: number) => wires[i] as Wire, // as many
    ]
    /** A namespace for each other rule; all else is refused. */
    const RULES = ['share', 'open'] as const

    beforeAll(async () => {
      dataDir = mkdtempSync(join(tmpdir(), 'tollgate-fleet-postgres-'))
      // Anything that is not written at once would be lost with its processes.
      const settings = { max_connections: '100', synchronous_commit: 'off', wal_writer_delay: '10s' }
      cluster = await startCluster({ settings })
      for (let i = 0; i < 3; i++) {
        const wire = await openWire({ kind: 'url', url: cluster.url })
        wires.push(wire)
        const databaseUrl = wire.address.kind === 'url' ? wire.address.url : ''
        servers.push(
          await startFleetServer(
            { databaseUrl, dataDir, [Symbol.asyncDispose]: async () => {} },
            {
              TOLLGATE_FLEET: 'postgres',
              TOLLGATE_FLEET_TIMEOUT_MS: String(TIMEOUT_MS),
              TOLLGATE_FLEET_OUTAGE: 'refuse',
              TOLLGATE_DB_TIMEOUT_MS: '1000',
            },
          ),
        )
      }
      for (const name of RULES) {
        const created = await at(0).post('ratelimits.createNamespace', { name, outage: name }, OPERATOR_KEY)
        expect(created.status).toBe(200)
      }
      await untilAllKnow(servers)
      // Which namespaces there are is known from now on, and need not be asked for.
      for (const server of servers)
        for (const namespace of ['fleet', ...RULES]) expect(await pass(server, 'x', 99, namespace)).toBe(true)
    })
    afterAll(async () => {
      for (const each of [...servers, ...wires, cluster]) await each?.[Symbol.asyncDispose]()
      if (dataDir !== undefined) rmSync(dataDir, { recursive: true, force: true })
    })

    const are = async (condition: 'ok' | 'away', which = servers) => {
      for (const server of which) await untilEngineIs(server, condition)
    }
    /** A server that has nothing to ask does not notice. */
    const areAway = async (which: readonly ServerProcess[]) => {
      const misses = async (server: ServerProcess) => {
        for (let i = 1; i <= 3; i++) await pass(server, `asked ${i}`, 1_000)
      }
      await Promise.all([are('away', [...which]), ...which.map(misses)])
    }
    const countAll = async (identifier: string, limit = 30, namespace = 'fleet') =>
      sumOf(await Promise.all(servers.map((server) => count(server, identifier, limit, namespace))))
    const rest = async (identifier: string, limit: number) =>
      sumOf(await Promise.all(servers.map((server) => passAll(server, identifier, limit))))
    /** All three together, three callers each. */
    const isExact = async (identifier: string) => {
      let passed = 0
      let calls = 0
      const caller = async (server: ServerProcess) => {
        while (calls++ < 2_900) if (await pass(server, identifier, 1_000)) passed++
      }
      await Promise.all(servers.flatMap((server) => [caller(server), caller(server), caller(server)]))
      expect(passed).toBeLessThanOrEqual(1_000)
      expect(passed + (await rest(identifier, 1_000))).toBe(1_000)
    }

    test('it is slow, answers are late by that and exact', async () => {
      for (const wire of wires) wire.slow(80)
      const first = await timed(at(0), 'slow')
      expect(first.passed).toBe(true)
      expect(first.tookMs).toBeGreaterThan(75)
      expect(1 + (await countAll('slow'))).toBe(30)
      for (const wire of wires) wire.slow(0)
    })

    test.each(['frozen', 'stopped', 'killed'])(
      'it is %s, leases are spent, each rule does what it says, and exactness comes back with it',
      async (how) => {
        const before = `before it was ${how}`
        expect(await count(at(2), before, 6)).toBe(6)
        const half = `half used before it was ${how}`
        for (let i = 0; i < 15; i++) expect(await pass(at(0), half, 30, 'share')).toBe(true)
        const hot = `hot when it was ${how}`
        const calling = load(() => [at(1)], hot, 6_000, 8)
        while (calling.seen.passed < 500) await Bun.sleep(1)
        const given = calling.seen.passed
        if (how === 'frozen') cluster.freeze()
        else if (how === 'stopped') await cluster.stop('fast')
        else await cluster.kill()
        await areAway(servers)
        const { passed, refused } = await calling.stop()
        expect(passed).toBeGreaterThan(given + 8) // more than were under way
        expect(refused).toBe(0)
        expect(await pass(at(1), hot, 6_000)).toBeNull()

        const name = `while it is ${how}`
        const body = { namespace: 'fleet', identifier: name, limit: 30, duration: FLEET_DAYS_MS }
        for (const server of servers) {
          const { status, body: answer } = await server.post('ratelimits.limit', body, OPERATOR_KEY)
          expect([status, answer.error?.code]).toEqual([500, 'INTERNAL_SERVER_ERROR'])
          expect(await quickest(server, name)).toBeLessThan(AT_ONCE_MS)
          expect(await count(server, name, 30, 'share')).toBe(10) // its third
          expect(await count(server, name, 30, 'open')).toBe(30)
        }
        // The first has let through more than its third; what it was given ahead it may still spend.
        expect(await count(at(0), half, 30, 'share')).toBeLessThanOrEqual(2)
        for (const i of [1, 2]) expect(await count(at(i), half, 30, 'share')).toBe(10)

        if (how === 'frozen') cluster.thaw()
        else await cluster.start()
        await are('ok')
        // What was let through is told, and counts.
        await Bun.sleep(2 * TIMEOUT_MS)
        for (const namespace of RULES)
          expect([namespace, await countAll(name, 30, namespace)]).toEqual([namespace, 0])
        expect(await countAll(half, 30, 'share')).toBe(0)
        expect([how, await countAll(before, 6)]).toEqual([how, 0])
        await isExact(`begun after it was ${how}`)
        // Answers that were lost are wasted: of each message a gift, for those who waited and ahead.
        const all = passed + (await rest(hot, 6_000))
        expect(all).toBeLessThanOrEqual(6_000)
        expect(all).toBeGreaterThan(3_000)
      },
    )

    test.each(['cut', 'frozen'] as const)(
      'the link of one server is %s, it goes by its rule and others see nothing',
      async (how) => {
        const half = `half used, then ${how}`
        for (let i = 0; i < 12; i++) expect(await pass(at(0), half, 30, 'share')).toBe(true)
        if (how === 'cut') await wireAt(0).cut()
        else wireAt(0).freeze()
        await areAway([at(0)])
        await are('ok', [at(1), at(2)])
        const name = `one is ${how}`
        expect(await pass(at(0), name, 30)).toBeNull()
        expect(await count(at(1), name, 30, 'share')).toBe(30)
        expect(await count(at(0), name, 30, 'share')).toBe(10) // over by its part
        const others = await count(at(1), half, 30, 'share')
        expect(others).toBeGreaterThanOrEqual(15) // it may hold a sixth of the 18 that were free
        expect(await count(at(0), half, 30, 'share')).toBeLessThanOrEqual(18 - others)
        await wireAt(0).open()
        await are('ok')
        await Bun.sleep(2 * TIMEOUT_MS)
        expect(await countAll(name, 30, 'share')).toBe(0)
        await isExact(`begun after one was ${how}`)
      },
    )

    test('it is killed three times under load, no window lets through more than its limit', async () => {
      const names = Array.from({ length: 12 }, (_, i) => `under load ${i}`)
      const calling = load(() => servers, names, 800, 12)
      for (let i = 1; i <= 3; i++) {
        await Bun.sleep(600)
        await cluster.kill()
        await cluster.start()
        await are('ok')
      }
      expect(calling.seen.passed).toBeLessThan((names.length * 800) / 2)
      for (let passed = -1; passed < calling.seen.passed; await Bun.sleep(1_500)) passed = calling.seen.passed
      await calling.stop()
      for (const [name, { passed }] of calling.by) {
        expect([name, Math.max(passed, 800)]).toEqual([name, 800])
        // Three servers, three times an answer that was lost.
        expect([name, Math.min(passed, 700)]).toEqual([name, 700])
      }
      await isExact('begun after all of that')
    })
  },
)

const sumOf = (counts: number[]) => counts.reduce((sum, each) => sum + each, 0)

/** Those that started first learn of the others with their next beat. */
async function untilAllKnow(servers: readonly ServerProcess[]): Promise<void> {
  const members = async (server: ServerProcess) =>
    (await (await fetch(`${server.url}/metrics`)).text()).match(/^tollgate_fleet_members (\d+)/m)?.[1]
  for (const server of servers) while ((await members(server)) !== String(servers.length)) await Bun.sleep(50)
}

async function timed(server: ServerProcess, identifier: string, limit = 30, namespace = 'fleet') {
  const began = performance.now()
  const passed = await pass(server, identifier, limit, namespace)
  return { passed, tookMs: performance.now() - began }
}

/** The least time of some calls: a crowded machine holds up one, not all. */
async function quickest(server: ServerProcess, identifier: string) {
  let least = Number.POSITIVE_INFINITY
  for (let i = 0; i < 10; i++) least = Math.min(least, (await timed(server, identifier)).tookMs)
  return least
}

/** Calls until one does not pass. @returns how many did. */
async function count(server: ServerProcess, identifier: string, limit = 30, namespace = 'fleet') {
  let passed = 0
  while (await pass(server, identifier, limit, namespace)) passed++
  return passed
}
