import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { RefillSchedule } from '../../../../src/verify/refill-schedule.ts'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../../support/server.ts'
import { SLOW_MS } from '../../../support/timeout.ts'
import { callV2, dataOf, refusalOf } from '../common-cases.ts'

/** One key, changed and read through both APIs. */
setDefaultTimeout(SLOW_MS)

const DAY_MS = 24 * 3_600_000
let now = Date.parse('2026-01-30T12:00:00Z')
let server: TestServer
let mine: TestWorkspace
let apiId: string
beforeAll(async () => {
  server = await startTestServer({ clock: () => now })
  mine = await server.workspace()
  apiId = (await mine.post('apis.createApi', { name: 'my api' })).apiId
})
afterAll(async () => await server[Symbol.asyncDispose]())

const v2 = (name: string, body: Json) => dataOf(callV2(server, name, body, mine.rootKey))
const shownByV1 = (keyId: string) => mine.get('keys.getKey', { keyId })
const shownByV2 = (keyId: string) => v2('keys.getKey', { keyId })
const verify = async (key: string) => (await server.post('keys.verifyKey', { key })).body
const runRound = () => new RefillSchedule(server.server.deps.sql, () => now).runRound()

test('a limit made through v1 is named `default` in v2 and applies by itself, and survives other changes', async () => {
  const { keyId } = await mine.post('keys.createKey', { apiId, ratelimit: { limit: 5, duration: 1000 } })
  const shown = [{ id: expect.any(String), name: 'default', limit: 5, duration: 1000, autoApply: true }]
  expect((await shownByV2(keyId)).ratelimits).toEqual(shown)
  await v2('keys.updateKey', { keyId, name: 'a name' })
  expect((await shownByV2(keyId)).ratelimits).toEqual(shown)
  const more = { name: 'requests', limit: 9, duration: 2000, autoApply: false }
  await v2('keys.updateKey', { keyId, ratelimits: [more] })
  expect(await shownByV1(keyId)).not.toHaveProperty('ratelimit')
  await mine.post('keys.updateKey', { keyId, ratelimit: { limit: 7, duration: 3000 } })
  expect((await shownByV2(keyId)).ratelimits).toHaveLength(2)
  expect((await shownByV1(keyId)).ratelimit).toMatchObject({ limit: 7, duration: 3000 })
  await mine.post('keys.updateKey', { keyId, ratelimit: null })
  expect((await shownByV2(keyId)).ratelimits).toMatchObject([more])
})

test('v1 changes one limit that v2 made, by its name: how it applies and the other limits stay', async () => {
  const byDefault = { name: 'default', limit: 5, duration: 1000, autoApply: true }
  const each = { name: 'each', limit: 9, duration: 60_000, autoApply: true }
  const named = { name: 'named', limit: 9, duration: 60_000, autoApply: false }
  const { keyId, key } = await v2('keys.createKey', { apiId, ratelimits: [byDefault, each, named] })
  await verify(key)
  await mine.post('keys.updateKey', { keyId, ratelimit: { name: 'each', limit: 1 } })
  await mine.post('keys.updateKey', { keyId, ratelimit: { name: 'named', limit: 3, duration: 2000 } })
  const byName = (a: Json, b: Json) => a.name.localeCompare(b.name)
  expect((await shownByV2(keyId)).ratelimits.sort(byName)).toMatchObject([
    byDefault,
    { ...each, limit: 1 },
    { ...named, limit: 3, duration: 2000 },
  ])
  expect((await shownByV1(keyId)).ratelimit).toMatchObject({ limit: 5 })
  expect(await verify(key)).toMatchObject({ code: 'RATE_LIMITED' }) // what was counted before still is
  const { events } = await mine.get('audit.listEvents', { resourceId: keyId, order: 'newestFirst' })
  expect(JSON.stringify(events)).toContain('"named"')

  const unknown = { keyId, name: 'not stored', ratelimit: { name: 'other', limit: 1, duration: 1000 } }
  const { status, body } = await server.post('keys.updateKey', unknown, mine.rootKey)
  expect([status, body.error.message]).toEqual([400, 'ratelimit.name: the key has no limit other'])
  expect((await shownByV2(keyId)).ratelimits).toHaveLength(3)
  expect(await shownByV1(keyId)).not.toHaveProperty('name')
})

test('what only v1 knows is kept by v2, and a new external id also moves v1’s owner', async () => {
  const { keyId } = await mine.post('keys.createKey', { apiId, environment: 'live', externalId: 'one' })
  await v2('keys.updateKey', { keyId, name: 'a name', meta: { a: 1 } })
  expect(await shownByV1(keyId)).toMatchObject({ environment: 'live', ownerId: 'one', name: 'a name' })
  for (const field of ['environment', 'ownerId', 'apiId', 'workspaceId', 'remaining', 'refill'])
    expect(await shownByV2(keyId)).not.toHaveProperty(field)
  await v2('keys.updateKey', { keyId, externalId: 'two' })
  expect(await shownByV1(keyId)).toMatchObject({ environment: 'live', ownerId: 'two' })
  await v2('keys.updateKey', { keyId, externalId: null })
  expect(await shownByV1(keyId)).not.toHaveProperty('ownerId')
})

test('names and external ids that v2 would refuse in a request are shown as they are', async () => {
  const long = 'a'.repeat(200)
  await mine.post('permissions.createPermission', { name: long })
  await mine.post('permissions.createRole', { name: `role ${long}` })
  const { keyId } = await mine.post('keys.createKey', {
    apiId,
    externalId: 'with blanks, and more',
    permissions: [long],
    roles: [`role ${long}`],
  })
  expect(await shownByV2(keyId)).toMatchObject({
    identity: { externalId: 'with blanks, and more' },
    permissions: [long],
    roles: [`role ${long}`],
  })
})

test('a refill shows in both APIs the same, whichever wrote it', async () => {
  const monthly = { interval: 'monthly', amount: 10, refillDay: 15 }
  const byV1 = await mine.post('keys.createKey', { apiId, remaining: 5, refill: monthly })
  const byV2 = await v2('keys.createKey', { apiId, credits: { remaining: 5, refill: monthly } })
  for (const { keyId } of [byV1, byV2]) {
    expect(await shownByV1(keyId)).toMatchObject({ remaining: 5, refill: monthly })
    expect((await shownByV2(keyId)).credits).toEqual({ remaining: 5, refill: monthly })
  }
})

test('a refill made through v1 adds, one made through v2 sets, by a verification and on schedule', async () => {
  const refill = { interval: 'daily', amount: 10 }
  const make = async (remaining: number): Promise<Json[]> => [
    await mine.post('keys.createKey', { apiId, remaining, refill }),
    await v2('keys.createKey', { apiId, credits: { remaining, refill } }),
  ]
  const [verified, scheduled, rich] = [await make(4), await make(4), await make(40)]
  now += DAY_MS
  const left = async (keys: Json[]) =>
    await Promise.all(keys.map(async ({ key }) => (await verify(key)).remaining))
  expect(await left(verified)).toEqual([13, 9])
  await runRound()
  const remaining = async (keys: Json[]) =>
    await Promise.all(keys.map(async ({ keyId }) => (await shownByV2(keyId)).credits.remaining))
  expect(await remaining(scheduled)).toEqual([14, 10])
  expect(await remaining(rich)).toEqual([50, 40])
  expect(await remaining(verified)).toEqual([13, 9])
})

test('whichever API wrote the refill last decides, and changing only the credits does not', async () => {
  const refill = { interval: 'daily', amount: 10 }
  const { keyId, key } = await mine.post('keys.createKey', { apiId, remaining: 5, refill })
  await v2('keys.updateKey', { keyId, credits: { refill } })
  await mine.post('keys.updateKey', { keyId, remaining: 6 })
  await mine.post('keys.updateRemaining', { keyId, op: 'decrement', value: 1 })
  now += DAY_MS
  expect((await verify(key)).remaining).toBe(9) // set to 10
  await mine.post('keys.updateKey', { keyId, refill })
  await v2('keys.updateKey', { keyId, credits: { remaining: 8 } })
  await v2('keys.updateCredits', { keyId, operation: 'increment', value: 1 })
  now += DAY_MS
  expect((await verify(key)).remaining).toBe(18) // 10 added
})

/** Several processes and the schedule meet at midnight: the first refills, in the mode of the key. */
test('at the due instant, verifications at once and the schedule refill once', async () => {
  const refill = { interval: 'daily', amount: 100 }
  const credits = { remaining: 20, refill }
  const setting = await v2('keys.createKey', { apiId, credits })
  const adding = await mine.post('keys.createKey', { apiId, ...credits })
  for (const { key } of [setting, adding]) await verify(key)
  now = Math.ceil(now / DAY_MS) * DAY_MS
  const verifications = [setting, adding].flatMap(({ key }) => Array.from({ length: 10 }, () => verify(key)))
  const [answers] = await Promise.all([Promise.all(verifications), runRound(), runRound()])
  expect(answers.every(({ code }) => code === 'VALID')).toBe(true)
  expect((await shownByV2(setting.keyId)).credits.remaining).toBe(90)
  expect((await shownByV2(adding.keyId)).credits.remaining).toBe(109)
})

test('a rerolled key keeps all its limits and the mode of its refill; its credits are changed on its successor', async () => {
  const refill = { interval: 'daily', amount: 10 }
  const ratelimits = ['aaa', 'bbb'].map((name) => ({ name, limit: 5, duration: 1000, autoApply: false }))
  const { keyId } = await v2('keys.createKey', { apiId, credits: { remaining: 5, refill }, ratelimits })
  const made = await mine.post('keys.rerollKey', { keyId, overlap: 2 * DAY_MS })
  const names = (await shownByV2(made.keyId)).ratelimits.map(({ name }: Json) => name)
  expect(names.sort()).toEqual(['aaa', 'bbb'])
  for (const body of [
    { operation: 'set', value: 1 },
    { operation: 'set', value: null },
  ]) {
    const answer = callV2(server, 'keys.updateCredits', { keyId, ...body }, mine.rootKey)
    expect(await refusalOf(answer)).toEqual([412, 'unkey/application/precondition_failed'])
  }
  const answer = callV2(server, 'keys.updateKey', { keyId, credits: null }, mine.rootKey)
  expect(await refusalOf(answer)).toEqual([412, 'unkey/application/precondition_failed'])
  now += DAY_MS
  expect((await verify(made.key)).remaining).toBe(9)
})

test('v2 ends credits and refill, where v1 keeps the refill for later', async () => {
  const refill = { interval: 'daily', amount: 10 }
  const { keyId } = await mine.post('keys.createKey', { apiId, remaining: 5, refill })
  await mine.post('keys.updateRemaining', { keyId, op: 'set', value: null })
  expect(await shownByV2(keyId)).not.toHaveProperty('credits')
  expect((await shownByV1(keyId)).refill).toMatchObject(refill)
  await v2('keys.updateCredits', { keyId, operation: 'set', value: null })
  expect(await shownByV1(keyId)).not.toHaveProperty('refill')
})
