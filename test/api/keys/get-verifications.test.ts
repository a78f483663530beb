import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { DAY_MS } from '../../../src/lib/clock.ts'
import { makeApi, makeKey, refusalOf } from '../../support/fixtures.ts'
import { startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

/** Noon, so that an hour later is the same day. */
let now = Date.UTC(2026, 4, 10, 12)
setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer({ clock: () => now })
})
afterAll(async () => await server[Symbol.asyncDispose]())

const REQUEST_ID = /^req_[a-zA-Z0-9]+$/

test('an unknown key and a key of another workspace are not found', async () => {
  const [mine, theirs] = [await server.workspace(), await server.workspace()]
  const foreign = await makeKey(theirs, await makeApi(theirs), { ownerId: 'shared name' })
  for (const keyId of ['key_unknown', foreign.keyId]) {
    const answer = await server.get('keys.getVerifications', { keyId }, mine.rootKey)
    expect(refusalOf(answer)).toEqual({ status: 404, code: 'NOT_FOUND', message: `key ${keyId} not found` })
    expect(answer.body.error.docs).toBe(`${server.url}/errors/NOT_FOUND`)
    expect(answer.body.error.requestId).toMatch(REQUEST_ID)
  }
  const byOwner = await server.get('keys.getVerifications', { ownerId: 'shared name' }, mine.rootKey)
  expect(byOwner.status).toBe(404)
})

test('keyId or ownerId is required', async () => {
  const { status, body } = await server.get('keys.getVerifications')
  expect([status, body.error.code]).toEqual([400, 'BAD_REQUEST'])
  expect(body.error.message).toContain('keyId')
  expect(body.error.message).toContain('ownerId')
  expect(body.error.requestId).toMatch(REQUEST_ID)
})

test('keys without verifications have an empty list', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const keys = [1, 2, 3].map(() => makeKey(workspace, apiId, { ownerId: 'owner' }))
  const [first] = await Promise.all(keys)
  const byKey = await workspace.get('keys.getVerifications', { keyId: first?.keyId })
  expect(byKey).toEqual({ verifications: [] })
  expect(await workspace.get('keys.getVerifications', { ownerId: 'owner' })).toEqual({ verifications: [] })
})

test('counts by UTC day, of one key or summed over all keys of an owner', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const limited = await makeKey(workspace, apiId, {
    ownerId: 'owner',
    ratelimit: { limit: 2, duration: DAY_MS },
  })
  const counted = await makeKey(workspace, apiId, { ownerId: 'owner', remaining: 1 })
  const verify = (key: string) => server.post('keys.verifyKey', { key })
  const startOfDay = now - (now % DAY_MS)
  for (let call = 0; call < 3; call++) await verify(limited.key)
  now += DAY_MS
  for (let call = 0; call < 3; call++) await verify(counted.key)
  await Bun.sleep(300) // a flush is due every 100 ms

  const ofKey = await workspace.get('keys.getVerifications', { keyId: limited.keyId })
  expect(ofKey.verifications).toEqual([{ time: startOfDay, success: 2, rateLimited: 1, usageExceeded: 0 }])
  const ofOwner = await workspace.get('keys.getVerifications', { ownerId: 'owner' })
  expect(ofOwner.verifications).toEqual([
    { time: startOfDay, success: 2, rateLimited: 1, usageExceeded: 0 },
    { time: startOfDay + DAY_MS, success: 1, rateLimited: 0, usageExceeded: 2 },
  ])
  const range = { keyId: limited.keyId, start: startOfDay + DAY_MS, end: 0, granularity: 'day' }
  expect(await workspace.get('keys.getVerifications', range)).toEqual({ verifications: [] })
})

test('needs the permission on every API of the keys', async () => {
  const workspace = await server.workspace()
  const [first, second] = [await makeApi(workspace), await makeApi(workspace)]
  const { keyId } = await makeKey(workspace, first, { ownerId: 'owner' })
  await makeKey(workspace, second, { ownerId: 'owner' })
  const statusWith = async (permissions: string[], query: Record<string, unknown>) =>
    (await server.get('keys.getVerifications', query, await workspace.rootKeyWith(...permissions))).status
  const specific = (apiId: string) => `api.${apiId}.read_key`
  expect(await statusWith(['api.*.read_key', 'another'], { ownerId: 'owner' })).toBe(200)
  expect(await statusWith([specific(first), specific(second)], { ownerId: 'owner' })).toBe(200)
  expect(await statusWith([specific(first)], { ownerId: 'owner' })).toBe(403)
  expect(await statusWith([specific(first)], { keyId })).toBe(200)
  expect(await statusWith([specific(second)], { keyId })).toBe(403)
})
