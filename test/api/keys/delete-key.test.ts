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

const rowOf = async (keyId: string) =>
  (
    await server.server.deps.sql<{ deletedAt: number | null }[]>`
    select deleted_at as "deletedAt" from keys where id = ${keyId}`
  )[0]

test('a deleted key is NOT_FOUND on the very next verification, even while cached', async () => {
  const workspace = await server.workspace()
  const { keyId, key } = await makeKey(workspace, await makeApi(workspace))
  expect((await server.post('keys.verifyKey', { key })).body.valid).toBe(true)
  expect(await workspace.post('keys.deleteKey', { keyId })).toEqual({})
  const { status, body } = await server.post('keys.verifyKey', { key })
  expect([status, body]).toEqual([200, { valid: false, code: 'NOT_FOUND', requestId: body.requestId }])
})

test('a soft delete keeps the row with its time; a permanent one removes it with everything attached', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const soft = await makeKey(workspace, apiId)
  await workspace.post('keys.deleteKey', { keyId: soft.keyId })
  expect(Math.abs(((await rowOf(soft.keyId))?.deletedAt ?? 0) - Date.now())).toBeLessThan(10_000)
  const hard = await makeKey(workspace, apiId, { ratelimit: { limit: 1, duration: 1000 }, recoverable: true })
  await workspace.post('keys.deleteKey', { keyId: hard.keyId, permanent: true })
  expect(await rowOf(hard.keyId)).toBeUndefined()
})

test('an unknown key, a deleted key and a key of another workspace are not found', async () => {
  const [mine, theirs] = [await server.workspace(), await server.workspace()]
  const deleted = await makeKey(mine, await makeApi(mine))
  await mine.post('keys.deleteKey', { keyId: deleted.keyId })
  const foreign = await makeKey(theirs, await makeApi(theirs))
  for (const keyId of ['key_unknown', deleted.keyId, foreign.keyId]) {
    for (const permanent of [false, true]) {
      const answer = await server.post('keys.deleteKey', { keyId, permanent }, mine.rootKey)
      expect(refusalOf(answer)).toEqual({ status: 404, code: 'NOT_FOUND', message: `key ${keyId} not found` })
    }
  }
  expect((await server.post('keys.verifyKey', { key: foreign.key })).body.valid).toBe(true)
})

test('accepts the wildcard and the specific permission', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  for (const permission of ['api.*.delete_key', `api.${apiId}.delete_key`]) {
    const { keyId } = await makeKey(workspace, apiId)
    const rootKey = await workspace.rootKeyWith(permission, 'another')
    expect((await server.post('keys.deleteKey', { keyId }, rootKey)).status).toBe(200)
  }
})
