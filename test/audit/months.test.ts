import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { cpSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { listAuditEventRows } from '../../src/api/audit-events/store.ts'
import { auditMonths } from '../../src/audit/months.ts'
import { makeAuditMonth, removeUndividedEvents } from '../../src/audit/store.ts'
import { ConfigError, readConfig } from '../../src/config.ts'
import type { AnySql } from '../../src/db/connect.ts'
import { removeOldest } from '../../src/db/kept-rows.ts'
import { migrate } from '../../src/db/migrate.ts'
import { MonthlyJob } from '../../src/db/months.ts'
import { startOfMonth } from '../../src/lib/buckets.ts'
import { DAY_MS } from '../../src/lib/clock.ts'
import { newId, type WorkspaceId } from '../../src/lib/ids.ts'
import { startServer } from '../../src/server/server.ts'
import { openTestDatabase, openTestSql, TEST_DATABASE_URL, type TestSql } from '../support/database.ts'
import { OPERATOR_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let database: TestSql
beforeAll(async () => {
  database = await openTestSql()
})
afterAll(() => database[Symbol.asyncDispose]())

/** A workspace of its own, and events of it on the 15th of each of these months of 2025 (1 = January). */
async function addEvents(sql: AnySql, numbers: number[], workspaceId = newId('ws')): Promise<string> {
  await sql`insert into workspaces (id, name, created_at) values (${workspaceId}, 'one', 0) on conflict do nothing`
  for (const number of numbers) await addEvent(sql, workspaceId, Date.UTC(2025, number - 1, 15))
  return workspaceId
}

/** As the release before the partitions writes it: without `era`. */
async function addEvent(sql: AnySql, workspaceId: string, atMs: number): Promise<string> {
  const id = newId('log', atMs)
  await sql`
    insert into audit_events (id, workspace_id, event, actor_type, actor_id, resources, description, location,
                              user_agent, occurred_at)
    select e.id, ${workspaceId}, e.event, 'key', 'key_root', e.resources::jsonb, e.description, null, null, ${atMs}
      from unnest(${[id]}::text[], ${['role.create']}::text[], ${['[{"type":"role","id":"role_1"}]']}::text[],
                  ${['created role']}::text[])
        with ordinality as e (id, event, resources, description, number)
     order by e.number`
  return id
}

/** Where the events of a workspace are, in the order of their times. */
async function placesOf(sql: AnySql, workspaceId: string): Promise<string[]> {
  const rows = await sql<{ name: string }[]>`
    select tableoid::regclass::text as name from audit_events where workspace_id = ${workspaceId} order by occurred_at`
  return rows.map(({ name }) => name.replace('audit_events_', ''))
}

const ANY = { event: null, actorId: null, resourceId: null, start: null, end: null }
const list = async (sql: AnySql, workspaceId: string, cursor = '') => {
  const id = workspaceId as WorkspaceId // no actor here, only the statement
  return (await listAuditEventRows(sql, id, ANY, { limit: 100, cursor })).rows
}

const retention = (keepMonths: number | null, clock: () => number) =>
  new MonthlyJob(database.address, auditMonths(keepMonths), clock)

test('an event is in its month; one of a month that is not made yet is listed too, and moves there when it is', async () => {
  const { sql } = database
  await makeAuditMonth(sql, Date.UTC(2025, 0))
  const workspaceId = await addEvents(sql, [1, 2, 2])
  expect(await placesOf(sql, workspaceId)).toEqual(['202501', 'unplaced', 'unplaced'])
  const before = await list(sql, workspaceId)
  expect(before).toHaveLength(3)
  await makeAuditMonth(sql, Date.UTC(2025, 1, 29))
  await makeAuditMonth(sql, Date.UTC(2025, 1))
  expect(await placesOf(sql, workspaceId)).toEqual(['202501', '202502', '202502'])
  expect(await list(sql, workspaceId)).toEqual(before)
})

test('this month and the next are made by the migration and once a day, also where all months are kept', async () => {
  const { sql } = database
  const isMade = async (month: number) => {
    const name = `audit_events_${new Date(month).toISOString().slice(0, 7).replace('-', '')}`
    return (await sql`select to_regclass(${name}) is not null as made`)[0]?.made
  }
  const now = Date.now()
  expect([await isMade(now), await isMade(startOfMonth(now, 1))]).toEqual([true, true])
  const job = retention(null, () => Date.UTC(2021, 11, 31))
  await job.look()
  expect([await isMade(Date.UTC(2021, 11)), await isMade(Date.UTC(2022, 0))]).toEqual([true, true])
})

test('months beyond what is kept go once a day, and what is kept covers whole months', async () => {
  const { sql } = database
  let now = Date.UTC(2025, 5, 30, 23)
  const job = retention(2, () => now)
  for (const month of [1, 2, 3, 4, 5]) await makeAuditMonth(sql, Date.UTC(2025, month))
  const workspaceId = await addEvents(sql, [2, 3, 4, 5, 6])
  await job.look()
  expect(await placesOf(sql, workspaceId)).toEqual(['202504', '202505', '202506'])
  const late = await addEvents(sql, [3])
  await job.look() // today's round is done
  expect(await placesOf(sql, late)).toEqual(['unplaced'])
  now += DAY_MS // a day on, and a month
  await Promise.all([job.look(), job.look()])
  expect(await placesOf(sql, workspaceId)).toEqual(['202505', '202506'])
  expect(await placesOf(sql, late)).toEqual([])
  await job.stop()
})

/** A page is asked for with what an earlier one said; nobody can know that its month is gone. */
test('a cursor whose event was dropped goes on with the oldest event that is kept', async () => {
  const { sql } = database
  for (const month of [0, 5]) await makeAuditMonth(sql, Date.UTC(2025, month))
  const workspaceId = await addEvents(sql, [1, 6])
  const [old, kept] = await list(sql, workspaceId)
  await retention(2, () => Date.UTC(2025, 5, 30)).look()
  const page = await list(sql, workspaceId, old?.id)
  expect(page.map(({ id }) => id)).toEqual([kept?.id ?? ''])
  expect(await list(sql, workspaceId, kept?.id)).toEqual([])
})

test('a clock that is years ahead of the database drops nothing', async () => {
  const workspaceId = await addEvents(database.sql, [])
  await addEvent(database.sql, workspaceId, Date.now())
  await retention(1, () => Date.UTC(2090, 0)).look()
  expect(await placesOf(database.sql, workspaceId)).toHaveLength(1)
})

/** The embedded database carries out one transaction after the other: there a round simply waits. */
test.if(TEST_DATABASE_URL !== null)('a month that a long query reads is left for a later look', async () => {
  const { sql } = database
  await makeAuditMonth(sql, Date.UTC(2025, 0))
  const workspaceId = await addEvents(sql, [1])
  const job = retention(1, () => Date.UTC(2025, 5, 30))
  await database.anotherPool().begin(async (tx) => {
    await tx`select count(*) from audit_events`
    // Who comes while the drop waits is not held up until the query ends.
    const [, added] = await Promise.all([job.look(), addEvent(sql, workspaceId, Date.now())])
    expect((await list(sql, workspaceId)).map(({ id }) => id)).toContain(added)
    expect((await placesOf(sql, workspaceId))[0]).toBe('202501')
  })
  await job.look()
  expect(await placesOf(sql, workspaceId)).not.toContain('202501')
})

test('the bound of a workspace counts over all months, and its oldest events go first', async () => {
  const { sql } = database
  for (const month of [0, 1]) await makeAuditMonth(sql, Date.UTC(2025, month))
  const workspaceId = await addEvents(sql, [1, 1, 1, 2, 2])
  const other = await addEvents(sql, [1, 1, 1, 1])
  await sql`update workspaces set bounds = '{"auditEvents": 3}' where id = ${workspaceId}`
  expect(await removeOldest(sql, 1)).toContainEqual({ workspaceId, bound: 'auditEvents', rows: 2 })
  expect(await placesOf(sql, workspaceId)).toEqual(['202501', '202502', '202502'])
  expect(await placesOf(sql, other)).toHaveLength(4)
})

test('events from before the partitions stay in order, are removed in small steps, and new ones have months', async () => {
  await using old = await openTestSql()
  const { sql } = old
  await sql`drop schema public cascade`
  await sql`create schema public`
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-migrations-'))
  cpSync(join(import.meta.dir, '../../sql'), folder, { recursive: true })
  for (const name of readdirSync(folder)) if (name >= '0022') rmSync(join(folder, name))
  await migrate(sql, { folder })
  rmSync(folder, { recursive: true })
  const workspaceId = await addEvents(sql, [1, 2, 2, 3])
  const ids = (await listAsBefore(sql)).map(({ id }) => id)
  await migrate(sql)
  const at = Date.now()
  const added = await addEvent(sql, workspaceId, at)
  expect((await list(sql, workspaceId)).map(({ id }) => id)).toEqual([...ids, added])
  const thisMonth = new Date(at).toISOString().slice(0, 7).replace('-', '')
  expect(await placesOf(sql, workspaceId)).toEqual(['before', 'before', 'before', 'before', thisMonth])

  const before = Date.UTC(2025, 2)
  expect(await removeUndividedEvents(sql, before, 2)).toBe(false)
  expect(await placesOf(sql, workspaceId)).toEqual(['before', 'before', thisMonth])
  expect(await removeUndividedEvents(sql, before, 2)).toBe(true)
  expect((await list(sql, workspaceId)).map(({ id }) => id)).toEqual([ids[3] ?? '', added])
})

/** As the release before reads the log. */
const listAsBefore = (sql: AnySql) => sql<{ id: string }[]>`select id from audit_events order by seq, id`

test('a server drops them at its start, and keeps all without the setting', async () => {
  await using fresh = await openTestDatabase()
  const env = (months: string) => ({
    PORT: '0',
    DATABASE_URL: fresh.databaseUrl ?? '',
    TOLLGATE_DATA_DIR: fresh.dataDir,
    TOLLGATE_ROOT_KEY: OPERATOR_KEY,
    TOLLGATE_SHARDS: '1',
    TOLLGATE_HTTP_THREADS: '1',
    TOLLGATE_AUDIT_RETENTION_MONTHS: months,
  })
  const clock = () => Date.UTC(2025, 5, 15)
  let workspaceId: string
  {
    await using server = await startServer(readConfig(env('')), { clock })
    for (const month of [0, 4]) await makeAuditMonth(server.deps.sql, Date.UTC(2025, month))
    workspaceId = await addEvents(server.deps.sql, [1, 5])
  }
  {
    await using server = await startServer(readConfig(env('')), { clock })
    await Bun.sleep(200)
    expect(await placesOf(server.deps.sql, workspaceId)).toEqual(['202501', '202505'])
  }
  await using server = await startServer(readConfig(env('1')), { clock })
  const places = () => placesOf(server.deps.sql, workspaceId)
  for (let i = 0; i < 100 && (await places()).length > 1; i++) await Bun.sleep(50)
  expect(await places()).toEqual(['202505'])
})

test('the setting is a whole number of months from 1 to 1200, or unset', () => {
  const read = (text: string) => readConfig({ TOLLGATE_AUDIT_RETENTION_MONTHS: text }).auditRetentionMonths
  expect([read(''), read('1'), read('1200')]).toEqual([null, 1, 1200])
  for (const wrong of ['0', '1201', '1.5', '-1', 'all'])
    expect(() => read(wrong)).toThrow(
      new ConfigError(
        `TOLLGATE_AUDIT_RETENTION_MONTHS is ${JSON.stringify(wrong)}; it must be a whole number from 1 to 1200`,
      ),
    )
})
