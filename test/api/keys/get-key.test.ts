import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { makeApi, makeKey, refusalOf } from '../../support/fixtures.ts'
import { startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

test('an unknown key, a deleted key and a key of another workspace are not found', async () => {
  const [mine, theirs] = [await server.workspace(), await server.workspace()]
  const deleted = await makeKey(mine, await makeApi(mine))
  await mine.post('keys.deleteKey', { keyId: deleted.keyId })
  const foreign = await makeKey(theirs, await makeApi(theirs))
  for (const keyId of ['key_unknown', deleted.keyId, foreign.keyId]) {
    const answer = await server.get('keys.getKey', { keyId }, mine.rootKey)
    expect(refusalOf(answer)).toEqual({ status: 404, code: 'NOT_FOUND', message: `key ${keyId} not found` })
  }
})

/** A caller without any right must not learn what exists: authentication comes first. */
test('without a root key the answer for an existing key and an unknown key is the same', async () => {
  const workspace = await server.workspace()
  const { keyId } = await makeKey(workspace, await makeApi(workspace))
  for (const id of [keyId, 'key_unknown'])
    expect(refusalOf(await server.get('keys.getKey', { keyId: id })).message).toBe('key required')
})

test('shows every field as given', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const fields = {
    prefix: 'prefix',
    name: 'my key',
    meta: { plan: { seats: 3 } },
    expires: 4_000_000_000_000,
    remaining: 100,
    refill: { interval: 'monthly', amount: 7, refillDay: 31 },
    ratelimit: { limit: 10, duration: 60_000 },
    environment: 'test',
    enabled: false,
    externalId: 'user_1',
  }
  const { keyId, key } = await makeKey(workspace, apiId, fields)
  const shown = await workspace.get('keys.getKey', { keyId })
  const { identityId } = await identityOf(workspace.workspaceId)
  expect(shown).toEqual({
    id: keyId,
    apiId,
    workspaceId: workspace.workspaceId,
    start: key.slice(0, 11),
    name: 'my key',
    ownerId: 'user_1',
    meta: { plan: { seats: 3 } },
    createdAt: expect.any(Number),
    expires: 4_000_000_000_000,
    remaining: 100,
    refill: { interval: 'monthly', amount: 7, refillDay: 31, lastRefillAt: shown.createdAt },
    ratelimit: { async: false, limit: 10, duration: 60_000, refillRate: 10, refillInterval: 60_000 },
    roles: [],
    permissions: [],
    enabled: false,
    environment: 'test',
    identity: { id: identityId, externalId: 'user_1', meta: {} },
  })
})

async function identityOf(workspaceId: string) {
  const [row] = await server.server.deps.sql<{ identityId: string }[]>`
    select id as "identityId" from identities where workspace_id = ${workspaceId}`
  return row ?? { identityId: 'none' }
}

test('fields without a value are left out, and an empty meta is shown as stored', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const bare = await workspace.get('keys.getKey', { keyId: (await makeKey(workspace, apiId)).keyId })
  expect(Object.keys(bare).sort()).toEqual(
    ['apiId', 'createdAt', 'enabled', 'id', 'permissions', 'roles', 'start', 'workspaceId'].sort(),
  )
  const empty = await makeKey(workspace, apiId, { meta: {} })
  expect((await workspace.get('keys.getKey', { keyId: empty.keyId })).meta).toEqual({})
})

/** OP55: the same as in listKeys and verifyKey. */
test('permissions are slugs held directly and through roles, each once; roles are names', async () => {
  const workspace = await server.workspace()
  for (const name of ['docs.read', 'docs.write'])
    await workspace.post('permissions.createPermission', {
      name: `name of ${name}`.replaceAll(' ', '_'),
      slug: name,
    })
  const { roleId } = await workspace.post('permissions.createRole', { name: 'the editors' })
  await workspace.post('permissions.setRolePermissions', {
    roleId,
    permissions: [{ slug: 'docs.read' }, { slug: 'docs.write' }],
  })
  const { keyId } = await makeKey(workspace, await makeApi(workspace), {
    roles: ['the editors'],
    permissions: ['docs.read'],
  })
  const shown = await workspace.get('keys.getKey', { keyId })
  expect(shown.permissions).toEqual(['docs.read', 'docs.write'])
  expect(shown.roles).toEqual(['the editors'])
})

test('accepts the wildcard and the specific permission', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const { keyId } = await makeKey(workspace, apiId)
  for (const permission of ['api.*.read_key', `api.${apiId}.read_key`]) {
    const rootKey = await workspace.rootKeyWith(permission, 'another')
    expect((await server.get('keys.getKey', { keyId }, rootKey)).status).toBe(200)
  }
})

test.each(['yes', 'TRUE', '2'])('decrypt=%s is refused as neither true nor false', async (decrypt) => {
  const { status, body } = await server.get('keys.getKey', { keyId: 'key_any', decrypt })
  expect([status, body.error.message]).toEqual([400, 'decrypt: Expected boolean, received string'])
})

test.each(['false', '0', ''])('decrypt=%p returns no plaintext', async (decrypt) => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const { keyId } = await makeKey(workspace, apiId, { recoverable: true })
  expect(await workspace.get('keys.getKey', { keyId, decrypt })).not.toHaveProperty('plaintext')
})
