import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { connect } from '../../src/db/connect.ts'
import { openTestDatabase, TEST_DATABASE_URL, type TestDatabase } from '../support/database.ts'
import {
  FLEET_DAYS_MS as DAYS_MS,
  load,
  pass,
  passAll,
  startFleetServer as start,
} from '../support/fleet-servers.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import type { ServerProcess } from '../support/process.ts'
import { REDIS_SERVER, startRedis, type TestRedis } from '../support/redis.ts'
import { OPERATOR_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

/**
 * Real servers that share limits: whatever is killed, frozen or restarted, no window lets through more than its limit. Windows
 * are long, so that none ends meanwhile.
 */
setDefaultTimeout(3 * SLOW_MS)

let redis: TestRedis
beforeAll(async () => {
  if (REDIS_SERVER !== null)
    redis = await startRedis({ flags: ['--requirepass', 'hunter2'], address: { password: 'hunter2' } })
})
afterAll(async () => {
  await redis?.[Symbol.asyncDispose]()
})

/** How many of so many calls pass, one after the other. */
async function passesOf(
  server: ServerProcess,
  { namespace, limit = 10 }: { namespace: string; limit?: number },
  calls: number,
): Promise<number> {
  let passed = 0
  for (let i = 0; i < calls; i++) if (await pass(server, 'one', limit, namespace)) passed++
  return passed
}

/** @returns its id. */
async function createNamespace(server: ServerProcess, name: string, settings: object = {}): Promise<string> {
  const { status, body } = await server.post(
    'ratelimits.createNamespace',
    { name, ...settings },
    OPERATOR_KEY,
  )
  expect(status).toBe(200)
  return body.namespaceId
}

for (const kind of ['Redis', 'Postgres'] as const)
  describe.skipIf(TEST_DATABASE_URL === null || (kind === 'Redis' && REDIS_SERVER === null))(
    `three servers that share limits on ${kind}`,
    () => {
      let database: TestDatabase
      let servers: ServerProcess[] = []
      const engine = () => ({
        TOLLGATE_FLEET: kind === 'Postgres' ? 'postgres' : `redis://:hunter2@127.0.0.1:${redis.port}`,
      })
      /** By day on Redis only: what is held is kept by the same code. */
      const onBothAtNight = test.skipIf(kind === 'Postgres' && !IS_NIGHTLY)
      const at = (i: number) => servers[i] as ServerProcess // there are three

      beforeAll(async () => {
        database = await openTestDatabase()
        servers = [await start(database, engine())]
        servers.push(...(await Promise.all([1, 2].map(() => start(database, engine())))))
      })
      afterAll(async () => {
        await Promise.all(servers.map((server) => server[Symbol.asyncDispose]()))
        await database[Symbol.asyncDispose]()
        if (kind === 'Redis') await redis.ask('flushall')
      })

      test('of 3 000 calls to a limit of 1 000 exactly 1 000 pass', async () => {
        let passed = 0
        let calls = 0
        const caller = async (server: ServerProcess) => {
          while (calls++ < 2_900) if (await pass(server, 'exact', 1_000)) passed++
        }
        await Promise.all(servers.flatMap((server) => [caller(server), caller(server), caller(server)]))
        expect(passed).toBeLessThanOrEqual(1_000)
        expect(passed + (await passAll(at(0), 'exact', 1_000))).toBe(1_000)
      })

      test('liveness and metrics tell of the engine, and no output has its password', async () => {
        const { body } = await at(1).get('liveness')
        expect(body.services.fleet).toBe('ok')
        const metrics = await (await fetch(`${at(1).url}/metrics`)).text()
        expect(metrics).toContain('tollgate_fleet_condition{shard="0",condition="ok"} 1')
        expect(metrics).toMatch(/tollgate_fleet_exchanges_total\{shard="0"\} [1-9]/)
        for (const server of servers) expect(server.output() + metrics).not.toContain('hunter2')
      })

      test.if(IS_NIGHTLY)(
        'a rolling restart under load fails no call, and lets through no more than the limit',
        async () => {
          let open = [...servers]
          const calling = load(() => open, 'rolling', 2_000)
          for (const i of [0, 1, 2]) {
            const old = at(i)
            const next = await start(database, engine())
            open = [...open.filter((server) => server !== old), next]
            await Bun.sleep(100) // its calls in flight end, as behind a balancer that drains
            servers[i] = next
            expect(await old.end('SIGTERM')).toBe(0)
          }
          const { passed, failed } = await calling.stop()
          expect(failed).toBe(0)
          expect(passed).toBeGreaterThan(100)
          expect(passed + (await passAll(at(0), 'rolling', 2_000))).toBe(2_000)
        },
      )

      onBothAtNight(
        'a server that is frozen and thaws, and one that is killed, let through no more than the limit',
        async () => {
          const frozen = load(() => [at(1)], 'ends', 3_000)
          const others = load(() => [at(0)], 'ends', 3_000)
          await Bun.sleep(300)
          at(1).process.kill('SIGSTOP')
          await Bun.sleep(IS_NIGHTLY ? 3_000 : 1_200) // longer than a call may wait
          at(1).process.kill('SIGCONT')
          await Bun.sleep(300)
          at(1).process.kill('SIGKILL')
          const before = (await frozen.stop()).passed
          const { passed, failed } = await others.stop()
          expect(failed).toBe(0)
          expect(before).toBeGreaterThan(10)
          const all = before + passed + (await passAll(at(2), 'ends', 3_000))
          expect(all).toBeLessThanOrEqual(3_000)
          expect(all).toBeGreaterThan(3_000 - 3_000 / 6 - 10) // a lease is a sixth of what is free, at most; and answers on their way
          servers[1] = await start(database, engine())
        },
      )

      onBothAtNight(
        'each counts a local namespace for itself, beside a shared one that stays exact, and a restart keeps both',
        async () => {
          await createNamespace(at(0), 'own', { scope: 'local' })
          await createNamespace(at(0), 'shared', { scope: 'fleet' })
          await createNamespace(at(0), 'restarted', { scope: 'local', outage: 'open' })
          expect(await passesOf(at(0), { namespace: 'own' }, 7)).toBe(7)
          expect(await passesOf(at(0), { namespace: 'shared' }, 7)).toBe(7)
          expect(await passesOf(at(1), { namespace: 'own' }, 12)).toBe(10)
          expect(await passesOf(at(1), { namespace: 'shared' }, 12)).toBe(3)
          expect(await passesOf(at(0), { namespace: 'own' }, 12)).toBe(3)
          expect(await passesOf(at(2), { namespace: 'restarted' }, 7)).toBe(7)
          expect(await at(2).end('SIGTERM')).toBe(0)
          servers[2] = await start(database, engine())
          expect(await passesOf(at(2), { namespace: 'restarted' }, 12)).toBe(3)
          expect(await passesOf(at(2), { namespace: 'shared' }, 5)).toBe(0)
          expect(await passesOf(at(1), { namespace: 'restarted' }, 12)).toBe(10)
        },
      )

      test('a change of the scope reaches the other servers, and costs one budget more in an open window', async () => {
        const namespace = 'changed'
        const namespaceId = await createNamespace(at(0), namespace)
        const change = async (scope: 'local' | 'fleet' | null) => {
          const { status } = await at(0).post(
            'ratelimits.updateNamespace',
            { namespaceId, scope },
            OPERATOR_KEY,
          )
          expect(status).toBe(200)
        }
        /** Until the server has heard of it. */
        const untilPasses = async (server: ServerProcess, passes: boolean) => {
          const until = performance.now() + 10_000
          for (let calls = 1; performance.now() < until; calls++) {
            if ((await pass(server, 'one', 10, namespace)) === passes) return calls
            await Bun.sleep(5)
          }
          throw new Error(`it did not ${passes ? 'pass' : 'stop passing'}`)
        }
        expect(await passesOf(at(0), { namespace }, 12)).toBe(10)
        expect(await passesOf(at(1), { namespace }, 2)).toBe(0)
        await change('local')
        expect(await passesOf(at(0), { namespace }, 12)).toBe(10) // where it is changed, at once
        await untilPasses(at(1), true)
        expect(await passesOf(at(1), { namespace }, 3)).toBe(3)
        for (const scope of [null, 'local', 'fleet'] as const) {
          await change(scope)
          expect(await passesOf(at(0), { namespace }, 3)).toBe(0)
        }
        await untilPasses(at(1), false)
        expect(await passesOf(at(1), { namespace }, 3)).toBe(0)
        await change('local')
        // Its own count goes on: 4 and what passed before it heard.
        await untilPasses(at(1), true)
        expect(await passesOf(at(1), { namespace }, 12)).toBeLessThanOrEqual(5)
        expect(await passesOf(at(1), { namespace }, 3)).toBe(0)
      })

      onBothAtNight('another TOLLGATE_FLEET is refused while they run, and named', async () => {
        const other = kind === 'Redis' ? 'postgres' : 'redis://127.0.0.1:1'
        await expect(start(database, { TOLLGATE_FLEET: other })).rejects.toThrow(
          /servers on this database share their limits on (redis:\/\/127\.0\.0\.1:\d+|postgres) \(/,
        )
        if (kind === 'Postgres') return
        const elsewhere = { TOLLGATE_FLEET: `redis://:hunter2@127.0.0.1:${redis.port}/5` }
        await expect(start(database, elsewhere)).rejects.toThrow(
          `TOLLGATE_FLEET is redis://127.0.0.1:${redis.port}/5, but servers on this database share their limits on redis://127.0.0.1:${redis.port} (`,
        )
        expect(await redis.ask('info', 'keyspace')).not.toContain('db5')
      })

      test.skipIf(kind === 'Postgres')('their Redis is refused to servers of another database', async () => {
        await using other = await openTestDatabase()
        await expect(start(other, engine())).rejects.toThrow(
          'on which servers of another database share their limits',
        )
      })
    },
  )

test.skipIf(TEST_DATABASE_URL === null)('without TOLLGATE_FLEET nothing of it runs', async () => {
  await using database = await openTestDatabase()
  await using server = await start(database, { TOLLGATE_FLEET: '' })
  expect(await pass(server, 'alone', 1)).toBe(true)
  expect(await pass(server, 'alone', 1)).toBe(false)
  expect((await server.get('liveness')).body.services).not.toHaveProperty('fleet')
  expect(await (await fetch(`${server.url}/metrics`)).text()).not.toContain('tollgate_fleet')
  const sql = connect({ kind: 'url', url: database.databaseUrl ?? '' }, { connectionsMax: 1 })
  try {
    const [row] = await sql`
      select (select count(*) from fleet) + (select count(*) from fleet_members) + (select count(*) from fleet_windows) as rows,
             (select is_called from fleet_server_ids) as "isCalled"`
    expect(row).toEqual({ rows: 0, isCalled: false })
  } finally {
    await sql.end()
  }
})

describe.skipIf(TEST_DATABASE_URL === null || REDIS_SERVER === null)('one Redis', () => {
  test('that does not answer, or does not take the password, ends the start with one line', async () => {
    await using database = await openTestDatabase()
    const TOLLGATE_FLEET = `redis://:hunter3@127.0.0.1:${redis.port}`
    // Short, so that it is tried many times.
    const failure: Error = await start(database, { TOLLGATE_FLEET, TOLLGATE_FLEET_TIMEOUT_MS: '100' }).then(
      () => new Error('it started'),
      (cause) => cause,
    )
    expect(failure.message).toContain(
      `TOLLGATE_FLEET is redis://127.0.0.1:${redis.port}, which cannot be asked: `,
    )
    expect(failure.message).not.toContain('hunter3')
    expect(failure.message).not.toContain('Warning') // such as of too many listeners
  })

  test('that dies: the rule of each namespace decides, and local ones go on', async () => {
    await using database = await openTestDatabase()
    await using mortal = await startRedis()
    await using server = await start(database, {
      TOLLGATE_FLEET: `redis://127.0.0.1:${mortal.port}`,
      TOLLGATE_FLEET_TIMEOUT_MS: '100',
      TOLLGATE_HTTP_THREADS: '2',
      TOLLGATE_SHARDS: '2',
    })
    const rules = { refuse: { outage: 'refuse' }, open: { outage: 'open' }, local: { scope: 'local' } }
    for (const [namespace, settings] of Object.entries(rules))
      await createNamespace(server, namespace, settings)
    const others = ['open', 'local', 'share']
    for (const namespace of [...others, 'refuse']) expect(await passesOf(server, { namespace }, 2)).toBe(2) // and cached
    await mortal.kill()
    expect(await pass(server, 'one', 10, 'refuse')).toBeNull()
    // All or none: the rule that refuses is asked for one of them.
    const limitOf = (namespace: string) => ({
      namespace,
      identifier: 'two',
      limit: 3,
      duration: 30 * 86_400_000,
    })
    const together = async (namespaces: readonly string[]) => {
      const answer = await fetch(`${server.url}/v2/ratelimit.multiLimit`, {
        method: 'POST',
        headers: { Authorization: `Bearer ${OPERATOR_KEY}`, 'Content-Type': 'application/json' },
        body: JSON.stringify(namespaces.map(limitOf)),
      })
      const body = (await answer.json()) as { data?: { passed: boolean } } // what is read of it
      return { status: answer.status, passed: body.data?.passed }
    }
    for (const namespace of others) {
      expect((await together([namespace, 'refuse'])).status).toBe(500)
      expect((await together(['refuse', namespace])).status).toBe(500)
    }
    for (let i = 0; i < 3; i++) expect(await together(others)).toEqual({ status: 200, passed: true })
    expect(await together(others)).toEqual({ status: 200, passed: false })
    for (const namespace of others) expect(await passesOf(server, { namespace }, 12)).toBe(8)
    expect(await passesOf(server, { namespace: 'refuse' }, 3)).toBe(0)
    // The rule of a namespace may be changed while it lasts.
    const { body } = await server.get('ratelimits.listNamespaces', {}, OPERATOR_KEY)
    const { id } = body.namespaces.find(({ name }: { name: string }) => name === 'refuse')
    await server.post('ratelimits.updateNamespace', { namespaceId: id, outage: null }, OPERATOR_KEY)
    expect(await pass(server, 'one', 10, 'refuse')).toBe(true)
  })

  test.if(IS_NIGHTLY)(
    'that dies lets nothing pass by the rule refuse, and the same window goes on when it is back, empty',
    async () => {
      await using database = await openTestDatabase()
      await using mortal = await startRedis()
      const TOLLGATE_FLEET = `redis://127.0.0.1:${mortal.port}`
      await using server = await start(database, {
        TOLLGATE_FLEET,
        TOLLGATE_FLEET_OUTAGE: 'refuse',
        TOLLGATE_FLEET_TIMEOUT_MS: '300',
      })
      expect(await pass(server, 'outage', 2)).toBe(true)
      await mortal.kill()
      const { status, body } = await server.post(
        'ratelimits.limit',
        { namespace: 'fleet', identifier: 'outage', limit: 2, duration: DAYS_MS },
        OPERATOR_KEY,
      )
      expect([status, body.error?.code]).toEqual([500, 'INTERNAL_SERVER_ERROR'])
      const condition = async () => (await server.get('liveness')).body.services.fleet
      while ((await condition()) !== 'away') await Bun.sleep(20)
      await mortal.start()
      while ((await condition()) !== 'ok') await Bun.sleep(20)
      expect(await pass(server, 'outage', 2)).toBe(true)
      expect(await pass(server, 'outage', 2)).toBe(false)
      expect(server.output()).toContain('"event":"fleet_away"')
    },
  )
})
