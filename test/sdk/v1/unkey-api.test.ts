import { afterAll, beforeAll, describe, expect, setDefaultTimeout, spyOn, test } from 'bun:test'
import { Unkey, verifyKey } from 'unkey-api-v1'
import { hashKey } from '../../../src/verify/secret.ts'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import { startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

/** The published official client of the v1 API. A program that uses it changes only its base URL. */

setDefaultTimeout(SLOW_MS)

let server: TestServer
let workspace: TestWorkspace
let unkey: Unkey
/** Used by the calls. Each test creates what it changes or deletes. */
let apiId: string
let keyId: string
let key: string

beforeAll(async () => {
  server = await startTestServer()
  workspace = await server.workspace()
  unkey = new Unkey({ rootKey: workspace.rootKey, baseUrl: server.url })
  apiId = await makeApi(workspace)
  ;({ keyId, key } = await makeKey(workspace, apiId, { externalId: 'user_1', remaining: 1000 }))
})
afterAll(async () => await server[Symbol.asyncDispose]())

/** A refusal is a value with these four texts, for every call. */
async function expectError(answer: Promise<{ error?: unknown; result?: unknown }>, code: string) {
  const { error, result } = await answer
  expect(result).toBeUndefined()
  expect(error).toEqual({
    code,
    message: expect.any(String),
    docs: `${server.url}/errors/${code}`,
    requestId: expect.stringMatching(/^req_[a-zA-Z0-9]+$/),
  })
}

const resultOf = async <T>(answer: Promise<{ result?: T; error?: unknown }>): Promise<T> => {
  const { result, error } = await answer
  if (result === undefined) throw new Error(JSON.stringify(error))
  return result
}

/** Tested calls, as `group.method`. */
const tried = new Set<string>()
/** A test with one success and one error of a call. */
const covers = (name: string, work: () => Promise<void>) => {
  tried.add(name)
  test(name, work)
}
const MISSING = 'missing_12345678'

describe('keys', () => {
  covers('keys.create', async () => {
    const made = await resultOf(
      unkey.keys.create({
        apiId,
        prefix: 'sk',
        byteLength: 16,
        meta: { a: 1 },
        ratelimit: { limit: 5, duration: 60_000 },
      }),
    )
    expect(made.key).toStartWith('sk_')
    expect(made.keyId).toStartWith('key_')
    await expectError(unkey.keys.create({ apiId: MISSING }), 'NOT_FOUND')
  })

  covers('keys.get', async () => {
    const shown = await resultOf(unkey.keys.get({ keyId }))
    expect(shown).toMatchObject({ id: keyId, apiId, workspaceId: workspace.workspaceId, remaining: 1000 })
    const recoverable = await makeKey(workspace, apiId, { recoverable: true })
    const opened = await resultOf(unkey.keys.get({ keyId: recoverable.keyId, decrypt: true }))
    expect(opened.plaintext).toBe(recoverable.key)
    const closed = await resultOf(unkey.keys.get({ keyId: recoverable.keyId, decrypt: false }))
    expect(closed).not.toHaveProperty('plaintext')
    await expectError(unkey.keys.get({ keyId: MISSING }), 'NOT_FOUND')
  })

  covers('keys.update', async () => {
    expect(await resultOf(unkey.keys.update({ keyId, name: 'new', meta: null }))).toEqual({})
    await expectError(unkey.keys.update({ keyId: MISSING, name: 'new' }), 'NOT_FOUND')
  })

  covers('keys.updateRemaining', async () => {
    const made = await makeKey(workspace, apiId, { remaining: 1 })
    const { remaining } = await resultOf(
      unkey.keys.updateRemaining({ keyId: made.keyId, op: 'increment', value: 9 }),
    )
    expect(remaining).toBe(10)
    await expectError(unkey.keys.updateRemaining({ keyId: MISSING, op: 'set', value: 1 }), 'NOT_FOUND')
  })

  covers('keys.verify', async () => {
    const verified = await resultOf(
      unkey.keys.verify({ apiId, key, ratelimits: [{ name: 'adhoc', limit: 5, duration: 60_000 }] }),
    )
    expect(verified).toMatchObject({
      valid: true,
      code: 'VALID',
      keyId,
      identity: { externalId: 'user_1', meta: {} },
      ratelimit: { limit: 5, remaining: 4 },
    })
    const query = { or: ['a', { and: ['b', 'c'] }] }
    const refused = await resultOf(unkey.keys.verify({ key, authorization: { permissions: query } }))
    expect(refused).toMatchObject({ valid: false, code: 'INSUFFICIENT_PERMISSIONS' })
    await expectError(unkey.keys.verify({ key: '' }), 'BAD_REQUEST')
  })

  covers('keys.delete', async () => {
    const made = await makeKey(workspace, apiId)
    expect(await resultOf(unkey.keys.delete({ keyId: made.keyId }))).toEqual({})
    await expectError(unkey.keys.delete({ keyId: made.keyId }), 'NOT_FOUND')
  })

  covers('keys.getVerifications', async () => {
    const { keyId: unused } = await makeKey(workspace, apiId)
    const query = { keyId: unused, granularity: 'day' as const }
    expect(await resultOf(unkey.keys.getVerifications(query))).toEqual({ verifications: [] })
    await expectError(unkey.keys.getVerifications({}), 'BAD_REQUEST')
  })

  for (const [noun, field, add, set, remove] of [
    ['permission', 'permissions', 'addPermissions', 'setPermissions', 'removePermissions'],
    ['role', 'roles', 'addRoles', 'setRoles', 'removeRoles'],
  ] as const) {
    tried.add(`keys.${add}`).add(`keys.${set}`).add(`keys.${remove}`)
    test(`keys.${add}, keys.${set}, keys.${remove}`, async () => {
      const { keyId: own } = await makeKey(workspace, apiId)
      const request = (name: string, id = own) => ({
        keyId: id,
        permissions: [{ name, create: true }],
        roles: [{ name, create: true }],
      })
      const first = await resultOf(unkey.keys[add](request(`sdk.${noun}.1`)))
      expect(first).toEqual([{ id: expect.any(String), name: `sdk.${noun}.1` }])
      const second = await resultOf(unkey.keys[set](request(`sdk.${noun}.2`)))
      expect(second.map(({ name }) => name)).toEqual([`sdk.${noun}.2`])
      expect(await resultOf(unkey.keys[remove](request(`sdk.${noun}.2`)))).toEqual({})
      expect((await resultOf(unkey.keys.get({ keyId: own })))[field]).toEqual([])
      for (const call of [add, set, remove] as const)
        await expectError(unkey.keys[call](request('any', MISSING)), 'NOT_FOUND')
    })
  }
})

describe('apis', () => {
  covers('apis.create', async () => {
    expect((await resultOf(unkey.apis.create({ name: 'from the client' }))).apiId).toStartWith('api_')
    await expectError(unkey.apis.create({ name: 'ab' }), 'BAD_REQUEST')
  })

  covers('apis.get', async () => {
    const { workspaceId } = workspace
    const shown: object = await resultOf(unkey.apis.get({ apiId }))
    expect(shown).toEqual({
      id: apiId,
      name: 'test api',
      workspaceId,
      // More than Unkey answers.
      deleteProtection: false,
      storeEncryptedKeys: true,
      defaultPrefix: null,
      defaultBytes: 16,
      ipWhitelist: null,
      createdAt: expect.any(Number),
      keys: expect.any(Number),
    })
    await expectError(unkey.apis.get({ apiId: MISSING }), 'NOT_FOUND')
  })

  covers('apis.listKeys', async () => {
    const own = await makeApi(workspace)
    const made = await Promise.all([makeKey(workspace, own), makeKey(workspace, own)])
    const first = await resultOf(unkey.apis.listKeys({ apiId: own, limit: 1, decrypt: false }))
    expect([first.keys.length, first.total]).toEqual([1, 2])
    const { cursor = 'none, though more follow' } = first
    const second = await resultOf(unkey.apis.listKeys({ apiId: own, limit: 1, cursor }))
    const ids = [...first.keys, ...second.keys].map(({ id }) => id)
    expect(ids.sort()).toEqual(made.map(({ keyId: id }) => id).sort())
    await expectError(unkey.apis.listKeys({ apiId: MISSING }), 'NOT_FOUND')
  })

  covers('apis.delete', async () => {
    const own = await makeApi(workspace)
    expect(await resultOf(unkey.apis.delete({ apiId: own }))).toEqual({})
    const safe = await makeApi(workspace, { deleteProtection: true })
    await expectError(unkey.apis.delete({ apiId: safe }), 'DELETE_PROTECTED')
  })
})

describe('permissions', () => {
  covers('permissions.createPermission', async () => {
    const { permissionId } = await resultOf(unkey.permissions.createPermission({ name: 'sdk.created' }))
    expect(permissionId).toStartWith('perm_')
    await expectError(unkey.permissions.createPermission({ name: 'sdk.created' }), 'CONFLICT')
  })

  covers('permissions.getPermission', async () => {
    const { permissionId } = await workspace.post('permissions.createPermission', { name: 'sdk.got' })
    const shown = await resultOf(unkey.permissions.getPermission({ permissionId }))
    expect(shown).toMatchObject({ id: permissionId, name: 'sdk.got' })
    await expectError(unkey.permissions.getPermission({ permissionId: MISSING }), 'NOT_FOUND')
  })

  covers('permissions.listPermissions', async () => {
    await workspace.post('permissions.createPermission', { name: 'sdk.listed' })
    const names = (await resultOf(unkey.permissions.listPermissions())).map(({ name }) => name)
    expect(names).toContain('sdk.listed')
    await expectError(stranger().permissions.listPermissions(), 'UNAUTHORIZED')
  })

  covers('permissions.deletePermission', async () => {
    const { permissionId } = await workspace.post('permissions.createPermission', { name: 'sdk.deleted' })
    expect(await resultOf(unkey.permissions.deletePermission({ permissionId }))).toEqual({})
    await expectError(unkey.permissions.deletePermission({ permissionId }), 'NOT_FOUND')
  })

  covers('permissions.createRole', async () => {
    const { roleId } = await resultOf(unkey.permissions.createRole({ name: 'sdk created' }))
    expect(roleId).toStartWith('role_')
    await expectError(unkey.permissions.createRole({ name: 'sdk created' }), 'CONFLICT')
  })

  covers('permissions.getRole', async () => {
    const { roleId } = await workspace.post('permissions.createRole', { name: 'sdk got' })
    const shown: object = await resultOf(unkey.permissions.getRole({ roleId }))
    expect(shown).toEqual({ id: roleId, name: 'sdk got', permissions: [], keys: 0 })
    await expectError(unkey.permissions.getRole({ roleId: MISSING }), 'NOT_FOUND')
  })

  covers('permissions.listRoles', async () => {
    await workspace.post('permissions.createRole', { name: 'sdk listed' })
    const names = (await resultOf(unkey.permissions.listRoles())).map(({ name }) => name)
    expect(names).toContain('sdk listed')
    await expectError(stranger().permissions.listRoles(), 'UNAUTHORIZED')
  })

  covers('permissions.deleteRole', async () => {
    const { roleId } = await workspace.post('permissions.createRole', { name: 'sdk deleted' })
    expect(await resultOf(unkey.permissions.deleteRole({ roleId }))).toEqual({})
    await expectError(unkey.permissions.deleteRole({ roleId }), 'NOT_FOUND')
  })
})

describe('ratelimits', () => {
  const namespaceName = 'sdk'
  beforeAll(async () => await workspace.post('ratelimits.createNamespace', { name: namespaceName }))
  const override = { namespaceName, limit: 7, duration: 1000 }

  covers('ratelimits.limit', async () => {
    const request = { namespace: namespaceName, identifier: 'limited', limit: 1, duration: 3_600_000 }
    const passed = await resultOf(unkey.ratelimits.limit({ ...request, cost: 1, meta: { a: 'b' } }))
    expect(passed).toMatchObject({ success: true, limit: 1, remaining: 0, reset: expect.any(Number) })
    expect((await resultOf(unkey.ratelimits.limit(request))).success).toBe(false)
    await expectError(unkey.ratelimits.limit({ ...request, limit: 0 }), 'BAD_REQUEST')
  })

  covers('ratelimits.setOverride', async () => {
    const { overrideId } = await resultOf(unkey.ratelimits.setOverride({ ...override, identifier: 'set me' }))
    expect(overrideId).toStartWith('rlor_')
    await expectError(
      unkey.ratelimits.setOverride({ ...override, namespaceName: MISSING, identifier: 'set me' }),
      'NOT_FOUND',
    )
  })

  covers('ratelimits.getOverride', async () => {
    await workspace.post('ratelimits.setOverride', { ...override, identifier: 'get me' })
    const shown = await resultOf(unkey.ratelimits.getOverride({ namespaceName, identifier: 'get me' }))
    expect(shown).toMatchObject({ identifier: 'get me', limit: 7, duration: 1000, async: false })
    await expectError(unkey.ratelimits.getOverride({ namespaceName, identifier: MISSING }), 'NOT_FOUND')
  })

  covers('ratelimits.listOverrides', async () => {
    await workspace.post('ratelimits.setOverride', { ...override, identifier: 'list me' })
    const { overrides, total } = await resultOf(unkey.ratelimits.listOverrides({ namespaceName, limit: 100 }))
    expect(overrides).toHaveLength(total)
    expect(overrides.map(({ identifier }) => identifier)).toContain('list me')
    await expectError(unkey.ratelimits.listOverrides({ namespaceName: MISSING }), 'NOT_FOUND')
  })

  covers('ratelimits.deleteOverride', async () => {
    await workspace.post('ratelimits.setOverride', { ...override, identifier: 'delete me' })
    const request = { namespaceName, identifier: 'delete me' }
    expect(await resultOf(unkey.ratelimits.deleteOverride(request))).toEqual({})
    await expectError(unkey.ratelimits.deleteOverride(request), 'NOT_FOUND')
  })
})

describe('identities', () => {
  const ratelimits = [{ name: 'tokens', limit: 10, duration: 60_000 }]

  covers('identities.create', async () => {
    const request = { externalId: 'sdk_created', meta: { a: 1 }, ratelimits }
    expect((await resultOf(unkey.identities.create(request))).identityId).toStartWith('id_')
    await expectError(unkey.identities.create(request), 'CONFLICT')
  })

  covers('identities.get', async () => {
    const { identityId } = await workspace.post('identities.createIdentity', {
      externalId: 'sdk_got',
      ratelimits,
    })
    expect(await resultOf(unkey.identities.get({ externalId: 'sdk_got' }))).toEqual({
      id: identityId,
      externalId: 'sdk_got',
      meta: {},
      ratelimits,
    })
    await expectError(unkey.identities.get({ identityId: MISSING }), 'NOT_FOUND')
  })

  covers('identities.list', async () => {
    const { identities, total } = await resultOf(unkey.identities.list({ limit: 100 }))
    expect(identities).toHaveLength(total)
    await expectError(unkey.identities.list({ limit: 101 }), 'BAD_REQUEST')
  })

  covers('identities.update', async () => {
    await workspace.post('identities.createIdentity', { externalId: 'sdk_updated' })
    const updated = await resultOf(
      unkey.identities.update({ externalId: 'sdk_updated', meta: { b: 2 }, ratelimits }),
    )
    expect(updated).toEqual({ id: updated.id, externalId: 'sdk_updated', meta: { b: 2 }, ratelimits })
    await expectError(unkey.identities.update({ externalId: MISSING, meta: {} }), 'NOT_FOUND')
  })

  covers('identities.delete', async () => {
    const { identityId } = await workspace.post('identities.createIdentity', { externalId: 'sdk_deleted' })
    expect(await resultOf(unkey.identities.delete({ identityId }))).toEqual({})
    await expectError(unkey.identities.delete({ identityId }), 'NOT_FOUND')
  })
})

describe('analytics and migrations', () => {
  covers('analytics.getVerifications', async () => {
    const reader = new Unkey({ rootKey: await workspace.rootKeyWith('api.*.read_api'), baseUrl: server.url })
    const own = await makeApi(workspace)
    const made = await makeKey(workspace, own)
    await server.post('keys.verifyKey', { key: made.key })
    await Bun.sleep(300) // a flush is due every 100 ms
    // The client joins lists with commas.
    const rows = await resultOf(
      reader.analytics.getVerifications({ apiId: own, start: Date.now() - 60_000, groupBy: ['key', 'hour'] }),
    )
    expect(rows.filter(({ total }) => total > 0)).toMatchObject([{ keyId: made.keyId, valid: 1, total: 1 }])
    await expectError(
      reader.analytics.getVerifications({ apiId: MISSING, start: Date.now() - 60_000 }),
      'NOT_FOUND',
    )
  })

  covers('migrations.createKeys', async () => {
    const element = {
      apiId,
      hash: { value: hashKey(crypto.randomUUID()), variant: 'sha256_base64' as const },
    }
    expect((await resultOf(unkey.migrations.createKeys([element]))).keyIds).toHaveLength(1)
    await expectError(unkey.migrations.createKeys([element]), 'CONFLICT')
  })

  covers('migrations.enqueueKeys', async () => {
    const request = { migrationId: 'm_1', apiId, keys: [{ plaintext: crypto.randomUUID() }] }
    expect(await resultOf(unkey.migrations.enqueueKeys(request))).toEqual({})
    await expectError(unkey.migrations.enqueueKeys({ ...request, apiId: MISSING }), 'NOT_FOUND')
  })
})

const stranger = () => new Unkey({ rootKey: 'unknown', baseUrl: server.url })

/** Fails when the client has a call that is not tested above. */
test('every call of the client is tested', () => {
  const groups = Object.entries(Object.getOwnPropertyDescriptors(Unkey.prototype)).filter(
    ([, { get }]) => get,
  )
  const calls = groups.flatMap(([group]) =>
    Object.keys(Object(Reflect.get(unkey, group))).map((call) => `${group}.${call}`),
  )
  expect(calls.length).toBeGreaterThan(30)
  expect([...tried].sort()).toEqual(calls.sort())
})

/** The helper has no option for the base URL, so the test redirects its request. It sends `Bearer public`. */
test('the helper verifyKey works without a root key', async () => {
  const { fetch } = globalThis
  const redirected = spyOn(globalThis, 'fetch').mockImplementation(
    Object.assign(
      (input: string | URL | Request, init?: RequestInit) =>
        fetch(String(input).replace('https://api.unkey.dev', server.url), init),
      { preconnect: fetch.preconnect },
    ),
  )
  try {
    expect(await resultOf(verifyKey(key))).toMatchObject({ valid: true, keyId })
    expect(await resultOf(verifyKey('unknown'))).toMatchObject({ valid: false, code: 'NOT_FOUND' })
    await expectError(verifyKey(''), 'BAD_REQUEST')
  } finally {
    redirected.mockRestore()
  }
})

test('a base URL that ends in a slash works', async () => {
  const client = new Unkey({ rootKey: workspace.rootKey, baseUrl: `${server.url}/` })
  expect((await resultOf(client.apis.get({ apiId }))).id).toBe(apiId)
  expect(await resultOf(client.keys.update({ keyId, name: 'x' }))).toEqual({})
})

/** The client parses every answer as JSON; a plain text would break it. */
test('an unknown path and a refused root key are errors like all others', async () => {
  await expectError(stranger().apis.get({ apiId }), 'UNAUTHORIZED')
  const lost = new Unkey({ rootKey: workspace.rootKey, baseUrl: `${server.url}/somewhere` })
  await expectError(lost.apis.get({ apiId }), 'NOT_FOUND')
})
