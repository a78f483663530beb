import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import {
  OPERATOR_KEY,
  startTestServer,
  type TestServer,
  type TestWorkspace,
} from '../../../support/server.ts'
import { countStatements } from '../../../support/statements.ts'
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

const NOT_FOUND: [number, string] = [404, 'unkey/data/role_not_found']
const FORBIDDEN: [number, string] = [403, 'unkey/authorization/insufficient_permissions']
const [CREATE_ROLE, ADD, REMOVE, CREATE] = [
  'rbac.*.create_role',
  'rbac.*.add_permission_to_role',
  'rbac.*.remove_permission_from_role',
  'rbac.*.create_permission',
] as const

const call = (name: string, body: unknown, rootKey: string | null = mine.rootKey) =>
  callV2(server, `permissions.${name}`, body, rootKey)
let count = 0
const newName = () => `editor ${++count}`
const newSlug = () => `documents.read.${++count}`
const newRole = async (fields: object = {}, rootKey = mine.rootKey): Promise<string> =>
  (await dataOf(call('createRole', { name: newName(), ...fields }, rootKey))).roleId
const newPermission = (slug: string, rootKey = mine.rootKey) =>
  dataOf(call('createPermission', { name: slug, slug }, rootKey))
const slugsOf = (permissions: { slug: string }[] = []) => permissions.map(({ slug }) => slug)
const slugsOfRole = async (role: string, rootKey = mine.rootKey) =>
  slugsOf((await dataOf(call('getRole', { role }, rootKey))).permissions)
const permissionsNamed = async (slug: string, { rootKey }: { rootKey: string } = mine) =>
  await dataOf(call('listPermissions', { search: slug }, rootKey))
const eventsOf = async (workspaceId: string) => {
  const rows = await server.server.deps.sql<{ event: string; count: number }[]>`
    select event, count(*)::integer as count from audit_events
     where workspace_id = ${workspaceId} and event ~ 'role|permission' group by event order by event`
  return Object.fromEntries(rows.map((row) => [row.event, row.count]))
}

describe('createRole', () => {
  commonCases(() => ({
    server,
    name: 'permissions.createRole',
    rootKey: mine.rootKey,
    permissions: [CREATE_ROLE, ADD, CREATE],
    body: () => ({ name: newName(), permissions: [newSlug()] }),
  }))

  test('without permissions, with a description, with existing and with missing permissions', async () => {
    const workspace = await server.workspace()
    const { rootKey } = workspace
    const plain = await newRole({ name: 'plain' }, rootKey)
    expect(plain).toStartWith('role_')
    expect(await dataOf(call('getRole', { role: plain }, rootKey))).toEqual({ id: plain, name: 'plain' })
    const { permissionId } = await newPermission('b.there', rootKey)
    const fields = { name: 'full', description: 'All', permissions: ['b.there', 'a.new', 'b.there'] }
    const full = await newRole(fields, rootKey)
    const { permissions, ...role } = await dataOf(call('getRole', { role: 'full' }, rootKey))
    expect(role).toEqual({ id: full, name: 'full', description: 'All' })
    expect(permissions).toEqual([
      { id: expect.stringMatching(/^perm_/), name: 'a.new', slug: 'a.new' },
      { id: permissionId, name: 'b.there', slug: 'b.there' },
    ])
    expect(await eventsOf(workspace.workspaceId)).toEqual({
      'authorization.connect_permission_and_role': 2,
      'permission.create': 2,
      'role.create': 2,
    })
  })

  test('names have 1 to 128 characters, descriptions 512, lists 1000 slugs', async () => {
    const { rootKey } = await server.workspace()
    const create = async (fields: object) =>
      (await call('createRole', { name: newName(), ...fields }, rootKey)).status
    for (const name of ['x', '🔑'.repeat(128)]) expect(await create({ name })).toBe(200)
    for (const name of [undefined, null, '', 'x'.repeat(129)]) expect(await create({ name })).toBe(400)
    expect(await create({ description: 'x'.repeat(512) })).toBe(200)
    expect(await create({ description: 'x'.repeat(513) })).toBe(400)
    const many = Array.from({ length: 1001 }, (_, n) => `p${n}`)
    expect([await create({ permissions: many.slice(1) }), await create({ permissions: many })]).toEqual([
      200, 400,
    ])
    for (const permissions of [null, ['a b'], [''], [null], ['x'.repeat(129)]])
      expect(await create({ permissions })).toBe(400)
  })

  test('a name that exists is a 409 that names it, also at the same moment, and makes no permission', async () => {
    const name = newName()
    const slug = newSlug()
    const create = () => call('createRole', { name, permissions: [slug] })
    const answers = await Promise.all([1, 2, 3].map(create))
    expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 409, 409])
    const other = newSlug()
    const again = await call('createRole', { name, permissions: [other] })
    expect(await refusalOf(again)).toEqual([409, 'unkey/data/role_already_exists'])
    expect([again.body.error.title, again.body.error.detail]).toEqual([
      'Conflicting Resource',
      expect.stringContaining(name),
    ])
    expect(await permissionsNamed(other)).toEqual([])
  })

  test('permissions need the right to add them, missing ones the right to create them', async () => {
    const there = newSlug()
    await newPermission(there)
    const create = async (permissions: string[], ...rights: string[]) =>
      (await call('createRole', { name: newName(), permissions }, await mine.rootKeyWith(...rights))).status
    expect(await create([], CREATE_ROLE)).toBe(200)
    expect(await create([], ADD, CREATE)).toBe(403)
    expect(await create([there], CREATE_ROLE)).toBe(403)
    expect(await create([there], CREATE_ROLE, ADD)).toBe(200)
    expect(await create([there, newSlug()], CREATE_ROLE, ADD)).toBe(403)
    expect(await create([newSlug()], CREATE_ROLE, CREATE)).toBe(403)
    expect(await create([there, newSlug()], CREATE_ROLE, ADD, CREATE)).toBe(200)
  })

  test('a refused permission is asked for before it is known whether the role exists, and leaves nothing', async () => {
    const name = newName()
    await newRole({ name })
    const rootKey = await mine.rootKeyWith(CREATE_ROLE, ADD)
    const slug = newSlug()
    for (const wanted of [name, newName()]) {
      const answer = await call('createRole', { name: wanted, permissions: [slug] }, rootKey)
      expect(await refusalOf(answer)).toEqual(FORBIDDEN)
      expect(answer.body.error.detail).toContain('create_permission')
    }
    expect(await permissionsNamed(slug)).toEqual([])
  })

  test('many roles at once with one missing permission make it once', async () => {
    const { rootKey, workspaceId } = await server.workspace()
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, n) =>
        call(
          'createRole',
          { name: `role ${n}`, permissions: ['shared.new', `own.${n}`, 'another.new'] },
          rootKey,
        ),
      ),
    )
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200))
    expect(await permissionsNamed('.new', { rootKey })).toHaveLength(2)
    const { body } = await call('listRoles', {}, rootKey)
    expect(body.data).toHaveLength(8)
    for (const { permissions } of body.data) expect(permissions).toHaveLength(3)
    expect(await eventsOf(workspaceId)).toMatchObject({ 'permission.create': 10, 'role.create': 8 })
  })

  test('the bounds of a role and of a workspace refuse as a whole', async () => {
    const { rootKey, workspaceId } = await server.workspace()
    const bounds = { permissionsPerRole: 2, permissions: 3 }
    await server.post('workspaces.updateWorkspace', { workspaceId, bounds }, OPERATOR_KEY)
    const create = (permissions: string[]) => call('createRole', { name: newName(), permissions }, rootKey)
    expect(await refusalOf(create(['a', 'b', 'c']))).toEqual([412, 'unkey/application/precondition_failed'])
    expect((await create(['a', 'b'])).status).toBe(200)
    expect(await refusalOf(create(['c', 'd']))).toEqual([412, 'unkey/application/precondition_failed'])
    expect((await create(['c'])).status).toBe(200)
    expect((await call('listRoles', {}, rootKey)).body.data).toHaveLength(2)
  })

  test('the number of statements does not grow with the list', async () => {
    const create = (length: number) => newRole({ permissions: Array.from({ length }, () => newSlug()) })
    await create(1)
    const few = await countStatements(server, () => create(1))
    expect(await countStatements(server, () => create(100))).toBe(few)
  })
})

describe('getRole', () => {
  commonCases(async () => {
    const role = await newRole()
    return {
      server,
      name: 'permissions.getRole',
      rootKey: mine.rootKey,
      permissions: ['rbac.*.read_role'],
      body: () => ({ role }),
    }
  })

  test('by id and by name it is the same answer, and the id wins', async () => {
    const name = newName()
    const id = await newRole({ name, permissions: ['b', 'a'] })
    const shown = await dataOf(call('getRole', { role: id }))
    expect([shown.id, slugsOf(shown.permissions)]).toEqual([id, ['a', 'b']])
    expect(await dataOf(call('getRole', { role: name }))).toEqual(shown)
    await newRole({ name: id })
    expect(await dataOf(call('getRole', { role: id }))).toEqual(shown)
  })

  test('an unknown, a deleted and a foreign one are not found; the permission comes first', async () => {
    const gone = await newRole()
    await dataOf(call('deleteRole', { role: gone }))
    const other = await server.workspace()
    const foreign = await newRole({ name: 'foreign' }, other.rootKey)
    const rootKey = await mine.rootKeyWith('rbac.*.read_permission')
    for (const role of ['nothing', gone, foreign, 'foreign']) {
      const answer = await call('getRole', { role })
      expect(await refusalOf(answer)).toEqual(NOT_FOUND)
      expect(answer.body.error.detail).toContain(role)
      expect(await refusalOf(call('getRole', { role }, rootKey))).toEqual(FORBIDDEN)
    }
    for (const role of ['', 'x'.repeat(129), undefined])
      expect((await call('getRole', { role })).status).toBe(400)
  })
})

describe('listRoles', () => {
  commonCases(() => ({
    server,
    name: 'permissions.listRoles',
    rootKey: mine.rootKey,
    permissions: ['rbac.*.read_role'],
    body: () => ({}),
  }))

  listCases(() => ({
    server,
    name: 'permissions.listRoles',
    create: ({ rootKey }, name) => newRole({ name }, rootKey),
  }))

  test('roles have their permissions, and a search looks at name, id and description', async () => {
    const { rootKey } = await server.workspace()
    const id = await newRole(
      { name: 'Écrivain', description: '100% of_it', permissions: ['z', 'a'] },
      rootKey,
    )
    await newRole({ name: 'another', permissions: ['never.found'] }, rootKey)
    for (const search of ['CRIVAIN', id.slice(3), '0% OF_']) {
      const [role, ...others] = await dataOf(call('listRoles', { search }, rootKey))
      expect([role.id, slugsOf(role.permissions), others]).toEqual([id, ['a', 'z'], []])
    }
    expect(await dataOf(call('listRoles', { search: 'never.found' }, rootKey))).toEqual([])
  })

  /** Pages hold the thread while they are written. */
  test('a page of roles with many permissions ends early, and the next one goes on', async () => {
    const { rootKey, workspaceId } = await server.workspace()
    await server.post(
      'workspaces.updateWorkspace',
      { workspaceId, bounds: { permissionBytesPerRole: 100_000 } },
      OPERATOR_KEY,
    )
    const permissions = Array.from({ length: 500 }, (_, n) => `${n}.`.padEnd(100, 'x'))
    for (let n = 0; n < 6; n++) await newRole({ permissions }, rootKey)
    const sizes: number[] = []
    for (let cursor: string | undefined = ''; cursor !== undefined; ) {
      const { body } = await call('listRoles', { cursor }, rootKey)
      sizes.push(body.data.length)
      for (const role of body.data) expect(role.permissions).toHaveLength(500)
      cursor = body.pagination.cursor
    }
    expect(sizes).toEqual([4, 2])
  })
})

describe('deleteRole', () => {
  commonCases(() => ({
    server,
    name: 'permissions.deleteRole',
    rootKey: mine.rootKey,
    permissions: ['rbac.*.delete_role'],
    body: async () => ({ role: await newRole() }),
  }))

  test('keys lose it at once, its permissions stay, and a second time it is not found', async () => {
    const workspace = await server.workspace()
    const { rootKey, post } = workspace
    const { apiId } = await post('apis.createApi', { name: 'my api' })
    const id = await newRole({ name: 'one', permissions: ['a'] }, rootKey)
    await newRole({ name: 'two', permissions: ['b'] }, rootKey)
    const { key } = await post('keys.createKey', { apiId, roles: ['one', 'two'] })
    const held = async () => (await post('keys.verifyKey', { key })).permissions
    expect(await held()).toEqual(['a', 'b'])
    expect(await dataOf(call('deleteRole', { role: id }, rootKey))).toEqual({})
    expect(await held()).toEqual(['b'])
    expect(await dataOf(call('deleteRole', { role: 'two' }, rootKey))).toEqual({})
    expect(await held()).toEqual([])
    expect(await permissionsNamed('', workspace)).toHaveLength(2)
    for (const role of [id, 'one', 'two'])
      expect(await refusalOf(call('deleteRole', { role }, rootKey))).toEqual(NOT_FOUND)
    expect(await eventsOf(workspace.workspaceId)).toMatchObject({ 'role.delete': 2 })
  })

  test('the permission comes before the look-up', async () => {
    const rootKey = await mine.rootKeyWith('rbac.*.read_role')
    for (const role of [await newRole(), 'nothing'])
      expect(await refusalOf(call('deleteRole', { role }, rootKey))).toEqual(FORBIDDEN)
  })
})

describe('setRolePermissions', () => {
  const set = (roleId: string, permissions: string[], rootKey = mine.rootKey) =>
    call('setRolePermissions', { roleId, permissions }, rootKey)

  commonCases(async () => {
    const roleId = await newRole()
    return {
      server,
      name: 'permissions.setRolePermissions',
      rootKey: mine.rootKey,
      permissions: [ADD, REMOVE, CREATE],
      body: () => ({ roleId, permissions: [newSlug()] }),
    }
  })

  test('the list replaces what the role gives, and the answer is sorted by slug', async () => {
    const workspace = await server.workspace()
    const { rootKey, post } = workspace
    const { apiId } = await post('apis.createApi', { name: 'my api' })
    const { permissionId } = await dataOf(
      call('createPermission', { name: 'Name', slug: 'm', description: 'About it' }, rootKey),
    )
    const roleId = await newRole({ name: 'one', permissions: ['old', 'm'] }, rootKey)
    const { key } = await post('keys.createKey', { apiId, roles: ['one'] })
    const held = async () => (await post('keys.verifyKey', { key })).permissions
    expect(await held()).toEqual(['m', 'old'])
    const answer = await dataOf(set(roleId, ['z', 'm', 'z', 'a'], rootKey))
    expect(answer).toEqual([
      { id: expect.stringMatching(/^perm_/), name: 'a', slug: 'a' },
      { id: permissionId, name: 'Name', slug: 'm', description: 'About it' },
      { id: expect.stringMatching(/^perm_/), name: 'z', slug: 'z' },
    ])
    expect(await held()).toEqual(['a', 'm', 'z'])
    const events = await eventsOf(workspace.workspaceId)
    expect(await dataOf(set(roleId, ['a', 'm', 'z'], rootKey))).toEqual(answer)
    expect(await eventsOf(workspace.workspaceId)).toEqual(events)
    expect(await dataOf(set(roleId, [], rootKey))).toEqual([])
    expect([await held(), await slugsOfRole(roleId, rootKey)]).toEqual([[], []])
    expect(await permissionsNamed('', workspace)).toHaveLength(4)
  })

  test('adding and removing are both needed, also where nothing is removed; creating only where one is missing', async () => {
    const there = newSlug()
    await newPermission(there)
    const roleId = await newRole()
    const statusWith = async (permissions: string[], ...rights: string[]) =>
      (await set(roleId, permissions, await mine.rootKeyWith(...rights))).status
    expect(await statusWith([there], ADD)).toBe(403)
    expect(await statusWith([there], REMOVE, CREATE)).toBe(403)
    expect(await statusWith([], ADD)).toBe(403)
    expect(await statusWith([there], ADD, REMOVE)).toBe(200)
    expect(await statusWith([there, newSlug()], ADD, REMOVE)).toBe(403)
    expect(await slugsOfRole(roleId)).toEqual([there])
    expect(await statusWith([newSlug()], ADD, REMOVE, CREATE)).toBe(200)
  })

  test('an unknown, a foreign and a deleted role are not found, before missing permissions are looked at', async () => {
    const name = newName()
    const gone = await newRole({ name })
    await dataOf(call('deleteRole', { role: gone }))
    const foreign = await newRole({}, (await server.workspace()).rootKey)
    const slug = newSlug()
    const rootKey = await mine.rootKeyWith(ADD, REMOVE)
    for (const roleId of ['role_none', gone, foreign]) {
      expect(await refusalOf(set(roleId, [slug]))).toEqual(NOT_FOUND)
      expect(await refusalOf(set(roleId, [slug], rootKey))).toEqual(NOT_FOUND)
      expect(await refusalOf(set(roleId, [slug], await mine.rootKeyWith(ADD)))).toEqual(FORBIDDEN)
    }
    expect(await permissionsNamed(slug)).toEqual([])
  })

  test('the role is named by its id alone', async () => {
    const named = await newRole({ name: 'by-name' })
    expect(await refusalOf(set('by-name', []))).toEqual(NOT_FOUND)
    expect((await set(named, [])).status).toBe(200)
    for (const roleId of ['', 'ab', 'x'.repeat(256), 'role 1', null])
      expect((await call('setRolePermissions', { roleId, permissions: [] })).status).toBe(400)
    for (const permissions of [undefined, null, ['a b'], Array.from({ length: 1001 }, (_, n) => `p${n}`)])
      expect((await call('setRolePermissions', { roleId: named, permissions })).status).toBe(400)
  })

  test('concurrent calls with one new slug make it once, and the role has one of the sets', async () => {
    const { rootKey } = await server.workspace()
    const roles = [await newRole({}, rootKey), await newRole({}, rootKey)]
    const sets = [['new', 'a'], ['b', 'new'], ['new']]
    const answers = await Promise.all(
      [...sets, ...sets].flatMap((permissions) => roles.map((role) => set(role, permissions, rootKey))),
    )
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200))
    for (const role of roles)
      expect(sets.map((one) => one.toSorted())).toContainEqual(await slugsOfRole(role, rootKey))
    expect(await permissionsNamed('new', { rootKey })).toHaveLength(1)
  })
})

/** One store: only the requests of v2 have other bounds. */
test('v1 and v2 change one role together, also one whose name v2 would not make', async () => {
  const workspace = await server.workspace()
  const { rootKey, post, get } = workspace
  const name = 'x'.repeat(200)
  const { roleId } = await post('permissions.createRole', { name, description: '' })
  expect(await dataOf(call('getRole', { role: roleId }, rootKey))).toEqual({ id: roleId, name })
  await dataOf(call('setRolePermissions', { roleId, permissions: ['a.*', 'b'] }, rootKey))
  const kept = await post('permissions.setRolePermissions', {
    roleId,
    permissions: [{ slug: 'b' }, { slug: 'c.d', create: true }],
  })
  expect(kept.map((one: { name: string }) => one.name)).toEqual(['b', 'c.d'])
  expect(await slugsOfRole(roleId, rootKey)).toEqual(['b', 'c.d'])
  const made = await newRole({ name: 'ab', permissions: ['b'] }, rootKey)
  expect(await get('permissions.getRole', { roleId: made })).toEqual({
    id: made,
    name: 'ab',
    permissions: [{ id: expect.any(String), name: 'b', slug: 'b' }],
    keys: 0,
  })
  expect(await get('permissions.listRoles')).toHaveLength(2)
})
