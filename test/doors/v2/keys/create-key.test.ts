import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { hashKey } from '../../../../src/verify/secret.ts'
import { makeApiWithoutKeyspace } from '../../../support/fixtures.ts'
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

const send = (body: Json, rootKey = mine.rootKey) =>
  callV2(server, 'keys.createKey', { apiId, ...body }, rootKey)
const create = (body: Json = {}) => dataOf(send(body))
const get = (keyId: string, more: Json = {}) =>
  dataOf(callV2(server, 'keys.getKey', { keyId, ...more }, mine.rootKey))
const INVALID: [number, string] = [400, 'unkey/application/invalid_input']

describe('keys.createKey', () => {
  commonCases(() => ({
    server,
    name: 'keys.createKey',
    rootKey: mine.rootKey,
    permissions: [`api.${apiId}.create_key`],
    body: () => ({ apiId }),
    hiddenAs: { status: 404, type: 'unkey/data/api_not_found' },
  }))

  test('a key without anything else is stored by the hash of its text', async () => {
    const data = await create()
    expect(data).toEqual({ keyId: expect.stringMatching(/^key_/), key: expect.any(String) })
    const [row] = await server.server.deps.sql`select hash from keys where id = ${data.keyId}`
    expect(row).toEqual({ hash: hashKey(data.key) })
    expect(await get(data.keyId)).toEqual({
      keyId: data.keyId,
      start: data.key.slice(0, 5),
      enabled: true,
      createdAt: expect.any(Number),
    })
  })

  test('all fields at once come back through getKey', async () => {
    const { roleId } = await mine.post('permissions.createRole', { name: 'editor' })
    await mine.post('permissions.createPermission', { name: 'docs.delete' })
    await mine.post('permissions.setRolePermissions', { roleId, permissions: [{ slug: 'docs.delete' }] })
    const body = {
      prefix: 'demo',
      name: 'a name',
      byteLength: 32,
      externalId: 'user_all.fields-1',
      meta: { plan: 'pro', nested: { list: [1, null, 'x'] } },
      roles: ['editor'],
      permissions: ['docs.read', 'docs.*', 'docs.read'],
      expires: 4_102_444_800_000,
      credits: { remaining: 0, refill: { interval: 'monthly', amount: 100, refillDay: 31 } },
      ratelimits: [
        { name: 'requests', limit: 10, duration: 60_000, autoApply: true },
        { name: 'tokens', limit: Number.MAX_SAFE_INTEGER, duration: 1000 },
      ],
      enabled: false,
      recoverable: true,
    }
    const { keyId, key } = await create(body)
    expect(key).toStartWith('demo_')
    const shown = await get(keyId, { decrypt: true })
    expect(shown).toEqual({
      keyId,
      start: key.slice(0, 'demo_'.length + 4),
      enabled: false,
      createdAt: expect.any(Number),
      name: 'a name',
      meta: body.meta,
      expires: body.expires,
      permissions: ['docs.*', 'docs.delete', 'docs.read'],
      roles: ['editor'],
      credits: body.credits,
      identity: { id: expect.stringMatching(/^id_/), externalId: body.externalId },
      ratelimits: [
        { id: expect.stringMatching(/^rl_/), ...body.ratelimits[0] },
        { id: expect.stringMatching(/^rl_/), ...body.ratelimits[1], autoApply: false },
      ],
      plaintext: key,
    })
  })

  test.each<[string, Json]>([
    ['byteLength below 16', { byteLength: 15 }],
    ['byteLength above 255', { byteLength: 256 }],
    ['a prefix of 17 characters', { prefix: 'a'.repeat(17) }],
    ['a prefix with a hyphen', { prefix: 'a-b' }],
    ['a negative expiry', { expires: -1 }],
    ['an expiry after 2099', { expires: 4_102_444_800_001 }],
    ['an empty permission', { permissions: [''] }],
    ['an empty role', { roles: [''] }],
    ['a permission of 129 characters', { permissions: ['a'.repeat(129)] }],
    ['a role of 129 characters', { roles: ['a'.repeat(129)] }],
    ['a permission with a blank', { permissions: ['a b'] }],
    ['an API id of two characters', { apiId: 'ab' }],
    ['an API id with a hyphen', { apiId: 'api-123456' }],
    ['an external id with a blank', { externalId: 'a b' }],
    ['an unknown field', { ownerId: 'user_1' }],
    ['null for a name', { name: null }],
    ['credits without remaining', { credits: {} }],
    ['unknown fields in credits', { credits: { remaining: 1, more: 1 } }],
    ['credits beyond 2^53 - 1', { credits: { remaining: 2 ** 53 } }],
    ['a refill of nothing', { credits: { remaining: 1, refill: { interval: 'daily', amount: 0 } } }],
    ['a limit of 0', { ratelimits: [{ name: 'abc', limit: 0, duration: 1000 }] }],
    ['a window below a second', { ratelimits: [{ name: 'abc', limit: 1, duration: 999 }] }],
    ['a window beyond 100 years', { ratelimits: [{ name: 'abc', limit: 1, duration: 4_000_000_000_000 }] }],
    ['a limit name of two characters', { ratelimits: [{ name: 'ab', limit: 1, duration: 1000 }] }],
    ['meta with 101 fields', { meta: Object.fromEntries(Array.from({ length: 101 }, (_, i) => [i, i])) }],
    ['meta beyond 64 000 characters', { meta: { text: 'x'.repeat(64_000) } }],
  ])('%s is a 400', async (_, body) => {
    expect(await refusalOf(send(body))).toEqual(INVALID)
  })

  /** The reference takes the later one; this hides a mistake, and updateIdentity refuses it too. */
  test('two limits of one name are a 400 that names it', async () => {
    const limit = { name: 'twice', limit: 1, duration: 1000 }
    const { status, body } = await send({ ratelimits: [limit, limit] })
    expect(status).toBe(400)
    expect(body.error.detail).toContain('twice')
  })

  test('a refill needs a number of credits, and a monthly one its day; a day of a daily one is ignored', async () => {
    const refill = { interval: 'monthly', amount: 5, refillDay: 3 }
    const { status, body } = await send({ credits: { remaining: null, refill } })
    expect(status).toBe(400)
    expect(body.error.detail).toContain('credits.refill')
    expect(body.error.detail).toContain('credits.remaining')
    expect(
      await refusalOf(send({ credits: { remaining: 1, refill: { ...refill, refillDay: undefined } } })),
    ).toEqual(INVALID)
    const { keyId } = await create({ credits: { remaining: 1, refill: { ...refill, interval: 'daily' } } })
    expect((await get(keyId)).credits).toEqual({ remaining: 1, refill: { interval: 'daily', amount: 5 } })
  })

  test('credits: null and absent credits are without limit', async () => {
    for (const body of [{ credits: { remaining: null } }, {}]) {
      const { keyId, key } = await create(body)
      expect(await get(keyId)).not.toHaveProperty('credits')
      expect((await mine.post('keys.verifyKey', { key })).code).toBe('VALID')
    }
  })

  test('expires 0 is a moment in the past, which v1 reads as never', async () => {
    const { key, keyId } = await create({ expires: 0 })
    expect((await mine.post('keys.verifyKey', { key })).code).toBe('EXPIRED')
    expect(await get(keyId)).not.toHaveProperty('expires')
  })

  test('the API’s defaults apply where the request is silent', async () => {
    const other = (await mine.post('apis.createApi', { name: 'with defaults' })).apiId
    await mine.post('apis.updateApi', { apiId: other, defaultPrefix: 'std', defaultBytes: 64 })
    const silent = await create({ apiId: other })
    const loud = await create({ apiId: other, prefix: 'own', byteLength: 16 })
    expect(silent.key).toStartWith('std_')
    expect(loud.key).toStartWith('own_')
    expect(silent.key.length).toBeGreaterThan(loud.key.length + 50)
  })

  test('permissions that do not exist are created, without a right to, and used by the next key', async () => {
    const rootKey = await mine.rootKeyWith(`api.${apiId}.create_key`)
    const permissions = ['made.first', 'made.second']
    const first = await dataOf(send({ permissions }, rootKey))
    const second = await dataOf(send({ permissions }, rootKey))
    for (const { keyId } of [first, second]) expect((await get(keyId)).permissions).toEqual(permissions)
    const all: Json[] = await mine.get('permissions.listPermissions')
    expect(
      all
        .filter(({ slug }) => permissions.includes(slug))
        .map(({ name }) => name)
        .sort(),
    ).toEqual(permissions)
  })

  test('a role that does not exist is not found by its name, and nothing is created', async () => {
    const answer = await send({ roles: ['nobody'], permissions: ['not.made'], externalId: 'not_made' })
    expect(await refusalOf(answer)).toEqual([404, 'unkey/data/role_not_found'])
    expect(answer.body.error.detail).toContain('nobody')
    const all: Json[] = await mine.get('permissions.listPermissions')
    expect(all.map(({ slug }) => slug)).not.toContain('not.made')
    expect(
      (await server.get('identities.getIdentity', { externalId: 'not_made' }, mine.rootKey)).status,
    ).toBe(404)
  })

  test('a root key without the right gets exactly the answer for an API that does not exist', async () => {
    const other = await server.workspace()
    const foreign = (await other.post('apis.createApi', { name: 'foreign' })).apiId
    const errorOf = async (body: Json, rootKey?: string) => (await send(body, rootKey)).body.error
    const unknown = await errorOf({ apiId: 'api_unknown' })
    expect(unknown).toMatchObject({ status: 404, type: expect.stringContaining('unkey/data/api_not_found') })
    const as = (id: string) => ({ ...unknown, detail: unknown.detail.replace('api_unknown', id) })
    expect(await errorOf({ apiId: foreign })).toEqual(as(foreign))
    expect(await errorOf({}, await mine.rootKeyWith('api.*.read_key'))).toEqual(as(apiId))
    expect(await errorOf({}, await mine.rootKeyWith(`api.${foreign}.create_key`))).toEqual(as(apiId))
    expect(await errorOf({ recoverable: true }, await mine.rootKeyWith('api.*.create_key'))).toEqual(
      as(apiId),
    )
    const both = await mine.rootKeyWith('api.*.create_key', `api.${apiId}.encrypt_key`)
    expect((await send({ recoverable: true }, both)).status).toBe(200)
  })

  test('a deleted API is not found, one without keyspace and one without recovery are a 412', async () => {
    const gone = (await mine.post('apis.createApi', { name: 'gone' })).apiId
    await mine.post('apis.deleteApi', { apiId: gone })
    expect(await refusalOf(send({ apiId: gone }))).toEqual([404, 'unkey/data/api_not_found'])
    const precondition: [number, string] = [412, 'unkey/application/precondition_failed']
    const without = await makeApiWithoutKeyspace(server, mine)
    expect(await refusalOf(send({ apiId: without }))).toEqual(precondition)
    const off = (await mine.post('apis.createApi', { name: 'off' })).apiId
    await mine.post('apis.updateApi', { apiId: off, storeEncryptedKeys: false })
    expect(await refusalOf(send({ apiId: off, recoverable: true }))).toEqual(precondition)
  })

  test('twenty calls at once with a new external id and new permissions make one of each', async () => {
    const body = { externalId: 'together', permissions: ['together.a', 'together.b'] }
    const keys: Json[] = await Promise.all(Array.from({ length: 20 }, () => create(body)))
    const shown: Json[] = await Promise.all(keys.map(({ keyId }) => get(keyId)))
    expect(new Set(shown.map(({ identity }) => identity.id)).size).toBe(1)
    for (const { permissions } of shown) expect(permissions).toEqual(body.permissions)
  })

  test('the audit log names the key, its role and its permissions', async () => {
    await mine.post('permissions.createRole', { name: 'audited' })
    const { keyId } = await create({ roles: ['audited'], permissions: ['audited.new'] })
    const { events } = await mine.get('audit.listEvents', { resourceId: keyId })
    expect(events.map(({ event }: Json) => event).sort()).toEqual([
      'authorization.connect_permission_and_key',
      'authorization.connect_role_and_key',
      'key.create',
    ])
  })

  test('it makes three statements more than v1: those that make it answer when it is sent again', async () => {
    await create() // caches the root key
    const v1 = await countStatements(server, () => mine.post('keys.createKey', { apiId, name: 'a' }))
    const v2 = await countStatements(server, () => create({ name: 'a' }))
    expect(v2).toBe(v1 + 3)
  })

  test('a hundred limits, roles and permissions make no more statements than one', async () => {
    const names = (count: number, prefix: string) => Array.from({ length: count }, (_, i) => `${prefix}.${i}`)
    await Promise.all(names(50, 'role').map((name) => mine.post('permissions.createRole', { name })))
    const bodyOf = (count: number, kind: string) => ({
      roles: names(count, 'role'),
      permissions: names(count, kind),
      ratelimits: names(count, 'limit').map((name) => ({ name, limit: 1, duration: 1000 })),
    })
    const one = await countStatements(server, () => create(bodyOf(1, 'one')))
    expect(await countStatements(server, () => create(bodyOf(50, 'many')))).toBe(one)
  })
})
