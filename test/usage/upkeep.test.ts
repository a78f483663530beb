import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import type { AnySql, Sql } from '../../src/db/connect.ts'
import { DAY_MS, HOUR_MS } from '../../src/lib/clock.ts'
import { closeRatelimitHours } from '../../src/usage/close-hours.ts'
import { makeMonth, sumUpUsage } from '../../src/usage/rollup.ts'
import { UsageUpkeep } from '../../src/usage/upkeep.ts'
import { openTestSql, type TestSql } from '../support/database.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

/** Two months ago by the clock of the database, which must have passed an hour before it is closed or summed up. */
const NOW = Date.now()
const DAY = NOW - (NOW % DAY_MS) - 60 * DAY_MS

let database: TestSql
let sql: Sql
beforeAll(async () => {
  database = await openTestSql()
  sql = database.sql
  for (const at of [DAY, DAY + 31 * DAY_MS]) await makeMonth(sql, at)
})
afterAll(() => database[Symbol.asyncDispose]())

/** How many rows of a table `work` reads in one transaction, by whatever way. */
async function rowsRead(table: string, work: (tx: AnySql) => Promise<unknown>): Promise<number> {
  return await sql.begin(async (tx) => {
    // Includes what this connection read before and has not reported yet.
    const count = async () => {
      const [row] = await tx<{ rows: number }[]>`
        select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::integer as rows
          from pg_stat_xact_user_tables where starts_with(relname, ${table})`
      return row?.rows ?? 0
    }
    const before = await count()
    await work(tx)
    return (await count()) - before
  })
}

const addHours = (namespaces: number, { isClosed }: { isClosed: boolean }) => sql`
  insert into usage_ratelimits (hour, passed, denied, is_closed, workspace_id, namespace_id)
  select ${DAY}::bigint, 1, 0, ${isClosed}, 'ws_1', case when ${isClosed} then 'rlns_closed_' else 'rlns_open_' end || number
    from generate_series(1, ${namespaces}) as number`

/** Bug: each statement began at the first hour and skipped what was closed already: 60 s for 100 000 namespaces. */
test('closing hours reads each open hour about once, and none that is closed', async () => {
  const namespaces = 2_000
  await addHours(50_000, { isClosed: true })
  await addHours(namespaces, { isClosed: false })
  await sql`analyze usage_ratelimits`
  const read = await rowsRead('usage_ratelimits', (tx) => closeRatelimitHours(tx, NOW))
  expect(read).toBeLessThanOrEqual(3 * namespaces) // to find it, to lock it, to change it
  const [row] = await sql`select count(*)::integer as open from usage_ratelimits where not is_closed`
  expect(row?.open).toBe(0)
})

test('a slice of a day reads its own rows, and not the rest of the day or other days', async () => {
  const keys = 6_000
  await sql`
    insert into usage_verifications
           (hour, valid, rate_limited, expired, disabled, forbidden, usage_exceeded, insufficient_permissions,
            workspace_id, keyspace_id, key_id, identity_id, tag_set)
    select ${DAY}::bigint + hour * ${HOUR_MS}::bigint, 1, 0, 0, 0, 0, 0, 0, 'ws_1', 'ks_' || key % 2, 'key_' || key, '', ''
      from generate_series(0, 36, 12) as hour, generate_series(1, ${keys}) as key`
  await sql`
    insert into usage_keyspace_hours
    select hour, sum(valid), 0, 0, 0, 0, 0, 0, 'ws_1', keyspace_id from usage_verifications group by hour, keyspace_id`
  await sql`analyze`
  await sql`update usage_days_made set made_before = ${DAY}, open_from = ${DAY}`
  const slice = (tx: AnySql) => tx`select make_usage_days(${DAY + 2 * DAY_MS}, 500)`
  await slice(sql) // begins the day
  const reads: number[] = []
  for (let i = 0; i < 5; i++) reads.push(await rowsRead('usage_verifications', slice))
  // Two hours a day of 500 keys: to find the keys and to sum them up.
  expect(Math.max(...reads)).toBeLessThanOrEqual(2 * 2 * 500 + 100)
  await sumUpUsage(sql, NOW)
  const [row] = await sql`
    select count(*)::integer as rows, sum(valid)::integer as valid from usage_verification_days where key_id like 'key_%'`
  expect([row?.rows, row?.valid]).toEqual([2 * keys, 4 * keys])
})

test('a server sums up usage and closes hours in the background, and a stop ends it', async () => {
  await addHours(10, { isClosed: false }).catch(() => {}) // there from before
  await sql`update usage_ratelimits set is_closed = false where namespace_id = 'rlns_open_1'`
  const upTo = DAY + 10 * DAY_MS
  await sql`update usage_days_made set made_before = ${upTo}, open_from = ${upTo}`
  const upkeep = new UsageUpkeep(database.address, () => NOW)
  upkeep.start()
  const isDone = async () => {
    const [row] = await sql`
      select (select is_closed from usage_ratelimits where namespace_id = 'rlns_open_1')
             and (select made_before > ${DAY + 30 * DAY_MS} from usage_days_made) as "isDone"`
    return row?.isDone === true
  }
  for (let i = 0; i < 400 && !(await isDone()); i++) await Bun.sleep(25)
  expect(await isDone()).toBe(true)
  await upkeep.stop()
  await upkeep.look() // nothing: it has stopped
})
