import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { makeApi, makeKey, refusalOf } from '../../support/fixtures.ts'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

/** A workspace with a key, and what may be done to it. */
async function prepare(fields: Record<string, unknown> = {}) {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const { keyId, key } = await makeKey(workspace, apiId, fields)
  return {
    workspace,
    apiId,
    keyId,
    key,
    update: (change: Record<string, unknown>) => workspace.post('keys.updateKey', { keyId, ...change }),
    refused: async (change: Record<string, unknown>) =>
      refusalOf(await server.post('keys.updateKey', { keyId, ...change }, workspace.rootKey)),
    shown: (): Promise<Json> => workspace.get('keys.getKey', { keyId }),
    verify: async () => (await server.post('keys.verifyKey', { key })).body,
  }
}

test('an unknown and a deleted key are not found', async () => {
  const { workspace, keyId, refused } = await prepare()
  await workspace.post('keys.deleteKey', { keyId })
  expect(await refused({ enabled: false })).toEqual({
    status: 404,
    code: 'NOT_FOUND',
    message: `key ${keyId} not found`,
  })
  const unknown = await server.post('keys.updateKey', { keyId: 'key_unknown' }, workspace.rootKey)
  expect(refusalOf(unknown).message).toBe('key key_unknown not found')
})

test('name, ownerId, meta, expires and enabled can be changed together', async () => {
  const { update, shown } = await prepare()
  await update({ name: 'new', ownerId: 'owner', meta: { a: 1 }, expires: 4e12, enabled: false })
  expect(await shown()).toMatchObject({
    name: 'new',
    ownerId: 'owner',
    meta: { a: 1 },
    expires: 4e12,
    enabled: false,
    identity: { externalId: 'owner' },
  })
})

test('all fields can be changed in one call', async () => {
  const { update, shown } = await prepare({ expires: 4e12, remaining: 5 })
  await update({
    name: 'new',
    ownerId: 'owner',
    meta: { a: 1 },
    expires: null,
    ratelimit: { type: 'fast', limit: 10, refillRate: 5, refillInterval: 1000 },
    remaining: 0,
  })
  const key = await shown()
  expect(key).toMatchObject({ name: 'new', ownerId: 'owner', meta: { a: 1 }, remaining: 0 })
  expect(key.ratelimit).toMatchObject({ limit: 10, duration: 1000 })
  expect(key).not.toHaveProperty('expires')
})

test('changing only the limit changes nothing else and leaves one limit', async () => {
  const { update, shown, keyId } = await prepare({ name: 'kept' })
  await update({ ratelimit: { type: 'fast', limit: 10, refillRate: 5, refillInterval: 1000 } })
  const key = await shown()
  expect(key.name).toBe('kept')
  for (const field of ['ownerId', 'meta', 'remaining']) expect(key).not.toHaveProperty(field)
  const limits = await server.server.deps
    .sql`select name, "limit", duration_ms from ratelimits where key_id = ${keyId}`
  expect([...limits]).toEqual([{ name: 'default', limit: 10, duration_ms: 1000 }])
})

test('absent fields stay as they were', async () => {
  const fields = {
    name: 'kept',
    meta: { kept: true },
    expires: 4e12,
    remaining: 50,
    refill: { interval: 'daily', amount: 3 },
    ratelimit: { limit: 10, duration: 1000 },
    externalId: 'user_1',
  }
  const { update, shown } = await prepare(fields)
  const before = await shown()
  await update({ enabled: true })
  const { updatedAt, ...after } = await shown()
  expect(after).toEqual(before)
  expect(before).not.toHaveProperty('updatedAt')
  expect(updatedAt).toBeGreaterThan(before.createdAt)
})

test('null clears name, meta, expiry, credits, refill and limit', async () => {
  const { update, shown, verify } = await prepare({
    name: 'gone',
    meta: { gone: true },
    expires: 4e12,
    remaining: 1,
    refill: { interval: 'daily', amount: 3 },
    ratelimit: { limit: 1, duration: 60_000 },
  })
  await update({ name: null, meta: null, expires: null, remaining: null, refill: null, ratelimit: null })
  const key = await shown()
  for (const field of ['name', 'meta', 'expires', 'remaining', 'refill', 'ratelimit'])
    expect(key).not.toHaveProperty(field)
  for (let call = 0; call < 3; call++) expect((await verify()).valid).toBe(true)
})

describe('identity', () => {
  test.each(['externalId', 'ownerId'])(
    '%s connects it, null disconnects it, absence keeps it',
    async (field) => {
      const { update, shown } = await prepare()
      await update({ [field]: 'user_1' })
      expect(await shown()).toMatchObject({ ownerId: 'user_1', identity: { externalId: 'user_1' } })
      await update({ name: 'x' })
      expect((await shown()).identity.externalId).toBe('user_1')
      await update({ [field]: null })
      const key = await shown()
      expect(key).not.toHaveProperty('identity')
      expect(key).not.toHaveProperty('ownerId')
    },
  )

  test('externalId wins over ownerId, and an existing identity is used', async () => {
    const { update, shown, workspace, apiId } = await prepare()
    const other = await makeKey(workspace, apiId, { externalId: 'user_1' })
    await update({ externalId: 'user_1', ownerId: 'user_2' })
    const { identity } = await workspace.get('keys.getKey', { keyId: other.keyId })
    expect((await shown()).identity).toEqual(identity)
  })
})

describe('enabled', () => {
  test('false applies to the next verification, true enables again, absence keeps it', async () => {
    const { update, verify } = await prepare()
    expect((await verify()).code).toBe('VALID')
    await update({ enabled: false })
    expect((await verify()).code).toBe('DISABLED')
    await update({ name: 'x' })
    expect((await verify()).code).toBe('DISABLED')
    await update({ enabled: true })
    expect((await verify()).code).toBe('VALID')
  })

  test('null is not allowed', async () => {
    const { refused } = await prepare()
    expect(await refused({ enabled: null })).toMatchObject({
      status: 400,
      message: 'enabled: Expected boolean, received null',
    })
  })
})

describe('limit', () => {
  test('a key created without one is limited from the next verification on', async () => {
    const { update, verify } = await prepare()
    await update({ ratelimit: { async: true, limit: 5, duration: 50_000_000 } })
    expect((await verify()).ratelimit).toMatchObject({ limit: 5, remaining: 4 })
  })

  test('stays when only the name changes', async () => {
    const { update, verify } = await prepare({ ratelimit: { limit: 10, duration: 50_000_000 } })
    await update({ name: 'x' })
    expect((await verify()).ratelimit).toMatchObject({ limit: 10, remaining: 9 })
  })

  test('without a duration an existing limit keeps its own, and a new one is refused', async () => {
    const { update, shown, refused } = await prepare({ ratelimit: { limit: 10, duration: 5000 } })
    await update({ ratelimit: { limit: 3 } })
    expect((await shown()).ratelimit).toMatchObject({ limit: 3, duration: 5000 })
    await update({ ratelimit: null })
    expect(await refused({ ratelimit: { limit: 3 }, name: 'not stored' })).toMatchObject({
      status: 400,
      message: 'ratelimit.duration: Required',
    })
    expect(await shown()).not.toHaveProperty('name')
  })

  test('may be shorter than a second here, but not than a millisecond', async () => {
    const { update, shown, refused } = await prepare()
    await update({ ratelimit: { limit: 1, duration: 1 } })
    expect((await shown()).ratelimit.duration).toBe(1)
    expect((await refused({ ratelimit: { limit: 1, duration: 0 } })).message).toBe(
      'ratelimit.duration: Number must be greater than or equal to 1',
    )
    expect((await refused({ ratelimit: { limit: 0, duration: 1 } })).message).toBe(
      'ratelimit.limit: Number must be greater than or equal to 1',
    )
  })
})

describe('refill', () => {
  test('a monthly one without a day is on the first', async () => {
    const { update, shown } = await prepare({ remaining: 10 })
    await update({ refill: { interval: 'monthly', amount: 130 } })
    expect(await shown()).toMatchObject({ remaining: 10, refill: { amount: 130, refillDay: 1 } })
  })

  /** The v1 API stored day 1, which made it monthly. */
  test('a daily one stays daily, and is next due after the change', async () => {
    const { update, shown } = await prepare({ remaining: 10 })
    await update({ refill: { interval: 'daily', amount: 130 } })
    const { refill } = await shown()
    expect(refill).toMatchObject({ interval: 'daily', amount: 130, refillDay: null })
    expect(refill.lastRefillAt).toBeGreaterThan(Date.now() - 10_000)
  })

  test('a day on a daily one is refused', async () => {
    const { refused } = await prepare({ remaining: 10 })
    const { status, message } = await refused({ refill: { interval: 'daily', amount: 1, refillDay: 4 } })
    expect(status).toBe(400)
    expect(message).toContain('refillDay')
    expect(message).toContain('daily')
  })

  test('one on a key without credits is refused, and nothing is stored', async () => {
    const { refused, shown } = await prepare({ remaining: 10 })
    expect((await refused({ remaining: null, refill: { interval: 'daily', amount: 1 } })).status).toBe(400)
    expect((await shown()).remaining).toBe(10)
  })
})

test.each([
  ['remaining', -1, 'remaining: Number must be greater than or equal to 0'],
  ['remaining', 2 ** 53, 'remaining: Number must be less than or equal to 9007199254740991'],
  ['remaining', '5', 'remaining: Expected number, received string'],
  ['remaining', 1.5, 'remaining: Expected integer, received float'],
  ['meta', [], 'meta: Expected object, received array'],
  ['name', 'x'.repeat(257), 'name: String must contain at most 256 character(s)'],
  ['name', 'a\0b', 'name: String must not contain NUL characters'],
  ['externalId', '', 'externalId: String must contain at least 1 character(s)'],
  ['expires', 8_640_000_000_000_001, 'expires: Number must be less than or equal to 8640000000000000'],
  ['refill', { interval: 'daily', amount: 0 }, 'refill.amount: Number must be greater than or equal to 1'],
  [
    'refill',
    { interval: 'monthly', amount: 1, refillDay: 32 },
    'refill.refillDay: Number must be less than or equal to 31',
  ],
  [
    'refill',
    { interval: 'weekly', amount: 1 },
    "refill.interval: Invalid enum value. Expected 'daily' | 'monthly', received 'weekly'",
  ],
])('%s %j is a 400 that names it', async (field, value, message) => {
  const { status, body } = await server.post('keys.updateKey', { keyId: 'key_any', [field]: value })
  expect([status, body.error.message]).toEqual([400, message])
})

test('a change is audited with the names of its fields', async () => {
  const { update, workspace, keyId } = await prepare()
  await update({ name: 'x', enabled: true })
  const entries = await auditOf(workspace)
  expect(entries).toEqual([`updated key ${keyId}: name, enabled`])
})

const auditOf = async ({ workspaceId }: TestWorkspace) =>
  (
    await server.server.deps.sql<{ description: string }[]>`
      select description from audit_events where workspace_id = ${workspaceId} and event = 'key.update' order by id`
  ).map(({ description }) => description)

test('accepts the wildcard and the specific permission', async () => {
  const { workspace, apiId, keyId } = await prepare()
  for (const permission of ['api.*.update_key', `api.${apiId}.update_key`]) {
    const rootKey = await workspace.rootKeyWith(permission, 'another')
    expect((await server.post('keys.updateKey', { keyId, name: 'x' }, rootKey)).status).toBe(200)
  }
})

describe('roles and permissions', () => {
  test('are replaced together with other fields and created when allowed, and [] removes all', async () => {
    const { update, shown, workspace } = await prepare()
    const { roleId } = await workspace.post('permissions.createRole', { name: 'old role' })
    await update({ roles: [{ id: roleId }], permissions: [{ name: 'made.here', create: true }] })
    expect(await shown()).toMatchObject({ roles: ['old role'], permissions: ['made.here'] })
    await update({ roles: [{ name: 'new role', create: true }], name: 'x' })
    expect(await shown()).toMatchObject({ roles: ['new role'], permissions: ['made.here'], name: 'x' })
    await update({ roles: [], permissions: [] })
    expect(await shown()).toMatchObject({ roles: [], permissions: [] })
  })

  /** OP11: the v1 API had changed the key by then. */
  test('when one is refused, nothing of the request is stored', async () => {
    const { shown, workspace, apiId, keyId } = await prepare()
    const rootKey = await workspace.rootKeyWith(`api.${apiId}.update_key`)
    const send = (change: Record<string, unknown>) =>
      server.post('keys.updateKey', { keyId, name: 'x', ...change }, rootKey)
    const refused = await send({ permissions: [{ slug: 'made.here', create: true }] })
    expect(refusalOf(refused)).toMatchObject({ status: 403, code: 'INSUFFICIENT_PERMISSIONS' })
    expect((await send({ roles: [{ id: 'role_unknown' }] })).status).toBe(403)
    const mayAdd = await workspace.rootKeyWith(`api.${apiId}.update_key`, 'rbac.*.add_role_to_key')
    const unknown = { keyId, name: 'x', roles: [{ id: 'role_unknown' }] }
    expect((await server.post('keys.updateKey', unknown, mayAdd)).status).toBe(404)
    expect((await send({ roles: [{}] })).status).toBe(400)
    expect(await shown()).not.toHaveProperty('name')
  })

  test.each([
    ['roles', 'role'],
    ['permissions', 'permission'],
  ])('%s: each change needs its own right and no other', async (field, noun) => {
    const { shown, workspace, apiId, keyId } = await prepare()
    const send = async (names: string[], ...rights: string[]) => {
      const rootKey = await workspace.rootKeyWith(`api.${apiId}.update_key`, ...rights)
      const list = names.map((name) => ({ name, create: true }))
      return (await server.post('keys.updateKey', { keyId, [field]: list }, rootKey)).status
    }
    const [add, create, remove] = [
      `rbac.*.add_${noun}_to_key`,
      `rbac.*.create_${noun}`,
      `rbac.*.remove_${noun}_from_key`,
    ]
    expect(await send(['zero'], add, create)).toBe(200)
    expect(await send(['one', 'two'], add, create)).toBe(403)
    expect(await send(['one', 'two'], add, create, remove)).toBe(200)
    expect(await send(['zero', 'one', 'two'], add)).toBe(200)
    expect((await shown())[field]).toEqual(['one', 'two', 'zero'])
  })
})
