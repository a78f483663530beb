import { expect, setDefaultTimeout, test } from 'bun:test'
import { listAuditEventRows } from '../../src/audit-events/store.ts'
import type { WorkspaceId } from '../../src/lib/ids.ts'
import { openTestSql } from '../support/database.ts'
import { explaining } from '../support/explaining.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const ANY = { event: null, actorId: null, resourceId: null, start: null, end: null }
const PAGE = { limit: 100, cursor: '', beforeId: null }

/** Both read all that the workspace ever did, and timed out where that was much. */
test('what one root key did, or one kind of event, is found without reading the rest of the log', async () => {
  await using database = await openTestSql()
  await database.sql`insert into workspaces (id, name, created_at) values ('ws_1', 'one', 0)`
  await database.sql`
    insert into audit_events (id, workspace_id, event, actor_type, actor_id, resources, description, occurred_at)
    select 'log_' || number, 'ws_1', case when number % 10000 = 7 then 'api.delete' else 'key.create' end, 'key',
           case when number % 10000 = 9 then 'key_rare' else 'key_busy' end, '[]', '', number
      from generate_series(10000, 49999) as number`
  await database.sql`analyze audit_events`
  const workspaceId = 'ws_1' as WorkspaceId // no actor here, only the statement
  for (const some of [{ actorId: 'key_rare' }, { event: 'api.delete' }]) {
    const filter = { ...ANY, ...some }
    expect(await listAuditEventRows(database.sql, workspaceId, filter, PAGE)).toHaveLength(4)
    const { sql, rowsRead } = explaining(database.sql)
    await listAuditEventRows(sql, workspaceId, filter, PAGE)
    expect(rowsRead('audit_events')).toBe(4)
  }
})
