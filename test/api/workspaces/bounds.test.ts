import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { findDueKeyImports } from '../../../src/api/migrations/store.ts'
import { readConfig } from '../../../src/config.ts'
import { connect } from '../../../src/db/connect.ts'
import { defaultBounds } from '../../../src/lib/workspace-bounds.ts'
import {
  type Json,
  OPERATOR_KEY,
  startTestServer,
  type TestServer,
  type TestWorkspace,
} from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer({ env: { TOLLGATE_BOUNDS: 'apis=3,namespaces=2' } })
})
afterAll(() => server[Symbol.asyncDispose]())

const bounded = async (bounds: Json): Promise<TestWorkspace> => {
  const workspace = await server.workspace()
  await setBounds(workspace, bounds)
  return workspace
}
const setBounds = async ({ workspaceId }: TestWorkspace, bounds: Json) => {
  const answer = await server.post('workspaces.updateWorkspace', { workspaceId, bounds }, OPERATOR_KEY)
  expect(answer.status).toBe(200)
}
const refusal = (name: string, value: number) => ({
  status: 412,
  body: {
    error: {
      code: 'PRECONDITION_FAILED',
      message: expect.stringMatching(new RegExp(`at most ${value}\\b.*bound "${name}"`)),
    },
  },
})

/** Creates one more of a kind, whatever exists already. */
type Make = (workspace: TestWorkspace, index: number) => Promise<{ status: number; body: Json }>
const call =
  (method: string, bodyOf: (index: number) => Json): Make =>
  ({ rootKey }, index) =>
    server.post(method, bodyOf(index), rootKey)
const MAKE: Record<string, Make> = {
  apis: call('apis.createApi', (index) => ({ name: `api ${index}` })),
  rootKeys: call('rootKeys.createRootKey', () => ({ permissions: [] })),
  identities: call('identities.createIdentity', (index) => ({ externalId: `user ${index}` })),
  namespaces: call('ratelimits.createNamespace', (index) => ({ name: `namespace ${index}` })),
  roles: call('permissions.createRole', (index) => ({ name: `role.${index}` })),
  permissions: call('permissions.createPermission', (index) => ({ name: `permission.${index}` })),
}

describe('a workspace at its bound is refused one more, with the bound’s name, its value and who can raise it', () => {
  for (const [name, make] of Object.entries(MAKE))
    test(name, async () => {
      const has = name === 'rootKeys' ? 1 : 0 // its first
      const workspace = await bounded({ [name]: has + 2 })
      expect([(await make(workspace, 1)).status, (await make(workspace, 2)).status]).toEqual([200, 200])
      expect(await make(workspace, 3)).toMatchObject(refusal(name, has + 2))
      // Another workspace has room of its own.
      expect((await make(await bounded({ [name]: has + 2 }), 3)).status).toBe(200)
      await setBounds(workspace, { [name]: has + 3 })
      expect((await make(workspace, 3)).status).toBe(200)
      expect(await make(workspace, 4)).toMatchObject(refusal(name, has + 3))
    })
})

test('a namespace created by its first use counts too, and one beyond the bound is refused', async () => {
  const workspace = await server.workspace()
  const limit = (namespace: string) =>
    server.post(
      'ratelimits.limit',
      { namespace, identifier: 'u', limit: 1, duration: 60_000 },
      workspace.rootKey,
    )
  expect([(await limit('a')).status, (await limit('b')).status]).toEqual([200, 200])
  expect(await limit('c')).toMatchObject(refusal('namespaces', 2))
  expect((await limit('a')).body.success).toBe(false) // those that are there go on
  const { namespaces } = await workspace.get('ratelimits.listNamespaces')
  await workspace.post('ratelimits.deleteNamespace', { namespaceId: namespaces[0].id })
  expect((await limit('c')).status).toBe(200)
  const metrics = await (await fetch(`${server.url}/metrics`)).text()
  expect(metrics).toContain(
    `tollgate_workspace_bound_reached_total{workspace="${workspace.workspaceId}",bound="namespaces"} 1`,
  )
})

test('a call that would create one namespace too many creates none', async () => {
  const workspace = await server.workspace()
  const call = (...names: string[]) =>
    server.post(
      'ratelimits.multiLimit',
      names.map((namespace) => ({ namespace, identifier: 'u', limit: 1, duration: 60_000 })),
      workspace.rootKey,
    )
  expect(await call('c', 'b', 'a')).toMatchObject(refusal('namespaces', 2))
  expect((await workspace.get('ratelimits.listNamespaces')).namespaces).toEqual([])
  expect((await call('b', 'a')).status).toBe(200)
})

/** Two at once at the bound must not both pass, and none may be refused while there is room. */
test('forty concurrent creations fill a workspace exactly to its bound', async () => {
  const workspace = await bounded({ keys: 17, identities: 9 })
  const { apiId } = await workspace.post('apis.createApi', { name: 'name' })
  const keys = await Promise.all(
    Array.from({ length: 40 }, () => server.post('keys.createKey', { apiId }, workspace.rootKey)),
  )
  expect(keys.filter(({ status }) => status === 200)).toHaveLength(17)
  for (const answer of keys.filter(({ status }) => status !== 200))
    expect(answer).toMatchObject(refusal('keys', 17))
  const identities = await Promise.all(
    Array.from({ length: 40 }, (_, index) =>
      server.post('identities.createIdentity', { externalId: `user ${index}` }, workspace.rootKey),
    ),
  )
  expect(identities.filter(({ status }) => status === 200)).toHaveLength(9)
})

test('deleting keys frees room, one by one, all of an API, or with the API', async () => {
  const workspace = await bounded({ keys: 4 })
  const { apiId } = await workspace.post('apis.createApi', { name: 'name' })
  const create = () => server.post('keys.createKey', { apiId }, workspace.rootKey)
  const fill = async () => {
    const made = [await create(), await create(), await create(), await create()]
    expect(made.map(({ status }) => status)).toEqual([200, 200, 200, 200])
    expect(await create()).toMatchObject(refusal('keys', 4))
    return made.map(({ body }) => body.keyId)
  }
  for (const keyId of await fill()) await workspace.post('keys.deleteKey', { keyId, permanent: false })
  for (const keyId of await fill()) await workspace.post('keys.deleteKey', { keyId, permanent: true })
  await fill()
  await workspace.post('apis.deleteKeys', { apiId })
  await fill()
  await workspace.post('apis.deleteKeys', { apiId, permanent: true })
  await fill()
  await workspace.post('apis.deleteApi', { apiId })
  const other = await workspace.post('apis.createApi', { name: 'other' })
  expect((await server.post('keys.createKey', { apiId: other.apiId }, workspace.rootKey)).status).toBe(200)
})

test('an import beyond the bound is refused as a whole, an import that fits exactly is accepted', async () => {
  const workspace = await bounded({ keys: 5 })
  const { apiId } = await workspace.post('apis.createApi', { name: 'name' })
  const importKeys = (count: number) =>
    server.post(
      'migrations.createKeys',
      Array.from({ length: count }, () => ({ apiId, plaintext: crypto.randomUUID() })),
      workspace.rootKey,
    )
  expect(await importKeys(6)).toMatchObject(refusal('keys', 5))
  expect((await workspace.get('apis.listKeys', { apiId })).total).toBe(0)
  expect((await importKeys(5)).status).toBe(200)
  expect(await importKeys(1)).toMatchObject(refusal('keys', 5))
})

test('a key whose identity, role or permission exceeds a bound is neither created nor updated', async () => {
  const workspace = await bounded({ identities: 1, roles: 1, permissions: 1 })
  const { apiId } = await workspace.post('apis.createApi', { name: 'name' })
  const { keyId } = await workspace.post('keys.createKey', { apiId, externalId: 'first' })
  const refused = await server.post('keys.createKey', { apiId, externalId: 'second' }, workspace.rootKey)
  expect(refused).toMatchObject(refusal('identities', 1))
  expect((await workspace.get('apis.listKeys', { apiId })).total).toBe(1)
  const update = (body: Json) => server.post('keys.updateKey', { keyId, ...body }, workspace.rootKey)
  expect(await update({ externalId: 'second' })).toMatchObject(refusal('identities', 1))
  expect((await update({ roles: [{ name: 'one', create: true }] })).status).toBe(200)
  expect(await update({ roles: [{ name: 'two', create: true }] })).toMatchObject(refusal('roles', 1))
  expect((await update({ permissions: [{ slug: 'one', create: true }] })).status).toBe(200)
  expect(
    await server.post(
      'keys.addPermissions',
      { keyId, permissions: [{ slug: 'two', create: true }] },
      workspace.rootKey,
    ),
  ).toMatchObject(refusal('permissions', 1))
})

test('roles and permissions of a key are bounded in every method that attaches them', async () => {
  const workspace = await bounded({ rolesPerKey: 2, permissionsPerKey: 2 })
  const { apiId } = await workspace.post('apis.createApi', { name: 'name' })
  for (const name of ['a', 'b', 'c']) {
    await workspace.post('permissions.createRole', { name: `role.${name}` })
    await workspace.post('permissions.createPermission', { name: `permission.${name}` })
  }
  const named = (kind: string) => ['a', 'b', 'c'].map((name) => `${kind}.${name}`)
  for (const kind of ['role', 'permission']) {
    const bound = `${kind}sPerKey`
    const field = `${kind}s`
    const Field = field === 'roles' ? 'Roles' : 'Permissions'
    const all = named(kind)
    const as = (names: string[]) => names.map((name) => (kind === 'role' ? { name } : { slug: name }))
    const post = (method: string, body: Json) => server.post(method, body, workspace.rootKey)
    expect(await post('keys.createKey', { apiId, [field]: all })).toMatchObject(refusal(bound, 2))
    const { keyId } = await workspace.post('keys.createKey', { apiId, [field]: all.slice(0, 1) })
    expect((await post(`keys.add${Field}`, { keyId, [field]: as(all.slice(1, 2)) })).status).toBe(200)
    expect((await post(`keys.add${Field}`, { keyId, [field]: as(all.slice(0, 2)) })).status).toBe(200) // has them
    expect(await post(`keys.add${Field}`, { keyId, [field]: as(all.slice(2)) })).toMatchObject(
      refusal(bound, 2),
    )
    expect(await post(`keys.set${Field}`, { keyId, [field]: as(all) })).toMatchObject(refusal(bound, 2))
    expect((await post(`keys.set${Field}`, { keyId, [field]: as(all.slice(1)) })).status).toBe(200)
    expect(await post('keys.updateKey', { keyId, [field]: as(all) })).toMatchObject(refusal(bound, 2))
  }
})

test('permissions of keys and roles are bounded in bytes of their slugs, and those of roles in number', async () => {
  const workspace = await bounded({
    permissionBytesPerKey: 20,
    permissionsPerRole: 2,
    permissionBytesPerRole: 20,
  })
  const { apiId } = await workspace.post('apis.createApi', { name: 'name' })
  const slugs = ['nine.long', 'ten.longer', 'one']
  for (const name of slugs) await workspace.post('permissions.createPermission', { name })
  const post = (method: string, body: Json) => server.post(method, body, workspace.rootKey)
  const as = (names: string[]) => names.map((slug) => ({ slug, create: true }))

  const tooLong = refusal('permissionBytesPerKey', 20)
  expect(await post('keys.createKey', { apiId, permissions: slugs })).toMatchObject(tooLong)
  const { keyId } = await workspace.post('keys.createKey', { apiId, permissions: slugs.slice(0, 2) })
  expect(await post('keys.addPermissions', { keyId, permissions: as(['one']) })).toMatchObject(tooLong)
  expect(await post('keys.addPermissions', { keyId, permissions: as(['new']) })).toMatchObject(tooLong)
  expect(
    await post('keys.setPermissions', { keyId, permissions: as(['much.longer.than.that']) }),
  ).toMatchObject(tooLong)
  expect(await post('keys.updateKey', { keyId, permissions: as(slugs) })).toMatchObject(tooLong)
  const imported = { apiId, permissions: slugs, hash: { value: 'c'.repeat(64), variant: 'sha256_base64' } }
  expect(await post('migrations.createKeys', [imported])).toMatchObject(tooLong)
  const enqueue = { migrationId: 'migration', apiId, keys: [imported] }
  expect(await post('migrations.enqueueKeys', enqueue)).toMatchObject(tooLong)

  const { roleId } = await workspace.post('permissions.createRole', { name: 'role' })
  const set = (names: string[]) => post('permissions.setRolePermissions', { roleId, permissions: as(names) })
  expect(await set(['a', 'b', 'c'])).toMatchObject(refusal('permissionsPerRole', 2))
  expect(await set(['much.longer.than.that'])).toMatchObject(refusal('permissionBytesPerRole', 20))
  expect(await workspace.get('permissions.listPermissions')).toHaveLength(3) // none was made
  expect((await set(slugs.slice(0, 2))).status).toBe(200)

  // After lowering the bound existing ones stay: the set may shrink or change, but not grow.
  await setBounds(workspace, { permissionsPerRole: 1, permissionBytesPerRole: 10, permissionBytesPerKey: 10 })
  expect((await set(['ten.longer', 'other.one'])).status).toBe(200)
  expect(await set(['ten.longer', 'other.one!'])).toMatchObject(refusal('permissionBytesPerRole', 10))
  expect(await set(['a', 'b', 'c'])).toMatchObject(refusal('permissionsPerRole', 1))
  expect((await set(['one'])).status).toBe(200)
  expect((await post('keys.setPermissions', { keyId, permissions: as(['ten.longer', 'one']) })).status).toBe(
    200,
  )
  expect((await workspace.get('keys.getKey', { keyId })).permissions).toEqual(['one', 'ten.longer'])
})

test('overrides are bounded for each workspace and namespace, and existing ones may be changed at the bound', async () => {
  const workspace = await bounded({ overrides: 3, overridesPerNamespace: 2 })
  for (const name of ['a', 'b']) await workspace.post('ratelimits.createNamespace', { name })
  const set = (namespaceName: string, identifier: string, limit = 1) =>
    server.post(
      'ratelimits.setOverride',
      { namespaceName, identifier, limit, duration: 60_000 },
      workspace.rootKey,
    )
  const first = await Promise.all(['user1', 'user2', 'user3', 'user4'].map((user) => set('a', user)))
  expect(first.filter(({ status }) => status === 200)).toHaveLength(2)
  expect(first.find(({ status }) => status !== 200)).toMatchObject(refusal('overridesPerNamespace', 2))
  const { overrides } = await workspace.get('ratelimits.listOverrides', { namespaceName: 'a' })
  expect((await set('a', overrides[0].identifier, 2)).status).toBe(200)
  expect((await set('b', 'user1')).status).toBe(200)
  expect(await set('b', 'user2')).toMatchObject(refusal('overrides', 3))
  await workspace.post('ratelimits.deleteOverride', {
    namespaceName: 'a',
    identifier: overrides[0].identifier,
  })
  expect((await set('b', 'user2')).status).toBe(200)
  expect(await set('a', overrides[0].identifier)).toMatchObject(refusal('overrides', 3)) // not revived past it
  // Overrides of a namespace are deleted with it.
  const [{ id }] = (await workspace.get('ratelimits.listNamespaces')).namespaces
  await workspace.post('ratelimits.deleteNamespace', { namespaceId: id })
  await workspace.post('ratelimits.createNamespace', { name: 'c' })
  expect((await set('c', 'user1')).status).toBe(200)
})

test('lowering a bound below what exists removes nothing, and refuses more until there is room', async () => {
  const workspace = await bounded({ roles: 10 })
  const create = (name: string) => server.post('permissions.createRole', { name }, workspace.rootKey)
  for (const name of ['role.a', 'role.b', 'role.c']) expect((await create(name)).status).toBe(200)
  await setBounds(workspace, { roles: 2 })
  expect(await create('role.d')).toMatchObject(refusal('roles', 2))
  const { roles } = { roles: await workspace.get('permissions.listRoles') }
  expect(roles).toHaveLength(3)
  await workspace.post('permissions.deleteRole', { roleId: roles[0].id })
  expect(await create('role.d')).toMatchObject(refusal('roles', 2))
  await workspace.post('permissions.deleteRole', { roleId: roles[1].id })
  expect((await create('role.d')).status).toBe(200)
  await setBounds(workspace, null)
  expect((await create('role.e')).status).toBe(200)
})

test('a workspace’s own bounds are listed, refused with a wrong name or value, and set by operators only', async () => {
  const workspace = await bounded({ keys: 5 })
  const { workspaceId } = workspace
  const listed = await server.get('workspaces.listWorkspaces', { limit: 100 }, OPERATOR_KEY)
  const found = listed.body.workspaces.find(({ id }: Json) => id === workspaceId)
  expect(found.bounds).toEqual({ keys: 5 })
  const set = (bounds: Json, key: string) =>
    server.post('workspaces.updateWorkspace', { workspaceId, bounds }, key)
  for (const bounds of [{ keys: -1 }, { keys: 1.5 }, { keyz: 5 }, { workspaces: 5 }, { keys: '5' }, 5])
    expect(await set(bounds, OPERATOR_KEY)).toMatchObject({
      status: 400,
      body: { error: { code: 'BAD_REQUEST' } },
    })
  expect((await set({ keys: 6 }, workspace.rootKey)).status).toBe(403)
})

describe('migrations.enqueueKeys', () => {
  const keysOf = (count: number) =>
    Array.from({ length: count }, () => ({ plaintext: crypto.randomUUID(), externalId: crypto.randomUUID() }))
  const waitingOf = async ({ workspaceId }: TestWorkspace) =>
    await server.server.deps.sql<{ reason: string | null; attempts: number }[]>`
      select reason, attempts from key_imports where workspace_id = ${workspaceId}`
  const until = async (isSo: () => Promise<boolean>) => {
    while (!(await isSo())) await Bun.sleep(10)
  }

  test('as many keys as fit are created; the others wait with the reason, and are created when there is room', async () => {
    const workspace = await bounded({ keys: 3 })
    const { apiId } = await workspace.post('apis.createApi', { name: 'name' })
    await workspace.post('migrations.enqueueKeys', { migrationId: 'm', apiId, keys: keysOf(5) })
    await until(async () => (await waitingOf(workspace)).filter(({ attempts }) => attempts > 0).length === 2)
    expect((await workspace.get('apis.listKeys', { apiId })).total).toBe(3)
    for (const { reason } of await waitingOf(workspace)) expect(reason).toContain('bound "keys"')
    await setBounds(workspace, { keys: 5 })
    await until(async () => (await waitingOf(workspace)).length === 0)
    expect((await workspace.get('apis.listKeys', { apiId })).total).toBe(5)
  })

  test('more than may wait are refused as a whole, and created keys make room in the queue', async () => {
    const workspace = await bounded({ queuedImports: 4 })
    const { apiId } = await workspace.post('apis.createApi', { name: 'name' })
    const send = (count: number) =>
      server.post(
        'migrations.enqueueKeys',
        { migrationId: 'm', apiId, keys: keysOf(count) },
        workspace.rootKey,
      )
    expect(await send(5)).toMatchObject(refusal('queuedImports', 4))
    expect((await send(4)).status).toBe(202)
    await until(async () => (await waitingOf(workspace)).length === 0)
    expect((await send(4)).status).toBe(202)
    await until(async () => (await waitingOf(workspace)).length === 0)
    expect((await workspace.get('apis.listKeys', { apiId })).total).toBe(8)
  })

  test('a key with more roles than the bound waits with the reason, and the others are created', async () => {
    const workspace = await bounded({ keys: 0, rolesPerKey: 2 })
    const { apiId } = await workspace.post('apis.createApi', { name: 'name' })
    const roles = ['role.a', 'role.b']
    for (const name of roles) await workspace.post('permissions.createRole', { name })
    const [first, ...others] = keysOf(3)
    const keys = [{ ...first, roles }, ...others]
    const enqueue = { migrationId: 'm', apiId, keys: [{ ...first, roles: [...roles, 'role.c'] }] }
    expect(await server.post('migrations.enqueueKeys', enqueue, workspace.rootKey)).toMatchObject(
      refusal('rolesPerKey', 2),
    )
    await workspace.post('migrations.enqueueKeys', { ...enqueue, keys })
    await until(async () => (await waitingOf(workspace)).filter(({ attempts }) => attempts > 0).length === 3)
    await setBounds(workspace, { rolesPerKey: 1 })
    await until(async () => (await waitingOf(workspace)).length === 1)
    expect((await workspace.get('apis.listKeys', { apiId })).total).toBe(2)
    await until(async () => (await waitingOf(workspace))[0]?.attempts === 2)
    expect(await waitingOf(workspace)).toMatchObject([{ reason: expect.stringContaining('"rolesPerKey"') }])
    await server.server.deps.sql`delete from key_imports where workspace_id = ${workspace.workspaceId}`
  })

  test('a workspace that enqueues last waits for its share, not for all keys of another', async () => {
    const one = await server.workspace()
    const other = await server.workspace()
    const { sql } = server.server.deps
    const far = Date.now() + 86_400_000 // not due for the server: they are only looked for here
    for (const [index, { workspaceId }] of [one, one, one, one, one, one, other].entries())
      await sql`
        insert into key_imports (workspace_id, migration_id, api_id, key_id, key, actor_id, next_at, created_at)
        values (${workspaceId}, 'm', 'a', 'k', '{}', 'r', ${far + index}, 0)`
    const ids = await findDueKeyImports(sql, { now: far + 10, limit: 4 })
    const found = await sql<{ workspaceId: string }[]>`
      select workspace_id as "workspaceId" from key_imports where id = any(${ids}::bigint[])`
    expect(found.map(({ workspaceId }) => workspaceId).sort()).toEqual(
      [one, one, other].map(({ workspaceId }) => workspaceId).sort(),
    )
    await sql`delete from key_imports where next_at >= ${far}`
  })
})

test('the variable sets the named bounds; a wrong name or value ends the start and lists the valid names', () => {
  const read = (text: string) => readConfig({ TOLLGATE_BOUNDS: text }).bounds
  expect(read(' keys = 5, roles=0,')).toEqual({ ...defaultBounds(), keys: 5, roles: 0 })
  expect(read('')).toEqual(defaultBounds())
  for (const wrong of [
    'keyz=5',
    'keys',
    'keys=',
    'keys=-1',
    'keys=1.5',
    'keys=1e3',
    'keys=99999999999999999',
  ])
    expect(() => read(`apis=1,${wrong}`)).toThrow(
      `TOLLGATE_BOUNDS has ${JSON.stringify(wrong)}; it must be name=number pairs, separated by commas; names are apis, keys,`,
    )
})

/** Counts are kept by triggers and by soft deletes. No way of deleting may be forgotten. */
test('the counts match the rows after everything that was done to this server', async () => {
  const url = server.server.deps.config.databaseUrl
  const sql = url === null ? server.server.deps.sql : connect({ kind: 'url', url }, { connectionsMax: 1 })
  const rows = await sql<{ name: string; workspace: string; used: number; there: number }[]>`
    with there as (
      select coalesce(for_workspace_id, workspace_id) as workspace_id,
             case when for_workspace_id is null then 'keys' else 'rootKeys' end as name
        from keys where deleted_at is null and not is_operator
       union all select workspace_id, 'apis' from apis where deleted_at is null and id <> 'api_root'
       union all select workspace_id, 'namespaces' from ratelimit_namespaces where deleted_at is null
       union all select workspace_id, 'overrides' from ratelimit_overrides where deleted_at is null
       union all select workspace_id, 'identities' from identities
       union all select workspace_id, 'roles' from roles
       union all select workspace_id, 'permissions' from permissions
       union all select workspace_id, 'queuedImports' from key_imports where failed_at is null
       union all select 'ws_root', 'workspaces' from workspaces where id <> 'ws_root'
       union all select workspace_id, 'keys/' || keyspace_id from keys where deleted_at is null and for_workspace_id is null
       union all select workspace_id, 'overrides/' || namespace_id from ratelimit_overrides where deleted_at is null
    ), counted as (select workspace_id, name, count(*)::integer as there from there group by 1, 2),
       names as (select workspace_id, name from workspace_counts union select workspace_id, name from workspace_returns),
       used as (select workspace_id, name, total_of(workspace_id, name)::integer as used from names)
    select coalesce(counted.name, used.name) as name, coalesce(counted.workspace_id, used.workspace_id) as workspace,
           coalesce(used.used, 0) as used, coalesce(counted.there, 0) as there
      from counted full join used using (workspace_id, name)
     order by 1, 2`
  expect(rows.length).toBeGreaterThan(20)
  expect(rows.filter(({ used, there }) => used !== there)).toEqual([])
  if (url !== null) await (sql as ReturnType<typeof connect>).end() // made above
})
