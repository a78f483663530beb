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
  for (const key of ['unknown', deleted.key, foreign.key]) {
    const answer = await server.post('keys.whoami', { key }, mine.rootKey)
    expect(refusalOf(answer)).toEqual({ status: 404, code: 'NOT_FOUND', message: 'Key not found' })
  }
})

test('shows id, name, credits, meta, state, environment and identity, and nothing else', async () => {
  const workspace = await server.workspace()
  const { keyId, key } = await makeKey(workspace, await makeApi(workspace), {
    name: 'mine',
    remaining: 100,
    meta: { a: 1 },
    environment: 'test',
    enabled: false,
    expires: 1,
    externalId: 'user_1',
  })
  const shown = await workspace.post('keys.whoami', { key })
  expect(shown).toEqual({
    id: keyId,
    name: 'mine',
    remaining: 100,
    meta: { a: 1 },
    createdAt: expect.any(Number),
    enabled: false,
    environment: 'test',
    identity: { id: expect.stringMatching(/^id_/), externalId: 'user_1' },
  })
})

test('an empty meta is left out, and nothing is spent', async () => {
  const workspace = await server.workspace()
  const { key } = await makeKey(workspace, await makeApi(workspace), { meta: {}, remaining: 2 })
  for (let call = 0; call < 3; call++) {
    const shown = await workspace.post('keys.whoami', { key })
    expect(shown).not.toHaveProperty('meta')
    expect(shown.remaining).toBe(2)
  }
})

test('accepts the wildcard and the specific permission', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const { key } = await makeKey(workspace, apiId)
  for (const permission of ['api.*.read_key', `api.${apiId}.read_key`]) {
    const rootKey = await workspace.rootKeyWith(permission, 'another')
    expect((await server.post('keys.whoami', { key }, rootKey)).status).toBe(200)
  }
})
