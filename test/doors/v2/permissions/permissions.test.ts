import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../../support/server.ts'
import { SLOW_MS } from '../../../support/timeout.ts'
import { callV2, commonCases, dataOf, refusalOf } from '../common-cases.ts'
import { listCases } from '../list-cases.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
let mine: TestWorkspace
beforeAll(async () => {
  server = await startTestServer()
  mine = await server.workspace()
})
afterAll(async () => await server[Symbol.asyncDispose]())

const NOT_FOUND: [number, string] = [404, 'unkey/data/permission_not_found']
const FORBIDDEN: [number, string] = [403, 'unkey/authorization/insufficient_permissions']

const call = (name: string, body: unknown, rootKey: string | null = mine.rootKey) =>
  callV2(server, `permissions.${name}`, body, rootKey)
let count = 0
const newSlug = () => `documents.read.${++count}`
const newPermission = async (slug: string, rootKey = mine.rootKey): Promise<string> =>
  (await dataOf(call('createPermission', { name: `Name of ${slug}`, slug }, rootKey))).permissionId

describe('createPermission', () => {
  commonCases(() => ({
    server,
    name: 'permissions.createPermission',
    rootKey: mine.rootKey,
    permissions: ['rbac.*.create_permission'],
    body: () => ({ name: 'Read', slug: newSlug() }),
  }))

  test('with and without a description, which is absent when it is empty', async () => {
    for (const [description, shown] of [
      ['What it is for 🔑', { description: 'What it is for 🔑' }],
      ['', {}],
      [undefined, {}],
    ] as const) {
      const slug = newSlug()
      const { permissionId } = await dataOf(call('createPermission', { name: 'Read', slug, description }))
      expect(permissionId).toStartWith('perm_')
      expect(await dataOf(call('getPermission', { permission: slug }))).toEqual({
        id: permissionId,
        name: 'Read',
        slug,
        ...shown,
      })
    }
  })

  test('slugs have 1 to 128 letters, digits, dots, colons, asterisks, underscores and hyphens', async () => {
    const { rootKey } = await server.workspace()
    const create = async (fields: Json) =>
      (await call('createPermission', { name: 'Read', slug: newSlug(), ...fields }, rootKey)).status
    for (const slug of ['x', 'a.b:c-d_e.*', '*', 'x'.repeat(128)]) expect(await create({ slug })).toBe(200)
    for (const slug of [undefined, null, '', 'a b', 'a!', 'ü', 'x'.repeat(129)])
      expect([slug, await create({ slug })]).toEqual([slug, 400])
    for (const name of ['x', 'ü 🔑'.repeat(128)]) expect(await create({ name })).toBe(200)
    for (const name of [undefined, null, '', 'x'.repeat(513)]) expect(await create({ name })).toBe(400)
    expect([
      await create({ description: 'x'.repeat(512) }),
      await create({ description: 'x'.repeat(513) }),
    ]).toEqual([200, 400])
    expect(await create({ unknown: 1 })).toBe(400)
  })

  test('a slug that exists is a 409 that names it, also at the same moment; another letter case is another slug', async () => {
    const slug = newSlug()
    const create = (text: string) => call('createPermission', { name: 'Read', slug: text })
    const answers = await Promise.all([1, 2, 3].map(() => create(slug)))
    expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 409, 409])
    const again = await create(slug)
    expect(await refusalOf(again)).toEqual([409, 'unkey/data/permission_already_exists'])
    expect([again.body.error.title, again.body.error.detail]).toEqual([
      'Conflicting Resource',
      expect.stringContaining(slug),
    ])
    expect((await create(slug.toUpperCase())).status).toBe(200)
    expect(await newPermission(slug, (await server.workspace()).rootKey)).toStartWith('perm_')
  })
})

describe('getPermission', () => {
  commonCases(async () => {
    const permission = await newPermission(newSlug())
    return {
      server,
      name: 'permissions.getPermission',
      rootKey: mine.rootKey,
      permissions: ['rbac.*.read_permission'],
      body: () => ({ permission }),
    }
  })

  test('by id and by slug it is the same answer, and the id wins', async () => {
    const slug = newSlug()
    const id = await newPermission(slug)
    const shown = { id, name: `Name of ${slug}`, slug }
    expect(await dataOf(call('getPermission', { permission: id }))).toEqual(shown)
    expect(await dataOf(call('getPermission', { permission: slug }))).toEqual(shown)
    await newPermission(id)
    expect(await dataOf(call('getPermission', { permission: id }))).toEqual(shown)
  })

  test('an unknown, a deleted and a foreign one are not found; the permission comes first', async () => {
    const gone = await newPermission(newSlug())
    await dataOf(call('deletePermission', { permission: gone }))
    const other = await server.workspace()
    const foreign = await newPermission('foreign', other.rootKey)
    for (const permission of ['nothing', gone, foreign, 'foreign']) {
      const answer = await call('getPermission', { permission })
      expect(await refusalOf(answer)).toEqual(NOT_FOUND)
      expect(answer.body.error.detail).toContain(permission)
      const rootKey = await mine.rootKeyWith('rbac.*.read_role')
      expect(await refusalOf(call('getPermission', { permission }, rootKey))).toEqual(FORBIDDEN)
    }
    for (const permission of ['', 'a b', 'x'.repeat(129), undefined])
      expect((await call('getPermission', { permission })).status).toBe(400)
  })
})

describe('listPermissions', () => {
  commonCases(() => ({
    server,
    name: 'permissions.listPermissions',
    rootKey: mine.rootKey,
    permissions: ['rbac.*.read_permission'],
    body: () => ({}),
  }))

  listCases(() => ({
    server,
    name: 'permissions.listPermissions',
    create: ({ rootKey }, slug) => newPermission(slug, rootKey),
  }))

  test('a search looks at name, id, slug and description', async () => {
    const { rootKey } = await server.workspace()
    const fields = { name: 'First NAME', slug: 'second.slug', description: '100% of_it' }
    const { permissionId } = await dataOf(call('createPermission', fields, rootKey))
    await newPermission('another', rootKey)
    for (const search of ['first n', 'SECOND', permissionId.slice(3), '0% of', 'of_'])
      expect(await dataOf(call('listPermissions', { search }, rootKey))).toEqual([
        { id: permissionId, ...fields },
      ])
    expect(await dataOf(call('listPermissions', { search: 'of.it' }, rootKey))).toEqual([])
  })
})

describe('deletePermission', () => {
  commonCases(() => ({
    server,
    name: 'permissions.deletePermission',
    rootKey: mine.rootKey,
    permissions: ['rbac.*.delete_permission'],
    body: async () => ({ permission: await newPermission(newSlug()) }),
  }))

  test('keys and roles lose it at once, and a second time it is not found', async () => {
    const { rootKey, post } = await server.workspace()
    const { apiId } = await post('apis.createApi', { name: 'my api' })
    const slugs = ['by.id', 'by.slug', 'kept']
    const ids = [await newPermission('by.id', rootKey), await newPermission('by.slug', rootKey)]
    await newPermission('kept', rootKey)
    const { roleId } = await dataOf(call('createRole', { name: 'editor', permissions: slugs }, rootKey))
    const direct = (await post('keys.createKey', { apiId, permissions: slugs })).key
    const throughRole = (await post('keys.createKey', { apiId, roles: ['editor'] })).key
    const held = async () =>
      Promise.all(
        [direct, throughRole].map(async (key) => (await post('keys.verifyKey', { key })).permissions),
      )
    expect(await held()).toEqual([slugs, slugs])
    expect(await dataOf(call('deletePermission', { permission: ids[0] }, rootKey))).toEqual({})
    expect(await dataOf(call('deletePermission', { permission: 'by.slug' }, rootKey))).toEqual({})
    expect(await held()).toEqual([['kept'], ['kept']])
    const role = await dataOf(call('getRole', { role: roleId }, rootKey))
    expect(role.permissions.map(({ slug }: { slug: string }) => slug)).toEqual(['kept'])
    for (const permission of [...ids, 'by.slug'])
      expect(await refusalOf(call('deletePermission', { permission }, rootKey))).toEqual(NOT_FOUND)
  })

  test('the permission comes before the look-up', async () => {
    const rootKey = await mine.rootKeyWith('rbac.*.read_permission')
    for (const permission of [await newPermission(newSlug()), 'nothing'])
      expect(await refusalOf(call('deletePermission', { permission }, rootKey))).toEqual(FORBIDDEN)
  })
})

/** One store: only the requests of v2 have other bounds. */
test('v1 and v2 show one permission, also with a name and a slug that v2 would not make', async () => {
  const slug = newSlug()
  const { permissionId } = await mine.post('permissions.createPermission', { name: slug, description: '' })
  expect(await dataOf(call('getPermission', { permission: slug }))).toEqual({
    id: permissionId,
    name: slug,
    slug,
  })
  const long = 'x'.repeat(200)
  const made = await mine.post('permissions.createPermission', { name: long })
  const shown = { id: made.permissionId, name: long, slug: long }
  expect(await dataOf(call('getPermission', { permission: made.permissionId }))).toEqual(shown)
  expect(await dataOf(call('listPermissions', { search: long }))).toEqual([shown])
  const v2 = await newPermission('a.*')
  expect(await mine.get('permissions.getPermission', { permissionId: v2 })).toEqual({
    roles: [],
    keys: 0,
    id: v2,
    name: 'Name of a.*',
    slug: 'a.*',
  })
})
