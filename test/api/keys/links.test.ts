import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { countStatements } from '../../support/statements.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

/** The two kinds obey the same rules: every case runs for both. */
const kinds = [
  {
    noun: 'permission',
    list: 'permissions',
    Method: 'Permissions',
    create: 'createPermission',
    id: 'permissionId',
  },
  { noun: 'role', list: 'roles', Method: 'Roles', create: 'createRole', id: 'roleId' },
] as const

describe.each(kinds)('$noun', ({ noun, list, Method, create, id }) => {
  const makeKey = async (workspace: TestWorkspace): Promise<{ keyId: string; key: string }> => {
    const { apiId } = await workspace.post('apis.createApi', { name: 'my api' })
    return await workspace.post('keys.createKey', { apiId })
  }
  const make = async (workspace: TestWorkspace): Promise<{ id: string; name: string }> => {
    const name = crypto.randomUUID()
    return { id: (await workspace.post(`permissions.${create}`, { name }))[id], name }
  }
  const makeThree = async (workspace: TestWorkspace) =>
    [await make(workspace), await make(workspace), await make(workspace)] as const
  const call = (verb: 'add' | 'set' | 'remove', keyId: string, elements: unknown, rootKey: string) =>
    server.post(`keys.${verb}${Method}`, { keyId, [list]: elements }, rootKey)
  /** The key's permissions according to a verification, which may use the cache: every change must be visible at once. */
  const held = async (key: string): Promise<string[]> =>
    (await server.post('keys.verifyKey', { key })).body[list].toSorted()
  const auditOf = async ({ workspaceId }: TestWorkspace) => {
    const rows = await server.server.deps.sql<{ event: string }[]>`
      select event from audit_events
       where workspace_id = ${workspaceId} and (event like 'authorization%' or event like ${`${noun}.%`})
       order by event`
    return rows.map(({ event }) => event)
  }
  const namesOf = (linked: { name: string }[]) => linked.map(({ name }) => name).toSorted()

  describe.each(['add', 'set', 'remove'] as const)('keys.%s', (verb) => {
    /** The texts are contract: clients compare them. */
    test('an empty keyId and an empty list are refused by name before the root key is checked', async () => {
      const message = async (body: object) => {
        const answer = await server.post(`keys.${verb}${Method}`, body, null)
        expect(answer.status).toBe(400)
        return answer.body.error.message
      }
      const elements = [{ id: `${noun}_12345` }]
      expect(await message({ keyId: '', [list]: elements })).toBe(
        'keyId: String must contain at least 1 character(s)',
      )
      expect(await message({ keyId: 'key_1', [list]: [] })).toBe(
        `${list}: Array must contain at least 1 element(s)`,
      )
      expect(await message({ keyId: 'key_1', [list]: [{}] })).toBe(`${list}.0: an id or a name is required`)
      expect(await message({ keyId: 'key_1', [list]: {} })).toBe(`${list}: Expected array, received object`)
    })

    test('ids have 3 to 256 characters, names 1 to 256, lists up to 1000 elements', async () => {
      const workspace = await server.workspace()
      const { keyId } = await makeKey(workspace)
      const status = async (elements: object[]) =>
        (await call(verb, keyId, elements, workspace.rootKey)).status === 400
      expect(await status([{ id: 'ab' }])).toBe(true)
      expect(await status([{ id: 'abc' }])).toBe(false)
      expect(await status([{ id: 'a'.repeat(256) }])).toBe(false)
      expect(await status([{ id: 'a'.repeat(257) }])).toBe(true)
      expect(await status([{ name: '' }])).toBe(true)
      expect(await status([{ name: 'a', create: true }])).toBe(false)
      expect(await status([{ name: 'a'.repeat(256), create: true }])).toBe(false)
      expect(await status([{ name: 'a'.repeat(257), create: true }])).toBe(true)
      const many = Array.from({ length: 1001 }, (_, i) => ({ name: `n${i}`, create: true }))
      expect(await status(many)).toBe(true)
      expect(await status(many.slice(1))).toBe(false)
    })

    test('an unknown key, a deleted key and a key of another workspace are not found in the same words', async () => {
      const [workspace, other] = [await server.workspace(), await server.workspace()]
      const { keyId: foreign } = await makeKey(other)
      const { keyId: deleted } = await makeKey(workspace)
      await server.server.deps.sql`update keys set deleted_at = 1 where id = ${deleted}`
      for (const keyId of [foreign, deleted, 'key_none', workspace.rootKeyId]) {
        const { status, body } = await call(verb, keyId, [{ name: 'a', create: true }], workspace.rootKey)
        expect([status, body.error.code, body.error.message]).toEqual([
          404,
          'NOT_FOUND',
          `key ${keyId} not found`,
        ])
      }
    })
  })

  describe(`keys.add${Method}`, () => {
    test('attaches existing ones by id, keeps the others, and returns the requested ones', async () => {
      const workspace = await server.workspace()
      const { keyId, key } = await makeKey(workspace)
      const first = await make(workspace)
      const three = await makeThree(workspace)
      await call('add', keyId, [{ id: first.id }], workspace.rootKey)
      const rootKey = await workspace.rootKeyWith(`rbac.*.add_${noun}_to_key`, 'another')
      const elements = three.map((one) => ({ id: one.id }))
      expect((await call('add', keyId, elements, rootKey)).body).toEqual(three)
      expect(await held(key)).toEqual(namesOf([first, ...three]))
      // A repeated call changes nothing and is not an error.
      expect((await call('add', keyId, elements, rootKey)).body).toEqual(three)
      expect(await held(key)).toHaveLength(4)
      expect(await auditOf(workspace)).toEqual([
        ...Array(4).fill(`authorization.connect_${noun}_and_key`),
        ...Array(4).fill(`${noun}.create`),
      ])
    })

    test('creates and attaches new ones when the request allows it', async () => {
      const workspace = await server.workspace()
      const { keyId, key } = await makeKey(workspace)
      const elements = [
        { name: 'new.one', create: true },
        { name: 'new.two', create: true },
      ]
      const { body } = await call('add', keyId, [...elements, ...elements], workspace.rootKey)
      expect(body).toEqual([
        { id: expect.stringMatching(noun === 'role' ? /^role_/ : /^perm_/), name: 'new.one' },
        { id: expect.any(String), name: 'new.two' },
      ])
      expect(await held(key)).toEqual(['new.one', 'new.two'])
      const all = await workspace.get(`permissions.list${Method}`)
      expect(namesOf(all)).toEqual(['new.one', 'new.two'])
      expect(await auditOf(workspace)).toEqual([
        ...Array(2).fill(`authorization.connect_${noun}_and_key`),
        ...Array(2).fill(`${noun}.create`),
      ])
    })

    test('an unknown id or name is a 404 that names it, and the key stays unchanged', async () => {
      const [workspace, other] = [await server.workspace(), await server.workspace()]
      const { keyId, key } = await makeKey(workspace)
      const foreign = await make(other)
      const good = { name: 'good', create: true }
      for (const [element, named] of [
        [{ id: 'none_1' }, 'none_1'],
        [{ id: 'none_1', create: true }, 'none_1'],
        [{ name: 'none' }, 'none'],
        [{ id: foreign.id }, foreign.id],
        [{ name: foreign.name }, foreign.name],
      ] as const) {
        const { status, body } = await call('add', keyId, [good, element], workspace.rootKey)
        expect([status, body.error.message]).toEqual([404, `${noun} ${named} not found`])
      }
      expect(await held(key)).toEqual([])
      expect(await workspace.get(`permissions.list${Method}`)).toEqual([])
    })

    test('attaching and creating each need a permission, and without the second the answer is UNAUTHORIZED', async () => {
      const workspace = await server.workspace()
      const { keyId, key } = await makeKey(workspace)
      const elements = [{ name: 'new', create: true }]
      const answer = async (...rights: string[]) => {
        const { body } = await call('add', keyId, elements, await workspace.rootKeyWith(...rights))
        return body.error?.code ?? namesOf(body)
      }
      const add = `rbac.*.add_${noun}_to_key`
      expect(await answer()).toBe('INSUFFICIENT_PERMISSIONS')
      expect(await answer(`rbac.*.create_${noun}`)).toBe('INSUFFICIENT_PERMISSIONS')
      expect(await answer(add)).toBe('UNAUTHORIZED')
      expect(await held(key)).toEqual([])
      expect(await answer(add, `rbac.*.create_${noun}`)).toEqual(['new'])
      expect(await held(key)).toEqual(['new'])
      expect(await answer(add)).toEqual(['new']) // nothing left to make
    })

    /** The API and its documentation differ; either right allows it. */
    test('create_permission also allows creating a role', async () => {
      const workspace = await server.workspace()
      const { keyId } = await makeKey(workspace)
      const rootKey = await workspace.rootKeyWith('rbac.*.create_permission', `rbac.*.add_${noun}_to_key`)
      expect((await call('add', keyId, [{ name: 'new', create: true }], rootKey)).status).toBe(200)
    })
  })

  describe(`keys.set${Method}`, () => {
    test('leaves exactly the requested ones and returns them', async () => {
      const workspace = await server.workspace()
      const { keyId, key } = await makeKey(workspace)
      const [zero, one, two] = await makeThree(workspace)
      await call('add', keyId, [{ id: zero.id }], workspace.rootKey)
      const remove = `rbac.*.remove_${noun}_from_key`
      const rootKey = await workspace.rootKeyWith(`rbac.*.add_${noun}_to_key`, remove)
      const { body } = await call('set', keyId, [{ id: two.id }, { name: one.name }], rootKey)
      expect(body).toEqual([two, one])
      expect(await held(key)).toEqual(namesOf([one, two]))
      expect(await auditOf(workspace)).toContain(`authorization.disconnect_${noun}_and_key`)
    })

    test('adding needs no right to remove, and an unchanged set needs no right at all', async () => {
      const workspace = await server.workspace()
      const { keyId, key } = await makeKey(workspace)
      const three = await makeThree(workspace)
      const elements = three.map((each) => ({ id: each.id }))
      await call('add', keyId, elements.slice(0, 1), workspace.rootKey)
      const rootKey = await workspace.rootKeyWith(`rbac.*.add_${noun}_to_key`)
      expect((await call('set', keyId, elements, rootKey)).body).toEqual(three)
      expect(await held(key)).toHaveLength(3)
      const powerless = await workspace.rootKeyWith('another')
      expect((await call('set', keyId, elements, powerless)).body).toEqual(three)
    })

    test('with * two new ones are created', async () => {
      const workspace = await server.workspace()
      const { keyId, key } = await makeKey(workspace)
      const elements = [
        { name: 'b.new', create: true },
        { name: 'a.new', create: true },
      ]
      const { body } = await call('set', keyId, elements, workspace.rootKey)
      expect(body.map(({ name }: Json) => name)).toEqual(['b.new', 'a.new'])
      expect(await held(key)).toEqual(['a.new', 'b.new'])
    })

    /** The v1 API detached first and then found that it was not allowed to continue. */
    test('each change needs its right, and a refused call changes nothing', async () => {
      const workspace = await server.workspace()
      const { keyId, key } = await makeKey(workspace)
      const old = await make(workspace)
      await call('add', keyId, [{ id: old.id }], workspace.rootKey)
      const answer = async (elements: object[], ...rights: string[]) => {
        const { body } = await call('set', keyId, elements, await workspace.rootKeyWith(...rights))
        return body.error?.code ?? namesOf(body)
      }
      const [add, remove, making] = [
        `rbac.*.add_${noun}_to_key`,
        `rbac.*.remove_${noun}_from_key`,
        `rbac.*.create_${noun}`,
      ]
      const fresh = [{ name: 'fresh', create: true }]
      expect(await answer(fresh, add, making)).toBe('UNAUTHORIZED') // may not remove the old one
      expect(await answer(fresh, add, remove)).toBe('INSUFFICIENT_PERMISSIONS')
      expect(await answer(fresh, making, remove)).toBe('INSUFFICIENT_PERMISSIONS')
      expect(await answer([{ name: 'none' }], add, remove, making)).toBe('NOT_FOUND')
      expect(await held(key)).toEqual([old.name])
      expect(await workspace.get(`permissions.list${Method}`)).toHaveLength(1)
      expect(await answer(fresh, add, remove, making)).toEqual(['fresh'])
      expect(await held(key)).toEqual(['fresh'])
    })

    test('of two concurrent calls one wins as a whole, and the sets are never mixed', async () => {
      const workspace = await server.workspace()
      const { keyId, key } = await makeKey(workspace)
      const left = (await makeThree(workspace)).map((each) => ({ name: each.name }))
      const right = (await makeThree(workspace)).map((each) => ({ name: each.name }))
      for (let round = 0; round < 5; round++) {
        const answers = await Promise.all([
          call('set', keyId, left, workspace.rootKey),
          call('set', keyId, right, workspace.rootKey),
        ])
        expect(answers.map(({ status }) => status)).toEqual([200, 200])
        expect([namesOf(left), namesOf(right)]).toContainEqual(await held(key))
      }
    })
  })

  describe(`keys.remove${Method}`, () => {
    test('detaches every element at once, by id or by name', async () => {
      const workspace = await server.workspace()
      const { keyId, key } = await makeKey(workspace)
      const [zero, one, two] = await makeThree(workspace)
      const all = [zero, one, two].map((each) => ({ id: each.id }))
      await call('add', keyId, all, workspace.rootKey)
      expect(await held(key)).toHaveLength(3)
      const rootKey = await workspace.rootKeyWith(`rbac.*.remove_${noun}_from_key`)
      const answer = await call('remove', keyId, [{ id: zero.id }, { name: two.name }], rootKey)
      expect([answer.status, answer.body]).toEqual([200, {}])
      expect(await held(key)).toEqual([one.name])
      expect(await workspace.get(`permissions.list${Method}`)).toHaveLength(3) // they exist still
      const events = await auditOf(workspace)
      expect(events.filter((event) => event.includes('disconnect'))).toHaveLength(2)
    })

    test('unknown and unattached ones are ignored', async () => {
      const workspace = await server.workspace()
      const { keyId, key } = await makeKey(workspace)
      const unattached = await make(workspace)
      const elements = [{ name: 'none.one' }, { name: 'none.two' }, { id: unattached.id }]
      const { status, body } = await call('remove', keyId, elements, workspace.rootKey)
      expect([status, body]).toEqual([200, {}])
      expect(await held(key)).toEqual([])
      expect(await workspace.get(`permissions.list${Method}`)).toEqual([
        { ...unattached, ...slugOf(unattached) },
      ])
    })

    test('needs the right to remove', async () => {
      const workspace = await server.workspace()
      const { keyId, key } = await makeKey(workspace)
      await call('add', keyId, [{ name: 'kept', create: true }], workspace.rootKey)
      const rootKey = await workspace.rootKeyWith(`rbac.*.add_${noun}_to_key`)
      const { status, body } = await call('remove', keyId, [{ name: 'kept' }], rootKey)
      expect([status, body.error.code]).toEqual([403, 'INSUFFICIENT_PERMISSIONS'])
      expect(await held(key)).toEqual(['kept'])
    })
  })
  const slugOf = ({ name }: { name: string }) => (noun === 'permission' ? { slug: name } : {})

  test('the number of statements does not grow with the lists', async () => {
    const workspace = await server.workspace()
    const elements = (from: number, count: number) =>
      Array.from({ length: count }, (_, i) => ({ name: `n.${from + i}`, create: true }))
    const count = async (size: number) => {
      const { keyId } = await makeKey(workspace)
      await call('add', keyId, elements(10_000 * size, size), workspace.rootKey)
      const set = await countStatements(server, () =>
        call('set', keyId, elements(10_000 * size + 5000, size), workspace.rootKey),
      )
      const remove = await countStatements(server, () =>
        call('remove', keyId, elements(10_000 * size + 5000, size), workspace.rootKey),
      )
      return { set, remove }
    }
    expect(await count(30)).toEqual(await count(1))
  })

  test('of many concurrent calls that create the same one, one creates it and all attach it', async () => {
    const workspace = await server.workspace()
    const keys = await Promise.all(Array.from({ length: 8 }, () => makeKey(workspace)))
    const answers = await Promise.all(
      keys.map(({ keyId }) => call('add', keyId, [{ name: 'shared', create: true }], workspace.rootKey)),
    )
    expect(new Set(answers.map(({ body }) => body[0].id)).size).toBe(1)
    expect(await Promise.all(keys.map(({ key }) => held(key)))).toEqual(Array(8).fill(['shared']))
  })
})

test('a permission is found by its slug, in `slug` and in the old field `name`', async () => {
  const workspace = await server.workspace()
  const { apiId } = await workspace.post('apis.createApi', { name: 'my api' })
  const { keyId, key } = await workspace.post('keys.createKey', { apiId })
  const { permissionId: id } = await workspace.post('permissions.createPermission', {
    name: 'shown',
    slug: 'asked',
  })
  expect(await workspace.post('keys.addPermissions', { keyId, permissions: [{ slug: 'asked' }] })).toEqual([
    { id, name: 'shown' },
  ])
  expect(await workspace.post('keys.setPermissions', { keyId, permissions: [{ name: 'asked' }] })).toEqual([
    { id, name: 'shown' },
  ])
  expect((await server.post('keys.verifyKey', { key })).body.permissions).toEqual(['asked'])
  const { status } = await server.post(
    'keys.addPermissions',
    { keyId, permissions: [{ name: 'shown' }] },
    workspace.rootKey,
  )
  expect(status).toBe(404)
  await workspace.post('keys.removePermissions', { keyId, permissions: [{ slug: 'asked' }] })
  expect((await server.post('keys.verifyKey', { key })).body.permissions).toEqual([])
})
