import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { makeApi, makeKey, refusalOf } from '../../support/fixtures.ts'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

/** Which roles have a permission, what a role gives, and which keys have either. */

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

const idsOf = (rows: Json[]): string[] => rows.map(({ id }) => id)

/** Two roles, of which the first has both permissions, and keys with some of them in two APIs. */
async function makeHolders(workspace: TestWorkspace) {
  const { post } = workspace
  const [apiId, otherApiId] = [await makeApi(workspace), await makeApi(workspace)]
  const { roleId } = await post('permissions.createRole', { name: 'editor', description: 'writes' })
  const { roleId: otherRoleId } = await post('permissions.createRole', { name: 'reader' })
  const slugs = ['docs.write', 'docs.read']
  for (const [id, own] of [
    [roleId, slugs],
    [otherRoleId, slugs.slice(1)],
  ] as const)
    await post('permissions.setRolePermissions', {
      roleId: id,
      permissions: own.map((slug) => ({ slug, create: true })),
    })
  const all: Json[] = await workspace.get('permissions.listPermissions')
  const idOf = (slug: string): string => all.find((each) => each.slug === slug).id
  const keys = [
    await makeKey(workspace, apiId, { roles: ['editor'], externalId: 'user_1', name: 'first' }),
    await makeKey(workspace, otherApiId, { roles: ['editor', 'reader'], externalId: 'user_1' }),
    await makeKey(workspace, apiId, { permissions: ['docs.read'], externalId: 'user_2' }),
  ]
  return { apiId, otherApiId, roleId, otherRoleId, write: idOf('docs.write'), read: idOf('docs.read'), keys }
}

test('a role tells its permissions by slug and the number of its keys, a permission its roles and keys', async () => {
  const workspace = await server.workspace()
  const { roleId, otherRoleId, read, write, keys } = await makeHolders(workspace)
  expect(await workspace.get('permissions.getRole', { roleId })).toEqual({
    id: roleId,
    name: 'editor',
    description: 'writes',
    permissions: [
      { id: read, name: 'docs.read', slug: 'docs.read' },
      { id: write, name: 'docs.write', slug: 'docs.write' },
    ],
    keys: 2,
  })
  const permission = await workspace.get('permissions.getPermission', { permissionId: read })
  expect({ ...permission, roles: idsOf(permission.roles).sort() }).toEqual({
    ...{ id: read, name: 'docs.read', slug: 'docs.read', keys: 1 },
    roles: [roleId, otherRoleId].sort(),
  })
  await workspace.post('keys.deleteKey', { keyId: keys[0]?.keyId })
  expect((await workspace.get('permissions.getRole', { roleId })).keys).toBe(1)
})

test('a search of roles and permissions finds inside of their texts, pages, and counts', async () => {
  const workspace = await server.workspace()
  const { roleId, otherRoleId, read, write } = await makeHolders(workspace)
  const { roles } = await workspace.get('permissions.searchRoles', { search: 'WRIT' })
  expect(roles).toEqual([await workspace.get('permissions.getRole', { roleId })])
  const first = await workspace.get('permissions.searchRoles', { limit: 1 })
  const second = await workspace.get('permissions.searchRoles', { limit: 1, cursor: first.cursor })
  expect([...idsOf(first.roles), ...idsOf(second.roles)]).toEqual([roleId, otherRoleId].sort())
  expect(second).not.toHaveProperty('cursor')
  const { permissions } = await workspace.get('permissions.searchPermissions', { search: 'docs' })
  const counts = Object.fromEntries(permissions.map(({ id, roles, keys }: Json) => [id, [roles, keys]]))
  expect(counts).toEqual({ [read]: [2, 1], [write]: [1, 0] })
  expect((await workspace.get('permissions.searchPermissions', { search: '%' })).permissions).toEqual([])
  expect(await (await server.workspace()).get('permissions.searchRoles')).toEqual({ roles: [] })
})

describe('keys.listKeys', () => {
  const walk = async (workspace: TestWorkspace, query: object, limit: number): Promise<Json[]> => {
    const keys: Json[] = []
    let cursor: string | undefined
    do {
      const page = await workspace.get('keys.listKeys', {
        ...query,
        limit,
        ...(cursor === undefined ? {} : { cursor }),
      })
      expect(page.keys.length).toBeLessThanOrEqual(limit)
      keys.push(...page.keys)
      cursor = page.cursor
    } while (cursor !== undefined)
    return keys
  }

  test('lists the keys of an identity, a role or a permission in all APIs, in pages of any size', async () => {
    const workspace = await server.workspace()
    const { roleId, otherRoleId, read, apiId, keys } = await makeHolders(workspace)
    const [first = '', second = '', third = ''] = keys.map(({ keyId }) => keyId)
    const identity = await workspace.get('identities.getIdentity', { externalId: 'user_1' })
    for (const limit of [1, 2, 100]) {
      const found = async (query: object) => idsOf(await walk(workspace, query, limit))
      expect(await found({ roleId })).toEqual([first, second].sort())
      expect(await found({ roleId: otherRoleId })).toEqual([second])
      expect(await found({ permissionId: read })).toEqual([third])
      expect((await found({ identityId: identity.id })).sort()).toEqual([first, second].sort())
    }
    const page = await workspace.get('keys.listKeys', { identityId: identity.id })
    expect(page.total).toBe(2)
    expect(page.keys.find(({ id }: Json) => id === first)).toEqual({
      id: first,
      start: expect.any(String),
      apiId,
      name: 'first',
      enabled: true,
      createdAt: expect.any(Number),
    })
  })

  test('without deleted keys, also of an API whose keys were deleted together', async () => {
    const workspace = await server.workspace()
    const { roleId, otherApiId, keys } = await makeHolders(workspace)
    await workspace.post('apis.deleteKeys', { apiId: otherApiId })
    const page = await workspace.get('keys.listKeys', { roleId })
    expect([idsOf(page.keys), page.total]).toEqual([[keys[0]?.keyId ?? ''], 1])
    await workspace.post('keys.deleteKey', { keyId: keys[0]?.keyId })
    expect(await workspace.get('keys.listKeys', { roleId })).toEqual({ keys: [], total: 0 })
  })

  test('wants exactly one of the three, and knows those of its own workspace alone', async () => {
    const workspace = await server.workspace()
    const { roleId, read } = await makeHolders(workspace)
    const refused = async (query: object, rootKey = workspace.rootKey) =>
      refusalOf(await server.get('keys.listKeys', { ...query }, rootKey))
    const message = 'exactly one of identityId, roleId and permissionId is required'
    for (const query of [{}, { roleId, permissionId: read }])
      expect(await refused(query)).toEqual({ status: 400, code: 'BAD_REQUEST', message })
    for (const query of [{ roleId }, { permissionId: read }, { identityId: 'id_unknown' }])
      expect(await refused(query, (await server.workspace()).rootKey)).toMatchObject({ status: 404 })
    // The right on one API is not enough: the list shows keys of all.
    const { keys } = await workspace.get('keys.listKeys', { roleId })
    const rootKey = await workspace.rootKeyWith(`api.${keys[0].apiId}.read_key`, 'rbac.*.read_role')
    expect(await refused({ roleId }, rootKey)).toMatchObject({ code: 'INSUFFICIENT_PERMISSIONS' })
  })
})
