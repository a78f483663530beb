import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { makeKey } from '../../../support/fixtures.ts'
import { OPERATOR_KEY, startTestServer, type TestServer } from '../../../support/server.ts'
import { SLOW_MS } from '../../../support/timeout.ts'
import { callV2, commonCases, refusalOf } from '../common-cases.ts'
import { addLimit, type Fixture, makeFixture, verify as verifyAt } from './verify-key-support.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
let mine: Fixture
/** The server's time; tests move it forward. */
let now = Date.parse('2026-06-01T12:00:00.000Z')
beforeAll(async () => {
  server = await startTestServer({ clock: () => now, env: { TOLLGATE_TRUSTED_PROXIES: '127.0.0.1' } })
  mine = await makeFixture(server)
})
afterAll(async () => await server[Symbol.asyncDispose]())

const newKey = (fields: Record<string, unknown> = {}, of = mine) => makeKey(of, of.apiId, fields)
const verify = (key: string, body: object = {}, headers: Record<string, string> = {}) =>
  verifyAt(server, mine, key, body, headers)
const verifyWith = (rootKey: string, key: string, body: object = {}) =>
  verifyAt(server, { rootKey }, key, body)
const refused = (key: string, body: object = {}, rootKey = mine.rootKey) =>
  refusalOf(callV2(server, 'keys.verifyKey', { key, ...body }, rootKey))
/** All that a root key learns of a key that it may not verify. */
const NOT_FOUND = { valid: false, code: 'NOT_FOUND' }
const INVALID: [number, string] = [400, 'unkey/application/invalid_input']

describe('what all operations have in common', () => {
  commonCases(async () => ({
    server,
    name: 'keys.verifyKey',
    rootKey: mine.rootKey,
    permissions: ['api.*.verify_key'],
    body: async () => ({ key: (await newKey()).key }),
    hiddenAs: { status: 200, type: null },
  }))
})

describe('the answer', () => {
  test('of a plain key has no member without a value', async () => {
    const { key, keyId } = await newKey()
    expect(await verify(key)).toEqual({ valid: true, code: 'VALID', keyId, enabled: true })
  })

  test('of a full key has all that the key, its roles and its identity have', async () => {
    await mine.post('permissions.createRole', { name: 'editor' }).then(async ({ roleId }) =>
      mine.post('permissions.setRolePermissions', {
        roleId,
        permissions: [
          { slug: 'documents.write', create: true },
          { slug: 'documents.read', create: true },
        ],
      }),
    )
    const { identityId } = await mine.post('identities.createIdentity', {
      externalId: 'user_full',
      meta: { plan: 'pro' },
    })
    const ofIdentity = await addLimit(server, { identityId }, { name: 'of-all', limit: 7, autoApply: false })
    const { key, keyId } = await newKey({
      name: 'full',
      meta: { a: [1, { b: null }] },
      expires: now + 86_400_000,
      remaining: 10,
      externalId: 'user_full',
      roles: ['editor'],
      permissions: ['documents.read'],
      ratelimit: { limit: 5, duration: 600_000 },
      environment: 'test',
    })
    const data = await verify(key)
    expect({ ...data, permissions: data.permissions.toSorted() }).toEqual({
      valid: true,
      code: 'VALID',
      keyId,
      enabled: true,
      name: 'full',
      meta: { a: [1, { b: null }] },
      expires: now + 86_400_000,
      credits: 9,
      permissions: ['documents.read', 'documents.write'],
      roles: ['editor'],
      identity: {
        id: identityId,
        externalId: 'user_full',
        meta: { plan: 'pro' },
        ratelimits: [{ id: ofIdentity, name: 'of-all', limit: 7, duration: 600_000, autoApply: false }],
      },
      ratelimits: [
        {
          exceeded: false,
          id: expect.stringMatching(/^rl_/),
          name: 'default',
          limit: 5,
          duration: 600_000,
          reset: now + 600_000,
          remaining: 4,
          autoApply: true,
        },
      ],
    })
  })

  test('has no empty meta, and of an identity without meta and limits id and externalId alone', async () => {
    const { key } = await newKey({ externalId: 'user_bare', meta: {} })
    const data = await verify(key)
    expect(data.identity).toEqual({ id: expect.stringMatching(/^id_/), externalId: 'user_bare' })
    expect(data).not.toHaveProperty('meta')
  })

  test('goes without the rate limit headers of v1', async () => {
    const { key } = await newKey({ ratelimit: { limit: 1, duration: 600_000 } })
    for (const code of ['VALID', 'RATE_LIMITED']) {
      const answer = await callV2(server, 'keys.verifyKey', { key }, mine.rootKey)
      expect(answer.body.data.code).toBe(code)
      expect(answer.headers.get('unkey-request-id')).toBe(answer.body.meta.requestId)
      for (const name of ['ratelimit', 'ratelimit-policy', 'unkey-ratelimit-triggered'])
        expect(answer.headers.has(name)).toBe(false)
    }
  })
})

describe('the root key', () => {
  test('needs verify_key on all APIs or on the key’s, or *', async () => {
    const { key } = await newKey()
    for (const permission of ['*', 'api.*.verify_key', `api.${mine.apiId}.verify_key`])
      expect((await verifyWith(await mine.rootKeyWith(permission), key)).code).toBe('VALID')
  })

  test('without it learns nothing of a key: NOT_FOUND, whatever the key’s state and the query', async () => {
    const { apiId: otherApi } = await mine.post('apis.createApi', { name: 'other' })
    const { key } = await newKey()
    const disabled = await newKey({ enabled: false })
    for (const permissions of [
      [],
      [`api.${otherApi}.verify_key`],
      ['api.*.read_key', `api.${mine.apiId}.create_key`],
      ['verify_key', 'api.verify_key', `api.${mine.apiId}.*`, 'api.*.*'],
    ]) {
      const rootKey = await mine.rootKeyWith(...permissions)
      expect(await verifyWith(rootKey, key)).toEqual(NOT_FOUND)
      expect(await verifyWith(rootKey, disabled.key, { permissions: 'a b' })).toEqual(NOT_FOUND)
      expect(await verifyWith(rootKey, key, { ratelimits: [{ name: 'missing' }] })).toEqual(NOT_FOUND)
    }
  })

  test('of another workspace, an unknown key, a deleted one, one of a deleted API and a root key: NOT_FOUND', async () => {
    const other = await makeFixture(server)
    const { key } = await newKey()
    expect(await verifyWith(other.rootKey, key)).toEqual(NOT_FOUND)
    expect(await verifyWith(OPERATOR_KEY, key)).toEqual(NOT_FOUND)
    expect(await verify('nobody has this')).toEqual(NOT_FOUND)
    expect(await verify(mine.rootKey)).toEqual(NOT_FOUND)

    const deleted = await newKey()
    expect((await verify(deleted.key)).code).toBe('VALID')
    await mine.post('keys.deleteKey', { keyId: deleted.keyId })
    expect(await verify(deleted.key)).toEqual(NOT_FOUND)

    const { apiId } = await mine.post('apis.createApi', { name: 'to be deleted' })
    const orphan = await makeKey(mine, apiId)
    expect((await verify(orphan.key)).code).toBe('VALID')
    await mine.post('apis.deleteApi', { apiId })
    expect(await verify(orphan.key)).toEqual(NOT_FOUND)
  })

  test('that may not verify a key takes nothing of it', async () => {
    const { key } = await newKey({ remaining: 1, ratelimit: { limit: 1, duration: 600_000 } })
    expect(await verifyWith(await mine.rootKeyWith(), key)).toEqual(NOT_FOUND)
    expect(await verify(key)).toMatchObject({ code: 'VALID', credits: 0 })
  })

  test('that loses the right, or is deleted, is refused from the next call', async () => {
    const { key } = await newKey()
    const { rootKey, rootKeyId } = await mine.post('rootKeys.createRootKey', {
      permissions: ['api.*.verify_key'],
    })
    expect((await verifyWith(rootKey, key)).code).toBe('VALID')
    await mine.post('rootKeys.updateRootKey', { rootKeyId, permissions: [] })
    expect(await verifyWith(rootKey, key)).toEqual(NOT_FOUND)
    await mine.post('rootKeys.deleteRootKey', { rootKeyId })
    expect(await refused(key, {}, rootKey)).toEqual([401, 'unkey/authentication/key_not_found'])
  })
})

describe('the body', () => {
  test('without a key, or with credits without a cost or below 0, is a 400', async () => {
    const call = (body: object) => refusalOf(callV2(server, 'keys.verifyKey', body, mine.rootKey))
    for (const body of [{}, { key: '' }, { key: null }, { key: 5 }]) expect(await call(body)).toEqual(INVALID)
    const { key } = await newKey()
    for (const body of [{ credits: { cost: -1 } }, { credits: {} }, { credits: { cost: 1, more: 1 } }])
      expect(await refused(key, body)).toEqual(INVALID)
    expect(await refused(key, { apiId: mine.apiId })).toEqual(INVALID)
    expect(await refused(key, { permissions: '' })).toEqual(INVALID)
  })

  test('may have 20 tags of 512 characters, whatever these are', async () => {
    const { key } = await newKey()
    const many = (count: number) => Array.from({ length: count }, (_, i) => `path=/a/${i}`)
    for (const tags of [[], many(20), ['🔑'.repeat(512)], [' ', '"', '\\', ',', '{}', '\n', 'é']])
      expect((await verify(key, { tags })).code).toBe('VALID')
    for (const tags of [many(21), ['a'.repeat(513)], [''], [1], 'a'])
      expect(await refused(key, { tags })).toEqual(INVALID)
  })

  test('that is wrong is refused before an unknown root key is', async () => {
    expect(await refused('', {}, 'unknown')).toEqual(INVALID)
    const ratelimits = [{ name: 'custom', limit: 1, duration: 0 }]
    expect(await refused('any', { ratelimits }, 'unknown')).toEqual(INVALID)
  })
})

describe('the key’s state', () => {
  test('a key is valid up to the millisecond of its expiry, then EXPIRED', async () => {
    const { key, keyId } = await newKey({ expires: now + 2_000 })
    now += 2_000
    expect((await verify(key)).code).toBe('VALID')
    now += 1
    expect(await verify(key)).toMatchObject({ valid: false, code: 'EXPIRED', keyId, enabled: true })
  })

  test('a disabled key is DISABLED, expired or not, and nothing of it is taken', async () => {
    const { key, keyId } = await newKey({
      enabled: false,
      expires: now - 1,
      remaining: 3,
      ratelimit: { limit: 2, duration: 600_000 },
    })
    const data = await verify(key)
    expect(data).toMatchObject({ valid: false, code: 'DISABLED', keyId, enabled: false, credits: 3 })
    expect(data).not.toHaveProperty('ratelimits')
    await mine.post('keys.updateKey', { keyId, enabled: true, expires: null })
    expect(await verify(key)).toMatchObject({ code: 'VALID', credits: 2, ratelimits: [{ remaining: 1 }] })
  })

  test('a key whose API lists addresses is FORBIDDEN to every other caller', async () => {
    const { apiId } = await mine.post('apis.createApi', { name: 'listed' })
    await mine.post('apis.updateApi', { apiId, ipWhitelist: ['123.123.123.123'] })
    const { key, keyId } = await makeKey(mine, apiId)
    expect(await verify(key)).toMatchObject({ valid: false, code: 'FORBIDDEN', keyId })
    const from = (address: string) => verify(key, {}, { 'x-forwarded-for': address })
    expect((await from('123.123.123.124')).code).toBe('FORBIDDEN')
    expect((await from('123.123.123.123')).code).toBe('VALID')
  })
})

describe('permissions', () => {
  test('held directly or through a role satisfy a query; others make it INSUFFICIENT_PERMISSIONS', async () => {
    const { roleId } = await mine.post('permissions.createRole', { name: 'reader' })
    await mine.post('permissions.setRolePermissions', {
      roleId,
      permissions: [{ slug: 'books.read', create: true }],
    })
    await mine.post('permissions.createPermission', { name: 'books:write-2' })
    await mine.post('permissions.createPermission', { name: 'shelves.all' })
    const permissions = ['books:write-2', 'shelves.all']
    const { key, keyId } = await newKey({ roles: ['reader'], permissions })
    await server.server.deps.sql`
      update permissions set slug = 'shelves.*' where slug = 'shelves.all' and workspace_id = ${mine.workspaceId}`
    const ask = async (query: string) => (await verify(key, { permissions: query })).code
    const held = [
      'books.read',
      'books:write-2',
      'books.read AND books:write-2',
      'books.read and (nobody OR books:write-2)',
      'nobody OR nothing OR books.read',
      'nobody AND nothing or books.read',
      'shelves.*',
      Array.from({ length: 30 }, () => 'books.read').join(' AND '),
    ]
    for (const query of held) expect([query, await ask(query)]).toEqual([query, 'VALID'])
    const missing = [
      'nobody',
      'books.read AND nobody',
      'books.read AND (nobody OR nothing)',
      'books.*',
      '*',
      'shelves.read',
      'BOOKS.READ',
    ]
    for (const query of missing)
      expect([query, await ask(query)]).toEqual([query, 'INSUFFICIENT_PERMISSIONS'])
    expect(await verify(key, { permissions: 'nobody' })).toMatchObject({
      valid: false,
      keyId,
      permissions: ['books.read', 'books:write-2', 'shelves.*'],
    })
  })

  test('of a revoked permission the next call knows', async () => {
    await mine.post('permissions.createPermission', { name: 'revocable' })
    const { key, keyId } = await newKey({ permissions: ['revocable'] })
    const ask = async () => (await verify(key, { permissions: 'revocable' })).code
    expect(await ask()).toBe('VALID')
    await mine.post('keys.removePermissions', { keyId, permissions: [{ slug: 'revocable' }] })
    expect(await ask()).toBe('INSUFFICIENT_PERMISSIONS')
  })

  test('in a malformed query are a 400 with the position, also for a disabled key', async () => {
    const ids = [await newKey(), await newKey({ enabled: false, expires: now - 1 })]
    for (const { key } of ids)
      for (const [query, position] of [
        [' ', 1],
        ['a AND', 5],
        ['(a', 2],
        ['a)', 1],
        ['a b', 2],
        ['a & b', 2],
        ['()', 1],
        ['{"and":["a"]}', 0],
        ['é', 0],
      ] as const) {
        const answer = await callV2(server, 'keys.verifyKey', { key, permissions: query }, mine.rootKey)
        expect([query, ...(await refusalOf(answer))]).toEqual([
          query,
          400,
          'user/bad_request/permissions_query_syntax_error',
        ])
        expect(answer.body.error.title).toBe('Bad Request')
        expect(answer.body.error.detail).toContain(`position ${position}:`)
      }
    expect(await verify('nobody has this', { permissions: '(' })).toEqual(NOT_FOUND)
  })

  test('are checked before limits and credits: a refusal takes none', async () => {
    const { key } = await newKey({ remaining: 1, ratelimit: { limit: 1, duration: 600_000 } })
    expect(await verify(key, { permissions: 'nobody' })).toMatchObject({
      code: 'INSUFFICIENT_PERMISSIONS',
      credits: 1,
    })
    expect(await verify(key)).toMatchObject({ code: 'VALID', credits: 0 })
  })
})

describe('credits', () => {
  test('are taken as a whole or not at all, and what is left is told', async () => {
    const { key } = await newKey({ remaining: 5 })
    const spend = (cost: number) => verify(key, { credits: { cost } })
    expect(await verify(key)).toMatchObject({ code: 'VALID', credits: 4 })
    expect(await spend(15)).toMatchObject({ valid: false, code: 'USAGE_EXCEEDED', credits: 4 })
    expect(await spend(4)).toMatchObject({ code: 'VALID', credits: 0 })
    expect(await spend(0)).toMatchObject({ code: 'VALID', credits: 0 })
    expect(await verify(key)).toMatchObject({ code: 'USAGE_EXCEEDED', credits: 0 })
    expect(await spend(1_000_000_000_000)).toMatchObject({ code: 'USAGE_EXCEEDED', credits: 0 })
    expect(await refused(key, { credits: { cost: 1_000_000_000_001 } })).toEqual(INVALID)
  })

  test('a key without credits has none in its answer, whatever the cost', async () => {
    const { key } = await newKey()
    const data = await verify(key, { credits: { cost: 3 } })
    expect(data.code).toBe('VALID')
    expect(data).not.toHaveProperty('credits')
  })

  /** In v2, no credits in an answer means an unlimited key, so a call that asks for none must not leave them out. */
  test('of a call that is refused before it takes any are told as they were last seen', async () => {
    const { key, keyId } = await newKey({ remaining: 9, ratelimit: { limit: 2, duration: 600_000 } })
    expect(await verify(key, { permissions: 'nobody' })).toMatchObject({ credits: 9 })
    await verify(key, { credits: { cost: 2 } })
    await verify(key, { credits: { cost: 3 } })
    expect(await verify(key)).toMatchObject({ code: 'RATE_LIMITED', credits: 4 })
    await mine.post('keys.updateRemaining', { keyId, op: 'set', value: 50 })
    expect(await verify(key)).toMatchObject({ code: 'RATE_LIMITED', credits: 50 })
    await mine.post('keys.updateRemaining', { keyId, op: 'set', value: null })
    expect(await verify(key)).not.toHaveProperty('credits')
  })

  /** Money, in many products: never one more than were bought, however many ask at once, through whichever API. */
  test('of two hundred calls at once through both APIs with a hundred credits exactly a hundred are valid', async () => {
    const { key } = await newKey({ remaining: 100 })
    const valid = await Promise.all(
      Array.from({ length: 200 }, async (_, i) =>
        i % 2 === 0 ? (await verify(key)).valid : (await server.post('keys.verifyKey', { key })).body.valid,
      ),
    )
    expect(valid.filter(Boolean)).toHaveLength(100)
  })
})
