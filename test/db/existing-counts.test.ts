import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { cpSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { boundReachedBy, setBounds } from '../../src/db/bounds.ts'
import { migrate } from '../../src/db/migrate.ts'
import { defaultBounds } from '../../src/lib/workspace-bounds.ts'
import { openTestSql, type TestSql } from '../support/database.ts'

setDefaultTimeout(60_000)

const SQL = join(import.meta.dir, '../../sql')
const scratch = mkdtempSync(join(tmpdir(), 'tollgate-counts-'))
let database: TestSql
beforeAll(async () => {
  database = await openTestSql()
})
afterAll(async () => {
  await database[Symbol.asyncDispose]()
  rmSync(scratch, { recursive: true })
})

/** No trigger saw the rows from before an upgrade: uncounted, they would let in as many again. */
test('rows from before the upgrade are counted after it', async () => {
  const { sql } = database
  await sql`drop schema public cascade`
  await sql`create schema public`
  for (const file of readdirSync(SQL)) if (file < '0012') cpSync(join(SQL, file), join(scratch, file))
  await migrate(sql, { folder: scratch })
  await sql.unsafe(`
    insert into workspaces (id, name, created_at) values ('ws_1', 'one', 0), ('ws_2', 'two', 0);
    insert into keyspaces (id, workspace_id, created_at) values ('ks_1', 'ws_1', 0);
    insert into apis (id, workspace_id, name, keyspace_id, created_at, deleted_at)
    values ('api_1', 'ws_1', 'lives', 'ks_1', 0, null), ('api_2', 'ws_1', 'deleted', null, 0, 1);
    insert into identities (id, workspace_id, external_id, created_at) values ('id_1', 'ws_1', 'a', 0), ('id_2', 'ws_1', 'b', 0);
    insert into keys (id, workspace_id, keyspace_id, hash, start, created_at, deleted_at, for_workspace_id, is_operator)
    values ('key_1', 'ws_1', 'ks_1', 'h1', 's', 0, null, null, false), ('key_2', 'ws_1', 'ks_1', 'h2', 's', 0, null, null, false),
           ('key_3', 'ws_1', 'ks_1', 'h3', 's', 0, 1, null, false), ('key_4', 'ws_root', 'ks_root', 'h4', 's', 0, null, 'ws_2', false),
           ('key_5', 'ws_root', 'ks_root', 'h5', 's', 0, null, 'ws_2', true);
    insert into roles (id, workspace_id, name, created_at) values ('role_1', 'ws_1', 'r', 0);
    insert into permissions (id, workspace_id, name, slug, created_at) values ('perm_1', 'ws_2', 'p', 'p', 0);
    insert into ratelimit_namespaces (id, workspace_id, name, created_at, deleted_at)
    values ('rlns_1', 'ws_1', 'a', 0, null), ('rlns_2', 'ws_1', 'b', 0, 1);
    insert into ratelimit_overrides (id, workspace_id, namespace_id, identifier, "limit", duration_ms, created_at)
    values ('rlor_1', 'ws_1', 'rlns_1', 'a', 1, 1000, 0), ('rlor_2', 'ws_1', 'rlns_2', 'a', 1, 1000, 0);
    insert into key_imports (workspace_id, migration_id, api_id, key_id, key, actor_id, next_at, created_at, failed_at)
    values ('ws_1', 'm', 'api_1', 'k', '{}', 'r', 0, 0, null), ('ws_1', 'm', 'api_1', 'k', '{}', 'r', 0, 0, 1);`)
  await migrate(sql)
  const counts = await sql<{ name: string }[]>`
    select workspace_id || ' ' || name || ' ' || sum(used) as name from workspace_counts group by workspace_id, name order by 1`
  expect(counts.map(({ name }) => name)).toEqual([
    'ws_1 apis 1',
    'ws_1 identities 2',
    'ws_1 keys 2',
    'ws_1 keys/ks_1 2',
    'ws_1 namespaces 1',
    'ws_1 overrides 1',
    'ws_1 overrides/rlns_1 1',
    'ws_1 queuedImports 1',
    'ws_1 roles 1',
    'ws_2 permissions 1',
    'ws_2 rootKeys 1',
    'ws_root workspaces 2',
  ])
  await setBounds(sql, { ...defaultBounds(), keys: 3, roles: 1 })
  const insertKey = (hash: string) => sql`
    insert into keys (id, workspace_id, keyspace_id, hash, start, created_at) values (${hash}, 'ws_1', 'ks_1', ${hash}, 's', 0)`
  await insertKey('h6')
  const cause = await insertKey('h7').catch((cause: unknown) => cause)
  expect(boundReachedBy(cause)).toMatchObject({
    workspaceId: 'ws_1',
    bound: 'keys',
    code: 'PRECONDITION_FAILED',
  })
})
