import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import type { AnySql, Sql, Transaction } from '../../src/db/connect.ts'
import { holdCounts, insertErasedNames, moveIdentityCounts, moveKeyCounts } from '../../src/erasure/store.ts'
import { DAY_MS, HOUR_MS } from '../../src/lib/clock.ts'
import type { WorkspaceId } from '../../src/lib/ids.ts'
import { emptyColumns } from '../../src/usage/batch.ts'
import { countBatch, makeMonth } from '../../src/usage/rollup.ts'
import { openTestSql, TEST_DATABASE_URL, type TestSql } from '../support/database.ts'
import { randomNumbers } from '../support/random.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

/** Daily rows of verifications: sums of the hourly rows, whatever changes those. */

const DAY = Date.UTC(2026, 8, 1)
const DAYS = 4
const workspaceId = 'ws_1' as WorkspaceId // statements are tested here, without an actor

let database: TestSql
let sql: Sql
beforeAll(async () => {
  database = await openTestSql()
  sql = database.sql
  await makeMonth(sql, DAY)
  await sql`insert into workspaces (id, name, created_at) values (${workspaceId}, 'one', ${DAY})`
})
afterAll(() => database[Symbol.asyncDispose]())

/** Nothing is made from this day on. */
const beginAt = (day: number) =>
  sql`update usage_days_made set made_before = ${day}, open_from = ${day}, keyspace_id = '', key_id = ''`

/** One slice, of one key or a few. @returns false when all days before are made. */
async function makeSlice(on: AnySql, before: number): Promise<boolean> {
  const [row] = await on<{ goesOn: boolean }[]>`select make_usage_days(${before}, 2) as "goesOn"`
  return row?.goesOn === true
}

async function makeDays(before: number): Promise<void> {
  while (await makeSlice(sql, before));
}

let batches = 0
type Row = { keyspace: number; hour: number; key: string; identity?: string; tag?: string }

/** Counts each of these once. */
async function count(on: AnySql, rows: readonly Row[], number = 1, writer = `writer ${++batches}`) {
  const columns = emptyColumns()
  columns.scopes = { workspaceId: ['ws_1', 'ws_1', 'ws_1'], keyspaceId: ['ks_1', 'ks_2', 'ks_3'] }
  const v = columns.verifications
  for (const { keyspace, hour, key, identity = '', tag } of rows) {
    v.scope.push(keyspace)
    v.hour.push(hour)
    v.keyId.push(key)
    v.identityId.push(identity)
    v.valid.push(1)
    v.set.push(tag === undefined ? 0 : setOf(tag))
  }
  function setOf(tag: string): number {
    const id = new Bun.CryptoHasher('sha256').update(JSON.stringify([tag])).digest('hex')
    const at = columns.sets.id.indexOf(id)
    if (at >= 0) return at + 1
    columns.sets.workspaceId.push('ws_1')
    columns.sets.month.push(DAY)
    columns.sets.tags.push([tag])
    return columns.sets.id.push(id)
  }
  return await countBatch(on, { writer, number, columns }, DAY)
}

/** Daily rows that differ from the sums of their hours, of all days that are made. */
async function wrongDays(): Promise<unknown[]> {
  const rows = await sql`
    with hours as (
      select keyspace_id, hour - hour % ${DAY_MS}::bigint as day, key_id, identity_id, tag_set, sum(valid)::bigint as valid
        from usage_verifications
       where hour < (select made_before from usage_days_made)
       group by 1, 2, 3, 4, 5
    ), days as (
      select keyspace_id, day, key_id, identity_id, tag_set, valid from usage_verification_days
       where day < (select made_before from usage_days_made)
    )
    (select 'missing', * from (select * from hours except select * from days) a)
     union all (select 'wrong', * from (select * from days except select * from hours) b)`
  return [...rows]
}

const eraseName = async (tx: Transaction, name: string, pseudonym: string) => {
  await holdCounts(tx)
  const erased = { kind: 'key' as const, name, pseudonym, subject: pseudonym, apiId: null }
  await insertErasedNames(tx, workspaceId, [erased], DAY)
}

const total = async () => {
  const [row] = await sql<{ hours: number | null; days: number | null }[]>`
    select (select sum(valid)::bigint from usage_verifications) as hours, (select sum(valid)::bigint from usage_verification_days) as days`
  return row
}

test('a day is made from its hours when it is over, and late counts of it are added at once', async () => {
  await beginAt(DAY)
  await count(sql, [
    { keyspace: 1, hour: DAY, key: 'a' },
    { keyspace: 1, hour: DAY + 23 * HOUR_MS, key: 'a' },
    { keyspace: 2, hour: DAY + HOUR_MS, key: 'b', tag: 't' },
    { keyspace: 1, hour: DAY + 2 * DAY_MS, key: 'a' },
  ])
  expect(await total()).toEqual({ hours: 4, days: null })
  await makeDays(DAY + 2 * DAY_MS)
  expect(await wrongDays()).toEqual([])
  expect(await total()).toEqual({ hours: 4, days: 3 })
  const late = [
    { keyspace: 1, hour: DAY + HOUR_MS, key: 'a' },
    { keyspace: 3, hour: DAY + HOUR_MS, key: 'new', identity: 'id_1' },
    { keyspace: 1, hour: DAY + 2 * DAY_MS, key: 'a' },
  ]
  const writer = 'late'
  expect(await count(sql, late, 1, writer)).toBe(true)
  expect(await count(sql, late, 1, writer)).toBe(false) // sent again
  expect(await wrongDays()).toEqual([])
  expect(await total()).toEqual({ hours: 7, days: 5 })
})

test('rows that move to a pseudonym or to the tag set "(other)" move by day too', async () => {
  await count(sql, [
    { keyspace: 1, hour: DAY, key: 'erased key', identity: 'id_2' },
    { keyspace: 1, hour: DAY + HOUR_MS, key: 'kept key', identity: 'erased identity' },
    { keyspace: 2, hour: DAY + HOUR_MS, key: 'kept key', identity: 'erased identity', tag: 'folded' },
  ])
  await sql.begin((tx) => eraseName(tx, 'erased key', 'erased_1'))
  const [from, to] = [DAY, DAY + 7 * DAY_MS]
  await sql.begin(async (tx) => {
    await moveKeyCounts(tx, workspaceId, { name: 'erased key', pseudonym: 'erased_1' }, 100)
    for (const keyspaceId of ['ks_1', 'ks_2'])
      await moveIdentityCounts(
        tx,
        workspaceId,
        { name: 'erased identity', pseudonym: 'erased_2' },
        { keyspaceId, from, to, limit: 100 },
      )
  })
  const [set] = await sql<{ id: Buffer }[]>`select id from usage_tag_sets where tags = '{folded}'`
  await sql`select fold_tag_set('ws_1', ${DAY + HOUR_MS}, ${DAY}, ${set?.id ?? Buffer.of()})`
  expect(await wrongDays()).toEqual([])
  const rows = await sql`
    select key_id, identity_id, tag_set = other_tag_set() as is_other from usage_verification_days
     where key_id like '%key' or key_id like 'erased%' or identity_id like 'erased%' order by 1, 2, 3`
  expect([...rows]).toEqual([
    { key_id: 'erased_1', identity_id: 'id_2', is_other: false },
    { key_id: 'kept key', identity_id: 'erased_2', is_other: false },
    { key_id: 'kept key', identity_id: 'erased_2', is_other: true },
  ])
})

/** The embedded database runs one transaction at a time. */
test.skipIf(TEST_DATABASE_URL === null)(
  'days stay exact while batches, erasures and two servers that make days run at once',
  async () => {
    const from = Date.UTC(2026, 8, 10)
    await makeDays(from)
    const random = randomNumbers(20_261_128)
    const upTo = (max: number) => Math.floor(random() * max)
    let counted = 0
    const counting = async (on: Sql, writer: string) => {
      for (let number = 1; number <= 40; number++) {
        const rows = Array.from({ length: 1 + upTo(8) }, () => ({
          keyspace: 1 + upTo(3),
          hour: from + upTo(DAYS) * DAY_MS + upTo(3) * HOUR_MS,
          key: `key_${upTo(12)}`,
          ...(random() < 0.5 && { identity: `id_${upTo(3)}` }),
          ...(random() < 0.3 && { tag: `tag_${upTo(3)}` }),
        }))
        if (await count(on, rows, number, writer)) counted += rows.length
      }
    }
    let isOver = false
    const making = async (on: Sql) => {
      for (let days = 1; !isOver; days = Math.min(DAYS, days + 1)) {
        while (await makeSlice(on, from + days * DAY_MS));
        await Bun.sleep(5)
      }
    }
    const erasing = async (on: Sql) => {
      for (const at of [3, 7, 1]) {
        const names = { name: `key_${at}`, pseudonym: `erased_${at}` }
        await Bun.sleep(100)
        await on.begin((tx) => eraseName(tx, names.name, names.pseudonym))
        while ((await on.begin((tx) => moveKeyCounts(tx, workspaceId, names, 5))) === 5);
      }
    }
    const [before] = await sql<{ sum: number }[]>`select sum(valid)::bigint as sum from usage_verifications`
    const makers = [making(database.anotherPool()), making(database.anotherPool())]
    await Promise.all([
      counting(sql, 'one'),
      counting(database.anotherPool(), 'two'),
      counting(database.anotherPool(), 'three'),
      erasing(database.anotherPool()),
    ])
    isOver = true
    await Promise.all(makers)
    await makeDays(from + DAYS * DAY_MS)
    expect(await wrongDays()).toEqual([])
    const after = await total()
    expect(after?.hours).toBe((before?.sum ?? 0) + counted)
    expect(after?.days ?? 0).toBeGreaterThanOrEqual(counted)
    const [erased] =
      await sql`select count(*)::integer as rows from usage_verification_days where key_id in ('key_3', 'key_7', 'key_1')`
    expect(erased?.rows).toBe(0)
  },
)
