import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { startTestServer, type TestServer } from '../../support/server.ts'
import { countStatements } from '../../support/statements.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

/** A workspace with a role, and a key that has only this role. */
async function start() {
  const workspace = await server.workspace()
  const { apiId } = await workspace.post('apis.createApi', { name: 'my api' })
  const { roleId } = await workspace.post('permissions.createRole', { name: 'editor' })
  const { key } = await workspace.post('keys.createKey', { apiId, roles: ['editor'] })
  return {
    ...workspace,
    roleId,
    set: (permissions: object[], rootKey = workspace.rootKey) =>
      server.post('permissions.setRolePermissions', { roleId, permissions }, rootKey),
    /** The key's permissions at its next verification. */
    held: async () => (await server.post('keys.verifyKey', { key })).body.permissions,
  }
}

test('the role grants exactly the set permissions, also to cached keys', async () => {
  const { set, held, post } = await start()
  const { permissionId: id } = await post('permissions.createPermission', { name: 'Read', slug: 'docs.read' })
  expect(await held()).toEqual([])
  const { body } = await set([{ slug: 'docs.write', create: true }, { id }])
  expect(body).toEqual([
    { id: expect.stringMatching(/^perm_/), name: 'docs.write' },
    { id, name: 'Read' },
  ])
  expect(await held()).toEqual(['docs.read', 'docs.write'])
  expect((await set([{ slug: 'docs.read' }])).body).toEqual([{ id, name: 'Read' }])
  expect(await held()).toEqual(['docs.read'])
  expect((await set([])).body).toEqual([])
  expect(await held()).toEqual([])
})

test('adding, removing and creating each need their right', async () => {
  const { set, held, rootKeyWith } = await start()
  const answer = async (permissions: object[], ...rights: string[]) => {
    const { status, body } = await set(permissions, await rootKeyWith(...rights))
    return status === 200 ? 'ok' : body.error.code
  }
  const [add, remove, create] = [
    'rbac.*.add_permission_to_role',
    'rbac.*.remove_permission_from_role',
    'rbac.*.create_permission',
  ]
  const wanted = [{ slug: 'docs.read', create: true }]
  expect(await answer(wanted)).toBe('INSUFFICIENT_PERMISSIONS')
  expect(await answer(wanted, remove, create)).toBe('INSUFFICIENT_PERMISSIONS')
  expect(await answer(wanted, add)).toBe('INSUFFICIENT_PERMISSIONS')
  expect(await answer(wanted, add, create)).toBe('ok')
  expect(await answer([], add)).toBe('INSUFFICIENT_PERMISSIONS')
  expect(await held()).toEqual(['docs.read'])
  expect(await answer(wanted, add)).toBe('ok')
  expect(await answer([], add, remove)).toBe('ok')
  expect(await held()).toEqual([])
})

test('an unknown permission and one of another workspace are a 404 that names it, and nothing changes', async () => {
  const one = await start()
  const other = await start()
  await one.set([{ slug: 'kept', create: true }])
  const { body: foreign } = await other.set([{ slug: 'foreign', create: true }])
  for (const [element, named] of [
    [{ id: 'perm_none' }, 'perm_none'],
    [{ slug: 'none' }, 'none'],
    [{ id: foreign[0].id }, foreign[0].id],
    [{ slug: 'foreign' }, 'foreign'],
  ] as const) {
    const { status, body } = await one.set([{ slug: 'new', create: true }, element])
    expect([status, body.error.message]).toEqual([404, `permission ${named} not found`])
  }
  expect(await one.held()).toEqual(['kept'])
  expect(await one.get('permissions.listPermissions')).toHaveLength(1)
  for (const roleId of ['role_none', other.roleId]) {
    const { status, body } = await server.post(
      'permissions.setRolePermissions',
      { roleId, permissions: [] },
      one.rootKey,
    )
    expect([status, body.error.message]).toEqual([404, `role ${roleId} not found`])
  }
  expect(await other.held()).toEqual(['foreign'])
})

test('each element names a permission, and a list has at most 1000', async () => {
  const { set } = await start()
  const message = async (permissions: object[]) => (await set(permissions)).body.error?.message ?? 'ok'
  expect(await message([{ create: true }])).toBe('permissions.0: an id or a name is required')
  expect(await message([{ id: 'ab' }])).toBe('permissions.0.id: String must contain at least 3 character(s)')
  const many = Array.from({ length: 1001 }, (_, i) => ({ slug: `p.${i}`, create: true }))
  expect(await message(many)).toBe('permissions: Array must contain at most 1000 element(s)')
  expect(await message(many.slice(1))).toBe('ok')
})

test('each link is audited, and the number of statements does not grow with the list', async () => {
  const { set, workspaceId } = await start()
  const list = (from: number, count: number) =>
    Array.from({ length: count }, (_, i) => ({ slug: `p.${from + i}`, create: true }))
  await set(list(4000, 1))
  const few = await countStatements(server, () => set(list(1000, 1)))
  await set(list(2000, 100))
  expect(await countStatements(server, () => set(list(3000, 100)))).toBe(few)
  const rows = await server.server.deps.sql<{ event: string; count: number }[]>`
    select event, count(*)::integer as count from audit_events
     where workspace_id = ${workspaceId} and event like '%permission%' group by event order by event`
  expect([...rows]).toEqual([
    { event: 'authorization.connect_permission_and_role', count: 202 },
    { event: 'authorization.disconnect_permission_and_role', count: 102 },
    { event: 'permission.create', count: 202 },
  ])
})
