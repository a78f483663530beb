import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { makeApi, makeKey } from '../../../support/fixtures.ts'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../../support/server.ts'
import { SLOW_MS } from '../../../support/timeout.ts'
import { callV2, commonCases, dataOf, refusalOf } from '../common-cases.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
let mine: TestWorkspace
let apiId: string
/** The server's time. */
const now = 1_900_000_000_123
beforeAll(async () => {
  server = await startTestServer({ clock: () => now })
  mine = await server.workspace()
  apiId = await makeApi(mine)
})
afterAll(async () => await server[Symbol.asyncDispose]())

const INVALID: [number, string] = [400, 'unkey/application/invalid_input']
const FORBIDDEN: [number, string] = [403, 'unkey/authorization/insufficient_permissions']
const send = (body: Json, rootKey = mine.rootKey) => callV2(server, 'keys.rerollKey', body, rootKey)
const get = (keyId: string) => dataOf(callV2(server, 'keys.getKey', { keyId }, mine.rootKey))
const codeOf = async (key: string) =>
  (await dataOf(callV2(server, 'keys.verifyKey', { key }, mine.rootKey))).code

describe('keys.rerollKey', () => {
  commonCases(() => ({
    server,
    name: 'keys.rerollKey',
    rootKey: mine.rootKey,
    permissions: [`api.${apiId}.create_key`],
    body: async () => ({ keyId: (await makeKey(mine, apiId)).keyId, expiration: 60_000 }),
  }))

  test('the new key has all attributes of the old one, another id and another text', async () => {
    await mine.post('permissions.createRole', { name: 'reader' })
    const body = {
      apiId,
      name: 'a name',
      prefix: 'my_app',
      externalId: 'user_1',
      meta: { plan: 'pro' },
      expires: now + 86_400_000,
      credits: { remaining: 7, refill: { interval: 'monthly', amount: 9, refillDay: 3 } },
      ratelimits: [
        { name: 'requests', limit: 5, duration: 60_000, autoApply: true },
        { name: 'tokens', limit: 100, duration: 60_000, autoApply: false },
      ],
      roles: ['reader'],
      permissions: ['docs.read'],
    }
    const old = await dataOf(callV2(server, 'keys.createKey', body, mine.rootKey))
    const before = await get(old.keyId)
    const made = await dataOf(send({ keyId: old.keyId, expiration: 60_000 }))
    expect(made).toEqual({ keyId: expect.stringMatching(/^key_/), key: expect.stringMatching(/^my_app_/) })
    const after = await get(made.keyId)
    const shown = ({ keyId: _, start, createdAt, updatedAt, ratelimits, ...rest }: Json) => ({
      ...rest,
      ratelimits: ratelimits.map(({ id, ...limit }: Json) => limit),
    })
    expect(shown(after)).toEqual(shown(before))
    expect(after.keyId).not.toBe(before.keyId)
    const ids = [before, after].flatMap(({ ratelimits }) => ratelimits.map(({ id }: Json) => id))
    expect(new Set(ids).size).toBe(4)
    for (const key of [old.key, made.key]) expect(await codeOf(key)).toBe('VALID')
  })

  test('the old key ends at the full minute after the overlap, with 0 at once', async () => {
    const old = await makeKey(mine, apiId)
    await dataOf(send({ keyId: old.keyId, expiration: 60_000 }))
    const { expires } = await get(old.keyId)
    expect(expires % 60_000).toBe(0)
    expect(expires - now).toBeGreaterThanOrEqual(60_000)
    expect(expires - now).toBeLessThan(120_000)
    const leaked = await makeKey(mine, apiId)
    const made = await dataOf(send({ keyId: leaked.keyId, expiration: 0 }))
    expect([await codeOf(leaked.key), await codeOf(made.key)]).toEqual(['EXPIRED', 'VALID'])
  })

  test('unknown fields are dropped; a missing, negative or fractional expiration is a 400', async () => {
    const { keyId } = await makeKey(mine, apiId)
    for (const expiration of [undefined, -1, 1.5, 4_102_444_800_001, '1', null])
      expect(await refusalOf(send({ keyId, expiration }))).toEqual(INVALID)
    for (const id of [undefined, '', 'ab', 'key-1'])
      expect(await refusalOf(send({ keyId: id, expiration: 0 }))).toEqual(INVALID)
    await dataOf(send({ keyId, expiration: 0, more: 1 }))
  })

  test('without the right to create keys, or for a recoverable key to encrypt them: 403', async () => {
    const { keyId } = await makeKey(mine, apiId, { recoverable: true })
    const body = { keyId, expiration: 0 }
    for (const right of ['api.*.read_key', 'api.api_other.create_key', 'api.*.create_key'])
      expect(await refusalOf(send(body, await mine.rootKeyWith(right)))).toEqual(FORBIDDEN)
    const rootKey = await mine.rootKeyWith('api.*.create_key', `api.${apiId}.encrypt_key`)
    const made = await dataOf(send(body, rootKey))
    const shown = { keyId: made.keyId, decrypt: true }
    const { plaintext } = await dataOf(callV2(server, 'keys.getKey', shown, mine.rootKey))
    expect(plaintext).toBe(made.key)
  })

  test('a recoverable key of an API that stores none any more, and a second successor: 412', async () => {
    const api = await makeApi(mine)
    const { keyId } = await makeKey(mine, api, { recoverable: true })
    await mine.post('apis.updateApi', { apiId: api, storeEncryptedKeys: false })
    const refused: [number, string] = [412, 'unkey/application/precondition_failed']
    expect(await refusalOf(send({ keyId, expiration: 0 }))).toEqual(refused)
    await mine.post('apis.updateApi', { apiId: api, storeEncryptedKeys: true })
    const { keyId: successor } = await dataOf(send({ keyId, expiration: 60_000 }))
    const answer = await send({ keyId, expiration: 60_000 })
    expect(await refusalOf(answer)).toEqual(refused)
    expect(answer.body.error.detail).toContain(successor)
  })

  test('credits of the old key are changed on the new one: 412', async () => {
    const { keyId } = await makeKey(mine, apiId, { remaining: 5 })
    const { keyId: successor } = await dataOf(send({ keyId, expiration: 60_000 }))
    const change = (id: string) =>
      callV2(server, 'keys.updateCredits', { keyId: id, operation: 'set', value: 9 }, mine.rootKey)
    expect(await refusalOf(change(keyId))).toEqual([412, 'unkey/application/precondition_failed'])
    await dataOf(change(successor))
    expect((await get(keyId)).credits).toEqual({ remaining: 9 })
  })

  test('an unknown, a deleted and another workspace’s key: 404', async () => {
    const { keyId } = await makeKey(mine, apiId)
    await mine.post('keys.deleteKey', { keyId })
    const other = await server.workspace()
    const foreign = await makeKey(other, await makeApi(other))
    for (const id of ['key_unknown', keyId, foreign.keyId])
      expect(await refusalOf(send({ keyId: id, expiration: 0 }))).toEqual([404, 'unkey/data/key_not_found'])
  })
})
