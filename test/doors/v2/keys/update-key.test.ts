import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../../support/server.ts'
import { countStatements } from '../../../support/statements.ts'
import { SLOW_MS } from '../../../support/timeout.ts'
import { callV2, commonCases, dataOf, refusalOf } from '../common-cases.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
let mine: TestWorkspace
let apiId: string
beforeAll(async () => {
  server = await startTestServer()
  mine = await server.workspace()
  apiId = (await mine.post('apis.createApi', { name: 'my api' })).apiId
})
afterAll(async () => await server[Symbol.asyncDispose]())

const INVALID: [number, string] = [400, 'unkey/application/invalid_input']
const NOT_FOUND: [number, string] = [404, 'unkey/data/key_not_found']
const call = (name: string, body: Json, rootKey = mine.rootKey) => callV2(server, name, body, rootKey)

async function start(fields: Json = {}) {
  const { keyId, key } = await dataOf(call('keys.createKey', { apiId, ...fields }))
  const send = (body: Json, rootKey?: string) => call('keys.updateKey', { keyId, ...body }, rootKey)
  return {
    keyId,
    send,
    update: async (body: Json) => expect(await dataOf(send(body))).toEqual({}),
    get: () => dataOf(call('keys.getKey', { keyId })),
    change: (operation: string, value?: number | null) =>
      call('keys.updateCredits', { keyId, operation, ...(value === undefined ? {} : { value }) }),
    verify: async () => (await server.post('keys.verifyKey', { key })).body,
  }
}

const limitOf = (name: string, limit = 10) => ({ name, limit, duration: 60_000, autoApply: false })
const byName = (a: Json, b: Json) => a.name.localeCompare(b.name)
const namesOf = (limits: Json[] = []) => limits.map(({ name }) => name)

describe('keys.updateKey', () => {
  commonCases(async () => {
    const { keyId } = await start()
    return {
      server,
      name: 'keys.updateKey',
      rootKey: mine.rootKey,
      permissions: [`api.${apiId}.update_key`],
      body: () => ({ keyId, name: 'new name' }),
    }
  })

  test.each<[string, unknown, unknown]>([
    ['name', 'a name', 'another'],
    ['meta', { a: 1, b: { c: [] } }, { d: 1 }],
    ['expires', 4_000_000_000_000, 4_100_000_000_000],
  ])('%s stays when absent, is cleared by null, and replaced by a value', async (field, before, after) => {
    const { get, update } = await start({ [field]: before })
    await update({})
    expect((await get())[field]).toEqual(before)
    await update({ [field]: after })
    expect((await get())[field]).toEqual(after)
    await update({ [field]: null })
    expect(await get()).not.toHaveProperty(field)
  })

  test('externalId stays when absent, disconnects by null, and connects to one identity, new or not', async () => {
    const { get, update } = await start({ externalId: 'before' })
    await update({})
    expect((await get()).identity.externalId).toBe('before')
    await update({ externalId: 'after' })
    const { identity } = await get()
    expect(identity.externalId).toBe('after')
    await update({ externalId: null })
    expect(await get()).not.toHaveProperty('identity')
    await update({ externalId: 'after' })
    expect((await get()).identity.id).toBe(identity.id)
  })

  test('the same new external id from many calls at once is one identity', async () => {
    const keys = await Promise.all(Array.from({ length: 10 }, () => start()))
    await Promise.all(keys.map(({ update }) => update({ externalId: 'at_once' })))
    const ids = await Promise.all(keys.map(async ({ get }) => (await get()).identity.id))
    expect(new Set(ids).size).toBe(1)
  })

  const REFILL = { interval: 'daily', amount: 100 }
  test.each<[string, Json, Json]>([
    ['{}', {}, { remaining: 10, refill: REFILL }],
    ['credits {}', { credits: {} }, { remaining: 10, refill: REFILL }],
    ['credits null', { credits: null }, undefined],
    ['remaining null', { credits: { remaining: null } }, undefined],
    ['remaining null and refill null', { credits: { remaining: null, refill: null } }, undefined],
    ['refill null', { credits: { refill: null } }, { remaining: 10 }],
    ['remaining 5', { credits: { remaining: 5 } }, { remaining: 5, refill: REFILL }],
    ['remaining 0 and refill null', { credits: { remaining: 0, refill: null } }, { remaining: 0 }],
    [
      'another refill',
      { credits: { refill: { interval: 'monthly', amount: 7, refillDay: 4 } } },
      { remaining: 10, refill: { interval: 'monthly', amount: 7, refillDay: 4 } },
    ],
  ])('of a key with 10 credits and a refill, %s', async (_, body, credits) => {
    const { get, update } = await start({ credits: { remaining: 10, refill: REFILL } })
    await update(body)
    expect((await get()).credits).toEqual(credits)
  })

  test.each<[string, Json]>([
    ['a daily refill with a day', { refill: { ...REFILL, refillDay: 4 } }],
    ['a monthly refill without one', { refill: { interval: 'monthly', amount: 1 } }],
    ['a refill of no credits at all', { remaining: null, refill: REFILL }],
    ['an unknown field', { more: 1 }],
  ])('%s is a 400 and changes nothing', async (_, credits) => {
    const { get, send } = await start({ credits: { remaining: 10, refill: REFILL } })
    expect(await refusalOf(send({ name: 'not set', credits }))).toEqual(INVALID)
    expect(await get()).toMatchObject({ credits: { remaining: 10, refill: REFILL } })
    expect(await get()).not.toHaveProperty('name')
  })

  test('the detail of a daily refill with a day says that it must not be provided', async () => {
    const { send } = await start({ credits: { remaining: 10 } })
    const { body } = await send({ credits: { refill: { ...REFILL, refillDay: 4 } } })
    expect(body.error.detail).toContain('must not be provided')
  })

  /** In the reference the next midnight would limit a key that has no limit. */
  test('a refill of a key without credits is a 400, unless it gets credits by the same call', async () => {
    const { get, send, update } = await start()
    expect(await refusalOf(send({ name: 'not set', credits: { refill: REFILL } }))).toEqual(INVALID)
    expect(await get()).not.toHaveProperty('name')
    await update({ credits: { remaining: 1, refill: REFILL } })
    expect((await get()).credits).toEqual({ remaining: 1, refill: REFILL })
  })

  test('the next verification sees new credits, cached or not', async () => {
    const { update, verify } = await start({ credits: { remaining: 1 } })
    expect((await verify()).remaining).toBe(0)
    expect((await verify()).code).toBe('USAGE_EXCEEDED')
    await update({ credits: { remaining: 5 } })
    expect((await verify()).remaining).toBe(4)
    await update({ credits: null })
    expect(await verify()).not.toHaveProperty('remaining')
  })

  test('limits are replaced as a set; equal names keep their id, an empty list removes all', async () => {
    const { get, update } = await start({ ratelimits: [limitOf('aaa'), limitOf('bbb'), limitOf('default')] })
    const [, before] = (await get()).ratelimits
    await update({ ratelimits: [limitOf('ccc'), { ...limitOf('bbb', 3), autoApply: true }] })
    expect((await get()).ratelimits.toSorted(byName)).toEqual([
      { ...before, limit: 3, autoApply: true },
      { id: expect.stringMatching(/^rl_/), ...limitOf('ccc') },
    ])
    await update({ name: 'limits stay' })
    expect(namesOf((await get()).ratelimits).sort()).toEqual(['bbb', 'ccc'])
    await update({ ratelimits: [] })
    expect(await get()).not.toHaveProperty('ratelimits')
  })

  test('many sets of limits at once leave one of them, whole and without repeated names', async () => {
    const { get, update } = await start({ ratelimits: [limitOf('default')] })
    const sets = Array.from({ length: 16 }, (_, set) => [
      limitOf('same', set + 1),
      limitOf(`only ${set % 5}`, set + 1),
    ])
    await Promise.all(sets.map((ratelimits) => update({ ratelimits })))
    const { ratelimits } = await get()
    expect(ratelimits).toHaveLength(2)
    const [same, only] = ratelimits.toSorted(byName).reverse()
    expect([same.name, only.name]).toEqual(['same', `only ${(same.limit - 1) % 5}`])
    expect(only.limit).toBe(same.limit)
  })

  test('two limits of one name are a 400', async () => {
    const { get, send } = await start({ ratelimits: [limitOf('stays')] })
    expect(await refusalOf(send({ ratelimits: [limitOf('twice'), limitOf('twice')] }))).toEqual(INVALID)
    expect(namesOf((await get()).ratelimits)).toEqual(['stays'])
  })

  test('permissions and roles are replaced with the right to update keys alone; permissions are created', async () => {
    for (const name of ['r.one', 'r.two']) await mine.post('permissions.createRole', { name })
    const { get, send, update } = await start({ permissions: ['p.one'], roles: ['r.one'] })
    const rootKey = await mine.rootKeyWith(`api.${apiId}.update_key`)
    await dataOf(send({ permissions: ['p.two', 'p.three'], roles: ['r.two'] }, rootKey))
    expect(await get()).toMatchObject({ permissions: ['p.three', 'p.two'], roles: ['r.two'] })
    await update({ name: 'both stay' })
    expect(await get()).toMatchObject({ permissions: ['p.three', 'p.two'], roles: ['r.two'] })
    await update({ permissions: [], roles: [] })
    expect(await get()).not.toHaveProperty('permissions')
    expect(await get()).not.toHaveProperty('roles')
  })

  test('a role that does not exist is a 404 that names it, and nothing is changed', async () => {
    const { get, send } = await start({ credits: { remaining: 5 } })
    const before = await get()
    const answer = await send({
      roles: ['nobody'],
      permissions: ['not.made'],
      name: 'not set',
      credits: null,
      ratelimits: [limitOf('not set')],
    })
    expect(await refusalOf(answer)).toEqual([404, 'unkey/data/role_not_found'])
    expect(answer.body.error.detail).toContain('nobody')
    expect(await get()).toEqual(before)
    const all: Json[] = await mine.get('permissions.listPermissions')
    expect(namesOf(all)).not.toContain('not.made')
  })

  test.each(['enabled', 'ratelimits', 'permissions', 'roles', 'keyId'])('%s null is a 400', async (field) => {
    const { send } = await start()
    expect(await refusalOf(send({ [field]: null }))).toEqual(INVALID)
  })

  test('deleted, foreign and unknown keys are not found; a right on another API is not enough', async () => {
    const { keyId, send } = await start()
    expect(await refusalOf(send({ name: 'a' }, await mine.rootKeyWith('api.api_other.update_key')))).toEqual([
      403,
      'unkey/authorization/insufficient_permissions',
    ])
    const other = await server.workspace()
    expect(await refusalOf(send({ name: 'a' }, other.rootKey))).toEqual(NOT_FOUND)
    expect(await refusalOf(send({ keyId: 'key_unknown' }))).toEqual(NOT_FOUND)
    await call('keys.deleteKey', { keyId })
    expect(await refusalOf(send({ name: 'a' }))).toEqual(NOT_FOUND)
  })

  test('fifty limits and permissions make no more statements than two', async () => {
    const { update } = await start()
    const bodyOf = (count: number, kind: string) => ({
      ratelimits: Array.from({ length: count }, (_, i) => limitOf(`${kind} ${i}`)),
      permissions: Array.from({ length: count }, (_, i) => `${kind}.${i}`),
    })
    await update(bodyOf(1, 'before'))
    const two = await countStatements(server, () => update(bodyOf(2, 'two')))
    expect(await countStatements(server, () => update(bodyOf(50, 'many')))).toBe(two)
  })
})

describe('keys.updateCredits', () => {
  commonCases(async () => {
    const { keyId } = await start({ credits: { remaining: 5 } })
    return {
      server,
      name: 'keys.updateCredits',
      rootKey: mine.rootKey,
      permissions: ['api.*.update_key'],
      body: () => ({ keyId, operation: 'increment', value: 1 }),
    }
  })

  test('set, increment and decrement answer the credits after the change, with the refill', async () => {
    const refill = { interval: 'monthly', amount: 3, refillDay: 9 }
    const { change, get, verify } = await start({ credits: { remaining: 1, refill } })
    expect(await dataOf(change('set', 50))).toEqual({ remaining: 50, refill })
    expect(await dataOf(change('increment', 10))).toEqual({ remaining: 60, refill })
    expect((await verify()).remaining).toBe(59)
    expect(await dataOf(change('decrement', 100))).toEqual({ remaining: 0, refill })
    expect((await verify()).code).toBe('USAGE_EXCEEDED')
    expect(await dataOf(change('set', 0))).toEqual({ remaining: 0, refill })
    expect((await get()).credits).toEqual({ remaining: 0, refill })
  })

  /** Without a value the reference keeps the refill, and the next midnight limits a key that has no limit. */
  test.each([null, undefined])('set with the value %p ends the count and the refill', async (value) => {
    const { change, get } = await start({ credits: { remaining: 1, refill: REFILL } })
    expect(await dataOf(change('set', value))).toEqual({ remaining: null })
    expect(await get()).not.toHaveProperty('credits')
    expect(await dataOf(change('set', 4))).toEqual({ remaining: 4 })
  })
  const REFILL = { interval: 'daily', amount: 9 }

  test.each([null, undefined])('increment and decrement with the value %p are a 400', async (value) => {
    const { change, get } = await start({ credits: { remaining: 2 } })
    for (const operation of ['increment', 'decrement'])
      expect(await refusalOf(change(operation, value))).toEqual(INVALID)
    expect((await get()).credits).toEqual({ remaining: 2 })
  })

  test('increment and decrement of a key without credits, beyond 2^53 - 1, or unknown operations are a 400', async () => {
    const unlimited = await start()
    for (const operation of ['increment', 'decrement'])
      expect(await refusalOf(unlimited.change(operation, 1))).toEqual(INVALID)
    const { change } = await start({ credits: { remaining: 2 } })
    expect(await refusalOf(change('increment', Number.MAX_SAFE_INTEGER))).toEqual(INVALID)
    for (const operation of ['add', '', 'SET']) expect(await refusalOf(change(operation, 1))).toEqual(INVALID)
    expect(await refusalOf(change('set', -1))).toEqual(INVALID)
  })

  test('the key is found before the value is looked at', async () => {
    const body = { keyId: 'key_unknown', operation: 'increment' }
    expect(await refusalOf(call('keys.updateCredits', body))).toEqual(NOT_FOUND)
  })
})
