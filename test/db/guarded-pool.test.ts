import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { duringRequest } from '../../src/db/deadline.ts'
import { GuardedPool } from '../../src/db/guarded-pool.ts'
import { databaseIdOnce } from '../../src/db/settings.ts'
import { Database } from '../../src/records/database.ts'
import { Invalidations } from '../../src/records/invalidations.ts'
import { openTestSql, TEST_DATABASE_URL, type TestSql } from '../support/database.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { openWire, type Wire } from '../support/wire.ts'

setDefaultTimeout(SLOW_MS)

let database: TestSql
beforeAll(async () => {
  database = await openTestSql()
  await database.sql`create table things (name text primary key)`
})
afterAll(() => database[Symbol.asyncDispose]())

const TIMEOUT_MS = 800

const OPTIONS = { connectionsMax: 2, timeoutMs: TIMEOUT_MS }

const openPool = (pool: GuardedPool): AsyncDisposable & { pool: GuardedPool } => ({
  pool,
  [Symbol.asyncDispose]: () => pool.end({ timeout: 0 }),
})

/** A guarded pool with a wire to the database that the test can cut, freeze and restore. */
async function openGuarded(): Promise<AsyncDisposable & { pool: GuardedPool; wire: Wire }> {
  const wire = await openWire(database.address)
  const pool = new GuardedPool(wire.address, OPTIONS)
  return {
    pool,
    wire,
    [Symbol.asyncDispose]: async () => {
      await pool.end({ timeout: 0 })
      await wire[Symbol.asyncDispose]()
    },
  }
}

const one = async ({ sql }: GuardedPool) => (await sql<{ one: number }[]>`select 1 as one`)[0]?.one

/** @returns ms until it failed. */
async function failing(work: () => PromiseLike<unknown>): Promise<number> {
  const began = performance.now()
  const failure = await Promise.resolve(work()).then(
    () => null,
    (cause: unknown) => cause,
  )
  expect(failure).toBeInstanceOf(Error)
  return performance.now() - began
}

/** Waits until it answers again; without an answer the test times out. */
async function recovered(pool: GuardedPool): Promise<number> {
  const began = performance.now()
  while ((await one(pool).catch(() => null)) !== 1) await Bun.sleep(20)
  return performance.now() - began
}

test('statements, fragments, helpers and transactions work as on any pool', async () => {
  await using guarded = await openGuarded()
  const { sql } = guarded.pool
  const filter = sql`where name = ${'a'}`
  await sql`insert into ${sql('things')} ${sql([{ name: 'a' }, { name: 'b' }])}`
  expect(await sql`select name from things ${filter}`).toMatchObject([{ name: 'a' }])
  expect(
    await guarded.pool.transaction(async (tx) => (await tx`select count(*) as n from things`)[0]?.n),
  ).toBe(2)
  expect(
    await guarded.pool
      .transaction((tx) => tx`delete from things`.then(() => Promise.reject(new Error('no'))))
      .catch((e) => e.message),
  ).toBe('no')
  expect(await sql`select name from things order by name`).toHaveLength(2)
  await sql`delete from things`
})

/** Embedded connections cannot freeze one by one: they live in this process and share one session. */
const onRealPostgres = test.if(TEST_DATABASE_URL !== null)

onRealPostgres(
  'when the database freezes, waiting calls fail in time, later ones at once, and soon after it recovers all succeed',
  async () => {
    await using guarded = await openGuarded()
    const { pool, wire } = guarded
    expect(await one(pool)).toBe(1)
    wire.freeze()
    const waits = await Promise.all(Array.from({ length: 20 }, () => failing(() => one(pool))))
    expect(Math.max(...waits)).toBeLessThan(TIMEOUT_MS + 300)
    expect(await failing(() => pool.transaction((tx) => tx`select 1`))).toBeLessThan(100)
    const later = await Promise.all(Array.from({ length: 100 }, () => failing(() => one(pool))))
    expect(Math.max(...later)).toBeLessThan(100)
    await wire.cut() // what a frozen server's connections come to in the end
    await wire.open()
    expect(await recovered(pool)).toBeLessThan(5000)
  },
)

/** The driver keeps a statement until it gets a connection. A credit must not be spent after its caller got a 500. */
onRealPostgres('a statement given up before it was sent is never sent', async () => {
  await using guarded = await openGuarded()
  const { pool, wire } = guarded
  wire.freeze() // before the first connection: each statement waits for one
  const inserts = Array.from({ length: 6 }, (_, i) => `late ${i}`)
  await Promise.all(
    inserts.map((name) => failing(() => pool.sql`insert into things (name) values (${name})`)),
  )
  await wire.cut()
  await wire.open()
  await recovered(pool)
  await Bun.sleep(2 * TIMEOUT_MS)
  expect(await database.sql`select name from things`).toHaveLength(0)
})

test('when the database is gone, calls fail at once, and soon after its return they succeed', async () => {
  await using guarded = await openGuarded()
  const { pool, wire } = guarded
  expect(await one(pool)).toBe(1)
  await wire.cut()
  await failing(() => one(pool))
  await Bun.sleep(TIMEOUT_MS)
  expect(await failing(() => one(pool))).toBeLessThan(100)
  await wire.open()
  expect(await recovered(pool)).toBeLessThan(5000)
})

/** One slow statement must not make the database count as unavailable. */
onRealPostgres('a slow statement fails in time while others succeed', async () => {
  await using guarded = await openGuarded()
  const { pool } = guarded
  const slow = failing(() => pool.sql`select pg_sleep(3)`)
  for (let i = 0; i < 10; i++) {
    expect(await one(pool)).toBe(1)
    await Bun.sleep(TIMEOUT_MS / 8)
  }
  expect(await slow).toBeLessThan(TIMEOUT_MS + 300)
})

onRealPostgres('a given-up transaction is rolled back, not finished later', async () => {
  await using guarded = await openGuarded()
  const { pool, wire } = guarded
  await failing(() =>
    pool.transaction(async (tx) => {
      await tx`insert into things (name) values ('given up')`
      wire.freeze()
      await Bun.sleep(2 * TIMEOUT_MS)
      await tx`insert into things (name) values ('never sent')`
    }),
  )
  await Bun.sleep(1.5 * TIMEOUT_MS)
  await wire.open() // the frozen connection moves again
  await recovered(pool)
  await Bun.sleep(100)
  expect(await database.sql`select name from things`).toHaveLength(0)
})

/** The write may commit after all, so caches must drop what they read before that. */
onRealPostgres('caches drop what a given-up write touched once the write has ended', async () => {
  await using guarded = await openGuarded()
  const { pool, wire } = guarded
  const changes = new Invalidations({ processId: 'test', confirmTimeoutMs: 1000 })
  const drops: string[] = []
  changes.onChange((touched) => drops.push(...(touched ?? ['everything'])))
  const writer = new Database(pool, changes, { notifies: false })
  await failing(() =>
    writer.write(async (tx, invalidate) => {
      invalidate('key_1')
      await tx`select 1`
      wire.freeze()
      await tx`select 2`
    }),
  )
  expect(drops).toEqual(['key_1'])
  await wire.cut()
  while (drops.length < 2) await Bun.sleep(20)
  expect(drops).toEqual(['key_1', 'key_1'])
})

/** Each statement may be fast enough, while the client waits for the sum. */
onRealPostgres(
  'all statements of one request share its time limit, and work left behind has its own',
  async () => {
    await using guarded = await openGuarded()
    const { sql } = guarded.pool
    const request = { waitsSince: performance.now(), isAnswered: false }
    const asked = await duringRequest(request, async () => {
      await sql`select pg_sleep(0.5)`
      const failedMs = await failing(() => sql`select pg_sleep(0.5)`)
      expect(failedMs).toBeLessThan(450)
      expect(await failing(() => guarded.pool.transaction((tx) => tx`select 1`))).toBeLessThan(100)
      return () => sql`select pg_sleep(0.5), 1 as one`
    })
    expect(performance.now() - request.waitsSince).toBeLessThan(TIMEOUT_MS + 150)
    request.isAnswered = true
    expect(await duringRequest(request, asked)).toMatchObject([{ one: 1 }])
  },
)

/** An empty standby answers every key with "not found", which is worse than no answer. */
test('another database at the same address counts as unavailable from its first answer on', async () => {
  const databaseId = await databaseIdOnce(database.sql)
  await using wire = await openWire(database.address)
  await using guarded = openPool(new GuardedPool({ ...wire.address, databaseId }, OPTIONS))
  const { pool } = guarded
  const names = async () => {
    const rows = await pool.sql<{ name: string }[]>`select name from things`
    return rows.map(({ name }) => name)
  }
  const write = (name: string) => pool.transaction((tx) => tx`insert into things values (${name})`)
  await write('here')
  for (let round = 0; round < 3; round++) {
    await wire.cut()
    await database.sql`update settings set value = 'another' where name = 'database_id'`
    await database.sql`delete from things`
    await wire.open()
    const failure = (cause: unknown) => cause
    for (let i = 0; i < 20; i++) {
      const both = await Promise.all([names().catch(failure), write('lost').catch(failure)])
      expect(both).toEqual([expect.any(Error), expect.any(Error)])
    }
    expect(await pool.condition()).toBe('away')
    expect(await database.sql`select name from things`).toHaveLength(0)
    await wire.cut()
    await database.sql`update settings set value = ${databaseId} where name = 'database_id'`
    await database.sql`insert into things values ('here')`
    await wire.open()
    await recovered(pool)
    expect(await names()).toEqual(['here'])
    expect(await pool.condition()).toBe('ok')
  }
  await database.sql`delete from things`
})

/** The driver's own transactions end the process in this case, and its pool never answers again. */
onRealPostgres(
  'connections killed at any moment fail only their own statements: nothing is half done, mixed up or stuck',
  async () => {
    await using guarded = await openGuarded()
    const { pool } = guarded
    const committed: string[] = []
    let isOver = false
    let answered = 0
    const work = async (worker: number) => {
      for (let round = 0; !isOver; round++) {
        const name = `${worker}/${round}`
        try {
          if (worker % 2 === 0) {
            const [row] = await pool.sql<{ name: string }[]>`select ${name} as name, pg_sleep(0.002)`
            expect(row?.name).toBe(name)
            answered++
          } else {
            await pool.transaction(async (tx) => {
              await tx`insert into things (name) values (${`${name} first`})`
              await Bun.sleep(round % 4)
              await tx`insert into things (name) values (${`${name} second`})`
            })
            committed.push(name)
          }
        } catch (cause) {
          if (
            !(cause instanceof Error) ||
            (cause.name !== 'Error' && cause.name !== 'PostgresError' && cause.name !== 'QueryGivenUp')
          )
            throw cause
          await Bun.sleep(5)
        }
      }
    }
    const workers = Array.from({ length: 8 }, (_, worker) => work(worker))
    for (let kill = 0; kill < 20; kill++) {
      await Bun.sleep(50)
      await database.sql`
      select pg_terminate_backend(pid) from pg_stat_activity
       where datname = current_database() and pid <> pg_backend_pid() and random() < 0.5`
    }
    const before = answered
    await Bun.sleep(2 * TIMEOUT_MS)
    expect(answered).toBeGreaterThan(before)
    isOver = true
    await Promise.all(workers)
    const names = (await database.sql<{ name: string }[]>`select name from things`).map(({ name }) => name)
    const wholes = names.filter((name) => name.endsWith(' first')).map((name) => name.replace(' first', ''))
    expect(names.toSorted()).toEqual(wholes.flatMap((name) => [`${name} first`, `${name} second`]).toSorted())
    for (const name of committed) expect(wholes).toContain(name)
    await database.sql`delete from things`
  },
)
