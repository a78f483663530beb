import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import type { AnySql } from '../../src/db/connect.ts'
import { removeEmptyKeyspaces } from '../../src/db/kept-rows.ts'
import { systemTimers } from '../../src/lib/timers.ts'
import { Sweeper } from '../../src/sweep/sweeper.ts'
import { makeApi, makeKey } from '../support/fixtures.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
let sql: AnySql
beforeAll(async () => {
  server = await startTestServer()
  sql = server.server.deps.sql
  // While `held` has a row, no override, no key and no row linked to a key can be changed.
  await sql`create table held (workspace_id text)`
  await sql`
    create function refuse() returns trigger language plpgsql as $$
    begin
      if exists (select from held where workspace_id = old.workspace_id) then raise 'a row was changed before its time'; end if;
      return coalesce(new, old);
    end
    $$`
  for (const table of ['keys', 'keys_roles', 'keys_permissions', 'ratelimit_overrides'])
    await sql`create trigger refuse before update or delete on ${sql(table)} for each row execute function refuse()`
})
afterAll(() => server[Symbol.asyncDispose]())

/** More than a slice. */
const KEYS = 3_000

/** Keys with an identity, a role and a permission. The first of them can be verified. */
async function makeMany() {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const { permissionId } = await workspace.post('permissions.createPermission', { name: 'read' })
  const { roleId } = await workspace.post('permissions.createRole', { name: 'admin' })
  await workspace.post('permissions.setRolePermissions', { roleId, permissions: [{ id: permissionId }] })
  const { identityId } = await workspace.post('identities.createIdentity', { externalId: 'user_1' })
  const first = await makeKey(workspace, apiId, {
    externalId: 'user_1',
    roles: ['admin'],
    permissions: ['read'],
  })
  const other = await makeKey(workspace, await makeApi(workspace), { roles: ['admin'] })
  await sql`
    insert into keys (id, workspace_id, keyspace_id, identity_id, owner_id, hash, start, created_at)
    select k.id || i, k.workspace_id, k.keyspace_id, k.identity_id, k.owner_id, k.id || i, '', 0
      from keys k, generate_series(1, ${KEYS - 1}::integer) as i where k.id = ${first.keyId}`
  for (const [table, column] of [
    ['keys_roles', 'role_id'],
    ['keys_permissions', 'permission_id'],
  ] as const)
    await sql`
      insert into ${sql(table)} (key_id, workspace_id, created_at, ${sql(column)})
      select k.id || i, l.workspace_id, 0, l.${sql(column)}
        from keys k join ${sql(table)} l on l.key_id = k.id, generate_series(1, ${KEYS - 1}::integer) as i
       where k.id = ${first.keyId}`
  const verify = async (key = first.key): Promise<Json> => (await server.post('keys.verifyKey', { key })).body
  await verify() // caches it
  return { workspace, apiId, permissionId, roleId, identityId, first, other, verify }
}
type Many = Awaited<ReturnType<typeof makeMany>>

async function hold({ workspaceId }: TestWorkspace) {
  await sql`insert into held values (${workspaceId})`
  return {
    [Symbol.asyncDispose]: async () => {
      await sql`delete from held where workspace_id = ${workspaceId}`
    },
  }
}

const sweepsOf = async ({ workspaceId }: TestWorkspace): Promise<number> =>
  (await sql`select from sweeps where workspace_id = ${workspaceId}`).length

/** Resumes sweeps like a server that starts. */
async function sweepAll({ workspaceId }: TestWorkspace): Promise<void> {
  const { database } = server.server.deps
  const sweeper = new Sweeper({ database, clock: Date.now, timers: { ...systemTimers, after: soon } })
  const rows = await sql<
    { subject: string }[]
  >`select subject from sweeps where workspace_id = ${workspaceId}`
  await sweeper.finishWithin(
    Number.POSITIVE_INFINITY,
    rows.map(({ subject }) => subject),
  )
}
/** A timer whose pauses take no time. An infinite time limit never ends. */
const soon = (ms: number, run: () => void) =>
  ms === Number.POSITIVE_INFINITY ? () => {} : systemTimers.after(0, run)

const DELETIONS: {
  name: string
  remove: (many: Many) => Promise<unknown>
  /** The answer of the next verification. */
  answer: object
  /** Rows that remain to be swept. */
  left: (many: Many) => PromiseLike<readonly unknown[]>
}[] = [
  {
    name: 'apis.deleteApi',
    remove: ({ workspace, apiId }) => workspace.post('apis.deleteApi', { apiId }),
    answer: { code: 'NOT_FOUND' },
    left: ({ workspace, apiId }) => sql`
      select 1 from keys k join keyspaces s on s.id = k.keyspace_id
       where k.workspace_id = ${workspace.workspaceId} and s.api_id = ${apiId} and k.deleted_at is null`,
  },
  {
    name: 'apis.deleteKeys',
    remove: async ({ workspace, apiId }) =>
      expect(await workspace.post('apis.deleteKeys', { apiId })).toEqual({ deletedKeys: KEYS }),
    answer: { code: 'NOT_FOUND' },
    left: ({ workspace, apiId }) => sql`
      select 1 from keys k join keyspaces s on s.id = k.keyspace_id
       where k.workspace_id = ${workspace.workspaceId} and s.api_id = ${apiId} and k.deleted_at is null`,
  },
  {
    name: 'apis.deleteKeys, permanent',
    remove: async ({ workspace, apiId }) =>
      expect(await workspace.post('apis.deleteKeys', { apiId, permanent: true })).toEqual({
        deletedKeys: KEYS,
      }),
    answer: { code: 'NOT_FOUND' },
    left: ({ workspace, apiId }) => sql`
      select 1 from keys k join keyspaces s on s.id = k.keyspace_id
       where k.workspace_id = ${workspace.workspaceId} and s.api_id = ${apiId}`,
  },
  {
    name: 'identities.deleteIdentity',
    remove: ({ workspace, identityId }) => workspace.post('identities.deleteIdentity', { identityId }),
    answer: { code: 'VALID', identity: undefined },
    left: ({ identityId }) => sql`select 1 from keys where identity_id = ${identityId}`,
  },
  {
    name: 'permissions.deleteRole',
    remove: ({ workspace, roleId }) => workspace.post('permissions.deleteRole', { roleId }),
    answer: { code: 'VALID', permissions: ['read'] },
    left: ({ roleId }) => sql`select 1 from keys_roles where role_id = ${roleId}`,
  },
  {
    name: 'permissions.deletePermission',
    remove: ({ workspace, permissionId }) => workspace.post('permissions.deletePermission', { permissionId }),
    answer: { code: 'VALID', permissions: [] },
    left: ({ permissionId }) => sql`
      select 1 from keys_permissions where permission_id = ${permissionId}
       union all select 1 from roles_permissions where permission_id = ${permissionId}`,
  },
]

describe.each(DELETIONS)('$name', ({ remove, answer, left }) => {
  test('applies at once, before any row of a key changes, and the next start sweeps the rows', async () => {
    const many = await makeMany()
    const { workspace } = many
    {
      await using _ = await hold(workspace)
      await remove(many)
      const verified = await many.verify()
      for (const [name, value] of Object.entries(answer))
        expect({ [name]: verified[name] }).toEqual({ [name]: value })
      expect((await many.verify(many.other.key)).code).toBe('VALID')
      expect((await left(many)).length).toBeGreaterThanOrEqual(KEYS)
      expect(await sweepsOf(workspace)).toBe(1)
    }
    await sweepAll(workspace)
    expect(await left(many)).toHaveLength(0)
    expect(await sweepsOf(workspace)).toBe(0)
    expect((await many.verify(many.other.key)).code).toBe('VALID')
  })

  test('of few rows is complete when it is answered', async () => {
    const many = await makeMany()
    await sql`delete from keys where workspace_id = ${many.workspace.workspaceId} and created_at = 0`
    await remove(many).catch(() => {}) // its own check of the count fails here
    expect(await left(many)).toHaveLength(0)
    expect(await sweepsOf(many.workspace)).toBe(0)
  })
})

test('a namespace is gone before its overrides are marked as deleted, which the next start does', async () => {
  const workspace = await server.workspace()
  const { namespaceId } = await workspace.post('ratelimits.createNamespace', { name: 'large' })
  await sql`
    insert into ratelimit_overrides (id, workspace_id, namespace_id, identifier, "limit", duration_ms, created_at)
    select ${namespaceId} || n, ${workspace.workspaceId}, ${namespaceId}, 'user ' || n, 5, 1000, 0
      from generate_series(1, ${KEYS}::integer) as n`
  const limit = async () => {
    const body = { namespace: 'large', identifier: 'user 1', limit: 9, duration: 1_000 }
    return (await workspace.post('ratelimits.limit', body)).limit
  }
  const left = () =>
    sql`select from ratelimit_overrides where namespace_id = ${namespaceId} and deleted_at is null`
  expect(await limit()).toBe(5)
  {
    await using _ = await hold(workspace)
    await workspace.post('ratelimits.deleteNamespace', { namespaceId })
    expect(await limit()).toBe(9)
    expect(await left()).toHaveLength(KEYS)
    expect(await sweepsOf(workspace)).toBe(1)
  }
  await sweepAll(workspace)
  expect(await left()).toHaveLength(0)
  expect(await sweepsOf(workspace)).toBe(0)
  expect(await limit()).toBe(9)
})

test('an interrupted sweep continues where it stopped', async () => {
  const many = await makeMany()
  const { workspace, apiId } = many
  const { database } = server.server.deps
  {
    await using _ = await hold(workspace)
    await workspace.post('apis.deleteKeys', { apiId })
  }
  const [sweep] = await sql<{ subject: string }[]>`
    select subject from sweeps where workspace_id = ${workspace.workspaceId}`
  let slices = 0
  const broken = new Sweeper({
    database: {
      sql,
      write: (work, options) =>
        slices++ < 2 ? database.write(work, options) : Promise.reject(new Error('the process is gone')),
    },
    clock: Date.now,
  })
  await broken.finishWithin(SLOW_MS, [sweep?.subject ?? ''])
  const live = async () => {
    const [row] = await sql<{ total: number }[]>`
      select count(*)::integer as total from keys where keyspace_id = ${sweep?.subject ?? ''} and deleted_at is null`
    return row?.total ?? 0
  }
  expect(await live()).toBeGreaterThan(0)
  expect(await live()).toBeLessThan(KEYS)
  await sweepAll(workspace)
  expect(await live()).toBe(0)
  const [used] = await sql`
    select used from workspace_used where workspace_id = ${workspace.workspaceId} and name = 'keys'`
  expect(used).toEqual({ used: 1 }) // the one of the other API: each key was subtracted once
})

test('keys created while all keys are deleted are deleted with them or stay valid, and nothing in between', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  for (let round = 0; round < (IS_NIGHTLY ? 10 : 3); round++) {
    const [, ...made] = await Promise.all([
      workspace.post('apis.deleteKeys', { apiId }),
      ...Array.from({ length: 8 }, () => makeKey(workspace, apiId)),
    ])
    const { keys } = await workspace.get('apis.listKeys', { apiId })
    const listed = new Set(keys.map(({ id }: { id: string }) => id))
    for (const { key, keyId } of made) {
      const { valid } = (await server.post('keys.verifyKey', { key })).body
      expect(valid).toBe(listed.has(keyId))
    }
    await workspace.post('apis.deleteKeys', { apiId, permanent: true })
    const rows = await sql`select 1 from keys where workspace_id = ${workspace.workspaceId}`
    expect(rows).toHaveLength(0)
  }
})

test('deleting all keys leaves one audit event with their number, and one for each key with an owner', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  await makeKey(workspace, apiId)
  const owned = await makeKey(workspace, apiId, { externalId: 'user_1' })
  await workspace.post('apis.deleteKeys', { apiId })
  const { events } = await workspace.get('audit.listEvents', { event: 'key.delete' })
  expect(events.map(({ resources }: Json) => resources[0])).toContainEqual(
    expect.objectContaining({ type: 'api', id: apiId, meta: { keys: 2, permanent: false } }),
  )
  expect(events.map(({ resources }: Json) => resources[0].id).toSorted()).toEqual(
    [apiId, owned.keyId].toSorted(),
  )
})

test('usage of keys that were deleted together is still counted for their API', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const { key } = await makeKey(workspace, apiId)
  await server.post('keys.verifyKey', { key })
  await workspace.post('apis.deleteKeys', { apiId, permanent: true })
  const after = await makeKey(workspace, apiId)
  await server.post('keys.verifyKey', { key: after.key })
  await server.server.deps.usage.flush()
  const datapoints = await workspace.get('analytics.getVerifications', { apiId })
  expect(datapoints).toMatchObject([{ valid: 2 }])
})

test('a keyspace that an API had before is removed once no key and no usage refers to it', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const keyspaces = async () =>
    (await sql`select from keyspaces where workspace_id = ${workspace.workspaceId}`).length
  const { key } = await makeKey(workspace, apiId)
  await workspace.post('apis.deleteKeys', { apiId, permanent: true })
  await workspace.post('apis.deleteKeys', { apiId, permanent: true }) // nothing to delete, so no new keyspace
  expect(await keyspaces()).toBe(2)
  await removeEmptyKeyspaces(sql)
  expect(await keyspaces()).toBe(1)
  const used = await makeKey(workspace, apiId)
  await server.post('keys.verifyKey', { key: used.key })
  await server.server.deps.usage.flush()
  await workspace.post('apis.deleteKeys', { apiId })
  await removeEmptyKeyspaces(sql)
  expect(await keyspaces()).toBe(2)
  expect((await server.post('keys.verifyKey', { key })).body.code).toBe('NOT_FOUND')
})

/** Counts are kept by triggers, which a partial restore may have left out. A deletion must not rely on them. */
test('all keys of an API are deleted also where their kept total is wrong', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const { key } = await makeKey(workspace, apiId)
  await sql`delete from workspace_counts where workspace_id = ${workspace.workspaceId}`
  expect(await workspace.post('apis.deleteKeys', { apiId })).toEqual({ deletedKeys: 0 })
  expect(await workspace.post('keys.verifyKey', { apiId, key })).toMatchObject({
    valid: false,
    code: 'NOT_FOUND',
  })
})

/** It would hold up all sweeps after it, or be taken for done. */
test('a sweep of a newer release stays, and those after it are done', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  await makeKey(workspace, apiId)
  await sql`alter table sweeps drop constraint sweeps_kind_check`
  await sql`insert into sweeps (workspace_id, kind, subject, created_at) values (${workspace.workspaceId}, 'later', 'x_1', 0)`
  const [keyspace] = await sql<{ id: string }[]>`select keyspace_id as id from apis where id = ${apiId}`
  await sql`
    insert into sweeps (workspace_id, kind, subject, detail, created_at)
    values (${workspace.workspaceId}, 'keyspace', ${keyspace?.id ?? ''},
            ${JSON.stringify({ apiId, isPermanent: true, actor: { rootKeyId: 'key_1', location: null, userAgent: null } })}::text::jsonb, 1)`
  const sweeper = new Sweeper({ database: server.server.deps.database, clock: Date.now })
  sweeper.start()
  while ((await sweepsOf(workspace)) > 1) await Bun.sleep(5)
  await sweeper.stop()
  expect(await sql`select kind from sweeps where workspace_id = ${workspace.workspaceId}`).toMatchObject([
    { kind: 'later' },
  ])
  expect(await sql`select from keys where keyspace_id = ${keyspace?.id ?? ''}`).toHaveLength(0)
})
