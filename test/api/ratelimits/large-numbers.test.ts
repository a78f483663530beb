import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const MOST = Number.MAX_SAFE_INTEGER
const MONTH_MS = 30 * 24 * 3_600_000
let now = Date.UTC(2030, 0, 15, 12)
let server: TestServer
beforeAll(async () => {
  server = await startTestServer({ clock: () => now })
})
afterAll(() => server[Symbol.asyncDispose]())

/** Findings 5.1: model tokens are counted in billions. */
test.each([2 ** 31, 10_000_000_000, 2 ** 32 + 1, MOST])(
  'ratelimits.limit counts up to %d exactly, one by one at the end',
  async (limit) => {
    const { rootKey } = await server.workspace()
    const take = async (cost: number) => {
      const body = { identifier: 'user_1', limit, duration: MONTH_MS, cost }
      const { success, remaining } = (await server.post('ratelimits.limit', body, rootKey)).body
      return [success, remaining]
    }
    expect(await take(limit - 3)).toEqual([true, 3])
    expect(await take(4)).toEqual([false, 3])
    expect(await take(MOST)).toEqual([false, 3])
    expect(await take(2)).toEqual([true, 1])
    expect(await take(0)).toEqual([true, 1])
    expect(await take(1)).toEqual([true, 0])
    expect(await take(1)).toEqual([false, 0])
    expect(await take(0)).toEqual([true, 0])
  },
)

test('async calls, multiLimit and overrides count as high', async () => {
  const { rootKey, post, get } = await server.workspace()
  const body = { namespace: 'tokens', identifier: 'user_1', limit: 10, duration: 60_000, cost: MOST - 1 }
  await post('ratelimits.createNamespace', { name: 'tokens' })
  const override = { namespaceName: 'tokens', identifier: 'user_1' }
  await post('ratelimits.setOverride', { ...override, limit: MOST, duration: MONTH_MS })
  expect(await get('ratelimits.getOverride', override)).toMatchObject({ limit: MOST })
  const many = await server.post('ratelimits.multiLimit', [body, { ...body, cost: 1 }, body], rootKey)
  expect(
    many.body.map(({ success, remaining }: { success: boolean; remaining: number }) => [success, remaining]),
  ).toEqual([
    [true, 1],
    [true, 0],
    [false, 0],
  ])
  const late = { ...body, identifier: 'user_2', limit: MOST, async: true }
  expect((await server.post('ratelimits.limit', late, rootKey)).body).toMatchObject({
    success: true,
    remaining: 1,
  })
  expect((await server.post('ratelimits.limit', late, rootKey)).body).toMatchObject({ success: false })
})

test('limits of keys and identities, credits and refills are as high, and exact', async () => {
  const { post, get } = await server.workspace()
  const { apiId } = await post('apis.createApi', { name: 'large' })
  const { identityId } = await post('identities.createIdentity', {
    externalId: 'user_1',
    ratelimits: [{ name: 'tokens', limit: MOST, duration: MONTH_MS }],
  })
  expect((await get('identities.getIdentity', { identityId })).ratelimits).toMatchObject([{ limit: MOST }])
  const { keyId, key } = await post('keys.createKey', {
    apiId,
    externalId: 'user_1',
    remaining: MOST - 10,
    refill: { interval: 'daily', amount: MOST },
    ratelimit: { limit: MOST, duration: MONTH_MS },
  })
  const verify = async (cost: number) => {
    const body = { key, remaining: { cost }, ratelimits: [{ name: 'tokens', cost }] }
    return (await server.post('keys.verifyKey', body)).body
  }
  expect(await verify(MOST - 20)).toMatchObject({
    valid: true,
    remaining: 10,
    ratelimit: { limit: MOST, remaining: MOST - 1 },
  })
  expect(await verify(21)).toMatchObject({ valid: false, code: 'RATE_LIMITED' })
  expect(await verify(11)).toMatchObject({ valid: false, code: 'USAGE_EXCEEDED', remaining: 10 })
  expect(await verify(9)).toMatchObject({ valid: true, remaining: 1 })
  expect(await get('keys.getKey', { keyId })).toMatchObject({ remaining: 1, refill: { amount: MOST } })
  // A refill fills up to the bound and must not fail the verification.
  now += 24 * 3_600_000
  expect((await server.post('keys.verifyKey', { key, remaining: { cost: 1 } })).body).toMatchObject({
    valid: true,
    remaining: MOST - 1,
  })
})

/** JavaScript reads some JSON numbers as others: these must not be counted. */
test.each([
  ['1e400', 'Number must be finite'],
  ['-1e400', 'Number must be finite'],
  ['9007199254740992', 'Number must be less than or equal to 9007199254740991'],
  ['9007199254740993', 'Number must be less than or equal to 9007199254740991'],
  ['1e300', 'Number must be less than or equal to 9007199254740991'],
  ['1.5', 'Expected integer, received float'],
  ['-1', 'Number must be greater than or equal to 0'],
])('a cost of %s is a 400 that says why, and takes nothing', async (cost, message) => {
  const { rootKey } = await server.workspace()
  const send = async (cost: string) => {
    const answer = await fetch(`${server.url}/v1/ratelimits.limit`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${rootKey}` },
      body: `{"identifier":"user_1","limit":5,"duration":60000,"cost":${cost}}`,
    })
    return { status: answer.status, body: await answer.json() }
  }
  expect(await send(cost)).toMatchObject({
    status: 400,
    body: { error: { code: 'BAD_REQUEST', message: `cost: ${message}` } },
  })
  expect(await send('0')).toMatchObject({ status: 200, body: { remaining: 5 } })
})
