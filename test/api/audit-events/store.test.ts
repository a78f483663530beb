import { expect, setDefaultTimeout, test } from 'bun:test'
import { listAuditEventRows } from '../../../src/api/audit-events/store.ts'
import { DAY_MS } from '../../../src/lib/clock.ts'
import { newId, type WorkspaceId } from '../../../src/lib/ids.ts'
import { openTestSql } from '../../support/database.ts'
import { explaining } from '../../support/plan.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const ANY = { event: null, actorId: null, resourceId: null, start: null, end: null }
const PAGE = { limit: 100, cursor: '' }

/** Bug: both read everything that the workspace ever did, and timed out in a long log. */
test('events of one root key or of one kind are found without reading the rest of the log', async () => {
  await using database = await openTestSql()
  await database.sql`insert into workspaces (id, name, created_at) values ('ws_1', 'one', 0)`
  await database.sql`
    insert into audit_events (id, workspace_id, event, actor_type, actor_id, resources, description, occurred_at)
    select 'log_' || number, 'ws_1', case when number % 10000 = 7 then 'api.delete' else 'key.create' end, 'key',
           case when number % 10000 = 9 then 'key_rare' else 'key_busy' end, '[]', '', number
      from generate_series(10000, 49999) as number`
  await database.sql`analyze audit_events`
  const workspaceId = 'ws_1' as WorkspaceId // only the statement is tested, without an actor
  for (const some of [{ actorId: 'key_rare' }, { event: 'api.delete' }]) {
    const filter = { ...ANY, ...some }
    expect((await listAuditEventRows(database.sql, workspaceId, filter, PAGE)).rows).toHaveLength(4)
    const { sql, rowsRead } = explaining(database.sql)
    await listAuditEventRows(sql, workspaceId, filter, PAGE)
    expect(rowsRead('audit_events')).toBe(4)
  }
})

/** A page in the middle, by cursor or by time, costs only what it shows. */
test('a page anywhere in a long log is read without the pages before it', async () => {
  await using database = await openTestSql()
  await database.sql`insert into workspaces (id, name, created_at) values ('ws_1', 'one', 0)`
  const firstMs = Date.now() - 400 * DAY_MS
  const at = (number: number) => firstMs + (number * DAY_MS) / 100
  const events = Array.from({ length: 30_000 }, (_, number) => ({
    id: newId('log', at(number)),
    at: at(number),
  }))
  await database.sql`
    insert into audit_events (id, workspace_id, event, actor_type, actor_id, resources, description, occurred_at)
    select e.id, 'ws_1', 'key.create', 'key', 'key_1', '[]', '', e.at
      from json_to_recordset((${JSON.stringify(events)}::text)::json) as e (id text, at bigint)
     order by e.id`
  await database.sql`analyze audit_events`
  const workspaceId = 'ws_1' as WorkspaceId // only the statement is tested, without an actor
  const idOf = (number: number) => events[number]?.id ?? ''
  const idsFrom = (number: number) => Array.from({ length: 11 }, (_, index) => idOf(number + index))
  const pages = [
    { filter: ANY, cursor: idOf(14_999), first: 15_000 },
    { filter: { ...ANY, start: at(20_000) }, cursor: '', first: 20_000 },
    { filter: { ...ANY, start: at(20_000), end: at(21_000) }, cursor: idOf(20_499), first: 20_500 },
  ]
  for (const { filter, cursor, first } of pages) {
    const { rows } = await listAuditEventRows(database.sql, workspaceId, filter, { limit: 10, cursor })
    expect(rows.map(({ id }) => id)).toEqual(idsFrom(first))
    const { sql, rowsRead } = explaining(database.sql)
    await listAuditEventRows(sql, workspaceId, filter, { limit: 10, cursor })
    expect(rowsRead('audit_events')).toBeLessThan(50)
  }
  for (const cursor of ['', idOf(15_000)]) {
    const page = { limit: 10, cursor, order: 'newestFirst' as const }
    const before = cursor === '' ? 30_000 : 15_000
    const { rows } = await listAuditEventRows(database.sql, workspaceId, ANY, page)
    expect(rows.map(({ id }) => id)).toEqual(idsFrom(before - 11).toReversed())
    const { sql, rowsRead } = explaining(database.sql)
    await listAuditEventRows(sql, workspaceId, ANY, page)
    expect(rowsRead('audit_events')).toBeLessThan(50)
  }
  // A range that has ended needs no read of later events to know that it is complete.
  const filter = { ...ANY, start: at(50), end: at(51) }
  const { sql, rowsRead } = explaining(database.sql)
  await listAuditEventRows(sql, workspaceId, filter, { limit: 100, cursor: '' })
  expect(rowsRead('audit_events')).toBeLessThan(50)
})
