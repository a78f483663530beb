import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import { startTestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import { clientWith, errors, expectRefusal, MISSING, type Setting, settingOf } from './support.ts'

/** `unkey.keys` of `@unkey/api` 2.x: permissions and roles of keys. */
setDefaultTimeout(SLOW_MS)

let setting: Setting
let apiId: string
beforeAll(async () => {
  setting = await settingOf(await startTestServer())
  apiId = await makeApi(setting.workspace)
  for (const name of ['reader', 'editor', 'admin'])
    await setting.workspace.post('permissions.createRole', { name })
})
afterAll(() => setting.server[Symbol.asyncDispose]())

const slugs = (permissions: { slug: string }[]) => permissions.map(({ slug }) => slug).toSorted()
const names = (roles: { name: string }[]) => roles.map(({ name }) => name).toSorted()
const notFound = (call: Promise<unknown>, resource: string) =>
  expectRefusal(call, errors.NotFoundErrorResponse, `unkey/data/${resource}_not_found`)

test('keys.addPermissions, keys.setPermissions, keys.removePermissions', async () => {
  const { unkey, workspace } = setting
  const { keyId } = await makeKey(workspace, apiId)
  const added = (await unkey.keys.addPermissions({ keyId, permissions: ['doc.read', 'doc.write'] })).data
  expect(added).toContainEqual({
    id: expect.stringMatching(/^perm_/),
    name: 'doc.read',
    slug: 'doc.read',
  })
  expect(slugs(added)).toEqual(['doc.read', 'doc.write'])
  const removed = await unkey.keys.removePermissions({ keyId, permissions: ['doc.read'] })
  expect(slugs(removed.data)).toEqual(['doc.write'])
  const set = await unkey.keys.setPermissions({ keyId, permissions: ['doc.print'] })
  expect(slugs(set.data)).toEqual(['doc.print'])
  expect((await unkey.keys.setPermissions({ keyId, permissions: [] })).data).toEqual([])

  for (const call of ['addPermissions', 'setPermissions', 'removePermissions'] as const) {
    await notFound(unkey.keys[call]({ keyId: MISSING, permissions: ['doc.read'] }), 'key')
    const updater = await clientWith(setting, 'api.*.update_key')
    await expectRefusal(
      updater.keys[call]({ keyId, permissions: ['doc.read'] }),
      errors.ForbiddenErrorResponse,
      'unkey/authorization/insufficient_permissions',
    )
  }
  const unknown = await notFound(
    unkey.keys.removePermissions({ keyId, permissions: ['doc.none'] }),
    'permission',
  )
  expect(unknown.error.detail).toContain('doc.none')
})

test('keys.addRoles, keys.setRoles, keys.removeRoles', async () => {
  const { unkey, workspace } = setting
  const { keyId } = await makeKey(workspace, apiId)
  const { permissionId } = await workspace.post('permissions.createPermission', {
    name: 'of.the.admin',
    slug: 'doc.admin',
  })
  const roles = await workspace.get('permissions.listRoles')
  const { id: roleId } = roles.find(({ name }: { name: string }) => name === 'admin')
  await workspace.post('permissions.setRolePermissions', { roleId, permissions: [{ slug: 'doc.admin' }] })
  const added = (await unkey.keys.addRoles({ keyId, roles: ['reader', 'admin'] })).data
  expect(names(added)).toEqual(['admin', 'reader'])
  expect(added).toContainEqual({
    id: roleId,
    name: 'admin',
    permissions: [{ id: permissionId, name: 'of.the.admin', slug: 'doc.admin' }],
  })
  const removed = await unkey.keys.removeRoles({ keyId, roles: ['admin'] })
  expect(names(removed.data)).toEqual(['reader'])
  expect(names((await unkey.keys.setRoles({ keyId, roles: ['editor'] })).data)).toEqual(['editor'])
  expect((await unkey.keys.setRoles({ keyId, roles: [] })).data).toEqual([])

  for (const call of ['addRoles', 'setRoles', 'removeRoles'] as const) {
    await notFound(unkey.keys[call]({ keyId: MISSING, roles: ['reader'] }), 'key')
    const unknown = await notFound(unkey.keys[call]({ keyId, roles: ['no such role'] }), 'role')
    expect(unknown.error.detail).toContain('no such role')
  }
  const updater = await clientWith(setting, 'api.*.update_key')
  await expectRefusal(
    updater.keys.addRoles({ keyId, roles: ['reader'] }),
    errors.ForbiddenErrorResponse,
    'unkey/authorization/insufficient_permissions',
  )
})
