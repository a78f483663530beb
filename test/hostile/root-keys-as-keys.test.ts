import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { makeApi, makeKey } from '../support/fixtures.ts'
import { OPERATOR_KEY, startTestServer, type TestServer } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

/** Root keys are stored like keys. No customer endpoint may accept one as a key, or reveal that it is one. */

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

/** Anybody may call this. Bug: the holder of a text learned that it is a root key and may do everything. */
test('verifyKey does not find a root key, whatever its state and the conditions', async () => {
  const workspace = await server.workspace()
  const make = async (change?: object) => {
    const { rootKeyId, rootKey } = await workspace.post('rootKeys.createRootKey', { permissions: ['*'] })
    if (change !== undefined) await workspace.post('rootKeys.updateRootKey', { rootKeyId, ...change })
    return rootKey
  }
  const closed = await server.workspace()
  await server.post(
    'workspaces.updateWorkspace',
    { workspaceId: closed.workspaceId, enabled: false },
    OPERATOR_KEY,
  )
  const texts = [
    ...[OPERATOR_KEY, workspace.rootKey, closed.rootKey, await make()],
    ...[await make({ enabled: false }), await make({ expires: 1000 })],
  ]
  const limits = [{ name: 'own', limit: 1, duration: 60_000 }, { name: 'unknown' }]
  const questions = [
    ...[
      {},
      { apiId: 'api_root' },
      { authorization: { permissions: '*' } },
      { authorization: { permissions: [] } },
    ],
    ...[{ ratelimits: limits }, { remaining: { cost: 5 }, tags: ['a'] }],
  ]
  for (const key of [...texts, 'tollgate_nowhere'])
    for (const question of questions) {
      const { status, body, headers } = await server.post('keys.verifyKey', { key, ...question })
      expect({ status, body }).toEqual({
        status: 200,
        body: { valid: false, code: 'NOT_FOUND', requestId: headers.get('unkey-request-id') },
      })
    }
  for (const key of [...texts, 'tollgate_nowhere'])
    expect((await server.get('auth.forward', {}, null, { 'x-api-key': key })).body.error).toMatchObject({
      code: 'UNAUTHENTICATED',
      message: 'key not found',
    })
})

test('verifying a root key spends nothing of it and is not counted', async () => {
  const workspace = await server.workspace()
  const { rootKeyId, rootKey } = await workspace.post('rootKeys.createRootKey', {
    permissions: ['api.*.read_api'],
  })
  const { sql, usage } = server.server.deps
  await sql`update keys set remaining = 3 where id = ${rootKeyId}`
  for (let i = 0; i < 5; i++) await server.post('keys.verifyKey', { key: rootKey })
  await usage.flush()
  const [row] = await sql`select remaining from keys where id = ${rootKeyId}`
  expect(row).toEqual({ remaining: 3 })
  // Only its own use spends its credits, and that is counted as before.
  expect((await server.get('apis.listApis', {}, rootKey)).status).toBe(200)
  expect((await sql`select remaining from keys where id = ${rootKeyId}`)[0]).toEqual({ remaining: 2 })
})

test('no method about keys finds a root key, by text or id, nor the API that holds them', async () => {
  const workspace = await server.workspace()
  const { rootKeyId, rootKey } = await workspace.post('rootKeys.createRootKey', { permissions: ['*'] })
  const { body } = await server.get('rootKeys.listRootKeys', {}, OPERATOR_KEY)
  const ids = [rootKeyId, workspace.rootKeyId, body.rootKeys[0].id]
  for (const asker of [workspace.rootKey, OPERATOR_KEY]) {
    for (const key of [rootKey, OPERATOR_KEY, asker])
      expect((await server.post('keys.whoami', { key }, asker)).status).toBe(404)
    for (const keyId of ids) {
      expect((await server.get('keys.getKey', { keyId, decrypt: true }, asker)).status).toBe(404)
      expect((await server.get('keys.getVerifications', { keyId }, asker)).status).toBe(404)
      for (const [method, fields] of [
        ...[
          ['keys.updateKey', { enabled: false }] as const,
          ['keys.deleteKey', { permanent: true }] as const,
        ],
        ['keys.updateRemaining', { op: 'set', value: 0 }] as const,
        ['keys.setPermissions', { permissions: [{ name: 'x.y', create: true }] }] as const,
        ['keys.addRoles', { roles: [{ name: 'a role', create: true }] }] as const,
      ])
        expect((await server.post(method, { keyId, ...fields }, asker)).status).toBe(404)
    }
    for (const [method, input] of [
      ['apis.getApi', { apiId: 'api_root' }],
      ['apis.listKeys', { apiId: 'api_root', decrypt: true }],
      ['analytics.getVerifications', { apiId: 'api_root' }],
    ] as const)
      expect((await server.get(method, input, asker)).status).toBe(404)
    for (const [method, input] of [
      ['keys.createKey', { apiId: 'api_root' }],
      ['apis.updateApi', { apiId: 'api_root', ipWhitelist: ['203.0.113.1'] }],
      ['apis.deleteKeys', { apiId: 'api_root', permanent: true }],
      ['apis.deleteApi', { apiId: 'api_root' }],
      ['migrations.createKeys', [{ apiId: 'api_root', plaintext: crypto.randomUUID() }]],
    ] as const)
      expect((await server.post(method, input, asker)).status).toBe(404)
  }
  // Keys of an API, which can be verified, do not reveal root keys either.
  const apiId = await makeApi(workspace)
  const { key } = await makeKey(workspace, apiId)
  expect((await server.post('keys.verifyKey', { key })).body.valid).toBe(true)
  expect((await workspace.get('apis.listKeys', { apiId })).total).toBe(1)
  expect((await server.post('apis.createApi', { name: 'still works' }, rootKey)).status).toBe(200)
})
