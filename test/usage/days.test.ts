import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { join } from 'node:path'
import { countVerifications } from '../../src/api/analytics/store.ts'
import type { AnySql, Sql, Transaction } from '../../src/db/connect.ts'
import { holdCounts, insertErasedNames, moveIdentityCounts, moveKeyCounts } from '../../src/erasure/store.ts'
import { DAY_MS, HOUR_MS } from '../../src/lib/clock.ts'
import type { WorkspaceId } from '../../src/lib/ids.ts'
import { emptyColumns } from '../../src/usage/batch.ts'
import { codeOf, countBatch, dropOldPartitions, makeMonth } from '../../src/usage/rollup.ts'
import { readMade } from '../../src/usage/sums.ts'
import { openTestSql, TEST_DATABASE_URL, type TestSql } from '../support/database.ts'
import { randomNumbers } from '../support/random.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

/** Rows of days and months: sums of the hourly rows, whatever changes those. */

const DAY = Date.UTC(2026, 8, 1)
const AUGUST = Date.UTC(2026, 7, 1)
const DAYS = 4
const workspaceId = 'ws_1' as WorkspaceId // statements are tested here, without an actor

let database: TestSql
let sql: Sql
beforeAll(async () => {
  database = await openTestSql()
  sql = database.sql
  for (const at of [AUGUST, DAY]) await makeMonth(sql, at)
  await sql`insert into workspaces (id, name, created_at) values (${workspaceId}, 'one', ${DAY})`
})
afterAll(() => database[Symbol.asyncDispose]())

/** Nothing is summed up from this day on. */
async function beginAt(day: number): Promise<void> {
  for (const table of ['usage_days_made', 'usage_months_made'])
    await sql`update ${sql(table)} set made_before = ${day}, open_from = ${day}, keyspace_id = '', key_id = ''`
}

/** One slice, of one key or a few. @returns false when all hours before are in the rows of days and months. */
async function sumUpSlice(on: AnySql, before: number): Promise<boolean> {
  const [days] = await on<{ goesOn: boolean }[]>`select make_usage_days(${before}, 2) as "goesOn"`
  const [months] = await on<{ goesOn: boolean }[]>`select make_usage_months(2) as "goesOn"`
  return days?.goesOn === true || months?.goesOn === true
}

async function sumUp(before: number): Promise<void> {
  while (await sumUpSlice(sql, before));
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

/** Rows of days and months, from {@link DAY} on, that differ from the sums of what is in them by now. */
async function wrongSums(on: AnySql = sql): Promise<unknown[]> {
  const rows = await on`
    with days as (
      select keyspace_id, hour - hour % ${DAY_MS}::bigint as day, key_id, identity_id, tag_set, sum(valid)::bigint as valid
        from usage_verifications v
       where hour >= ${DAY}
         and hour < (select case when (v.keyspace_id, v.key_id) <= (m.keyspace_id, m.key_id) then open_from else made_before end
                       from usage_days_made m)
       group by 1, 2, 3, 4, 5
    ), stored_days as (
      select keyspace_id, day, key_id, identity_id, tag_set, valid from usage_verification_days where day >= ${DAY}
    ), months as (
      select keyspace_id, usage_month_of(day), key_id, identity_id, tag_set, sum(valid)::bigint as valid
        from usage_verification_days d
       where day >= ${DAY}
         and day < (select case when (d.keyspace_id, d.key_id) <= (m.keyspace_id, m.key_id) then open_from else made_before end
                      from usage_months_made m)
       group by 1, 2, 3, 4, 5
    ), stored_months as (
      select keyspace_id, month, key_id, identity_id, tag_set, valid from usage_verification_months where month >= ${DAY}
    )
    (select 'day missing', * from (select * from days except select * from stored_days) a)
     union all (select 'day wrong', * from (select * from stored_days except select * from days) b)
     union all (select 'month missing', * from (select * from months except select * from stored_months) c)
     union all (select 'month wrong', * from (select * from stored_months except select * from months) d)`
  return [...rows]
}

const eraseName = async (tx: Transaction, name: string, pseudonym: string) => {
  await holdCounts(tx)
  const erased = { kind: 'key' as const, name, pseudonym, subject: pseudonym, apiId: null }
  await insertErasedNames(tx, workspaceId, [erased], DAY)
}

const total = async () => {
  const [row] = await sql<Record<'hours' | 'days' | 'months', number | null>[]>`
    select (select sum(valid)::bigint from usage_verifications) as hours, (select sum(valid)::bigint from usage_verification_days) as days,
           (select sum(valid)::bigint from usage_verification_months) as months`
  return row
}

test('an hour is added to its day when it is over, a day to its month, and late counts at once', async () => {
  await beginAt(DAY)
  await count(sql, [
    { keyspace: 1, hour: DAY, key: 'a' },
    { keyspace: 1, hour: DAY + 23 * HOUR_MS, key: 'a' },
    { keyspace: 2, hour: DAY + HOUR_MS, key: 'b', tag: 't' },
    { keyspace: 1, hour: DAY + 2 * DAY_MS, key: 'a' },
  ])
  expect(await total()).toEqual({ hours: 4, days: null, months: null })
  await sumUp(DAY + 2 * HOUR_MS)
  expect(await wrongSums()).toEqual([])
  expect(await total()).toEqual({ hours: 4, days: 2, months: null })
  await sumUp(DAY + 2 * DAY_MS)
  expect(await wrongSums()).toEqual([])
  expect(await total()).toEqual({ hours: 4, days: 3, months: 3 })
  const late = [
    { keyspace: 1, hour: DAY + HOUR_MS, key: 'a' },
    { keyspace: 3, hour: DAY + HOUR_MS, key: 'new', identity: 'id_1' },
    { keyspace: 1, hour: DAY + 2 * DAY_MS, key: 'a' },
  ]
  const writer = 'late'
  expect(await count(sql, late, 1, writer)).toBe(true)
  expect(await count(sql, late, 1, writer)).toBe(false) // sent again
  expect(await wrongSums()).toEqual([])
  expect(await total()).toEqual({ hours: 7, days: 5, months: 5 })
})

test('rows that move to a pseudonym or to the tag set "(other)" move by day and month too', async () => {
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
  expect(await wrongSums()).toEqual([])
  for (const table of ['usage_verification_days', 'usage_verification_months']) {
    const rows = await sql`
      select key_id, identity_id, tag_set = other_tag_set() as is_other from ${sql(table)}
       where key_id like '%key' or key_id like 'erased%' or identity_id like 'erased%' order by 1, 2, 3`
    expect([...rows]).toEqual([
      { key_id: 'erased_1', identity_id: 'id_2', is_other: false },
      { key_id: 'kept key', identity_id: 'erased_2', is_other: false },
      { key_id: 'kept key', identity_id: 'erased_2', is_other: true },
    ])
  }
})

test('hours of a key that move leave the sums of its hours that stay', async () => {
  const day = DAY + 3 * DAY_MS
  await sumUp(day)
  const key = { keyspace: 1, key: 'half moved', identity: 'id_1', tag: 'half folded' }
  const [inMonth, inDay, inNone] = [day, day + DAY_MS, day + DAY_MS + 5 * HOUR_MS]
  for (const hour of [inMonth, inMonth + HOUR_MS, inDay, inDay + HOUR_MS, inNone])
    await count(sql, [{ ...key, hour }])
  await sumUp(day + DAY_MS + 2 * HOUR_MS)
  expect(await wrongSums()).toEqual([])
  const [set] = await sql<{ id: Buffer }[]>`select id from usage_tag_sets where tags = '{"half folded"}'`
  await sql`select fold_tag_set('ws_1', ${inDay}, ${DAY}, ${set?.id ?? Buffer.of()})`
  expect(await wrongSums()).toEqual([])
  await sql`delete from usage_verifications where key_id = 'half moved' and hour in (${inMonth}, ${inNone})`
  expect(await wrongSums()).toEqual([])
})

test('while an hour and a day are being added, changes of all their keys are exact, and so is what is read', async () => {
  const from = DAY + 5 * DAY_MS
  await sumUp(from)
  const keys = Array.from({ length: 9 }, (_, at) => `adding_${at}`)
  const rows = keys.flatMap((key) => [
    { keyspace: 1, hour: from, key },
    { keyspace: 2, hour: from + DAY_MS, key, identity: 'id_1' },
  ])
  await count(sql, rows)
  let expected = rows.length
  const seen = new Set<string>()
  for (let goesOn = true; goesOn; ) {
    goesOn = await sumUpSlice(sql, from + DAY_MS + HOUR_MS)
    const made = await readMade(sql, async (is) => is, { isEmpty: () => false })
    seen.add(`hour of ${made.days.adding?.keyspaceId}`).add(`day of ${made.months.adding?.keyspaceId}`)
    // One on each side of where it is.
    await count(
      sql,
      [rows[0], rows.at(-1), rows[8], rows[9]].filter((row) => row !== undefined),
    )
    expected += 4
    expect(await wrongSums()).toEqual([])
    expect(await countAll(sql, { from, to: from + 2 * DAY_MS })).toBe(expected)
  }
  for (const adding of ['hour of ks_1', 'hour of ks_2', 'day of ks_1']) expect(seen).toContain(adding)
})

/** The rows of the current day and month grow all the time. */
test('a question beside a server that sums up never counts twice what is being added, nor leaves it out', async () => {
  const from = DAY + 7 * DAY_MS
  await sumUp(from)
  const rows = Array.from({ length: 60 }, (_, at) => ({
    keyspace: 1 + (at % 3),
    hour: from + (at % 30) * HOUR_MS,
    key: `read_${at}`,
  }))
  await count(sql, rows)
  let isOver = false
  const making = async (on: Sql) => {
    while (await sumUpSlice(on, from + 30 * HOUR_MS));
    isOver = true
  }
  const asking = async (on: Sql) => {
    let answers = 0
    for (; !isOver; answers++) expect(await countAll(on, { from, to: from + 3 * DAY_MS })).toBe(rows.length)
    return answers
  }
  const one = database.anotherPool()
  const [answers] = await Promise.all([asking(sql), asking(one), making(database.anotherPool())])
  expect(answers).toBeGreaterThan(3)
})

test('a process killed while it sums up leaves sums that are exact, and another goes on', async () => {
  const from = DAY + 10 * DAY_MS
  await sumUp(from)
  const rows = Array.from({ length: 400 }, (_, at) => ({
    keyspace: 1 + (at % 3),
    hour: from + (at % 40) * HOUR_MS,
    key: `killed_${at % 50}`,
  }))
  await count(sql, rows)
  const before = from + 2 * DAY_MS
  for (let round = 0; round < 4; round++) {
    const name = join(import.meta.dir, 'sum-up.child.ts')
    const child = Bun.spawn([process.execPath, name, JSON.stringify(database.address), `${before}`], {
      stdout: 'pipe',
      stderr: 'inherit',
    })
    const reading = (async () => {
      let slices = 0
      for await (const bytes of child.stdout) {
        slices += bytes.length
        if (slices > 20 + round * 7) child.kill(9)
      }
    })()
    await child.exited
    await reading
    expect(await wrongSums()).toEqual([])
  }
  await sumUp(before)
  expect(await wrongSums()).toEqual([])
  expect(await countAll(sql, { from, to: before })).toBe(rows.length)
})

/** By key, as the rows of months, days and hours add up. */
async function countAll(on: AnySql, range: { from: number; to: number }): Promise<number> {
  const all = { workspaceId, keyspaceIds: ['ks_1', 'ks_2', 'ks_3'], identityId: null, keyIds: [], tags: [] }
  const by = { time: null, key: true, identity: false, tags: null }
  const rows = await readMade(
    on,
    (made) => countVerifications(on, { ...all, ...range, made }, by, null, 1_000),
    { isEmpty: (found) => found.length === 0 },
  )
  return rows.reduce((sum, { valid }) => sum + valid, 0)
}

/** The embedded database runs one transaction at a time. */
test.skipIf(TEST_DATABASE_URL === null)(
  'sums stay exact while batches, erasures, retention, questions and two servers that sum up run at once',
  async () => {
    const from = Date.UTC(2026, 8, 10)
    await sumUp(from)
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
        while (await sumUpSlice(on, from + days * DAY_MS));
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
    const asking = async (on: Sql) => {
      while (!isOver)
        await on.begin('isolation level repeatable read read only', async (tx) => {
          const [row] = await tx<
            { hours: number }[]
          >`select sum(valid)::bigint as hours from usage_verifications where hour >= ${DAY}`
          expect(await countAll(tx, { from: DAY, to: from + 30 * DAY_MS })).toBe(row?.hours ?? 0)
          expect(await wrongSums(tx)).toEqual([])
        })
    }
    const dropping = async (on: Sql) => {
      await Bun.sleep(150)
      while (
        !(await dropOldPartitions(on, 1, Date.UTC(2026, 9, 1)).then(
          () => true,
          (cause: unknown) => {
            if (codeOf(cause) !== '55P03') throw cause // a question holds the table: again
            return false
          },
        ))
      );
    }
    await count(sql, [{ keyspace: 1, hour: AUGUST, key: 'old' }])
    const [before] = await sql<{ sum: number }[]>`select sum(valid)::bigint as sum from usage_verifications`
    const makers = [
      making(database.anotherPool()),
      making(database.anotherPool()),
      asking(database.anotherPool()),
    ]
    await Promise.all([
      counting(sql, 'one'),
      counting(database.anotherPool(), 'two'),
      counting(database.anotherPool(), 'three'),
      erasing(database.anotherPool()),
      dropping(database.anotherPool()),
    ])
    isOver = true
    await Promise.all(makers)
    await sumUp(from + DAYS * DAY_MS)
    expect(await wrongSums()).toEqual([])
    const after = await total()
    expect(after?.hours).toBe((before?.sum ?? 0) + counted - 1) // that of August
    expect([after?.days, after?.months]).toEqual([after?.hours ?? 0, after?.hours ?? 0])
    const [erased] =
      await sql`select count(*)::integer as rows from usage_verification_days where key_id in ('key_3', 'key_7', 'key_1')`
    expect(erased?.rows).toBe(0)
  },
)
