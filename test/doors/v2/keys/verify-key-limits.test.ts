import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { makeKey } from '../../../support/fixtures.ts'
import { startTestServer, type TestServer } from '../../../support/server.ts'
import { SLOW_MS } from '../../../support/timeout.ts'
import { callV2, refusalOf } from '../common-cases.ts'
import { addLimit, type Fixture, type Limit, makeFixture, verify as verifyAt } from './verify-key-support.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
let mine: Fixture
const MINUTE = 60_000
const MONTH = 30 * 86_400_000
/** The server's time; at the beginning of a window of each length here. */
let now = MONTH * 690
beforeAll(async () => {
  server = await startTestServer({ clock: () => now })
  mine = await makeFixture(server)
})
afterAll(async () => await server[Symbol.asyncDispose]())

const verify = (key: string, ...ratelimits: object[]) =>
  verifyAt(server, mine, key, ratelimits.length === 0 ? {} : { ratelimits })
const limited = (key: string, ratelimits: object[]) =>
  callV2(server, 'keys.verifyKey', { key, ratelimits }, mine.rootKey)

/** A key with limits of its own, perhaps of an identity with limits. */
async function newKey(limits: Limit[], { of, ...fields }: { of?: string; [field: string]: unknown } = {}) {
  const made = await makeKey(mine, mine.apiId, { ...fields, ...(of === undefined ? {} : { externalId: of }) })
  const ids: string[] = []
  for (const limit of limits) ids.push(await addLimit(server, { keyId: made.keyId }, limit))
  return { ...made, ids }
}
async function newIdentity(externalId: string, limits: Limit[]) {
  const { identityId } = await mine.post('identities.createIdentity', { externalId })
  const ids: string[] = []
  for (const limit of limits) ids.push(await addLimit(server, { identityId }, limit))
  return { identityId, ids }
}

/** What the answer says of a limit, by its name. */
const reportOf = (data: { ratelimits?: { name: string }[] }, name: string) =>
  data.ratelimits?.find((each) => each.name === name)
const remainingOf = (data: { ratelimits?: { name: string; remaining: number }[] }) =>
  Object.fromEntries((data.ratelimits ?? []).map(({ name, remaining }) => [name, remaining]))

describe('which limits are checked', () => {
  test('an automatic limit counts at every verification, and the call after its last token is RATE_LIMITED', async () => {
    const { key, keyId, ids } = await newKey([{ name: 'requests', limit: 2 }])
    const report = {
      exceeded: false,
      id: ids[0],
      name: 'requests',
      limit: 2,
      duration: 600_000,
      autoApply: true,
    }
    const reset = now + 600_000
    expect((await verify(key)).ratelimits).toEqual([{ ...report, remaining: 1, reset }])
    expect((await verify(key)).ratelimits).toEqual([{ ...report, remaining: 0, reset }])
    expect(await verify(key)).toEqual({
      valid: false,
      code: 'RATE_LIMITED',
      keyId,
      enabled: true,
      ratelimits: [{ ...report, exceeded: true, remaining: 0, reset }],
    })
    now = reset
    expect(await verify(key)).toMatchObject({ code: 'VALID', ratelimits: [{ remaining: 1 }] })
  })

  test('another limit counts only when it is named, with the cost given', async () => {
    const { key } = await newKey([{ name: 'tokens', limit: 10, autoApply: false }])
    expect(await verify(key)).not.toHaveProperty('ratelimits')
    expect((await verify(key, { name: 'tokens' })).ratelimits).toMatchObject([
      { remaining: 9, autoApply: false },
    ])
    expect(remainingOf(await verify(key, { name: 'tokens', cost: 6 }))).toEqual({ tokens: 3 })
    expect(await verify(key, { name: 'tokens', cost: 4 })).toMatchObject({
      code: 'RATE_LIMITED',
      ratelimits: [{ exceeded: true, remaining: 0 }],
    })
    expect(remainingOf(await verify(key, { name: 'tokens', cost: 0 }))).toEqual({ tokens: 3 })
  })

  test('naming an automatic limit replaces its cost, and counts it once', async () => {
    const { key } = await newKey([{ name: 'requests', limit: 10 }])
    expect(remainingOf(await verify(key, { name: 'requests', cost: 4 }))).toEqual({ requests: 6 })
    expect(remainingOf(await verify(key, { name: 'requests', cost: 0 }))).toEqual({ requests: 6 })
    expect(remainingOf(await verify(key))).toEqual({ requests: 5 })
  })

  test('a limit given with limit and duration needs no other, and has an empty id', async () => {
    const { key } = await newKey([])
    const custom = { name: 'custom', limit: 10, duration: MINUTE, cost: 3 }
    expect((await verify(key, custom)).ratelimits).toEqual([
      {
        exceeded: false,
        id: '',
        name: 'custom',
        limit: 10,
        duration: MINUTE,
        reset: (Math.floor(now / MINUTE) + 1) * MINUTE,
        remaining: 7,
        autoApply: false,
      },
    ])
    // The counter has the name and the duration, not the limit: another limit goes on counting.
    expect(remainingOf(await verify(key, { ...custom, limit: 20 }))).toEqual({ custom: 14 })
    expect(remainingOf(await verify(key, { ...custom, duration: 2 * MINUTE }))).toEqual({ custom: 7 })
  })

  test('a limit given with limit and duration counts for the key, not for its identity as in v1', async () => {
    await newIdentity('ad-hoc', [])
    const [one, two] = [await newKey([], { of: 'ad-hoc' }), await newKey([], { of: 'ad-hoc' })]
    const custom = { name: 'custom', limit: 1, duration: MINUTE }
    expect((await verify(one.key, custom)).code).toBe('VALID')
    expect((await verify(one.key, custom)).code).toBe('RATE_LIMITED')
    expect((await verify(two.key, custom)).code).toBe('VALID')
    const v1 = async (key: string) =>
      (await server.post('keys.verifyKey', { key, ratelimits: [{ ...custom, name: 'in v1' }] })).body.code
    expect([await v1(one.key), await v1(two.key)]).toEqual(['VALID', 'RATE_LIMITED'])
  })

  test('a limit given with limit and duration wins over one of that name', async () => {
    const { key } = await newKey([{ name: 'requests', limit: 1 }])
    const given = { name: 'requests', limit: 5, duration: MINUTE }
    for (const remaining of [4, 3])
      expect(await verify(key, given)).toMatchObject({
        code: 'VALID',
        ratelimits: [{ id: '', limit: 5, duration: MINUTE, remaining }],
      })
    // Half given is not given.
    expect((await verify(key, { name: 'requests', limit: 5 })).ratelimits).toMatchObject([{ limit: 1 }])
    expect((await verify(key, { name: 'requests', duration: MINUTE })).code).toBe('RATE_LIMITED')
  })

  test('limit 0 refuses, a duration below a second counts, duration 0 and one beyond the bound are a 400', async () => {
    const { key } = await newKey([])
    expect(await verify(key, { name: 'none', limit: 0, duration: MINUTE })).toMatchObject({
      code: 'RATE_LIMITED',
      ratelimits: [{ exceeded: true, remaining: 0 }],
    })
    const short = { name: 'short', limit: 1, duration: 10 }
    expect([(await verify(key, short)).code, (await verify(key, short)).code]).toEqual([
      'VALID',
      'RATE_LIMITED',
    ])
    now += 10
    expect((await verify(key, short)).code).toBe('VALID')
    const bounds = { minimum: 0, maximum: 367 * 86_400_000 }
    for (const [keyword, duration] of Object.entries(bounds)) {
      const answer = await limited(key, [{ name: 'bad', limit: 1, duration }])
      expect(await refusalOf(answer)).toEqual([400, 'unkey/application/invalid_input'])
      expect(answer.body.error.errors).toEqual([
        {
          location: `/properties/ratelimits/items/properties/duration/${keyword}`,
          message: expect.stringContaining(`${keyword}: got ${duration}, want `),
        },
      ])
    }
  })

  test('a named limit that nobody has is a 412 that names it, the key and the identity; nothing is counted', async () => {
    const { identityId } = await newIdentity('missing-1', [{ name: 'other', limit: 5, autoApply: false }])
    const one = await newKey([{ name: 'requests', limit: 5 }], { of: 'missing-1', remaining: 5 })
    const two = await newKey([{ name: 'requests', limit: 5 }])
    for (const [{ key, keyId }, parts] of [
      [one, [identityId, 'missing-1']],
      [two, ['no identity']],
    ] as const)
      for (const missing of [
        { name: 'missing' },
        { name: 'missing', cost: 2 },
        { name: 'missing', limit: 3 },
      ]) {
        const answer = await limited(key, [{ name: 'given', limit: 5, duration: MINUTE }, missing])
        expect(await refusalOf(answer)).toEqual([412, 'unkey/application/precondition_failed'])
        for (const part of ['missing', keyId, ...parts]) expect(answer.body.error.detail).toContain(part)
      }
    const after = await verify(one.key, { name: 'given', limit: 5, duration: MINUTE, cost: 0 })
    expect(remainingOf(after)).toEqual({ requests: 4, given: 5 })
    expect(after.credits).toBe(4)
  })

  test('names are 3 characters and more, and at most 100 limits can be named', async () => {
    const { key } = await newKey([])
    const given = (name: string) => ({ name, limit: 1, duration: MINUTE })
    expect(await refusalOf(limited(key, [given('ab')]))).toEqual([400, 'unkey/application/invalid_input'])
    const many = (count: number) => Array.from({ length: count }, (_, i) => given(`limit ${i}`))
    expect((await verify(key, ...many(100))).ratelimits).toHaveLength(100)
    expect(await refusalOf(limited(key, many(101)))).toEqual([400, 'unkey/application/invalid_input'])
    // An unknown field of a limit is dropped.
    expect((await verify(key, { ...given('open'), unknown: 1 })).code).toBe('VALID')
  })
})

describe('limits of an identity', () => {
  test('are shared by its keys, and not with another identity', async () => {
    await newIdentity('team-1', [{ name: 'requests', limit: 3 }])
    await newIdentity('team-2', [{ name: 'requests', limit: 3 }])
    const [one, two] = [await newKey([], { of: 'team-1' }), await newKey([], { of: 'team-1' })]
    const other = await newKey([], { of: 'team-2' })
    expect(remainingOf(await verify(one.key))).toEqual({ requests: 2 })
    expect(remainingOf(await verify(two.key))).toEqual({ requests: 1 })
    expect(remainingOf(await verify(one.key, { name: 'requests', cost: 1 }))).toEqual({ requests: 0 })
    expect((await verify(two.key)).code).toBe('RATE_LIMITED')
    expect(remainingOf(await verify(other.key))).toEqual({ requests: 2 })
  })

  test('give way to a limit of the key of the same name, stricter or laxer, and stay visible', async () => {
    const { ids } = await newIdentity('hidden', [
      { name: 'requests', limit: 2 },
      { name: 'named', limit: 9, autoApply: false },
    ])
    const strict = await newKey([{ name: 'requests', limit: 1 }], { of: 'hidden' })
    const lax = await newKey([{ name: 'requests', limit: 4 }], { of: 'hidden' })
    const plain = await newKey([], { of: 'hidden' })
    const first = await verify(strict.key)
    expect(first.ratelimits).toMatchObject([{ id: strict.ids[0], limit: 1, remaining: 0 }])
    expect(first.identity.ratelimits).toEqual([
      { id: ids[0], name: 'requests', limit: 2, duration: 600_000, autoApply: true },
      { id: ids[1], name: 'named', limit: 9, duration: 600_000, autoApply: false },
    ])
    expect((await verify(strict.key)).code).toBe('RATE_LIMITED')
    for (const remaining of [3, 2, 1, 0])
      expect(remainingOf(await verify(lax.key))).toEqual({ requests: remaining })
    expect((await verify(lax.key)).code).toBe('RATE_LIMITED')
    // Nothing of it was counted for the identity.
    expect(remainingOf(await verify(plain.key))).toEqual({ requests: 1 })
  })

  test('of another name count beside those of the key', async () => {
    await newIdentity('beside', [{ name: 'of-all', limit: 10 }])
    const { key } = await newKey([{ name: 'of-one', limit: 5 }], { of: 'beside' })
    expect(remainingOf(await verify(key))).toEqual({ 'of-one': 4, 'of-all': 9 })
  })

  test('that change count from the next call, with what was used before', async () => {
    await newIdentity('changing', [{ name: 'requests', limit: 5 }])
    const { key } = await newKey([], { of: 'changing' })
    expect(remainingOf(await verify(key))).toEqual({ requests: 4 })
    await mine.post('identities.updateIdentity', {
      externalId: 'changing',
      ratelimits: [{ name: 'requests', limit: 3, duration: 600_000 }],
    })
    const named = await verify(key, { name: 'requests' })
    expect(named.identity.ratelimits).toMatchObject([{ name: 'requests', limit: 3 }])
    expect(remainingOf(named)).toEqual({ requests: 1 })
  })
})

describe('several limits are charged together or not at all', () => {
  /** The reference's own case: who is refused by the minute must not use up the month. */
  test('with 12 a minute and 200 a month, the refused 13th call leaves 188 of the month', async () => {
    const { key } = await newKey([
      { name: 'minute', limit: 12, durationMs: MINUTE },
      { name: 'month', limit: 200, durationMs: MONTH },
    ])
    for (let call = 1; call <= 12; call++)
      expect(remainingOf(await verify(key))).toEqual({ minute: 12 - call, month: 200 - call })
    for (let call = 13; call <= 15; call++) {
      const refused = await verify(key)
      expect(refused.code).toBe('RATE_LIMITED')
      expect(reportOf(refused, 'minute')).toMatchObject({ exceeded: true, remaining: 0 })
      expect(reportOf(refused, 'month')).toMatchObject({ exceeded: false, remaining: 188 })
    }
    now = (Math.floor(now / MINUTE) + 1) * MINUTE
    expect(remainingOf(await verify(key))).toEqual({ minute: 11, month: 187 })
  })

  test('through v1 each is charged by itself', async () => {
    const { key } = await newKey([
      { name: 'minute', limit: 1, durationMs: MINUTE },
      { name: 'month', limit: 200, durationMs: MONTH },
    ])
    const v1 = async () => (await server.post('keys.verifyKey', { key })).body.code
    expect([await v1(), await v1(), await v1()]).toEqual(['VALID', 'RATE_LIMITED', 'RATE_LIMITED'])
    const looked = await verify(key, { name: 'minute', cost: 0 }, { name: 'month', cost: 0 })
    expect(remainingOf(looked)).toEqual({ minute: 0, month: 197 })
  })

  test('limits of key, identity and request stand or fall together', async () => {
    await newIdentity('mixed', [{ name: 'of-all', limit: 10 }])
    const { key } = await newKey([{ name: 'of-one', limit: 10 }], { of: 'mixed' })
    const refusal = { name: 'given', limit: 2, duration: MONTH, cost: 3 }
    const refused = await verify(key, refusal, { name: 'of-one', cost: 4 })
    expect(refused.code).toBe('RATE_LIMITED')
    expect(reportOf(refused, 'given')).toMatchObject({ exceeded: true, remaining: 0, id: '' })
    expect(remainingOf(await verify(key, { ...refusal, cost: 2 }))).toEqual({
      'of-all': 9,
      'of-one': 9,
      given: 0,
    })
  })

  test('of two that refuse both are exceeded', async () => {
    const { key } = await newKey([
      { name: 'one', limit: 1 },
      { name: 'two', limit: 1, durationMs: MONTH },
      { name: 'all', limit: 9 },
    ])
    expect((await verify(key)).code).toBe('VALID')
    const refused = await verify(key)
    for (const name of ['one', 'two'])
      expect(reportOf(refused, name)).toMatchObject({ exceeded: true, remaining: 0 })
    expect(reportOf(refused, 'all')).toMatchObject({ exceeded: false, remaining: 8 })
  })

  test('of many calls at once as many pass as the strictest limit has, and the others count just these', async () => {
    const { key } = await newKey([
      { name: 'hour', limit: 20, durationMs: 60 * MINUTE },
      { name: 'day', limit: 500, durationMs: 1440 * MINUTE },
      { name: 'month', limit: 1000, durationMs: MONTH },
    ])
    const answers = await Promise.all(Array.from({ length: 100 }, () => verify(key)))
    expect(answers.filter(({ code }) => code === 'VALID')).toHaveLength(20)
    expect(answers.filter(({ code }) => code === 'RATE_LIMITED')).toHaveLength(80)
    const looked = await verify(key, ...['hour', 'day', 'month'].map((name) => ({ name, cost: 0 })))
    expect(remainingOf(looked)).toEqual({ hour: 0, day: 480, month: 980 })
  })
})

test('limits refuse before credits are taken; refused credits do not give limits back', async () => {
  const { key } = await newKey([{ name: 'requests', limit: 3 }], { remaining: 1 })
  expect(await verify(key)).toMatchObject({ code: 'VALID', credits: 0, ratelimits: [{ remaining: 2 }] })
  for (const remaining of [1, 0])
    expect(await verify(key)).toMatchObject({
      code: 'USAGE_EXCEEDED',
      credits: 0,
      ratelimits: [{ exceeded: false, remaining }],
    })
  expect(await verify(key)).toMatchObject({ code: 'RATE_LIMITED', credits: 0 })
})
