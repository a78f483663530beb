import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { startTestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import {
  clientWith,
  errors,
  expectRefusal,
  expectUntyped,
  MISSING,
  pagesOf,
  type Setting,
  settingOf,
} from './support.ts'

/** `unkey.permissions` of `@unkey/api` 2.x: permissions and roles. */
setDefaultTimeout(SLOW_MS)

let setting: Setting
beforeAll(async () => {
  setting = await settingOf(await startTestServer())
})
afterAll(() => setting.server[Symbol.asyncDispose]())

const permissionNotFound = (call: Promise<unknown>) =>
  expectRefusal(call, errors.NotFoundErrorResponse, 'unkey/data/permission_not_found')
const roleNotFound = (call: Promise<unknown>) =>
  expectRefusal(call, errors.NotFoundErrorResponse, 'unkey/data/role_not_found')
const forbidden = (call: Promise<unknown>) =>
  expectRefusal(call, errors.ForbiddenErrorResponse, 'unkey/authorization/insufficient_permissions')

test('permissions.createPermission', async () => {
  const { unkey } = setting
  const request = { name: 'Create documents', slug: 'doc.create', description: 'May create documents' }
  const { data } = await unkey.permissions.createPermission(request)
  expect(data).toEqual({ permissionId: expect.stringMatching(/^perm_/) })
  const taken = await expectRefusal(
    unkey.permissions.createPermission(request),
    errors.ConflictErrorResponse,
    'unkey/data/permission_already_exists',
  )
  expect(taken.error.detail).toContain('doc.create')
})

test('permissions.getPermission, by id and by slug', async () => {
  const { unkey } = setting
  const request = { name: 'Read documents', slug: 'doc.read', description: 'May read documents' }
  const { permissionId } = (await unkey.permissions.createPermission(request)).data
  for (const permission of [permissionId, 'doc.read'])
    expect((await unkey.permissions.getPermission({ permission })).data).toEqual({
      id: permissionId,
      ...request,
    })
  await unkey.permissions.createPermission({ name: 'short', slug: 'short' })
  const short = (await unkey.permissions.getPermission({ permission: 'short' })).data
  expect(short).toEqual({ id: expect.any(String), name: 'short', slug: 'short' })
  await permissionNotFound(unkey.permissions.getPermission({ permission: MISSING }))
})

test('permissions.listPermissions, page by page, and by a search', async () => {
  const own = await settingOf(setting.server)
  const { unkey } = own
  for (const slug of ['list.a', 'list.b', 'list.c', 'list.d', 'list.e'])
    await unkey.permissions.createPermission({ name: `The ${slug}`, slug })
  const pages = await pagesOf(unkey.permissions.listPermissions({ limit: 2 }))
  expect(pages.map(({ length }) => length)).toEqual([2, 2, 1])
  expect(await pagesOf(unkey.permissions.listPermissions({ search: 'THE LIST.C' }))).toMatchObject([
    [{ slug: 'list.c' }],
  ])
  await forbidden((await clientWith(own, 'rbac.*.read_role')).permissions.listPermissions({}))
})

test('permissions.deletePermission', async () => {
  const { unkey } = setting
  await unkey.permissions.createPermission({ name: 'gone', slug: 'doc.gone' })
  expect((await unkey.permissions.deletePermission({ permission: 'doc.gone' })).data).toEqual({})
  await permissionNotFound(unkey.permissions.deletePermission({ permission: 'doc.gone' }))
})

test('permissions.createRole, with permissions that are made on the way', async () => {
  const { unkey } = setting
  const request = { name: 'creator', description: 'Creates', permissions: ['role.create', 'role.create'] }
  const { data } = await unkey.permissions.createRole(request)
  expect(data).toEqual({ roleId: expect.stringMatching(/^role_/) })
  const taken = await expectRefusal(
    unkey.permissions.createRole(request),
    errors.ConflictErrorResponse,
    'unkey/data/role_already_exists',
  )
  expect(taken.error.detail).toContain('creator')
  const other = await clientWith(setting, 'rbac.*.create_role')
  await forbidden(other.permissions.createRole({ name: 'second', permissions: ['role.create'] }))
})

test('permissions.getRole, by id and by name', async () => {
  const { unkey } = setting
  const { roleId } = (
    await unkey.permissions.createRole({ name: 'reader', description: 'Reads', permissions: ['role.read'] })
  ).data
  for (const role of [roleId, 'reader'])
    expect((await unkey.permissions.getRole({ role })).data).toEqual({
      id: roleId,
      name: 'reader',
      description: 'Reads',
      permissions: [{ id: expect.stringMatching(/^perm_/), name: 'role.read', slug: 'role.read' }],
    })
  await unkey.permissions.createRole({ name: 'empty' })
  const empty = (await unkey.permissions.getRole({ role: 'empty' })).data
  expect(empty).toEqual({ id: expect.any(String), name: 'empty' })
  await roleNotFound(unkey.permissions.getRole({ role: MISSING }))
})

test('permissions.listRoles, page by page, and by a search', async () => {
  const own = await settingOf(setting.server)
  const { unkey } = own
  for (const name of ['role a', 'role b', 'role c', 'role d', 'role e'])
    await unkey.permissions.createRole({ name, permissions: ['of.all'] })
  const pages = await pagesOf(unkey.permissions.listRoles({ limit: 2 }))
  expect(pages.map(({ length }) => length)).toEqual([2, 2, 1])
  for (const role of pages.flat()) expect(role).toMatchObject({ permissions: [{ slug: 'of.all' }] })
  expect(await pagesOf(unkey.permissions.listRoles({ search: 'LE C' }))).toMatchObject([[{ name: 'role c' }]])
  await forbidden((await clientWith(own, 'rbac.*.read_permission')).permissions.listRoles({}))
})

/** The client does not know that this operation answers 404. */
test('permissions.deleteRole', async () => {
  const { unkey } = setting
  await unkey.permissions.createRole({ name: 'gone' })
  expect((await unkey.permissions.deleteRole({ role: 'gone' })).data).toEqual({})
  await expectUntyped(unkey.permissions.deleteRole({ role: 'gone' }), 404, 'unkey/data/role_not_found')
})

test('permissions.setRolePermissions', async () => {
  const { unkey } = setting
  const { roleId } = (await unkey.permissions.createRole({ name: 'set', permissions: ['set.old'] })).data
  const { data } = await unkey.permissions.setRolePermissions({ roleId, permissions: ['set.b', 'set.a'] })
  expect(data.map(({ slug }) => slug)).toEqual(['set.a', 'set.b'])
  expect((await unkey.permissions.setRolePermissions({ roleId, permissions: [] })).data).toEqual([])
  await roleNotFound(unkey.permissions.setRolePermissions({ roleId: MISSING, permissions: ['set.a'] }))
  const adder = await clientWith(setting, 'rbac.*.add_permission_to_role', 'rbac.*.create_permission')
  await forbidden(adder.permissions.setRolePermissions({ roleId, permissions: ['set.a'] }))
})
