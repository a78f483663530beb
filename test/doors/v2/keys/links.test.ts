import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { makeApi, makeKey } from '../../../support/fixtures.ts'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../../support/server.ts'
import { SLOW_MS } from '../../../support/timeout.ts'
import { callV2, commonCases, dataOf, refusalOf } from '../common-cases.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
let mine: TestWorkspace
let apiId: string
beforeAll(async () => {
  server = await startTestServer()
  mine = await server.workspace()
  apiId = await makeApi(mine)
  for (const name of ['reader', 'editor', 'admin']) await mine.post('permissions.createRole', { name })
  for (const slug of ['docs.read', 'docs.write', 'docs.print'])
    await mine.post('permissions.createPermission', { name: slug })
})
afterAll(async () => await server[Symbol.asyncDispose]())

const INVALID: [number, string] = [400, 'unkey/application/invalid_input']
const FORBIDDEN: [number, string] = [403, 'unkey/authorization/insufficient_permissions']
const send = (method: string, body: Json, rootKey = mine.rootKey) =>
  callV2(server, `keys.${method}`, body, rootKey)
const newKey = async (fields: Json = {}) => await makeKey(mine, apiId, fields)
const connections = async (keyId: string): Promise<number> => {
  const { events } = await mine.get('audit.listEvents', { resourceId: keyId })
  return events.filter(({ event }: Json) => event.includes('connect_')).length
}
/** As a verification sees them. */
const verified = async (key: string): Promise<{ permissions: string[]; roles: string[] }> => {
  const { permissions, roles } = (await server.post('keys.verifyKey', { key })).body
  return { permissions, roles }
}

type Kind = {
  field: 'permissions' | 'roles'
  /** Three existing texts, and the names of the methods. */
  texts: [string, string, string]
  add: string
  set: string
  remove: string
  /** What each method needs besides the right to update the key. */
  rights: Record<'add' | 'set' | 'remove', string[]>
  /** The text of an element of an answer. */
  textOf: (element: Json) => string
}
const PERMISSIONS: Kind = {
  field: 'permissions',
  texts: ['docs.print', 'docs.read', 'docs.write'],
  add: 'addPermissions',
  set: 'setPermissions',
  remove: 'removePermissions',
  rights: {
    add: ['rbac.*.add_permission_to_key'],
    set: ['rbac.*.add_permission_to_key', 'rbac.*.remove_permission_from_key'],
    remove: ['rbac.*.remove_permission_from_key'],
  },
  textOf: ({ slug }) => slug,
}
const ROLES: Kind = {
  field: 'roles',
  texts: ['admin', 'editor', 'reader'],
  add: 'addRoles',
  set: 'setRoles',
  remove: 'removeRoles',
  rights: { add: ['rbac.*.add_role_to_key'], set: [], remove: [] },
  textOf: ({ name }) => name,
}

describe.each([PERMISSIONS, ROLES])('$field of a key', (kind) => {
  const { field, texts, textOf, rights } = kind
  const [one, two, three] = texts
  const call = async (verb: 'add' | 'set' | 'remove', keyId: string, wanted: string[]): Promise<string[]> =>
    (await dataOf(send(kind[verb], { keyId, [field]: wanted }))).map(textOf)

  for (const verb of ['add', 'set', 'remove'] as const)
    describe(verb, () => {
      commonCases(async () => ({
        server,
        name: `keys.${kind[verb]}`,
        rootKey: mine.rootKey,
        permissions: [`api.${apiId}.update_key`, ...rights[verb]],
        body: async () => ({ keyId: (await newKey()).keyId, [field]: [one] }),
      }))

      test('needs each of its rights, and that to update keys of this API', async () => {
        const { keyId } = await newKey()
        const body = { keyId, [field]: [one] }
        const all = ['api.*.update_key', ...rights[verb]]
        for (const missing of all) {
          const rootKey = await mine.rootKeyWith(
            ...all.filter((each) => each !== missing),
            'api.api_other.update_key',
          )
          expect(await refusalOf(send(kind[verb], body, rootKey))).toEqual(FORBIDDEN)
        }
        expect((await send(kind[verb], body, await mine.rootKeyWith(...all))).status).toBe(200)
      })

      test('an unknown, a deleted and another workspace’s key: 404', async () => {
        const { keyId } = await newKey()
        await mine.post('keys.deleteKey', { keyId })
        const other = await server.workspace()
        const foreign = await makeKey(other, await makeApi(other))
        for (const id of ['key_unknown', keyId, foreign.keyId])
          expect(await refusalOf(send(kind[verb], { keyId: id, [field]: [one] }))).toEqual([
            404,
            'unkey/data/key_not_found',
          ])
      })

      test('bad bodies: 400', async () => {
        const { keyId } = await newKey()
        const bodies: Json[] = [
          { keyId },
          { [field]: [one] },
          { keyId: '', [field]: [one] },
          { keyId: 'key-1234', [field]: [one] },
          { keyId, [field]: [''] },
          { keyId, [field]: ['x'.repeat(129)] },
          { keyId, [field]: [{ name: one }] },
          { keyId, [field]: null },
          { keyId, [field]: Array(field === 'roles' ? 101 : 1001).fill(one) },
          { keyId, [field]: [one], more: 1 },
        ]
        if (verb !== 'set') bodies.push({ keyId, [field]: [] })
        for (const body of bodies) expect(await refusalOf(send(kind[verb], body))).toEqual(INVALID)
      })
    })

  test('add keeps existing ones; the same again changes nothing and leaves no event', async () => {
    const { keyId, key } = await newKey()
    expect(await call('add', keyId, [two])).toEqual([two])
    expect(await call('add', keyId, [three, one, one])).toEqual([one, two, three])
    const events = await connections(keyId)
    expect(events).toBe(3)
    expect(await call('add', keyId, [one, two])).toEqual([one, two, three])
    expect(await connections(keyId)).toBe(events)
    expect((await verified(key))[field]).toEqual([one, two, three])
  })

  test('set replaces, also by nothing; the next verification sees it', async () => {
    const { keyId, key } = await newKey()
    await call('add', keyId, [one, two])
    expect((await verified(key))[field]).toEqual([one, two])
    expect(await call('set', keyId, [three, two])).toEqual([two, three])
    expect((await verified(key))[field]).toEqual([two, three])
    const events = await connections(keyId)
    expect(await call('set', keyId, [two, three])).toEqual([two, three])
    expect(await connections(keyId)).toBe(events)
    expect(await call('set', keyId, [])).toEqual([])
    expect((await verified(key))[field]).toEqual([])
  })

  test('remove ignores what is not on the key', async () => {
    const { keyId, key } = await newKey()
    await call('add', keyId, [one, two])
    expect(await call('remove', keyId, [two, three])).toEqual([one])
    expect((await verified(key))[field]).toEqual([one])
    expect(await call('remove', keyId, [one, one])).toEqual([])
    expect(await call('remove', keyId, [one])).toEqual([])
  })

  test('many calls at once on one key: the union, without duplicates', async () => {
    const { keyId } = await newKey()
    const wanted = [[one], [two], [three], [one, two], [three, two], [three, one]]
    const answers = await Promise.all(wanted.map((list) => send(kind.add, { keyId, [field]: list })))
    expect(answers.map(({ status }) => status)).toEqual(wanted.map(() => 200))
    expect(await call('add', keyId, [one])).toEqual([one, two, three])
  })

  test('names count exactly, and ids are not looked up', async () => {
    const { keyId } = await newKey()
    const [added] = await dataOf(send(kind.add, { keyId, [field]: [one] }))
    for (const text of [added.id, one.toUpperCase()]) {
      const answer = await send(kind.remove, { keyId, [field]: [one, text] })
      expect(await refusalOf(answer)).toEqual([404, `unkey/data/${field.slice(0, -1)}_not_found`])
      expect(answer.body.error.detail).toContain(text)
    }
    // Nothing was removed.
    expect(await call('add', keyId, [one])).toEqual([one])
  })
})

describe('permissions that do not exist', () => {
  const rights = ['api.*.update_key', ...PERMISSIONS.rights.set]

  test.each(['addPermissions', 'setPermissions'])('%s creates them, with the right to', async (method) => {
    const { keyId, key } = await newKey()
    const slug = `made.${crypto.randomUUID()}`
    const body = { keyId, permissions: [slug, 'docs.read'] }
    const answer = await send(method, body, await mine.rootKeyWith(...rights))
    expect(await refusalOf(answer)).toEqual(FORBIDDEN)
    expect(answer.body.error.detail).toContain('rbac.*.create_permission')
    expect((await verified(key)).permissions).toEqual([])

    const enough = await mine.rootKeyWith(...rights, 'rbac.*.create_permission')
    const data = await dataOf(send(method, body, enough))
    expect(data).toContainEqual({ id: expect.stringMatching(/^perm_/), name: slug, slug })
    expect((await verified(key)).permissions).toEqual(['docs.read', slug])
    // The second call finds it.
    const again = await dataOf(send(method, body, await mine.rootKeyWith(...rights)))
    expect(again).toEqual(data)
  })

  test('removePermissions does not find them, nor those of another workspace', async () => {
    const { keyId } = await newKey({ permissions: ['docs.read'] })
    const other = await server.workspace()
    await other.post('permissions.createPermission', { name: 'only.there' })
    for (const slug of ['nowhere', 'only.there']) {
      const answer = await send('removePermissions', { keyId, permissions: ['docs.read', slug] })
      expect(await refusalOf(answer)).toEqual([404, 'unkey/data/permission_not_found'])
      expect(answer.body.error.detail).toContain(slug)
    }
  })
})

test('roles that do not exist are not found by any method, and nothing changes', async () => {
  const { keyId, key } = await newKey({ roles: ['reader'] })
  for (const method of ['addRoles', 'setRoles', 'removeRoles']) {
    const answer = await send(method, { keyId, roles: ['editor', 'nobody'] })
    expect(await refusalOf(answer)).toEqual([404, 'unkey/data/role_not_found'])
    expect(answer.body.error.detail).toContain('nobody')
  }
  expect((await verified(key)).roles).toEqual(['reader'])
})

test('only the right to update keys is enough for setRoles and removeRoles', async () => {
  const { keyId } = await newKey()
  const rootKey = await mine.rootKeyWith('api.*.update_key')
  expect(await dataOf(send('setRoles', { keyId, roles: ['reader', 'editor'] }, rootKey))).toHaveLength(2)
  expect(await dataOf(send('removeRoles', { keyId, roles: ['reader'] }, rootKey))).toHaveLength(1)
})

test('a role is shown with its permissions, and those are no permissions of the key itself', async () => {
  const name = `role ${crypto.randomUUID()}`
  const { roleId } = await mine.post('permissions.createRole', { name, description: 'of a test' })
  await mine.post('permissions.setRolePermissions', { roleId, permissions: [{ slug: 'docs.write' }] })
  const { keyId } = await newKey()
  const permission = { id: expect.stringMatching(/^perm_/), name: 'docs.write', slug: 'docs.write' }
  expect(await dataOf(send('addRoles', { keyId, roles: [name, 'reader'] }))).toEqual([
    { id: expect.stringMatching(/^role_/), name: 'reader' },
    { id: roleId, name, description: 'of a test', permissions: [permission] },
  ])
  expect(await dataOf(send('addPermissions', { keyId, permissions: ['docs.read'] }))).toHaveLength(1)
})
