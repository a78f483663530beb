import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { type AuditEventFilter, listAuditEventRows } from '../../../src/api/audit-events/store.ts'
import { connect } from '../../../src/db/connect.ts'
import { findOverAuditEvents } from '../../../src/db/kept-rows.ts'
import { DAY_MS } from '../../../src/lib/clock.ts'
import type { WorkspaceId } from '../../../src/lib/ids.ts'
import { fillAuditMonths, pastMonths } from '../../support/audit-months.ts'
import { openTestSql, TEST_DATABASE_URL, type TestSql } from '../../support/database.ts'
import { IS_NIGHTLY } from '../../support/nightly.ts'
import { explaining } from '../../support/plan.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(3 * SLOW_MS)

const ANY: AuditEventFilter = { event: null, actorId: null, resourceId: null, start: null, end: null }
const workspaceId = 'ws_1' as WorkspaceId // no actor here, only the statement
const months = pastMonths(4)

/** The embedded database takes minutes for so many, and plans as Postgres does. */
const ROWS = IS_NIGHTLY ? 250_000 : 80_000
describe.if(TEST_DATABASE_URL !== null)(`in a log of four months with ${ROWS} events each`, () => {
  let database: TestSql
  beforeAll(async () => {
    database = await openTestSql()
    await fillAuditMonths(database.sql, months, ROWS)
  })
  afterAll(async () => await database?.[Symbol.asyncDispose]())

  /** @returns events of a page, and how many rows and pages of 8 kB were read for it. */
  async function read(some: Partial<AuditEventFilter>, { limit = 100, cursor = '' } = {}) {
    const page = { limit, cursor }
    const filter = { ...ANY, ...some }
    const { rows } = await listAuditEventRows(database.sql, workspaceId, filter, page)
    const { sql: explained, rowsRead, pagesRead } = explaining(database.sql)
    // Which months there are must be answered, for the page to be asked.
    const sql = new Proxy(database.sql, {
      apply: (target, self, args) =>
        Reflect.apply(String(args[0]).includes('pg_inherits') ? target : explained, self, args),
    })
    await listAuditEventRows(sql, workspaceId, filter, page)
    return { rows, read: rowsRead('audit_events'), pages: pagesRead() }
  }
  /** The last event of a month, and the first of the next. */
  async function around(month: number) {
    const { sql } = database
    const [last] = await sql<{ id: string; key: string }[]>`
      select id from audit_events where occurred_at < ${month} order by occurred_at desc, id desc limit 1`
    const [first] = await sql<{ id: string; key: string }[]>`
      select id, resources -> 0 ->> 'id' as key from audit_events where occurred_at >= ${month} order by occurred_at, id limit 1`
    return { last: last?.id ?? '', first: first?.id ?? '', key: first?.key ?? '' }
  }

  /** Both filters find half of the log each, and one walked through all of it for the other: 4 million rows in 5.7 s. */
  test('what two or three filters never find together is known without reading what each finds', async () => {
    const { last } = await around(months[2] ?? 0)
    for (const filter of [
      { event: 'key.delete', resourceId: 'api_a' },
      { event: 'key.delete', actorId: 'key_1' },
      { actorId: 'key_1', resourceId: 'api_b' },
      { event: 'key.create', actorId: 'key_1', resourceId: 'api_b' },
      { event: 'key.update', actorId: 'key_unknown', resourceId: 'api_b' },
      { event: 'key.create', resourceId: 'api_b', start: months[1] ?? 0, end: (months[2] ?? 0) + DAY_MS },
    ])
      for (const cursor of ['', last]) {
        const page = await read(filter, { cursor })
        expect({ filter, rows: page.rows.length }).toEqual({ filter, rows: 0 })
        expect(page.read).toBeLessThan(20)
        expect(page.pages).toBeLessThan(300)
      }
  })

  test('a page of any filter is read from the indexes as far as the page goes', async () => {
    const { last } = await around(months[2] ?? 0)
    for (const filter of [
      {},
      { event: 'key.create' },
      { actorId: 'key_1' },
      { resourceId: 'api_a' },
      { event: 'key.update', resourceId: 'api_a' },
      { event: 'key.update', actorId: 'key_2' },
      { event: 'key.update', actorId: 'key_1', resourceId: 'api_a' },
      { start: (months[1] ?? 0) + DAY_MS, resourceId: 'api_b' },
    ])
      for (const cursor of ['', last]) {
        const page = await read(filter, { cursor })
        expect({ filter, rows: page.rows.length }).toEqual({ filter, rows: 101 })
        expect(page.read).toBeLessThan(700)
      }
  })

  /** Earlier months were walked through for it, as walking was right for the month in which it was busy. */
  test('a resource of one month costs nothing in the others', async () => {
    const { first } = await around(months[3] ?? 0)
    const inLast = [
      { resourceId: 'api_new' },
      { resourceId: 'api_new', event: 'key.update' },
      { resourceId: 'api_new', actorId: 'key_2' },
      { resourceId: 'api_new', event: 'key.delete', actorId: 'key_2' },
    ]
    for (const filter of inLast) {
      const page = await read(filter)
      expect({ filter, rows: page.rows.length }).toEqual({ filter, rows: 101 })
      expect(page.read).toBeLessThan(700)
    }
    for (const filter of [{ resourceId: 'api_b' }, { resourceId: 'api_b', event: 'key.update' }]) {
      const page = await read(filter, { cursor: first })
      expect(page.rows).toEqual([])
      expect(page.read).toBeLessThan(20)
    }
  })

  test('what happened to one key is found whatever else is asked', async () => {
    const { key } = await around(months[2] ?? 0)
    for (const [filter, count] of [
      [{ resourceId: key }, 1],
      [{ resourceId: key, event: 'key.create', actorId: 'key_1' }, 1],
      [{ resourceId: key, event: 'key.update' }, 0],
    ] as const) {
      const page = await read(filter)
      expect(page.rows).toHaveLength(count)
      expect(page.read).toBeLessThan(20)
    }
  })

  /** After five executions Postgres may choose a plan for all values, and one that suits a busy API reads all for a rare one. */
  test('reads of history are planned for their values each time', async () => {
    const modeOf = async (statementTimeoutMs?: number) => {
      const sql = connect(database.address, { connectionsMax: 1, statementTimeoutMs })
      const [row] = await sql<{ mode: string }[]>`select current_setting('plan_cache_mode') as mode`
      await sql.end()
      return row?.mode
    }
    expect([await modeOf(), await modeOf(1000)]).toEqual(['auto', 'force_custom_plan'])
  })

  test('pages go on from one month to the next', async () => {
    const { last, first } = await around(months[1] ?? 0)
    const { rows } = await read({}, { cursor: last, limit: 10 })
    expect(rows[0]?.id).toBe(first)
    const before = await read({ end: months[1] ?? 0, start: (months[1] ?? 0) - 1_000_000 }, { limit: 100 })
    expect(before.rows).toEqual([])
    const ids = (await read({ start: (months[1] ?? 0) - 3_600_000 }, { limit: 1000 })).rows.map(
      ({ id }) => id,
    )
    expect(ids.indexOf(first)).toBe(ids.indexOf(last) + 1)
    expect(ids).toEqual(ids.toSorted())
  })

  test('whether a workspace has too many events is known without reading them', async () => {
    const { sql, rowsRead } = explaining(database.sql)
    await database.sql`update workspaces set bounds = '{"auditEvents": 10000000}' where id = ${workspaceId}`
    await findOverAuditEvents(sql)
    expect(rowsRead('audit_events')).toBe(0)
  })

  test('a range of time opens no other month', async () => {
    const [start, end] = [months[1] ?? 0, (months[1] ?? 0) + DAY_MS]
    const explained = await database.sql<{ 'QUERY PLAN': string }[]>`
      explain select id from audit_events where workspace_id = 'ws_1' and occurred_at >= ${start} and occurred_at < ${end} order by seq, id`
    const plan = explained.map((row) => row['QUERY PLAN']).join('\n')
    expect(new Set(plan.match(/audit_events_20\d{4}/g))).toEqual(
      new Set([`audit_events_${new Date(start).toISOString().slice(0, 7).replace('-', '')}`]),
    )
  })
})
