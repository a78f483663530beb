import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { endpoints } from '../../../src/server/app.ts'
import { hashKey } from '../../../src/verify/secret.ts'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import {
  type Json,
  OPERATOR_KEY,
  startTestServer,
  type TestServer,
  type TestWorkspace,
} from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

const eventsOf = async (workspace: TestWorkspace, query: Record<string, unknown>): Promise<Json[]> =>
  (await workspace.get('audit.listEvents', query)).events

/** The first resource of the type in the last event of that name. */
async function lastOf(workspace: TestWorkspace, event: string, type: string) {
  const last = (await eventsOf(workspace, { event })).at(-1)
  const { before, after } = last.resources.find((each: Json) => each.type === type)
  return { before, after }
}

/** Setting roles or permissions writes an event for each added or removed one. A new method needs a test below. */
test('every method that changes something is tested here', () => {
  const verbs = endpoints
    .map(({ path }) => path.slice('/v1/'.length))
    .filter((name) => /\.(update|set)/.test(name))
  expect(verbs.sort()).toEqual([
    ...[
      'apis.updateApi',
      'identities.updateIdentity',
      'keys.setPermissions',
      'keys.setRoles',
      'keys.updateKey',
    ],
    ...['keys.updateRemaining', 'permissions.setRolePermissions', 'ratelimits.setOverride'],
    'ratelimits.updateNamespace',
    ...['rootKeys.updateRootKey', 'workspaces.updateWorkspace'],
  ])
})

describe('the audit log has the old and the new values after', () => {
  test('rootKeys.updateRootKey, and the old values after rootKeys.deleteRootKey', async () => {
    const workspace = await server.workspace()
    const { rootKeyId } = await workspace.post('rootKeys.createRootKey', { permissions: ['api.*.read_api'] })
    const update = (fields: object) => workspace.post('rootKeys.updateRootKey', { rootKeyId, ...fields })
    await update({ permissions: ['*'], enabled: false })
    expect(await lastOf(workspace, 'rootKey.update', 'rootKey')).toEqual({
      before: { permissions: ['api.*.read_api'], enabled: true },
      after: { permissions: ['*'], enabled: false },
    })
    await update({ expires: 4e12, name: 'ci', enabled: false })
    expect(await lastOf(workspace, 'rootKey.update', 'rootKey')).toEqual({
      before: { expires: null, name: null },
      after: { expires: 4e12, name: 'ci' },
    })
    await workspace.post('rootKeys.deleteRootKey', { rootKeyId })
    expect(await lastOf(workspace, 'rootKey.delete', 'rootKey')).toEqual({
      before: { name: 'ci', permissions: ['*'], enabled: false, expires: 4e12 },
      after: undefined,
    })
  })

  test('apis.updateApi, including settings of the API’s keys', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace, { ipWhitelist: ['203.0.113.0/24'] })
    await workspace.post('apis.updateApi', { apiId, ipWhitelist: null, deleteProtection: true })
    expect(await lastOf(workspace, 'api.update', 'api')).toEqual({
      before: { ipWhitelist: ['203.0.113.0/24'], deleteProtection: false },
      after: { ipWhitelist: null, deleteProtection: true },
    })
    const settings = { storeEncryptedKeys: false, defaultPrefix: 'demo', defaultBytes: 32 }
    await workspace.post('apis.updateApi', { apiId, name: 'new name', ...settings })
    expect(await lastOf(workspace, 'api.update', 'api')).toEqual({
      before: { name: 'test api', storeEncryptedKeys: true, defaultPrefix: null, defaultBytes: 16 },
      after: { name: 'new name', ...settings },
    })
  })

  test('keys.updateKey, with the old and the new identity of the key', async () => {
    const workspace = await server.workspace()
    const { keyId } = await makeKey(workspace, await makeApi(workspace), {
      externalId: 'user_1',
      meta: { a: 1 },
    })
    const { id: first } = await workspace.get('identities.getIdentity', { externalId: 'user_1' })
    const change = {
      ...{ enabled: false, name: 'new', meta: { a: 2 }, expires: 4e12, remaining: 5 },
      refill: { interval: 'monthly', amount: 7, refillDay: 3 },
      ratelimit: { limit: 8, duration: 9000 },
    }
    await workspace.post('keys.updateKey', { keyId, externalId: 'user_2', ...change })
    const { id: second } = await workspace.get('identities.getIdentity', { externalId: 'user_2' })
    const nothing = { name: null, expires: null, remaining: null, refill: null, ratelimit: null }
    expect(await lastOf(workspace, 'key.update', 'key')).toEqual({
      before: { enabled: true, ...nothing, meta: { a: 1 }, ownerId: 'user_1', identityId: first },
      after: { ...change, refill: { amount: 7, refillDay: 3 }, ownerId: 'user_2', identityId: second },
    })
    for (const resourceId of [first, second])
      expect(await eventsOf(workspace, { event: 'key.update', resourceId })).toHaveLength(1)
    await workspace.post('keys.updateKey', { keyId, enabled: false })
    expect(await lastOf(workspace, 'key.update', 'key')).toEqual({ before: undefined, after: undefined })
  })

  test('setting roles and permissions, with an event for each added and each removed one', async () => {
    const workspace = await server.workspace()
    const { keyId } = await makeKey(workspace, await makeApi(workspace))
    const { roleId } = await workspace.post('permissions.createRole', { name: 'a role' })
    const noted = async () =>
      (await eventsOf(workspace, {})).flatMap(({ event, resources }) => {
        const [, action, kind] = /^authorization\.(connect|disconnect)_(\w+)$/.exec(event) ?? []
        return action === undefined ? [] : [`${action} ${kind} ${resources[1].name}`]
      })
    const named = (...names: string[]) => names.map((name) => ({ name, create: true }))
    const slugs = (...names: string[]) => names.map((slug) => ({ slug, create: true }))
    await workspace.post('keys.setPermissions', { keyId, permissions: named('p.one', 'p.two') })
    await workspace.post('keys.setPermissions', { keyId, permissions: named('p.two', 'p.three') })
    await workspace.post('keys.setRoles', { keyId, roles: named('a role') })
    await workspace.post('keys.setRoles', { keyId, roles: named('another') })
    await workspace.post('permissions.setRolePermissions', { roleId, permissions: slugs('p.one') })
    await workspace.post('permissions.setRolePermissions', { roleId, permissions: [] })
    expect(await noted()).toEqual([
      ...['connect permission_and_key p.one', 'connect permission_and_key p.two'],
      ...['disconnect permission_and_key p.one', 'connect permission_and_key p.three'],
      ...['connect role_and_key a role', 'disconnect role_and_key a role', 'connect role_and_key another'],
      ...['connect permission_and_role p.one', 'disconnect permission_and_role p.one'],
    ])
  })

  test('keys.updateRemaining', async () => {
    const workspace = await server.workspace()
    const { keyId } = await makeKey(workspace, await makeApi(workspace), { remaining: 5 })
    for (const [fields, before, after] of [
      [{ op: 'increment', value: 3 }, 5, 8],
      [{ op: 'set', value: null }, 8, null],
    ] as const) {
      await workspace.post('keys.updateRemaining', { keyId, ...fields })
      expect(await lastOf(workspace, 'key.update', 'key')).toEqual({
        before: { remaining: before },
        after: { remaining: after },
      })
    }
  })

  test('identities.updateIdentity, with an event for each limit', async () => {
    const workspace = await server.workspace()
    const limit = (name: string, limit: number) => ({ name, limit, duration: 1000 })
    const made = { externalId: 'user_1', meta: { plan: 'free' }, ratelimits: [limit('a', 1), limit('b', 2)] }
    await workspace.post('identities.createIdentity', made)
    const changed = { meta: { plan: 'pro' }, ratelimits: [limit('a', 9), limit('c', 3)] }
    await workspace.post('identities.updateIdentity', { externalId: 'user_1', ...changed })
    expect(await lastOf(workspace, 'identity.update', 'identity')).toEqual({
      before: { meta: { plan: 'free' } },
      after: { meta: { plan: 'pro' } },
    })
    expect(await lastOf(workspace, 'ratelimit.update', 'ratelimit')).toEqual({
      before: { limit: 1 },
      after: { limit: 9 },
    })
    expect(await lastOf(workspace, 'ratelimit.delete', 'ratelimit')).toEqual({
      before: { limit: 2, duration: 1000 },
      after: undefined,
    })
    expect(await lastOf(workspace, 'ratelimit.create', 'ratelimit')).toEqual({
      before: undefined,
      after: { limit: 3, duration: 1000 },
    })
  })

  test('ratelimits.setOverride and deleteOverride', async () => {
    const workspace = await server.workspace()
    const { namespaceId } = await workspace.post('ratelimits.createNamespace', { name: 'a namespace' })
    const set = (limit: number) =>
      workspace.post('ratelimits.setOverride', { namespaceId, identifier: 'user_1', limit, duration: 1000 })
    const values = (limit: number) => ({ limit, duration: 1000, async: false })
    await set(5)
    const event = 'ratelimit.set_override'
    expect(await lastOf(workspace, event, 'ratelimitOverride')).toEqual({
      before: undefined,
      after: values(5),
    })
    await set(7)
    expect(await lastOf(workspace, event, 'ratelimitOverride')).toEqual({
      before: { limit: 5 },
      after: { limit: 7 },
    })
    await workspace.post('ratelimits.deleteOverride', { namespaceId, identifier: 'user_1' })
    const deleted = await lastOf(workspace, 'ratelimit.delete_override', 'ratelimitOverride')
    expect(deleted).toEqual({ before: values(7), after: undefined })
    await set(9)
    expect(await lastOf(workspace, event, 'ratelimitOverride')).toEqual({
      before: undefined,
      after: values(9),
    })
  })

  test('ratelimits.createNamespace and updateNamespace', async () => {
    const workspace = await server.workspace()
    const { namespaceId } = await workspace.post('ratelimits.createNamespace', {
      name: 'a namespace',
      outage: 'open',
    })
    const last = (event: string) => lastOf(workspace, `ratelimitNamespace.${event}`, 'ratelimitNamespace')
    expect(await last('create')).toEqual({ before: undefined, after: { scope: null, outage: 'open' } })
    await workspace.post('ratelimits.updateNamespace', { namespaceId, scope: 'local', outage: null })
    expect(await last('update')).toEqual({
      before: { scope: null, outage: 'open' },
      after: { scope: 'local', outage: null },
    })
  })

  test('workspaces.updateWorkspace', async () => {
    const { workspaceId } = await server.workspace()
    await server.post('workspaces.updateWorkspace', { workspaceId, enabled: false }, OPERATOR_KEY)
    const { body } = await server.get('audit.listEvents', { resourceId: workspaceId }, OPERATOR_KEY)
    expect(body.events.at(-1).resources[0]).toMatchObject({
      before: { enabled: true },
      after: { enabled: false },
    })
  })
})

describe('decrypting keys leaves an audit event that names them', () => {
  test('one for each call of getKey and listKeys, and none when nothing was decrypted', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const kept = await makeKey(workspace, apiId, { recoverable: true })
    const other = await makeKey(workspace, apiId, { recoverable: true })
    const lost = await makeKey(workspace, apiId)
    await workspace.get('keys.getKey', { keyId: kept.keyId })
    await workspace.get('keys.getKey', { keyId: lost.keyId, decrypt: true })
    await workspace.get('apis.listKeys', { apiId })
    await workspace.get('apis.listKeys', {
      apiId,
      decrypt: true,
      cursor: [kept, other, lost]
        .map(({ keyId }) => keyId)
        .sort()
        .at(-1),
    })
    const without = await workspace.rootKeyWith('api.*.read_key', 'api.*.read_api')
    expect((await server.get('keys.getKey', { keyId: kept.keyId, decrypt: true }, without)).status).toBe(403)
    expect(await eventsOf(workspace, { event: 'key.decrypt' })).toEqual([])

    const shown = await workspace.get('keys.getKey', { keyId: kept.keyId, decrypt: true })
    expect(shown.plaintext).toBe(kept.key)
    await workspace.get('apis.listKeys', { apiId, decrypt: true })
    const events = await eventsOf(workspace, { event: 'key.decrypt' })
    const ids = events.map(({ resources }) => resources.map(({ id }: Json) => id).sort())
    expect(ids).toEqual([[kept.keyId, apiId].sort(), [kept.keyId, other.keyId, apiId].sort()])
    expect(events.every(({ actor }) => actor.id === workspace.rootKeyId)).toBe(true)
    expect(await eventsOf(workspace, { event: 'key.decrypt', resourceId: other.keyId })).toHaveLength(1)
  })

  test('and no event contains a key, a root key, a hash or an encrypted text', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const { keyId, key } = await makeKey(workspace, apiId, { recoverable: true })
    const { rootKeyId, rootKey } = await workspace.post('rootKeys.createRootKey', { permissions: ['*'] })
    await workspace.get('keys.getKey', { keyId, decrypt: true })
    await workspace.post('keys.updateKey', { keyId, name: 'new', externalId: 'user_1' })
    await workspace.post('rootKeys.updateRootKey', { rootKeyId, name: 'new' })
    await workspace.post('rootKeys.deleteRootKey', { rootKeyId })
    await workspace.post('keys.deleteKey', { keyId })
    const [sealed] = await server.server.deps
      .sql`select ciphertext from encrypted_keys where key_id = ${keyId}`
    const text = JSON.stringify(await eventsOf(workspace, {}))
    for (const secret of [key, rootKey, hashKey(key), hashKey(rootKey), sealed?.ciphertext])
      expect(text).not.toContain(secret)
  })
})
