import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

/** Permissions and roles are created, read and deleted by the same rules: every case runs for both. */
const kinds = [
  { noun: 'permission', Noun: 'Permission', idField: 'permissionId', list: 'permissions', prefix: /^perm_/ },
  { noun: 'role', Noun: 'Role', idField: 'roleId', list: 'roles', prefix: /^role_/ },
] as const

describe.each(kinds)('$noun', ({ noun, Noun, idField, list, prefix }) => {
  const create = (body: object, rootKey: string) => server.post(`permissions.create${Noun}`, body, rootKey)
  const make = async ({ rootKey }: TestWorkspace, name: string): Promise<string> =>
    (await create({ name }, rootKey)).body[idField]
  const shown = (id: string, name: string) =>
    noun === 'permission' ? { id, name, slug: name } : { id, name }
  const messageOf = async (body: object) => {
    const answer = await server.post(`permissions.create${Noun}`, body)
    return answer.status === 400 ? answer.body.error.message : answer.body.error.code
  }

  /** The texts are contract: clients compare them. */
  test.each(['', 'ab'])('the name %p is too short', async (name) => {
    expect(await messageOf({ name })).toBe('name: String must contain at least 3 character(s)')
  })

  test('names and descriptions have 3 to 256 characters; a description may be empty', async () => {
    const tooLong = 'String must contain at most 256 character(s)'
    expect(await messageOf({})).toBe('name: Required')
    expect(await messageOf({ name: 'abc' })).toBe('UNAUTHORIZED') // passes, and then lacks a root key
    expect(await messageOf({ name: 'a'.repeat(256) })).toBe('UNAUTHORIZED')
    expect(await messageOf({ name: 'a'.repeat(257) })).toBe(`name: ${tooLong}`)
    const described = (description: unknown) => messageOf({ name: 'abc', description })
    expect(await described('')).toBe('UNAUTHORIZED')
    expect(await described('ab')).toBe('description: String must contain at least 3 character(s)')
    expect(await described('a\nb')).toBe('UNAUTHORIZED')
    expect(await described('a'.repeat(256))).toBe('UNAUTHORIZED')
    expect(await described('a'.repeat(257))).toBe(`description: ${tooLong}`)
    expect(await described(null)).toBe('description: Expected string, received null')
  })

  test('a name that exists is a conflict that says so, and names differ by case', async () => {
    const workspace = await server.workspace()
    const id = await make(workspace, 'edit.docs')
    expect(id).toMatch(prefix)
    const { status, body } = await create({ name: 'edit.docs' }, workspace.rootKey)
    expect([status, body.error.code]).toEqual([409, 'CONFLICT'])
    expect(body.error.message).toContain('edit.docs')
    expect((await create({ name: 'Edit.docs' }, workspace.rootKey)).status).toBe(200)
    expect((await create({ name: 'edit.docs' }, (await server.workspace()).rootKey)).status).toBe(200)
  })

  test('of two concurrent calls one creates it and the other is a conflict', async () => {
    const { rootKey } = await server.workspace()
    const statuses = async (name: string) =>
      (await Promise.all([1, 2, 3].map(() => create({ name }, rootKey))))
        .map(({ status }) => status)
        .toSorted()
    for (const name of ['one', 'two', 'three']) expect(await statuses(name)).toEqual([200, 409, 409])
  })

  test('a new one is shown, without a description when it has none', async () => {
    const workspace = await server.workspace()
    const id = await make(workspace, 'edit.docs')
    const holders = noun === 'permission' ? { roles: [], keys: 0 } : { permissions: [], keys: 0 }
    const got = await workspace.get(`permissions.get${Noun}`, { [idField]: id })
    expect(got).toEqual({ ...shown(id, 'edit.docs'), ...holders })
    expect(await workspace.get(`permissions.list${Noun}s`)).toEqual([shown(id, 'edit.docs')])
  })

  test('a description is shown as given, an empty one too', async () => {
    const workspace = await server.workspace()
    for (const description of ['what it is for', '']) {
      const { body } = await create({ name: `name-${description.length}`, description }, workspace.rootKey)
      const answer = await workspace.get(`permissions.get${Noun}`, { [idField]: body[idField] })
      expect(answer.description).toBe(description)
    }
  })

  test('the list has all of the workspace by id, and none of another', async () => {
    const [workspace, other] = [await server.workspace(), await server.workspace()]
    const ids: string[] = []
    for (let i = 0; i < 105; i++) ids.push(await make(workspace, `name-${i}`))
    await make(other, 'foreign')
    const listed: { id: string }[] = await workspace.get(`permissions.list${Noun}s`)
    expect(listed.map(({ id }) => id)).toEqual(ids.toSorted())
  })

  test('an unknown or deleted id and an id of another workspace are a 404 that names it', async () => {
    const [workspace, other] = [await server.workspace(), await server.workspace()]
    const foreign = await make(other, 'foreign')
    const deleted = await make(workspace, 'deleted')
    await workspace.post(`permissions.delete${Noun}`, { [idField]: deleted })
    for (const id of ['none_1', foreign, deleted]) {
      const got = await server.get(`permissions.get${Noun}`, { [idField]: id }, workspace.rootKey)
      const gone = await server.post(`permissions.delete${Noun}`, { [idField]: id }, workspace.rootKey)
      for (const { status, body } of [got, gone])
        expect([status, body.error.message]).toEqual([404, `${noun} ${id} not found`])
    }
    expect(await other.get(`permissions.list${Noun}s`)).toHaveLength(1)
    const { status, body } = await server.get(`permissions.get${Noun}`, { [idField]: '' }, workspace.rootKey)
    expect([status, body.error.message]).toEqual([
      400,
      `${idField}: String must contain at least 1 character(s)`,
    ])
  })

  /** In the v1 API links stayed, and verifying a key with a deleted role was a 500. */
  test('deleting one removes it from every key at once, cached or not', async () => {
    const workspace = await server.workspace()
    const { apiId } = await workspace.post('apis.createApi', { name: 'my api' })
    const [gone, kept] = [await make(workspace, 'gone'), await make(workspace, 'kept')]
    const fields = { apiId, [list]: ['gone', 'kept'] }
    const one = await workspace.post('keys.createKey', fields)
    const two = await workspace.post('keys.createKey', fields)
    const verify = async (key: string) => (await server.post('keys.verifyKey', { key })).body
    expect((await verify(one.key))[list]).toEqual(['gone', 'kept'])
    await workspace.post(`permissions.delete${Noun}`, { [idField]: gone })
    for (const { key } of [one, two])
      expect(await verify(key)).toMatchObject({ valid: true, [list]: ['kept'] })
    expect(await workspace.get(`permissions.list${Noun}s`)).toEqual([shown(kept, 'kept')])
    // The name is free again, and the new one is not on any key.
    await make(workspace, 'gone')
    expect((await verify(one.key))[list]).toEqual(['kept'])
  })

  test.each(['create', 'get', 'list', 'delete'] as const)('%s needs exactly its own right', async (verb) => {
    const workspace = await server.workspace()
    const id = await make(workspace, 'edit.docs')
    const attempt = async (rootKey: string) => {
      const method = `permissions.${verb}${Noun}${verb === 'list' ? 's' : ''}`
      const { body } =
        verb === 'create'
          ? await server.post(method, { name: 'another' }, rootKey)
          : verb === 'delete'
            ? await server.post(method, { [idField]: id }, rootKey)
            : await server.get(method, { [idField]: id }, rootKey)
      return body.error?.code ?? 'ok'
    }
    const right = `rbac.*.${verb === 'get' || verb === 'list' ? 'read' : verb}_${noun}`
    const rights = ['create', 'read', 'update', 'delete'].map((action) => `rbac.*.${action}_${noun}`)
    const allOthers = rights.filter((other) => other !== right)
    expect(await attempt(await workspace.rootKeyWith())).toBe('INSUFFICIENT_PERMISSIONS')
    expect(await attempt(await workspace.rootKeyWith(...allOthers))).toBe('INSUFFICIENT_PERMISSIONS')
    expect(await attempt(await workspace.rootKeyWith(right, 'another'))).toBe('ok')
  })

  test('creating and deleting are audited with the root key that did it', async () => {
    const workspace = await server.workspace()
    const id = await make(workspace, 'edit.docs')
    await workspace.post(`permissions.delete${Noun}`, { [idField]: id })
    const rows = await server.server.deps.sql`
      select event, actor_id, resources from audit_events
       where workspace_id = ${workspace.workspaceId} and event like ${`${noun}.%`} order by event`
    expect([...rows]).toMatchObject([
      {
        event: `${noun}.create`,
        actor_id: workspace.rootKeyId,
        resources: [{ type: noun, id, name: 'edit.docs' }],
      },
      {
        event: `${noun}.delete`,
        actor_id: workspace.rootKeyId,
        resources: [{ type: noun, id, name: 'edit.docs' }],
      },
    ])
  })
})

test('a permission is unique by slug; names may repeat', async () => {
  const { rootKey, get, post } = await server.workspace()
  const { permissionId } = await post('permissions.createPermission', { name: 'Edit', slug: 'docs:edit' })
  expect(await get('permissions.getPermission', { permissionId })).toMatchObject({
    id: permissionId,
    name: 'Edit',
    slug: 'docs:edit',
  })
  await post('permissions.createPermission', { name: 'Edit', slug: 'docs:edit2' })
  const { status, body } = await server.post(
    'permissions.createPermission',
    { name: 'Other', slug: 'docs:edit' },
    rootKey,
  )
  expect([status, body.error.code]).toEqual([409, 'CONFLICT'])
  expect(body.error.message).toContain('docs:edit')
})

test('names and slugs of permissions may contain only letters, digits and _ . : -, and a refusal says so (finding 9.3)', async () => {
  const messageOf = async (body: object) =>
    (await server.post('permissions.createPermission', body)).body.error.message
  expect(await messageOf({ name: 'aZ09_.:-' })).toBe('key required')
  const allowed = 'Only letters (a-z, A-Z), digits, underscores, periods, colons and hyphens are allowed'
  for (const name of ['a b', 'hello world', 'abc*', 'äbc', 'abc\n', 'a/b']) {
    expect(await messageOf({ name })).toBe(`name: ${allowed}`)
    expect(await messageOf({ name: 'abc', slug: name })).toBe(`slug: ${allowed}`)
  }
  expect(await messageOf({ name: 'abc', slug: 'ab' })).toBe(
    'slug: String must contain at least 3 character(s)',
  )
  expect(await messageOf({ name: 'abc', slug: 'a'.repeat(256) })).toBe('key required')
  expect(await messageOf({ name: 'abc', slug: 'a'.repeat(257) })).toBe(
    'slug: String must contain at most 256 character(s)',
  )
})

test('the name of a role may contain any characters', async () => {
  const { post, get } = await server.workspace()
  const { roleId } = await post('permissions.createRole', { name: 'Größe: 10 % ✓' })
  expect(await get('permissions.getRole', { roleId })).toMatchObject({ id: roleId, name: 'Größe: 10 % ✓' })
})
