import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { findFullest, removeExpiredAnswers, removeOldest } from '../../src/db/kept-rows.ts'
import { HOUR_MS } from '../../src/lib/clock.ts'
import {
  type Json,
  OPERATOR_KEY,
  startTestServer,
  type TestServer,
  type TestWorkspace,
} from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(() => server[Symbol.asyncDispose]())

const bounded = async (bounds: Json): Promise<TestWorkspace> => {
  const workspace = await server.workspace()
  const { workspaceId } = workspace
  const answer = await server.post('workspaces.updateWorkspace', { workspaceId, bounds }, OPERATOR_KEY)
  expect(answer.status).toBe(200)
  return workspace
}
const remove = (sliceRows?: number) => removeOldest(server.server.deps.sql, sliceRows)

test('the newest audit events up to the bound are kept, and no other workspace loses any', async () => {
  const workspace = await bounded({ auditEvents: 5 })
  const other = await server.workspace()
  for (const { post } of [workspace, other])
    for (let i = 0; i < 12; i++) await post('permissions.createRole', { name: `role.${i}` })
  expect(await remove(3)).toEqual([{ workspaceId: workspace.workspaceId, bound: 'auditEvents', rows: 7 }])
  const names = async ({ get }: TestWorkspace) =>
    (await get('audit.listEvents', { limit: 100 })).events
      .map(({ resources }: Json) => resources[0].name)
      .sort()
  expect(await names(workspace)).toEqual(['role.10', 'role.11', 'role.7', 'role.8', 'role.9'])
  expect(await names(other)).toHaveLength(12)
  expect(await remove()).toEqual([])
})

test('the keys, root keys, APIs, namespaces and overrides that were deleted last are kept', async () => {
  const workspace = await bounded({ deletedRecords: 2 })
  const { workspaceId, post } = workspace
  const { apiId } = await post('apis.createApi', { name: 'lives' })
  const times = [1, 2, 3, 4, 5]
  const keyIds: string[] = []
  for (const _ of times) keyIds.push((await post('keys.createKey', { apiId, recoverable: true })).keyId)
  const live = await post('keys.createKey', { apiId })
  for (const keyId of keyIds) await post('keys.deleteKey', { keyId })
  for (const _ of times) {
    const { rootKeyId } = await post('rootKeys.createRootKey', { permissions: [] })
    await post('rootKeys.deleteRootKey', { rootKeyId })
  }
  for (const at of times) {
    const other = await post('apis.createApi', { name: `api ${at}` })
    await post('apis.deleteApi', { apiId: other.apiId })
    const { namespaceId } = await post('ratelimits.createNamespace', { name: `namespace ${at}` })
    const override = { namespaceId, identifier: 'user', limit: 1, duration: 1000 }
    await post('ratelimits.setOverride', override)
    await post('ratelimits.deleteNamespace', { namespaceId })
  }
  const removed = await remove(2)
  expect(removed.map(({ rows }) => rows)).toEqual([3, 3, 3, 3, 3])
  const { sql } = server.server.deps
  const counts = await sql<{ of: string; count: number }[]>`
    select 'keys' as of, count(*)::integer as count from keys where workspace_id = ${workspaceId} and deleted_at is not null
     union all
    select 'root keys', count(*)::integer from keys where for_workspace_id = ${workspaceId} and deleted_at is not null
     union all
    select 'apis', count(*)::integer from apis where workspace_id = ${workspaceId} and deleted_at is not null
     union all
    select 'keyspaces', count(*)::integer from keyspaces where workspace_id = ${workspaceId}
     union all
    select 'namespaces', count(*)::integer from ratelimit_namespaces where workspace_id = ${workspaceId}
     union all
    select 'overrides', count(*)::integer from ratelimit_overrides where workspace_id = ${workspaceId}`
  expect(Object.fromEntries(counts.map(({ of, count }) => [of, count]))).toEqual({
    keys: 2,
    'root keys': 2,
    apis: 2,
    keyspaces: 3,
    namespaces: 2,
    overrides: 2,
  })
  const [kept] = await sql`select id from keys where id = ${keyIds[4] ?? ''}`
  expect(kept).toBeDefined()
  expect((await server.post('keys.verifyKey', { key: live.key })).body.valid).toBe(true)
})

/** A statement that removed all of them held up writers, and everybody on the embedded database. */
test('the overrides of a removed namespace go in slices', async () => {
  const { workspaceId, post } = await bounded({ deletedRecords: 0 })
  const { sql } = server.server.deps
  const { namespaceId } = await post('ratelimits.createNamespace', { name: 'large' })
  await sql`
    insert into ratelimit_overrides (id, workspace_id, namespace_id, identifier, "limit", duration_ms, created_at)
    select ${namespaceId} || n, ${workspaceId}, ${namespaceId}, 'user ' || n, 1, 1000, 0 from generate_series(1, 7) as n`
  // As while its sweep is under way.
  await sql`update ratelimit_namespaces set deleted_at = 1 where id = ${namespaceId}`
  await sql`create table removed_at_once (rows bigint)`
  await sql`
    create function note_removed() returns trigger language plpgsql as $$
    begin insert into removed_at_once select count(*) from lost; return null; end $$`
  await sql`
    create trigger note_removed after delete on ratelimit_overrides referencing old table as lost
      for each statement execute function note_removed()`
  await remove(2)
  const slices = await sql<{ rows: number }[]>`select rows from removed_at_once where rows > 0`
  expect(slices.map(({ rows }) => rows)).toEqual([2, 2, 2, 1])
  expect(await sql`select from ratelimit_overrides where namespace_id = ${namespaceId}`).toHaveLength(0)
  expect(await sql`select from ratelimit_namespaces where id = ${namespaceId}`).toHaveLength(0)
  await sql`drop trigger note_removed on ratelimit_overrides`
})

test('an API with kept deleted keys stays until they go', async () => {
  const workspace = await bounded({ deletedRecords: 3 })
  const { post } = workspace
  const ids: string[] = []
  for (let at = 0; at < 4; at++) {
    const { apiId } = await post('apis.createApi', { name: `api ${at}` })
    if (at === 0) await post('keys.createKey', { apiId })
    ids.push(apiId)
  }
  for (const apiId of ids) await post('apis.deleteApi', { apiId })
  expect(await remove()).toEqual([])
})

test('failed imports are kept up to their bound', async () => {
  const { workspaceId } = await bounded({ failedImports: 2 })
  const { sql } = server.server.deps
  for (let at = 0; at < 5; at++)
    await sql`
      insert into key_imports (workspace_id, migration_id, api_id, key_id, key, actor_id, next_at, created_at, failed_at)
      values (${workspaceId}, ${`m_${at}`}, 'a', 'k', '{}', 'r', 0, 0, 1)`
  await remove()
  const rows = await sql`select migration_id from key_imports where workspace_id = ${workspaceId} order by id`
  expect(rows.map(({ migration_id }) => migration_id)).toEqual(['m_3', 'm_4'])
})

test('workspaces that use half of a bound or more are listed, the fullest first', async () => {
  const workspace = await bounded({ roles: 4, permissions: 10, keys: 100 })
  for (let i = 0; i < 3; i++) await workspace.post('permissions.createRole', { name: `role.${i}` })
  for (let i = 0; i < 5; i++)
    await workspace.post('permissions.createPermission', { name: `permission.${i}` })
  const fullest = await findFullest(server.server.deps.sql)
  expect(fullest.filter(({ workspaceId }) => workspaceId === workspace.workspaceId)).toEqual([
    { workspaceId: workspace.workspaceId, bound: 'roles', used: 3, value: 4 },
    { workspaceId: workspace.workspaceId, bound: 'permissions', used: 5, value: 10 },
  ])
})

test('answers of creates go once nobody can ask for them, and beyond the bound those that end first', async () => {
  const workspace = await bounded({ createAnswers: 2 })
  const other = await server.workspace()
  const { sql } = server.server.deps
  const left = async () => {
    const rows = await sql<{ workspaceId: string; name: string; attempt: string }[]>`
      select workspace_id as "workspaceId", convert_from(fingerprint, 'UTF8') as name, attempt
        from create_answers order by name, attempt, workspace_id = ${workspace.workspaceId} desc`
    return rows.map(({ workspaceId, name, attempt }) =>
      [...(workspaceId === other.workspaceId ? ['other'] : []), name, attempt].join(' ').trim(),
    )
  }
  const inAnHour = Date.now() + HOUR_MS
  for (const { workspaceId } of [workspace, other])
    await sql`
      insert into create_answers (workspace_id, fingerprint, attempt, writer, body, sealed, expires_at)
      select ${workspaceId}, convert_to(name, 'UTF8'), attempt, '', ''::bytea, ''::bytea, expires_at
        from unnest(array['1', '2', '3', '4', '5', '1', 'past'], array['', '', '', '', '', 'unanswered', ''],
                    array[1, 2, 3, 4, 5, 1, -${inAnHour}::bigint]) as a (name, attempt, later)
       cross join lateral (select ${inAnHour}::bigint + later as expires_at) as times`
  await removeExpiredAnswers(sql)
  expect(await left()).not.toContain('past')
  expect(await remove(2)).toEqual([{ workspaceId: workspace.workspaceId, bound: 'createAnswers', rows: 3 }])
  const all = [
    'other 1',
    '1 unanswered',
    'other 1 unanswered',
    'other 2',
    'other 3',
    '4',
    'other 4',
    '5',
    'other 5',
  ]
  expect(await left()).toEqual(all)
})
