import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { makeKey } from '../../../support/fixtures.ts'
import { type Json, startTestServer, type TestServer } from '../../../support/server.ts'
import { SLOW_MS } from '../../../support/timeout.ts'
import { callV2, dataOf } from '../common-cases.ts'
import { type Fixture, makeFixture, verify as verifyAt } from './verify-key-support.ts'

setDefaultTimeout(SLOW_MS)

/** Keys that one API makes and another verifies: both work on one store, by their own rules. */
let server: TestServer
let mine: Fixture
const MINUTE = 60_000
const MONTH = 30 * 86_400_000
/** The server's time, at the beginning of a window of each length here. */
const NOW = MONTH * 690
beforeAll(async () => {
  server = await startTestServer({ clock: () => NOW })
  mine = await makeFixture(server)
})
afterAll(async () => await server[Symbol.asyncDispose]())

const v2 = (name: string, body: object): Promise<Json> => dataOf(callV2(server, name, body, mine.rootKey))
const verify = (key: string, body: object = {}) => verifyAt(server, mine, key, body)
const verifyV1 = async (key: string, body: object = {}): Promise<Json> =>
  (await server.post('keys.verifyKey', { key, ...body })).body
const remainingOf = (data: { ratelimits?: { name: string; remaining: number }[] }) =>
  Object.fromEntries((data.ratelimits ?? []).map(({ name, remaining }) => [name, remaining]))

test('a key made through v2 with limits, credits, permissions and an identity verifies through both', async () => {
  await v2('identities.createIdentity', {
    externalId: 'mixed',
    meta: { plan: 'pro' },
    ratelimits: [{ name: 'of-all', limit: 50, duration: MONTH, autoApply: true }],
  })
  const { key, keyId } = await v2('keys.createKey', {
    apiId: mine.apiId,
    name: 'made by v2',
    externalId: 'mixed',
    credits: { remaining: 10 },
    permissions: ['documents.read'],
    ratelimits: [
      { name: 'minute', limit: 12, duration: MINUTE, autoApply: true },
      { name: 'on-request', limit: 3, duration: MINUTE, autoApply: false },
    ],
  })
  const first = await verify(key, { permissions: 'documents.read' })
  expect(first).toMatchObject({ code: 'VALID', keyId, name: 'made by v2', credits: 9 })
  expect(first.permissions).toEqual(['documents.read'])
  expect(first.identity).toMatchObject({ externalId: 'mixed', ratelimits: [{ name: 'of-all' }] })
  expect(remainingOf(first)).toEqual({ minute: 11, 'of-all': 49 })
  const asked = { ratelimits: [{ name: 'on-request', cost: 2 }] }
  expect(remainingOf(await verify(key, asked))).toEqual({ minute: 10, 'of-all': 48, 'on-request': 1 })

  const throughV1 = await verifyV1(key)
  expect(throughV1).toMatchObject({ valid: true, keyId, remaining: 7, ownerId: 'mixed' })
  expect(throughV1.identity).toEqual({
    id: first.identity.id,
    externalId: 'mixed',
    meta: { plan: 'pro' },
  })
  // The counters are the same ones.
  expect(remainingOf(await verify(key))).toEqual({ minute: 8, 'of-all': 46 })
})

test('a key made through v1 has its limit as `default` in v2, counted by both', async () => {
  const { key } = await makeKey(mine, mine.apiId, {
    remaining: 5,
    ownerId: 'owner-of-v1',
    environment: 'test',
    ratelimit: { limit: 5, duration: MINUTE },
  })
  expect((await verifyV1(key)).ratelimit.remaining).toBe(4)
  const data = await verify(key)
  expect(data).toMatchObject({ code: 'VALID', credits: 3 })
  expect(data.ratelimits).toMatchObject([{ name: 'default', remaining: 3, autoApply: true }])
  for (const invisible of ['ownerId', 'environment', 'remaining', 'ratelimit', 'requestId'])
    expect(data).not.toHaveProperty(invisible)
})

test('what v2 changes of a key and its identity counts from the next call', async () => {
  const limit = (name: string, max: number) => ({ name, limit: max, duration: MONTH, autoApply: true })
  await v2('identities.createIdentity', { externalId: 'changed', ratelimits: [limit('of-all', 9)] })
  const { key, keyId } = await v2('keys.createKey', {
    apiId: mine.apiId,
    externalId: 'changed',
    ratelimits: [limit('first', 5)],
  })
  expect(remainingOf(await verify(key))).toEqual({ first: 4, 'of-all': 8 })
  await v2('keys.updateKey', { keyId, ratelimits: [limit('second', 3)] })
  expect(remainingOf(await verify(key))).toEqual({ second: 2, 'of-all': 7 })
  await v2('identities.updateIdentity', {
    identity: 'changed',
    ratelimits: [{ ...limit('of-all', 20), autoApply: false }],
  })
  const after = await verify(key)
  expect(remainingOf(after)).toEqual({ second: 1 })
  expect(after.identity.ratelimits).toMatchObject([{ name: 'of-all', limit: 20, autoApply: false }])
  await v2('keys.updateKey', { keyId, enabled: false })
  expect(await verify(key)).toMatchObject({ code: 'DISABLED', enabled: false })
  expect(await verifyV1(key)).toMatchObject({ code: 'DISABLED', enabled: false })
})

test('credits that v2 sets or removes are what the next call has', async () => {
  const { key, keyId } = await v2('keys.createKey', { apiId: mine.apiId, credits: { remaining: 0 } })
  expect(await verify(key)).toMatchObject({ code: 'USAGE_EXCEEDED', credits: 0 })
  await v2('keys.updateCredits', { keyId, operation: 'increment', value: 2 })
  expect(await verify(key)).toMatchObject({ code: 'VALID', credits: 1 })
  await v2('keys.updateCredits', { keyId, operation: 'set', value: null })
  expect(await verify(key)).not.toHaveProperty('credits')
  expect(await verifyV1(key)).not.toHaveProperty('remaining')
})
