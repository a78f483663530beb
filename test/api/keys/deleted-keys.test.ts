import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { countKeys, findKeysOfOwner, listKeyRows } from '../../../src/api/keys/store.ts'
import { countOverrides, findNamespaceByName, listOverrideRows } from '../../../src/api/ratelimits/store.ts'
import { countRootKeys, listRootKeyRows } from '../../../src/api/root-keys/store.ts'
import type { WorkspaceId } from '../../../src/lib/ids.ts'
import { openTestSql, type TestSql } from '../../support/database.ts'
import { explaining } from '../../support/plan.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const DELETED = 20_000
const workspaceId = 'ws_1' as WorkspaceId // only the statements are tested, without an actor

let database: TestSql
beforeAll(async () => {
  database = await openTestSql()
  const { sql } = database
  await sql`insert into workspaces (id, name, created_at) values (${workspaceId}, 'one', 0)`
  await sql`insert into keyspaces (id, workspace_id, created_at) values ('ks_1', ${workspaceId}, 0)`
  await sql`
    insert into apis (id, workspace_id, name, keyspace_id, created_at) values ('api_1', ${workspaceId}, 'one', 'ks_1', 0)`
  await sql`
    insert into keys (id, workspace_id, keyspace_id, hash, start, created_at, deleted_at)
    select 'key_' || number, ${workspaceId}, 'ks_1', 'hash ' || number, '', 0, case when number < 100000 + ${DELETED} then 1 end
      from generate_series(100000, 100000 + ${DELETED} + 9) as number`
  await sql`
    insert into keys (id, workspace_id, keyspace_id, hash, start, owner_id, for_workspace_id, created_at, deleted_at)
    select 'root_' || number, 'ws_root', 'ks_root', 'root hash ' || number, '', 'one owner', ${workspaceId}, 0,
           case when number < 100000 + ${DELETED} then 1 end
      from generate_series(100000, 100000 + ${DELETED} + 9) as number`
  await sql`
    insert into ratelimit_namespaces (id, workspace_id, name, created_at) values ('rlns_1', ${workspaceId}, 'one', 0)`
  await sql`
    insert into ratelimit_overrides (id, workspace_id, namespace_id, identifier, "limit", duration_ms, created_at, deleted_at)
    select 'rlor_' || number, ${workspaceId}, 'rlns_1', 'visitor ' || number, 1, 1000, 0,
           case when number < 100000 + ${DELETED} then 1 end
      from generate_series(100000, 100000 + ${DELETED} + 9) as number`
  await sql`
    insert into ratelimits (id, workspace_id, name, key_id, "limit", duration_ms, created_at)
    select 'rl_' || id, workspace_id, 'requests', id, 1, 1000, 0 from keys where keyspace_id = 'ks_1'`
  await sql`vacuum analyze keys`
  await sql`vacuum analyze apis`
  await sql`vacuum analyze ratelimit_overrides`
})
afterAll(() => database[Symbol.asyncDispose]())

/** Bug: with many created and deleted keys the list became slower each day, because it read all that ever existed. */
test('keys are listed without reading deleted ones', async () => {
  const page = { limit: 100, cursor: '', limits: 'all' as const }
  expect((await listKeyRows(database.sql, workspaceId, 'ks_1', null, page)).rows).toHaveLength(10)
  expect(await countKeys(database.sql, workspaceId, 'ks_1')).toBe(10)
  const { sql, rowsRead } = explaining(database.sql)
  await listKeyRows(sql, workspaceId, 'ks_1', null, page)
  expect(rowsRead('keys')).toBe(20) // once for the sizes of the page, once for the page
  await countKeys(sql, workspaceId, 'ks_1')
  expect(rowsRead('keys')).toBe(0)
})

test('root keys and the keys of an owner are listed without reading deleted ones', async () => {
  const { sql, rowsRead } = explaining(database.sql)
  expect(await listRootKeyRows(database.sql, workspaceId, { limit: 100, cursor: '' })).toHaveLength(10)
  await listRootKeyRows(sql, workspaceId, { limit: 100, cursor: '' })
  expect(rowsRead('keys')).toBe(10)
  expect(await countRootKeys(database.sql, workspaceId)).toBe(10)
  await countRootKeys(sql, workspaceId)
  expect(rowsRead('keys')).toBe(0)
  await findKeysOfOwner(sql, 'ws_root' as WorkspaceId, 'one owner') // only the statements are tested, without an actor
  expect(rowsRead('keys')).toBe(10)
})

test('overrides are listed and applied without reading deleted ones', async () => {
  const page = { limit: 100, cursor: '' }
  expect(await listOverrideRows(database.sql, workspaceId, 'rlns_1', page)).toHaveLength(10)
  const { sql, rowsRead, pagesRead } = explaining(database.sql)
  await listOverrideRows(sql, workspaceId, 'rlns_1', page)
  expect(rowsRead('ratelimit_overrides')).toBe(10)
  expect(await countOverrides(database.sql, workspaceId, 'rlns_1')).toBe(10)
  await countOverrides(sql, workspaceId, 'rlns_1')
  expect(rowsRead('ratelimit_overrides')).toBe(0)
  await findNamespaceByName(sql, workspaceId, 'one', 2_000)
  const read = pagesRead() // a function reads them, whose rows are not shown
  const [{ pages = 0 } = {}] = await database.sql<{ pages: number }[]>`
    select relpages as pages from pg_class where relname = 'ratelimit_overrides'`
  expect(read).toBeLessThan(pages / 2)
})

test('limits are read of the keys of a page only, once for its size, once to show them', async () => {
  const { sql, rowsRead } = explaining(database.sql)
  await listKeyRows(sql, workspaceId, 'ks_1', null, { limit: 100, cursor: '', limits: 'all' })
  expect(rowsRead('ratelimits')).toBe(20)
  await listKeyRows(sql, workspaceId, 'ks_1', null, { limit: 100, cursor: '', limits: 'default' })
  expect(rowsRead('ratelimits')).toBe(0) // none has that name
})
