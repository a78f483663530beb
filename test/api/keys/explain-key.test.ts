import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { DAY_MS, HOUR_MS } from '../../../src/lib/clock.ts'
import { makeApi, makeKey, refusalOf } from '../../support/fixtures.ts'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
let now = Date.UTC(2026, 5, 10, 12, 30)
beforeAll(async () => {
  server = await startTestServer({ clock: () => now })
})
afterAll(async () => await server[Symbol.asyncDispose]())

const explain = (workspace: TestWorkspace, keyId: string, more: object = {}): Promise<Json> =>
  workspace.post('keys.explainKey', { keyId, ...more })
const verify = async (key: string, more: object = {}): Promise<Json> =>
  (await server.post('keys.verifyKey', { key, ...more })).body
const checkOf = ({ checks }: Json, name: string): Json => checks.find(({ check }: Json) => check === name)

test('every check is told in the order of verification, with its verdict and fact', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const { keyId } = await makeKey(workspace, apiId, {
    remaining: 5,
    ratelimit: { limit: 10, duration: 60_000 },
    expires: now + DAY_MS,
  })
  const told = await explain(workspace, keyId)
  expect(told).toMatchObject({ valid: true, code: 'VALID' })
  expect(told.checks.map(({ check, verdict }: Json) => [check, verdict])).toEqual([
    ['workspace', 'passes'],
    ['enabled', 'passes'],
    ['api', 'passes'],
    ['expiry', 'passes'],
    ['address', 'passes'],
    ['permissions', 'depends'],
    ['ratelimit', 'passes'],
    ['credits', 'passes'],
  ])
  expect(checkOf(told, 'ratelimit')).toMatchObject({
    fact: 'limit default: 0 of 10 used',
    limit: { name: 'default', owner: 'key', limit: 10, duration: 60_000, remaining: 10 },
  })
  expect(checkOf(told, 'credits')).toMatchObject({ fact: '5 credits are left', credits: { remaining: 5 } })
  expect(checkOf(told, 'expiry').fact).toBe(`the key expires at ${new Date(now + DAY_MS).toISOString()}`)
})

test('asking takes no token and no credit, and counts no verification', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const fields = { remaining: 2, ratelimit: { limit: 2, duration: 60_000 } }
  const { keyId, key } = await makeKey(workspace, apiId, fields)
  for (let at = 0; at < 5; at++) await explain(workspace, keyId)
  expect(await verify(key)).toMatchObject({ code: 'VALID', remaining: 1, ratelimit: { remaining: 1 } })
  expect(await explain(workspace, keyId)).toMatchObject({ valid: true })
  expect(await verify(key)).toMatchObject({ code: 'VALID', remaining: 0, ratelimit: { remaining: 0 } })
  await server.server.deps.usage.flush()
  const [point] = await workspace.get('analytics.getVerifications', { apiId, start: now - HOUR_MS })
  expect(point).toMatchObject({ valid: 2, total: 2 })
})

/** What it says must be what the next verification does, or it is worse than no answer. */
test('the code is that of the next verification, for each reason alone and for the first of several', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace, { ipWhitelist: ['127.0.0.1', '::1'] })
  const here = { ipAddress: '127.0.0.1' }
  const same = async (
    fields: Record<string, unknown>,
    code: string,
    { uses = 0, imagined = {}, asked = {} } = {},
  ) => {
    const { keyId, key } = await makeKey(workspace, apiId, fields)
    for (let at = 0; at < uses; at++) await verify(key)
    expect(await explain(workspace, keyId, { ...here, ...imagined })).toMatchObject({
      code,
      valid: code === 'VALID',
    })
    expect((await verify(key, asked)).code).toBe(code)
  }
  await same({}, 'VALID')
  await same({ enabled: false }, 'DISABLED')
  await same({ expires: now - 1 }, 'EXPIRED')
  await same({ ratelimit: { limit: 2, duration: 60_000 } }, 'RATE_LIMITED', { uses: 2 })
  await same({ remaining: 1 }, 'USAGE_EXCEEDED', { uses: 1 })
  await same({ enabled: false, expires: now - 1 }, 'DISABLED')
  const both = { remaining: 1, ratelimit: { limit: 1, duration: 60_000 } }
  await same(both, 'RATE_LIMITED', { uses: 1 })
  const other = await makeApi(workspace)
  await same({}, 'FORBIDDEN', { imagined: { apiId: other }, asked: { apiId: other } })
  const authorization = { permissions: 'docs.read' }
  await same({}, 'INSUFFICIENT_PERMISSIONS', { imagined: { authorization }, asked: { authorization } })
  const { keyId } = await makeKey(workspace, apiId)
  expect(await explain(workspace, keyId, { ipAddress: '192.0.2.1' })).toMatchObject({ code: 'FORBIDDEN' })
  const unknown = await explain(workspace, keyId)
  expect(checkOf(unknown, 'address')).toMatchObject({ verdict: 'depends' })
  expect(unknown.valid).toBe(true)
})

test('limits of the identity are told as such, and a limit that must be named refuses nothing', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  await workspace.post('identities.createIdentity', {
    externalId: 'user_1',
    ratelimits: [{ name: 'tokens', limit: 1, duration: 60_000 }],
  })
  const { keyId, key } = await makeKey(workspace, apiId, { externalId: 'user_1' })
  await verify(key, { ratelimits: [{ name: 'tokens' }] })
  const told = await explain(workspace, keyId)
  expect(told.code).toBe('VALID')
  expect(checkOf(told, 'ratelimit')).toMatchObject({
    verdict: 'depends',
    limit: { name: 'tokens', owner: 'identity', remaining: 0 },
  })
  expect((await verify(key)).code).toBe('VALID')
})

test('a refill that is due passes, as the next verification adds it; before, its time is told', async () => {
  const workspace = await server.workspace()
  const refill = { interval: 'daily', amount: 100 }
  const fields = { remaining: 1, refill }
  const { keyId, key } = await makeKey(workspace, await makeApi(workspace), fields)
  await verify(key)
  const midnight = now - (now % DAY_MS) + DAY_MS
  const empty = await explain(workspace, keyId)
  expect(empty.code).toBe('USAGE_EXCEEDED')
  expect(checkOf(empty, 'credits').credits).toEqual({
    remaining: 0,
    refill: { amount: 100, dueAt: midnight },
  })
  now = midnight + 1
  const due = await explain(workspace, keyId)
  expect(checkOf(due, 'credits')).toMatchObject({ verdict: 'passes', credits: { refill: { dueAt: now } } })
  expect(await verify(key)).toMatchObject({ code: 'VALID', remaining: 99 })
})

test('tags are held to the bounds of verification, and change nothing', async () => {
  const workspace = await server.workspace()
  const { keyId, key } = await makeKey(workspace, await makeApi(workspace))
  expect(await explain(workspace, keyId, { tags: ['web', 'e'.repeat(128)] })).toEqual(
    await explain(workspace, keyId),
  )
  for (const tags of [['web', ''], ['e'.repeat(129)], Array(11).fill('web'), 'web']) {
    const told = refusalOf(await server.post('keys.explainKey', { keyId, tags }, workspace.rootKey))
    expect(told).toMatchObject({ status: 400, message: expect.stringMatching(/^tags/) })
    expect(refusalOf(await server.post('keys.verifyKey', { key, tags }))).toEqual(told)
  }
})

test('no address and no permission query that nobody could send, and no key that does not exist', async () => {
  const workspace = await server.workspace()
  const { keyId } = await makeKey(workspace, await makeApi(workspace))
  const ask = async (body: object) => (await server.post('keys.explainKey', body, workspace.rootKey)).status
  expect(await ask({ keyId, ipAddress: 'home' })).toBe(400)
  expect(await ask({ keyId, ipAddress: '10.0.0.0/8' })).toBe(400)
  expect(await ask({ keyId, authorization: { permissions: { xor: [] } } })).toBe(400)
  expect(await ask({ keyId: 'key_none' })).toBe(404)
  await workspace.post('keys.deleteKey', { keyId })
  expect(await ask({ keyId })).toBe(404)
})
