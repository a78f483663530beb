import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import type { Sql } from '../../src/db/connect.ts'
import type { EngineSetup } from '../../src/fleet/engine.ts'
import { PostgresEngine } from '../../src/fleet/postgres.ts'
import { deleteEndedWindows } from '../../src/fleet/store.ts'
import { openTestSql, TEST_DATABASE_URL, type TestSql } from '../support/database.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import {
  answersOf,
  compareWithModel,
  entryOf,
  exchangeOf,
  HOUR,
  NOW,
  newCell,
  type Subject,
  testEngine,
} from './engine-contract.ts'
import { AdditionsProcess } from './engine-model.ts'

/** Servers do not share the embedded database, and its connections share one session. */
const runIf = TEST_DATABASE_URL !== null
const it = test.skipIf(!runIf)

setDefaultTimeout(IS_NIGHTLY ? 900_000 : 60_000)

let database: TestSql
let sql: Sql

beforeAll(async () => {
  if (!runIf) return
  database = await openTestSql()
  sql = database.sql
})
afterAll(() => database?.[Symbol.asyncDispose]())

const openEngine = (setup: Partial<EngineSetup> = {}) =>
  new PostgresEngine(database.address, { timeoutMs: 20_000, ...setup })

const subject: Subject = {
  open: (setup) => Promise.resolve(openEngine(setup)),
  model: () => new AdditionsProcess(),
}

testEngine('Postgres', () => subject, runIf)

test.skipIf(!runIf || !IS_NIGHTLY)('100 000 random entries are answered as by the model', async () => {
  for (let seed = 1; seed <= 84; seed++) await compareWithModel(subject, { seed, exchanges: 100 })
})

it('a message for a window that is over charges the next one, and counts only what is asked there', async () => {
  const [first, second] = [openEngine(), openEngine()]
  const cell = newCell()
  const later = NOW + 2 * HOUR
  await answersOf(second, [entryOf(cell, { endMs: later, asked: 7 })])
  const late = entryOf(cell, { given: 15, owed: 3, returned: 2, asked: 4, limit: 20 })
  expect(await answersOf(first, [late])).toEqual([
    { endMs: later, given: 4, gift: 4, sum: 11, looseUntilMs: 0 },
  ])
  expect(await answersOf(first, [{ ...late, asked: 10, least: 10 }])).toEqual([
    { endMs: later, given: 0, gift: 0, sum: 11, looseUntilMs: 0 },
  ])
  await Promise.all([first.close(), second.close()])
})

it('two servers that ask for the same counters in opposite orders do not wait for each other in a circle', async () => {
  const engines = [openEngine(), openEngine(), openEngine(), openEngine()]
  const names = Array.from({ length: 100 }, newCell)
  const gifts = await Promise.all(
    engines.map(async (engine, i) => {
      let gift = 0
      for (let round = 0; round < 5; round++) {
        const order = i % 2 === 0 ? names : names.toReversed()
        const answers = await answersOf(
          engine,
          order.map((cell) => entryOf(cell, { asked: 10, limit: 150 })),
        )
        gift += answers.reduce((sum, answer) => sum + answer.gift, 0)
      }
      return gift
    }),
  )
  expect(gifts.reduce((sum, gift) => sum + gift, 0)).toBe(100 * 150)
  await Promise.all(engines.map((engine) => engine.close()))
})

it('what is refused or changes nothing is not written', async () => {
  const engine = openEngine()
  const cell = newCell()
  const versionOf = async () =>
    await sql`select ctid::text as at, used from fleet_windows where cell = ${nameOf(cell)}::uuid`
  await answersOf(engine, [entryOf(cell), entryOf(newCell(), { asked: 101, least: 101 })])
  expect(await versionOf()).toHaveLength(0)
  await answersOf(engine, [entryOf(cell, { asked: 100 })])
  const before = await versionOf()
  await answersOf(engine, [entryOf(cell, { given: 100, asked: 1 })])
  await answersOf(engine, [entryOf(cell, { given: 100 })])
  expect([...(await versionOf())]).toEqual([...before])
  await engine.close()
})

it('a database that is late gives nothing, and the connection is dropped', async () => {
  const engine = openEngine()
  const cell = newCell()
  await answersOf(engine, [entryOf(cell, { asked: 10 })])
  const hasty = openEngine({ timeoutMs: 50 })
  while ((await hasty.exchange(exchangeOf([]))).kind === 'failed') await Bun.sleep(1)
  const other = database.anotherPool()
  await other.begin(async (tx) => {
    await tx`select 1 from fleet_windows where cell = ${nameOf(cell)}::uuid for update`
    const asked = exchangeOf([entryOf(cell, { given: 0, asked: 5 })])
    expect(await hasty.exchange(asked)).toMatchObject({ kind: 'failed', fault: 'late' })
  })
  await hasty.close()
  // Nobody gets more than there is, whether that message was carried out or not.
  const [answer] = await answersOf(engine, [entryOf(cell, { given: 10, asked: 100 })])
  expect([85, 90]).toContain(answer?.gift ?? 0)
  expect(answer?.sum).toBe(100)
  await engine.close()
})

it('a connection that is cut fails the exchange; the next one opens another', async () => {
  const engine = openEngine()
  const cell = newCell()
  await answersOf(engine, [entryOf(cell, { asked: 10 })])
  const other = database.anotherPool()
  const held = await other.begin(async (tx) => {
    await tx`select 1 from fleet_windows where cell = ${nameOf(cell)}::uuid for update`
    const under = engine.exchange(exchangeOf([entryOf(cell, { given: 10, asked: 1 })]))
    const waiting = () => sql<{ pid: number }[]>`
      select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`
    let [found] = await waiting()
    while (found === undefined) [found] = await waiting()
    await sql`select pg_terminate_backend(${found.pid})`
    return await under
  })
  expect(held).toMatchObject({ kind: 'failed', fault: 'broken' })
  expect(await answersOf(engine, [entryOf(cell, { given: 10, asked: 1 })])).toMatchObject([
    { given: 11, sum: 11 },
  ])
  await engine.close()
})

it('a database that does not listen is away, and another one than at the start is not used', async () => {
  const absent = new PostgresEngine(
    { kind: 'url', url: 'postgres://postgres:s3cret@127.0.0.1:1/none' },
    { timeoutMs: 20_000 },
  )
  const result = await absent.exchange(exchangeOf([]))
  expect(result).toMatchObject({ kind: 'failed', fault: 'away' })
  expect(Bun.inspect(result, { depth: 10 })).not.toContain('s3cret')
  await absent.close()
  const other = new PostgresEngine({ ...database.address, databaseId: 'another' }, { timeoutMs: 20_000 })
  expect(await other.exchange(exchangeOf([]))).toMatchObject({
    fault: 'away',
    cause: { message: 'another database answers at this address than at the start' },
  })
  await other.close()
})

it('windows that are over for a minute are deleted some at a time, the others stay', async () => {
  await sql`truncate fleet_windows`
  const nowMs = Date.now()
  await sql`
    insert into fleet_windows (cell, ends_at, used, loose_until, gift, place)
    select lpad(to_hex(i), 32, '0')::uuid, ${nowMs}::bigint + case when i % 3 = 0 then 3600000 else -3600000 end, 1, 0, 1, 1
      from generate_series(1, 90) as i`
  let after = await deleteEndedWindows(sql, { after: null, rowsMax: 40 })
  expect(after).toBe('00000000-0000-0000-0000-000000000028')
  expect(await countOf()).toBe(90 - 27)
  while (after !== null) after = await deleteEndedWindows(sql, { after, rowsMax: 40 })
  expect(await countOf()).toBe(30)
  const engine = openEngine()
  await sql`insert into fleet_windows (cell, ends_at, used, loose_until, gift, place) values (${nameOf(newCell())}::uuid, 1, 1, 0, 1, 1)`
  await engine.exchange(exchangeOf([]))
  await engine.clean()
  expect(await countOf()).toBe(30)
  await engine.close()
})

it('a crash of Postgres forgets nothing that was given, whatever synchronous_commit says', async () => {
  const engine = openEngine()
  expect(await engine.warnings()).toEqual([])
  await engine.close()
  const [row] = await sql<{ name: string }[]>`select current_database() as name`
  const name = row?.name ?? ''
  await sql.unsafe(`alter database "${name}" set synchronous_commit = off`)
  const careful = openEngine()
  expect(await careful.warnings()).toEqual([
    expect.stringContaining('synchronous_commit of the database is off'),
  ])
  const pool = database.anotherPool()
  const settings = await pool.begin(async (tx) => {
    const setting = async () => (await tx`select current_setting('synchronous_commit') as value`)[0]?.value
    const before = await setting()
    await tx`select * from fleet_take(0, 0, 2, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')`
    return [before, await setting()]
  })
  expect(settings).toEqual(['off', 'on'])
  await sql.unsafe(`alter database "${name}" reset synchronous_commit`)
  await careful.close()
})

const countOf = async () => (await sql<{ n: number }[]>`select count(*)::int as n from fleet_windows`)[0]?.n

/** The name of a cell, as a uuid. */
const nameOf = (cell: ReturnType<typeof newCell>) =>
  Object.values(cell)
    .map((word) => (word >>> 0).toString(16).padStart(8, '0'))
    .join('')
