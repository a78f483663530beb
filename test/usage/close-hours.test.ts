import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { bucketsWithRatelimits, countRatelimits } from '../../src/api/analytics/store.ts'
import type { Sql } from '../../src/db/connect.ts'
import { holdCounts, insertErasedNames, moveIdentifierCounts } from '../../src/erasure/store.ts'
import { HOUR_MS } from '../../src/lib/clock.ts'
import type { WorkspaceId } from '../../src/lib/ids.ts'
import { emptyColumns } from '../../src/usage/batch.ts'
import { closeRatelimitHours, IDENTIFIERS_KEPT_MAX } from '../../src/usage/close-hours.ts'
import { countBatch, makeMonth } from '../../src/usage/rollup.ts'
import { openTestSql, type TestSql } from '../support/database.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

/** Long over by the clock of the database, too. */
const HOUR = Date.UTC(2024, 1, 3, 4)
const IDENTIFIERS = 6_000
const workspaceId = 'ws_1' as WorkspaceId // statements are tested here, without an actor

let database: TestSql
let sql: Sql
beforeAll(async () => {
  database = await openTestSql()
  sql = database.sql
  await makeMonth(sql, HOUR)
  await sql`insert into workspaces (id, name, created_at) values (${workspaceId}, 'one', ${HOUR})`
})
afterAll(() => database[Symbol.asyncDispose]())

let namespaces = 0
/** An hour of a namespace in which identifier `user_<i>` has passed i % 7_000 + 1 times. */
async function fillHour(): Promise<{ namespaceId: string; total: number }> {
  const namespaceId = `rlns_${++namespaces}`
  await sql`insert into ratelimit_namespaces (id, workspace_id, name, created_at) values (${namespaceId}, ${workspaceId}, ${namespaceId}, ${HOUR})`
  await sql`
    insert into usage_ratelimit_identifiers (hour, passed, denied, workspace_id, namespace_id, identifier)
    select ${HOUR}::bigint, number % 7000 + 1, 0, ${workspaceId}, ${namespaceId}, 'user_' || number
      from generate_series(1, ${IDENTIFIERS}) as number`
  const [row] = await sql<{ total: number }[]>`
    insert into usage_ratelimits (hour, passed, denied, identifiers, workspace_id, namespace_id)
    select hour, sum(passed) + 5, 0, count(*), workspace_id, namespace_id
      from usage_ratelimit_identifiers where namespace_id = ${namespaceId} group by hour, workspace_id, namespace_id
    returning passed as total`
  // As in a database that runs: without it each slice would read all rows.
  await sql`analyze usage_ratelimit_identifiers, usage_ratelimits`
  return { namespaceId, total: row?.total ?? 0 }
}

/** What a question shows. */
async function shown(namespaceId: string) {
  const filter = { workspaceId, namespaceId, identifiers: [], from: HOUR, to: HOUR + HOUR_MS }
  const groups = { time: null, identifier: true }
  const rows = await countRatelimits(sql, filter, groups, { by: 'total', descending: true }, 20_000)
  const named = rows.filter(({ identifier }) => identifier !== null)
  return {
    named: named.length,
    least: named.at(-1)?.total,
    sum: rows.reduce((sum, { total }) => sum + total, 0),
    names: new Set(named.map(({ identifier }) => identifier)),
  }
}

async function send(namespaceId: string, identifier: string): Promise<void> {
  const columns = emptyColumns()
  columns.totals = {
    workspaceId: [workspaceId],
    namespaceId: [namespaceId],
    hour: [HOUR],
    passed: [1],
    denied: [0],
  }
  columns.identifiers = { total: [1], identifier: [identifier], passed: [1], denied: [0] }
  await countBatch(sql, { writer: crypto.randomUUID(), number: 1, columns }, HOUR)
}

/** Bug: an hour of 100 000 identifiers was cut by one statement of 2.4 s. */
test('an hour of many identifiers is cut in slices, and every question shows it whole or cut', async () => {
  const { namespaceId, total } = await fillHour()
  const steps: number[] = []
  let before: (string | null)[] = []
  await closeRatelimitHours(sql, Date.now(), async () => {
    const { named, sum, names, least } = await shown(namespaceId)
    expect(sum).toBe(total)
    if (named === IDENTIFIERS) expect(steps).not.toContain(IDENTIFIERS_KEPT_MAX)
    else {
      expect([named, least]).toEqual([IDENTIFIERS_KEPT_MAX, 5_002])
      if (before.length > 0) expect([...names]).toEqual(before)
      before = [...names]
      const asked = { workspaceId, namespaceId, identifiers: ['user_3'], from: HOUR, to: HOUR + HOUR_MS }
      expect(await bucketsWithRatelimits(sql, asked, 'hour')).toEqual(new Set())
    }
    steps.push(named)
    return true
  })
  expect(steps.filter((named) => named === IDENTIFIERS).length).toBeGreaterThan(2)
  expect(steps.filter((named) => named === IDENTIFIERS_KEPT_MAX).length).toBeGreaterThan(10)
  const [rows] =
    await sql`select count(*)::integer as rows from usage_ratelimit_identifiers where namespace_id = ${namespaceId}`
  expect(rows?.rows).toBe(IDENTIFIERS_KEPT_MAX)
  expect([...(await sql`select * from usage_ratelimit_cuts`)]).toEqual([])
})

test('a cut that was interrupted goes on, with the same identifiers, and late counts and erasures stay exact', async () => {
  const { namespaceId, total } = await fillHour()
  // Ends after some rows are deleted.
  let left = Number.POSITIVE_INFINITY
  await closeRatelimitHours(sql, Date.now(), async () => {
    if ((await shown(namespaceId)).named === IDENTIFIERS_KEPT_MAX) left = Math.min(left, 4)
    return --left > 0
  })
  const cut = await shown(namespaceId)
  expect(cut.named).toBe(IDENTIFIERS_KEPT_MAX)
  const [rows] =
    await sql`select count(*)::integer as rows from usage_ratelimit_identifiers where namespace_id = ${namespaceId}`
  expect(rows?.rows).toBeWithin(IDENTIFIERS_KEPT_MAX + 1, IDENTIFIERS)

  const kept = `user_5999`
  for (const identifier of [kept, 'user_1', 'user_new']) await send(namespaceId, identifier)
  await sql.begin(async (tx) => {
    await holdCounts(tx)
    const erased = {
      kind: 'external' as const,
      name: kept,
      pseudonym: 'erased_1',
      subject: 'erased_1',
      apiId: null,
    }
    await insertErasedNames(tx, workspaceId, [erased], HOUR)
    await moveIdentifierCounts(tx, workspaceId, { name: kept, pseudonym: 'erased_1' }, 10)
  })
  await closeRatelimitHours(sql, Date.now())
  const after = await shown(namespaceId)
  expect(after.sum).toBe(total + 3)
  const expected = new Set([...cut.names, 'erased_1'])
  expected.delete(kept)
  expect(after.names).toEqual(expected)
})

test('a server that finds the hour held by another deletes nothing, and closes it later', async () => {
  const { namespaceId, total } = await fillHour()
  const held = Promise.withResolvers<void>()
  const holding = database.anotherPool().begin(async (tx) => {
    await held.promise
    await tx`select from usage_ratelimits where namespace_id = ${namespaceId} for update`
    await Bun.sleep(300)
  })
  // Held from the moment on in which the identifiers to keep are looked for.
  let rests = 0
  await closeRatelimitHours(sql, Date.now(), async () => {
    if (++rests === 3) {
      held.resolve()
      await Bun.sleep(100)
    }
    return true
  })
  await holding
  await closeRatelimitHours(sql, Date.now())
  const { named, sum, least } = await shown(namespaceId)
  expect({ named, sum, least }).toEqual({ named: IDENTIFIERS_KEPT_MAX, sum: total, least: 5_002 })
})

test('two servers that close one hour at once keep the same identifiers', async () => {
  const { namespaceId, total } = await fillHour()
  const rest = () => Bun.sleep(1).then(() => true)
  await Promise.all([sql, database.anotherPool()].map((each) => closeRatelimitHours(each, Date.now(), rest)))
  await closeRatelimitHours(sql, Date.now())
  const { named, sum, least } = await shown(namespaceId)
  expect({ named, sum, least }).toEqual({ named: IDENTIFIERS_KEPT_MAX, sum: total, least: 5_002 })
})
