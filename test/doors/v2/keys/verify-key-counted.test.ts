import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { makeKey } from '../../../support/fixtures.ts'
import { startTestServer, type TestServer } from '../../../support/server.ts'
import { countStatements } from '../../../support/statements.ts'
import { SLOW_MS } from '../../../support/timeout.ts'
import { callV2 } from '../common-cases.ts'
import { type Fixture, makeFixture, verify as verifyAt } from './verify-key-support.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
let mine: Fixture
beforeAll(async () => {
  server = await startTestServer()
  mine = await makeFixture(server)
})
afterAll(async () => await server[Symbol.asyncDispose]())

const verify = (key: string, body: object = {}, of = mine) => verifyAt(server, of, key, body)

/** Usage of the workspace’s API as v1 tells it. */
async function usageOf({ get, apiId }: Fixture, groupBy: string) {
  await server.server.deps.usage.flush()
  return await get('analytics.getVerifications', { apiId, groupBy })
}

test('the verification of a cached key by a cached root key makes no statement', async () => {
  const { key } = await makeKey(mine, mine.apiId, {
    externalId: 'cached',
    ratelimit: { limit: 100, duration: 600_000 },
  })
  const rootKey = await mine.rootKeyWith(`api.${mine.apiId}.verify_key`)
  const call = async () => {
    const given = { name: 'given', limit: 100, duration: 60_000 }
    const tags = ['a']
    expect((await verify(key, { tags, ratelimits: [given] }, { ...mine, rootKey })).code).toBe('VALID')
    expect((await verify('nobody has this', {}, { ...mine, rootKey })).code).toBe('NOT_FOUND')
  }
  await call()
  expect(await countStatements(server, call)).toBe(0)
})

test('every outcome but NOT_FOUND is recorded with its tags, as through v1', async () => {
  const of = await makeFixture(server)
  const { key, keyId } = await makeKey(of, of.apiId, {
    remaining: 3,
    ratelimit: { limit: 4, duration: 600_000_000 },
  })
  const tags = ['path=/a', 'region=eu']
  const codes: string[] = []
  const ask = async (body: object) => codes.push((await verify(key, body, of)).code)
  await ask({ tags })
  await server.post('keys.verifyKey', { key, tags: tags.toReversed() })
  await ask({ tags, permissions: 'nobody' })
  await ask({ tags: ['other'], credits: { cost: 5 } })
  await ask({ credits: { cost: 0 } })
  await ask({ tags })
  await of.post('keys.updateKey', { keyId, enabled: false })
  await ask({})
  expect(codes).toEqual([
    'VALID',
    'INSUFFICIENT_PERMISSIONS',
    'USAGE_EXCEEDED',
    'VALID',
    'RATE_LIMITED',
    'DISABLED',
  ])
  expect((await verify(key, { tags }, mine)).code).toBe('NOT_FOUND')
  // Refused with an error: not an outcome.
  expect((await callV2(server, 'keys.verifyKey', { key, permissions: '(' }, of.rootKey)).status).toBe(400)

  const datapoints: { tags: string[] }[] = await usageOf(of, 'tags')
  const sorted = datapoints.toSorted((a, b) => b.tags.length - a.tags.length || (a.tags < b.tags ? 1 : -1))
  expect(sorted).toMatchObject([
    { tags, valid: 2, insufficientPermissions: 1, rateLimited: 1, total: 4 },
    { tags: ['other'], usageExceeded: 1, total: 1 },
    { tags: [], valid: 1, disabled: 1, total: 2 },
  ])
  expect(await usageOf(of, 'key')).toMatchObject([{ keyId, total: 7 }])
})

test('an identity’s verifications are counted for it', async () => {
  const of = await makeFixture(server)
  const { key } = await makeKey(of, of.apiId, { externalId: 'counted' })
  for (let i = 0; i < 3; i++) await verify(key, {}, of)
  const [datapoint] = await usageOf(of, 'identity')
  expect(datapoint).toMatchObject({ identity: { externalId: 'counted' }, valid: 3 })
})

test('metrics count each outcome, NOT_FOUND included', async () => {
  const countOf = async (outcome: string) => {
    const text = await (await fetch(server.server.metricsUrl)).text()
    const line = new RegExp(`^tollgate_verifications_total\\{outcome="${outcome}"\\} (\\d+)$`, 'm')
    return Number(line.exec(text)?.[1] ?? 0)
  }
  const outcomes = ['VALID', 'NOT_FOUND', 'INSUFFICIENT_PERMISSIONS']
  const before = await Promise.all(outcomes.map(countOf))
  const { key } = await makeKey(mine, mine.apiId)
  for (const body of [{}, {}, { permissions: 'nobody' }]) await verify(key, body)
  for (let i = 0; i < 4; i++) await verify(`nobody ${i}`)
  const after = await Promise.all(outcomes.map(countOf))
  expect(after.map((count, i) => count - (before[i] ?? 0))).toEqual([2, 4, 1])
})
