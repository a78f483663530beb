import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { openTestDatabase, TEST_DATABASE_URL, type TestDatabase } from '../support/database.ts'
import { FLEET_DAYS_MS, pass, startFleetServer, untilEngineIs } from '../support/fleet-servers.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import type { ServerProcess } from '../support/process.ts'
import { REDIS_SERVER, startRedis, type TestRedis } from '../support/redis.ts'
import { OPERATOR_KEY } from '../support/server.ts'
import { openTcpLink, type TcpLink } from '../support/tcp-link.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { openWire, type Wire } from '../support/wire.ts'

/**
 * The table "When something fails" of `docs/how-to/several-servers.md`, row by row, with three real servers that each have their own link
 * to one Redis, and their own outage rule. Servers that are killed and frozen: `fleet.test.ts`; failovers: `fleet-failover.test.ts`.
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
      // The first two learn of the third with their next beat.
      const members = async (server: ServerProcess) =>
        (await (await fetch(`${server.url}/metrics`)).text()).match(/^tollgate_fleet_members (\d+)/m)?.[1]
      for (const server of servers) while ((await members(server)) !== '3') await Bun.sleep(50)
    })
    afterAll(async () => {
      for (const each of [...servers, ...links, redis, database]) await each?.[Symbol.asyncDispose]()
    })

    const timed = async (server: ServerProcess, identifier: string, limit = 30) => {
      const began = performance.now()
      const passed = await pass(server, identifier, limit)
      return { passed, tookMs: performance.now() - began }
    }
    /** The least time of some calls: a crowded machine holds up one, not all. */
    const quickest = async (server: ServerProcess, identifier: string) => {
      let least = Number.POSITIVE_INFINITY
      for (let i = 0; i < 10; i++) least = Math.min(least, (await timed(server, identifier)).tookMs)
      return least
    }
    /** Calls until one does not pass. @returns how many did. */
    const count = async (server: ServerProcess, identifier: string, limit = 30) => {
      let passed = 0
      while (await pass(server, identifier, limit)) passed++
      return passed
    }
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
