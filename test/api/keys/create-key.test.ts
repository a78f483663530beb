import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { decodeBase58 } from '../../../src/lib/base58.ts'
import { hashKey } from '../../../src/verify/secret.ts'
import { makeApi, makeApiWithoutKeyspace, makeKey, refusalOf } from '../../support/fixtures.ts'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

async function prepare() {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  return {
    workspace,
    apiId,
    /** @returns the key object and the key. */
    create: async (fields: Record<string, unknown> = {}): Promise<Json> => {
      const { keyId, key } = await makeKey(workspace, apiId, fields)
      return { ...(await workspace.get('keys.getKey', { keyId })), key }
    },
    refused: async (fields: Record<string, unknown>, rootKey = workspace.rootKey) =>
      refusalOf(await server.post('keys.createKey', { apiId, ...fields }, rootKey)),
    total: async (): Promise<number> => (await workspace.get('apis.listKeys', { apiId })).total,
  }
}

const rowOf = async (keyId: string) =>
  (await server.server.deps.sql<{ hash: string }[]>`select hash from keys where id = ${keyId}`)[0]

test('an unknown API, an API of another workspace and an API without keyspace are refused', async () => {
  const { workspace } = await prepare()
  for (const apiId of ['api_unknown', await makeApi(await server.workspace())]) {
    const rootKey = await workspace.rootKeyWith(`api.${apiId}.create_key`)
    expect(refusalOf(await server.post('keys.createKey', { apiId }, rootKey))).toEqual({
      status: 404,
      code: 'NOT_FOUND',
      message: `api ${apiId} not found`,
    })
  }
  const apiId = await makeApiWithoutKeyspace(server, workspace)
  const bare = refusalOf(await server.post('keys.createKey', { apiId }, workspace.rootKey))
  expect([bare.status, bare.code]).toEqual([412, 'PRECONDITION_FAILED'])
  expect(bare.message).toContain(apiId)
})

describe('the text of the key', () => {
  test('is base58 of a version byte, a length byte and the wanted random bytes, after the prefix', async () => {
    const { create } = await prepare()
    const bare = await create()
    expect(bare.key).toMatch(/^3Z[1-9A-HJ-NP-Za-km-z]{22}$/)
    expect(bare.start).toBe(bare.key.slice(0, 5))
    const prefixed = await create({ prefix: 'prefix' })
    expect(prefixed.key).toMatch(/^prefix_3Z/)
    expect(prefixed.start).toBe(prefixed.key.slice(0, 11))
    for (const byteLength of [16, 18, 255]) {
      const { key } = await create({ byteLength, prefix: 'prfx' })
      const bytes = decodeBase58(key.slice(5))
      expect(bytes?.subarray(0, 2)).toEqual(Uint8Array.of(1, byteLength))
      expect(bytes).toHaveLength(2 + byteLength)
    }
  })

  test('is not stored, only its hash is', async () => {
    const { create } = await prepare()
    const { id, key } = await create({ byteLength: 18 })
    expect(await rowOf(id)).toEqual({ hash: hashKey(key) })
    expect(hashKey('hello')).toBe('LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=')
  })

  /** OP58: otherwise a client that shows `start` would show more of the key. */
  test('has the default prefix and length of its API, which do not lengthen `start`', async () => {
    const { create, workspace, apiId } = await prepare()
    await workspace.post('apis.updateApi', { apiId, defaultPrefix: '_prefix', defaultBytes: 66 })
    const { id, key, start } = await create()
    expect(key).toStartWith('_prefix_')
    expect(start).toBe(key.slice(0, 5))
    expect(await rowOf(id)).toEqual({ hash: hashKey(key) })
    expect((await create({ prefix: 'own' })).key).toStartWith('own_')
  })
})

describe('a given field', () => {
  test('enabled is true unless false is given', async () => {
    const { create } = await prepare()
    const states = [await create(), await create({ enabled: true }), await create({ enabled: false })]
    expect(states.map(({ enabled }) => enabled)).toEqual([true, true, false])
  })

  test('environment, name, meta and expiry are stored; an expiry of 0 means none', async () => {
    const { create } = await prepare()
    const fields = { environment: 'test', name: 'a name', meta: { deep: { er: [1] } }, expires: 4e12 }
    expect(await create(fields)).toMatchObject(fields)
    expect(await create({ expires: 0 })).not.toHaveProperty('expires')
  })

  test('an empty externalId or ownerId counts as absent (finding 9.1)', async () => {
    const { create } = await prepare()
    for (const fields of [{ externalId: '' }, { ownerId: '' }, { externalId: '', ownerId: '' }]) {
      const key = await create(fields)
      expect(key).not.toHaveProperty('identity')
      expect(key).not.toHaveProperty('ownerId')
    }
    expect(await create({ externalId: '', ownerId: 'user_1' })).toMatchObject({
      identity: { externalId: 'user_1' },
    })
  })

  test.each(['ownerId', 'externalId'])('%s finds or creates the identity', async (field) => {
    const { create, workspace } = await prepare()
    const made = await create({ [field]: 'new_user' })
    expect(made).toMatchObject({ ownerId: 'new_user', identity: { externalId: 'new_user', meta: {} } })
    const { identityId } = await workspace.post('identities.createIdentity', {
      externalId: 'known_user',
      meta: { a: 1 },
    })
    const found = await create({ [field]: 'known_user' })
    expect(found.identity).toEqual({ id: identityId, externalId: 'known_user', meta: { a: 1 } })
  })

  test('existing roles and permissions are attached, repeated ones once, and need no further right', async () => {
    const { workspace, apiId } = await prepare()
    for (const name of ['r1 role', 'r2 role']) await workspace.post('permissions.createRole', { name })
    for (const slug of ['p.1', 'p.2']) await workspace.post('permissions.createPermission', { name: slug })
    const rootKey = await workspace.rootKeyWith('api.*.create_key')
    const { body } = await server.post(
      'keys.createKey',
      { apiId, roles: ['r1 role', 'r2 role', 'r1 role'], permissions: ['p.1', 'p.2', 'p.2'] },
      rootKey,
    )
    const shown = await workspace.get('keys.getKey', { keyId: body.keyId })
    expect(shown).toMatchObject({ roles: ['r1 role', 'r2 role'], permissions: ['p.1', 'p.2'] })
  })

  test('a limit counts from the first verification; refillInterval is an old name of its duration', async () => {
    const { create } = await prepare()
    const { key } = await create({ ratelimit: { type: 'fast', limit: 2, duration: 50_000_000, async: true } })
    expect((await server.post('keys.verifyKey', { key })).body.ratelimit).toMatchObject({
      limit: 2,
      remaining: 1,
    })
    const old = await create({ ratelimit: { limit: 2, refillRate: 9, refillInterval: 5000 } })
    expect(old.ratelimit).toMatchObject({ limit: 2, duration: 5000 })
  })

  test('the first refill is due after the creation; a monthly one without a day is on the first', async () => {
    const { create } = await prepare()
    const daily = await create({ remaining: 10, refill: { interval: 'daily', amount: 5 } })
    expect(daily.refill).toEqual({
      interval: 'daily',
      amount: 5,
      refillDay: null,
      lastRefillAt: daily.createdAt,
    })
    const monthly = await create({ remaining: 10, refill: { interval: 'monthly', amount: 5 } })
    expect(monthly.refill).toMatchObject({ interval: 'monthly', refillDay: 1 })
    const last = await create({ remaining: 10, refill: { interval: 'monthly', amount: 5, refillDay: 31 } })
    expect(last.refill.refillDay).toBe(31)
  })
})

describe('a refused call creates nothing', () => {
  test('roles and permissions that do not exist are a 412 that names them', async () => {
    const { refused, total, workspace } = await prepare()
    await workspace.post('permissions.createRole', { name: 'known' })
    expect(await refused({ roles: ['known', 'first', 'second'] })).toEqual({
      status: 412,
      code: 'PRECONDITION_FAILED',
      message: 'roles not found: first, second',
    })
    expect(await refused({ permissions: ['p.1', 'p.2'], externalId: 'nobody yet' })).toEqual({
      status: 412,
      code: 'PRECONDITION_FAILED',
      message: 'permissions not found: p.1, p.2',
    })
    expect(await total()).toBe(0)
    expect((await workspace.get('identities.listIdentities')).total).toBe(0)
  })

  test('with a root key that may not create them either they are a 403', async () => {
    const { refused, workspace } = await prepare()
    const rootKey = await workspace.rootKeyWith('api.*.create_key')
    for (const fields of [{ roles: ['r1 role'] }, { permissions: ['p.1'] }])
      expect(await refused(fields, rootKey)).toMatchObject({ status: 403, code: 'INSUFFICIENT_PERMISSIONS' })
  })

  test('a day on a daily refill is refused with a message that says null and daily', async () => {
    const { refused } = await prepare()
    const { status, message } = await refused({
      remaining: 10,
      refill: { interval: 'daily', amount: 1, refillDay: 4 },
    })
    expect(status).toBe(400)
    expect(message).toContain('must be null')
    expect(message).toContain('daily')
  })

  test.each([
    [{ remaining: 0 }, 'remaining: Number must be greater than or equal to 1'],
    [{ remaining: -1 }, 'remaining: Number must be greater than or equal to 1'],
    [{ ratelimit: { type: 'x' } }, 'ratelimit.limit: Required'],
    [{ ratelimit: { limit: 1 } }, 'ratelimit.duration: Required'],
    [{ refill: { interval: 'daily', amount: 1 } }, 'refill: needs remaining to be set'],
    [
      { remaining: 1, refill: { interval: 'monthly', amount: 1, refillDay: 1.5 } },
      'refill.refillDay: Expected integer, received float',
    ],
    [{ byteLength: 15 }, 'byteLength: Number must be greater than or equal to 16'],
    [{ byteLength: 256 }, 'byteLength: Number must be less than or equal to 255'],
  ])('%j: a 400 that names it', async (fields, message) => {
    const { refused, total } = await prepare()
    expect(await refused(fields)).toEqual({ status: 400, code: 'BAD_REQUEST', message })
    expect(await total()).toBe(0)
  })
})

test('the key and each of its links are audited', async () => {
  const { create, workspace } = await prepare()
  const { roleId } = await workspace.post('permissions.createRole', { name: 'a role' })
  const { permissionId } = await workspace.post('permissions.createPermission', { name: 'p.1' })
  const { id } = await create({ roles: ['a role'], permissions: ['p.1'], externalId: 'user_1' })
  const events = await eventsOf(workspace, id)
  expect(events).toContainEqual(['key.create', 'api'])
  expect(events).toContainEqual(['authorization.connect_role_and_key', roleId])
  expect(events).toContainEqual(['authorization.connect_permission_and_key', permissionId])
  const { events: made } = await workspace.get('audit.listEvents', { event: 'identity.create' })
  expect(made).toHaveLength(1)
})

/** Bug: half a surrogate pair cannot be stored in Postgres, so the answer was a 500. */
test('a start that would split a character of the default prefix ends before it', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  // Set directly, as this prefix is refused today.
  await server.server.deps.sql`
    update keyspaces set default_prefix = 'abcd😀'
     where id = (select keyspace_id from apis where id = ${apiId})`
  const { keyId, key } = await makeKey(workspace, apiId)
  expect(key).toStartWith('abcd😀_')
  expect((await workspace.get('keys.getKey', { keyId })).start).toBe('abcd')
})

/** Names of the events of a key, with the other affected resources. */
async function eventsOf(workspace: TestWorkspace, keyId: string): Promise<[string, string][]> {
  const { events } = await workspace.get('audit.listEvents', { resourceId: keyId })
  return events.map(({ event, resources }: Json) => [
    event,
    resources[1].type === 'api' ? 'api' : resources[1].id,
  ])
}
