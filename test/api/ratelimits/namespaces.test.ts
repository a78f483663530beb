import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

const limitBody = (namespace: string) => ({ namespace, identifier: 'user_1', limit: 10, duration: 60_000 })

test('a namespace is created, listed and used, and its name is taken in its workspace only', async () => {
  const workspace = await server.workspace()
  const { namespaceId } = await workspace.post('ratelimits.createNamespace', { name: 'mail' })
  expect(namespaceId).toMatch(/^rlns_/)
  expect(await workspace.get('ratelimits.listNamespaces')).toEqual({
    namespaces: [{ id: namespaceId, name: 'mail', scope: null, outage: null }],
    total: 1,
  })
  const { status, body } = await server.post(
    'ratelimits.createNamespace',
    { name: 'mail' },
    workspace.rootKey,
  )
  expect([status, body.error.code, body.error.message]).toEqual([
    409,
    'CONFLICT',
    'namespace mail already exists',
  ])
  await (await server.workspace()).post('ratelimits.createNamespace', { name: 'mail' })
  // A root key that may limit in it no longer needs the right to create it.
  const rootKey = await workspace.rootKeyWith(`ratelimit.${namespaceId}.limit`)
  expect((await server.post('ratelimits.limit', limitBody('mail'), rootKey)).body.success).toBe(true)
})

test('creating a namespace that was already used is a conflict', async () => {
  const { post, rootKey, get } = await server.workspace()
  await post('ratelimits.limit', limitBody('mail'))
  expect((await server.post('ratelimits.createNamespace', { name: 'mail' }, rootKey)).status).toBe(409)
  expect((await get('ratelimits.listNamespaces')).total).toBe(1)
})

test('of two concurrent calls one creates it and the other is a conflict', async () => {
  const { rootKey } = await server.workspace()
  const answers = await Promise.all(
    [1, 2, 3].map(() => server.post('ratelimits.createNamespace', { name: 'mail' }, rootKey)),
  )
  expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 409, 409])
})

test('pages of namespaces follow each other, and only the last has no cursor', async () => {
  const { post, get } = await server.workspace()
  const ids: string[] = []
  for (let i = 0; i < 5; i++)
    ids.push((await post('ratelimits.createNamespace', { name: `ns_${i}` })).namespaceId)
  const first = await get('ratelimits.listNamespaces', { limit: 2 })
  const second = await get('ratelimits.listNamespaces', { limit: 3, cursor: first.cursor })
  expect([...first.namespaces, ...second.namespaces].map(({ id }) => id)).toEqual(ids.toSorted())
  expect(second).toMatchObject({ total: 5 })
  expect(second).not.toHaveProperty('cursor')
})

/** Otherwise overrides or counts of a deleted namespace would continue under its name. */
test('a deleted namespace is gone at once, and the next of its name has fresh counts and no overrides', async () => {
  const { post, get } = await server.workspace()
  const { namespaceId } = await post('ratelimits.createNamespace', { name: 'mail' })
  await post('ratelimits.setOverride', { namespaceId, identifier: 'user_1', limit: 3, duration: 60_000 })
  expect(await post('ratelimits.limit', limitBody('mail'))).toMatchObject({ limit: 3, remaining: 2 })
  expect(await post('ratelimits.deleteNamespace', { namespaceId })).toEqual({})
  expect(await get('ratelimits.listNamespaces')).toEqual({ namespaces: [], total: 0 })
  expect(await post('ratelimits.limit', limitBody('mail'))).toMatchObject({ limit: 10, remaining: 9 })
  const { namespaces } = await get('ratelimits.listNamespaces')
  expect(namespaces).toEqual([{ id: expect.any(String), name: 'mail', scope: null, outage: null }])
  expect(namespaces[0].id).not.toBe(namespaceId)
})

test('an unknown or deleted namespace and one of another workspace are a 404 that names it', async () => {
  const [workspace, other] = [await server.workspace(), await server.workspace()]
  const { namespaceId: foreign } = await other.post('ratelimits.createNamespace', { name: 'mail' })
  const { namespaceId: deleted } = await workspace.post('ratelimits.createNamespace', { name: 'mail' })
  await workspace.post('ratelimits.deleteNamespace', { namespaceId: deleted })
  for (const namespaceId of ['rlns_none', foreign, deleted]) {
    for (const method of ['deleteNamespace', 'updateNamespace']) {
      const asked = { namespaceId, scope: 'local' }
      const { status, body } = await server.post(`ratelimits.${method}`, asked, workspace.rootKey)
      expect([status, body.error.message]).toEqual([404, `namespace ${namespaceId} not found`])
    }
  }
  expect(await other.get('ratelimits.listNamespaces')).toMatchObject({
    namespaces: [{ scope: null }],
    total: 1,
  })
})

test('names have 1 to 512 characters', async () => {
  const message = async (name: unknown) =>
    (await server.post('ratelimits.createNamespace', { name })).body.error.message
  expect(await message('')).toBe('name: String must contain at least 1 character(s)')
  expect(await message('a')).toBe('key required')
  expect(await message('a'.repeat(512))).toBe('key required')
  expect(await message('a'.repeat(513))).toBe('name: String must contain at most 512 character(s)')
})

test('how servers share a namespace is set when it is created, changed later, and cleared by null', async () => {
  const { post, get } = await server.workspace()
  const { namespaceId } = await post('ratelimits.createNamespace', { name: 'mail', outage: 'refuse' })
  const now = async () => {
    const { namespaces } = await get('ratelimits.listNamespaces')
    return [namespaces[0].scope, namespaces[0].outage]
  }
  expect(await now()).toEqual([null, 'refuse'])
  const change = async (settings: object) => {
    expect(await post('ratelimits.updateNamespace', { namespaceId, ...settings })).toEqual({})
    return await now()
  }
  expect(await change({ scope: 'local' })).toEqual(['local', 'refuse'])
  // A server without a fleet counts as before.
  expect(await post('ratelimits.limit', limitBody('mail'))).toMatchObject({ success: true, remaining: 9 })
  expect(await change({ outage: null })).toEqual(['local', null])
  expect(await change({ scope: 'fleet', outage: 'open' })).toEqual(['fleet', 'open'])
  expect(await post('ratelimits.limit', limitBody('mail'))).toMatchObject({ success: true, remaining: 8 })
  expect(await change({})).toEqual(['fleet', 'open'])
  expect(await change({ scope: null, outage: null })).toEqual([null, null])
  await post('ratelimits.createNamespace', { name: 'sms', scope: null, outage: null })
})

test('another scope or outage rule is a 400 that says which there are', async () => {
  const { post, rootKey } = await server.workspace()
  const { namespaceId } = await post('ratelimits.createNamespace', { name: 'mail' })
  const scopes = "Expected 'fleet' | 'local', received"
  const rules = "Expected 'share' | 'refuse' | 'open', received"
  for (const [settings, message] of [
    [{ scope: 'global' }, `scope: Invalid enum value. ${scopes} 'global'`],
    [{ scope: '' }, `scope: Invalid enum value. ${scopes} ''`],
    [{ scope: 1 }, `scope: ${scopes} number`],
    [{ outage: 'Open' }, `outage: Invalid enum value. ${rules} 'Open'`],
    [{ outage: ['open'] }, `outage: ${rules} array`],
  ] as const)
    for (const [method, others] of [
      ['createNamespace', { name: 'sms' }],
      ['updateNamespace', { namespaceId }],
    ] as const) {
      const { status, body } = await server.post(`ratelimits.${method}`, { ...others, ...settings }, rootKey)
      expect([status, body.error.code, body.error.message]).toEqual([400, 'BAD_REQUEST', message])
    }
})

test('each method needs its own right, and deleting may be allowed for one namespace', async () => {
  const { rootKeyWith } = await server.workspace()
  const code = ({ status, body }: { status: number; body: { error?: { code: string } } }) =>
    status === 200 ? 'ok' : body.error?.code
  const create = async (right: string, name: string) =>
    await server.post('ratelimits.createNamespace', { name }, await rootKeyWith(right))
  const list = async (right: string) =>
    code(await server.get('ratelimits.listNamespaces', {}, await rootKeyWith(right)))
  const remove = async (right: string, namespaceId: string) =>
    code(await server.post('ratelimits.deleteNamespace', { namespaceId }, await rootKeyWith(right)))
  expect(code(await create('ratelimit.*.limit', 'one'))).toBe('INSUFFICIENT_PERMISSIONS')
  const one = (await create('ratelimit.*.create_namespace', 'one')).body.namespaceId
  const two = (await create('ratelimit.*.create_namespace', 'two')).body.namespaceId
  expect(await list('ratelimit.*.create_namespace')).toBe('INSUFFICIENT_PERMISSIONS')
  expect(await list('ratelimit.*.read_namespace')).toBe('ok')
  const update = async (right: string, namespaceId: string) => {
    const change = { namespaceId, scope: 'local' }
    return code(await server.post('ratelimits.updateNamespace', change, await rootKeyWith(right)))
  }
  expect(await update('ratelimit.*.create_namespace', one)).toBe('INSUFFICIENT_PERMISSIONS')
  expect(await update(`ratelimit.${one}.update_namespace`, two)).toBe('INSUFFICIENT_PERMISSIONS')
  expect(await update(`ratelimit.${one}.update_namespace`, one)).toBe('ok')
  expect(await update('ratelimit.*.update_namespace', two)).toBe('ok')
  expect(await remove('ratelimit.*.create_namespace', one)).toBe('INSUFFICIENT_PERMISSIONS')
  expect(await remove(`ratelimit.${one}.delete_namespace`, two)).toBe('INSUFFICIENT_PERMISSIONS')
  expect(await remove(`ratelimit.${one}.delete_namespace`, one)).toBe('ok')
  expect(await remove('ratelimit.*.delete_namespace', two)).toBe('ok')
})

test('creating, updating and deleting are audited', async () => {
  const { post, workspaceId } = await server.workspace()
  const { namespaceId: id } = await post('ratelimits.createNamespace', { name: 'mail' })
  await post('ratelimits.updateNamespace', { namespaceId: id, scope: 'local', outage: null })
  await post('ratelimits.deleteNamespace', { namespaceId: id })
  const rows = await server.server.deps.sql`
    select event, resources from audit_events
     where workspace_id = ${workspaceId} and event like 'ratelimitNamespace%' order by event`
  const resources = [{ type: 'ratelimitNamespace', id, name: 'mail' }]
  expect([...rows]).toEqual([
    { event: 'ratelimitNamespace.create', resources },
    { event: 'ratelimitNamespace.delete', resources },
    {
      event: 'ratelimitNamespace.update',
      resources: [{ ...resources[0], before: { scope: null }, after: { scope: 'local' } }],
    },
  ])
})
