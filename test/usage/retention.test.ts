import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { ConfigError, readConfig } from '../../src/config.ts'
import { openSpills } from '../../src/data-dir/spill.ts'
import type { AnySql } from '../../src/db/connect.ts'
import { MonthlyJob } from '../../src/db/months.ts'
import { startServer } from '../../src/server/server.ts'
import { UsageRecorder } from '../../src/usage/recorder.ts'
import { usageRetention } from '../../src/usage/retention.ts'
import { openTestDatabase, openTestSql, TEST_DATABASE_URL, type TestSql } from '../support/database.ts'
import { OPERATOR_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { verification } from './support.ts'

setDefaultTimeout(SLOW_MS)

const DAY = 86_400_000

let database: TestSql
beforeAll(async () => {
  database = await openTestSql()
})
afterAll(() => database[Symbol.asyncDispose]())

/** Writes one verification in each of these months of 2020 (1 = January). */
async function count(sql: AnySql, months: number[]): Promise<void> {
  const writerId = `writer ${crypto.randomUUID()}`
  const clock = () => Date.UTC(2020, 5)
  const recorder = new UsageRecorder({
    sql,
    writerId,
    spills: openSpills('/nonexistent'),
    flushEveryMs: 60_000,
    clock,
  })
  for (const month of months)
    recorder.recordVerification(verification({ atMs: Date.UTC(2020, month - 1, 15), tags: ['a'] }))
  await recorder.flush()
  await recorder.flush() // the first may find a month dropped since
}

/** Months of 2020 that still hold counts, by the rows, their sums, their tag sets, their days and their months. */
async function monthsOf(sql: AnySql): Promise<number[][]> {
  const rows = await sql<{ table: string; month: number }[]>`
    select distinct "table", extract(month from to_timestamp(at / 1000) at time zone 'UTC')::integer as month
      from (select 1 as "table", hour as at from usage_verifications
            union all select 2, hour from usage_keyspace_hours
            union all select 3, month from usage_tag_sets
            union all select 4, day from usage_verification_days
            union all select 5, month from usage_verification_months) as rows
     where at < ${Date.UTC(2021, 0)}
     order by month`
  return [1, 2, 3, 4, 5].map((table) =>
    rows.filter((row) => Number(row.table) === table).map(({ month }) => month),
  )
}

const everywhere = (...months: number[]) => [months, months, months, months, months]

test('once a day months older than the setting are dropped, and whole months remain', async () => {
  const { sql } = database
  let now = Date.UTC(2020, 5, 30, 23)
  const retention = new MonthlyJob(database.address, usageRetention(2), () => now)
  await count(sql, [2, 3, 4, 5, 6])
  await retention.look()
  expect(await monthsOf(sql)).toEqual(everywhere(4, 5, 6))
  await count(sql, [3])
  await retention.look() // today's round is done
  expect(await monthsOf(sql)).toEqual(everywhere(3, 4, 5, 6))
  now += DAY // a day on, and a month
  await Promise.all([retention.look(), retention.look()])
  expect(await monthsOf(sql)).toEqual(everywhere(5, 6))
  await retention.stop()
})

/** Months are years away from being old by the one clock, and long gone by the other. */
test('a clock that is years ahead of the database drops nothing', async () => {
  const { sql } = database
  const [row] = await sql<{ month: number }[]>`
    select floor(extract(epoch from clock_timestamp()) * 1000)::bigint as month`
  const atMs = row?.month ?? 0
  const clock = () => atMs
  const recorder = new UsageRecorder({
    sql,
    writerId: 'now',
    spills: openSpills('/nonexistent'),
    flushEveryMs: 60_000,
    clock,
  })
  recorder.recordVerification(verification({ keyId: 'key_of_today', atMs }))
  await recorder.flush()
  const retention = new MonthlyJob(database.address, usageRetention(1), () => Date.UTC(2090, 0))
  await retention.look()
  const [counted] = await sql`select count(*) as rows from usage_verifications where key_id = 'key_of_today'`
  expect(counted?.rows).toBe(1)
})

/** The embedded database carries out one transaction after the other: there a round simply waits. */
test.if(TEST_DATABASE_URL !== null)('a month that a long query reads is left for a later look', async () => {
  const { sql } = database
  await count(sql, [1, 6])
  const retention = new MonthlyJob(database.address, usageRetention(1), () => Date.UTC(2020, 5, 30))
  await database.anotherPool().begin(async (tx) => {
    await tx`select count(*) from usage_verifications`
    await retention.look()
    expect((await monthsOf(sql))[0]).toContain(1)
  })
  await retention.look()
  expect((await monthsOf(sql))[0]).not.toContain(1)
})

test('a server drops old months at its start, and none without the setting', async () => {
  await using fresh = await openTestDatabase()
  const env = (months: string) => ({
    PORT: '0',
    DATABASE_URL: fresh.databaseUrl ?? '',
    TOLLGATE_DATA_DIR: fresh.dataDir,
    TOLLGATE_ROOT_KEY: OPERATOR_KEY,
    TOLLGATE_SHARDS: '1',
    TOLLGATE_HTTP_THREADS: '1',
    TOLLGATE_USAGE_RETENTION_MONTHS: months,
  })
  const clock = () => Date.UTC(2020, 5, 15)
  {
    await using server = await startServer(readConfig(env('')), { clock })
    await count(server.deps.sql, [1, 5, 6])
  }
  {
    await using server = await startServer(readConfig(env('')), { clock })
    await Bun.sleep(200)
    expect((await monthsOf(server.deps.sql))[0]).toEqual([1, 5, 6])
  }
  await using server = await startServer(readConfig(env('1')), { clock })
  for (let i = 0; i < 100 && (await monthsOf(server.deps.sql))[0]?.includes(1); i++) await Bun.sleep(50)
  expect((await monthsOf(server.deps.sql))[0]).toEqual([5, 6])
})

test('the setting is a whole number of months from 1 to 1200, or unset', () => {
  const read = (text: string) => readConfig({ TOLLGATE_USAGE_RETENTION_MONTHS: text }).usageRetentionMonths
  expect([read(''), read('1'), read('1200')]).toEqual([null, 1, 1200])
  for (const wrong of ['0', '1201', '1.5', '-1', 'all'])
    expect(() => read(wrong)).toThrow(
      new ConfigError(
        `TOLLGATE_USAGE_RETENTION_MONTHS is ${JSON.stringify(wrong)}; it must be a whole number from 1 to 1200`,
      ),
    )
})
