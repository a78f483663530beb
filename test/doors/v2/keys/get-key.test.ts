import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../../support/server.ts'
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

const call = (name: string, body: Json, rootKey = mine.rootKey) => callV2(server, name, body, rootKey)
const create = (body: Json = {}) => dataOf(call('keys.createKey', { apiId, ...body }))
const INVALID: [number, string] = [400, 'unkey/application/invalid_input']
const NOT_FOUND: [number, string] = [404, 'unkey/data/key_not_found']
const FORBIDDEN: [number, string] = [403, 'unkey/authorization/insufficient_permissions']
const PRECONDITION: [number, string] = [412, 'unkey/application/precondition_failed']

/** A deleted key, one of another workspace, one of a deleted API, and one that never was. */
async function missingKeys(): Promise<{ keyId: string; key: string }[]> {
  const deleted = await create()
  await call('keys.deleteKey', { keyId: deleted.keyId })
  const other = await server.workspace()
  const foreign = await other.post('keys.createKey', {
    apiId: (await other.post('apis.createApi', { name: 'foreign' })).apiId,
  })
  const gone = (await mine.post('apis.createApi', { name: 'gone' })).apiId
  const ofGone = await create({ apiId: gone })
  await mine.post('apis.deleteApi', { apiId: gone })
  return [deleted, foreign, ofGone, { keyId: 'key_unknown', key: 'unknown' }]
}

describe('keys.getKey', () => {
  commonCases(async () => {
    const { keyId } = await create()
    return {
      server,
      name: 'keys.getKey',
      rootKey: mine.rootKey,
      permissions: [`api.${apiId}.read_key`],
      body: () => ({ keyId }),
    }
  })

  test('permissions come through roles too, each once, and an empty meta is left out', async () => {
    const { roleId } = await mine.post('permissions.createRole', { name: 'reader' })
    await mine.post('permissions.createPermission', { name: 'docs.read' })
    await mine.post('permissions.setRolePermissions', { roleId, permissions: [{ slug: 'docs.read' }] })
    const { keyId } = await create({ roles: ['reader'], permissions: ['docs.read', 'docs.write'], meta: {} })
    const key = await dataOf(call('keys.getKey', { keyId }))
    expect(key).toMatchObject({ roles: ['reader'], permissions: ['docs.read', 'docs.write'] })
    expect(key).not.toHaveProperty('meta')
  })

  test('the identity has its meta and its limits, also one of a name that the key has too', async () => {
    const limit = { name: 'shared', limit: 1, duration: 1000 }
    await mine.post('identities.createIdentity', {
      externalId: 'user_1',
      meta: { a: 1 },
      ratelimits: [limit],
    })
    const { keyId } = await create({ externalId: 'user_1', ratelimits: [{ ...limit, limit: 2 }] })
    const { identity, ratelimits } = await dataOf(call('keys.getKey', { keyId }))
    const id = expect.stringMatching(/^rl_/)
    expect(ratelimits).toEqual([{ ...limit, id, limit: 2, autoApply: false }])
    expect(identity).toEqual({
      id: expect.stringMatching(/^id_/),
      externalId: 'user_1',
      meta: { a: 1 },
      ratelimits: [{ ...limit, id, autoApply: false }],
    })
    await mine.post('identities.createIdentity', { externalId: 'user_2' })
    const plain = await create({ externalId: 'user_2' })
    expect((await dataOf(call('keys.getKey', { keyId: plain.keyId }))).identity).toEqual({
      id: expect.any(String),
      externalId: 'user_2',
    })
  })

  test('updatedAt is absent until something changes', async () => {
    const { keyId } = await create()
    expect(await dataOf(call('keys.getKey', { keyId }))).not.toHaveProperty('updatedAt')
    await call('keys.updateKey', { keyId, enabled: false })
    const { enabled, createdAt, updatedAt } = await dataOf(call('keys.getKey', { keyId }))
    expect([enabled, updatedAt >= createdAt]).toEqual([false, true])
  })

  test('deleted, foreign and unknown keys are not found, also without the right; an id that cannot be one is a 400', async () => {
    const unrelated = await mine.rootKeyWith('rbac.*.read_role')
    for (const { keyId } of await missingKeys()) {
      expect(await refusalOf(call('keys.getKey', { keyId }))).toEqual(NOT_FOUND)
      expect(await refusalOf(call('keys.getKey', { keyId }, unrelated))).toEqual(NOT_FOUND)
    }
    for (const keyId of ['', 'k', 'key-1'])
      expect(await refusalOf(call('keys.getKey', { keyId }))).toEqual(INVALID)
  })

  test('decrypt needs both rights and an API with recovery; a key that is not recoverable has no plaintext', async () => {
    const { keyId, key } = await create({ recoverable: true })
    const decrypt = { keyId, decrypt: true }
    const readOnly = await mine.rootKeyWith('api.*.read_key')
    expect(await refusalOf(call('keys.getKey', decrypt, readOnly))).toEqual(FORBIDDEN)
    const decryptOnly = await mine.rootKeyWith('api.*.decrypt_key')
    expect(await refusalOf(call('keys.getKey', decrypt, decryptOnly))).toEqual(FORBIDDEN)
    const both = await mine.rootKeyWith('api.*.read_key', `api.${apiId}.decrypt_key`)
    expect((await dataOf(call('keys.getKey', decrypt, both))).plaintext).toBe(key)
    expect(await dataOf(call('keys.getKey', { keyId }, both))).not.toHaveProperty('plaintext')
    const plain = await create()
    expect(await dataOf(call('keys.getKey', { keyId: plain.keyId, decrypt: true }))).not.toHaveProperty(
      'plaintext',
    )

    await mine.post('apis.updateApi', { apiId, storeEncryptedKeys: false })
    expect(await refusalOf(call('keys.getKey', decrypt, both))).toEqual(PRECONDITION)
    expect(await refusalOf(call('keys.getKey', decrypt, readOnly))).toEqual(FORBIDDEN)
    await mine.post('apis.updateApi', { apiId, storeEncryptedKeys: true })
  })
})

describe('keys.whoami', () => {
  commonCases(async () => {
    const { key } = await create()
    return {
      server,
      name: 'keys.whoami',
      rootKey: mine.rootKey,
      permissions: ['api.*.read_key'],
      body: () => ({ key }),
      hiddenAs: { status: 404, type: 'unkey/data/key_not_found' },
    }
  })

  test('it answers as getKey without plaintext, and takes nothing', async () => {
    const fields = { credits: { remaining: 3 }, ratelimits: [{ name: 'all', limit: 1, duration: 60_000 }] }
    const { keyId, key } = await create({
      recoverable: true,
      externalId: 'user_w',
      meta: { a: 1 },
      ...fields,
    })
    const shown = await dataOf(call('keys.whoami', { key }))
    expect(shown).toEqual(await dataOf(call('keys.getKey', { keyId })))
    expect(shown.credits).toEqual({ remaining: 3 })
  })

  test('disabled and expired keys are described', async () => {
    const { key } = await create({ enabled: false, expires: 1 })
    expect(await dataOf(call('keys.whoami', { key }))).toMatchObject({ enabled: false, expires: 1 })
  })

  test('a key that may not be read looks exactly like one that does not exist', async () => {
    const { key } = await create()
    const unrelated = await mine.rootKeyWith('api.*.create_key')
    const errorOf = async (text: string, rootKey?: string) =>
      (await call('keys.whoami', { key: text }, rootKey)).body.error
    const unknown = await errorOf('unknown')
    expect(unknown).toMatchObject({ status: 404, type: expect.stringContaining('key_not_found') })
    expect(await errorOf(key, unrelated)).toEqual(unknown)
    for (const missing of await missingKeys()) expect(await errorOf(missing.key)).toEqual(unknown)
    for (const text of ['', 'x'.repeat(513)])
      expect(await refusalOf(call('keys.whoami', { key: text }))).toEqual(INVALID)
  })
})

describe('keys.deleteKey', () => {
  commonCases(async () => ({
    server,
    name: 'keys.deleteKey',
    rootKey: mine.rootKey,
    permissions: [`api.${apiId}.delete_key`],
    body: async () => ({ keyId: (await create()).keyId }),
  }))

  test('a deleted key is NOT_FOUND at once, also while cached, and cannot be deleted again', async () => {
    for (const permanent of [false, true]) {
      const { keyId, key } = await create({ ratelimits: [{ name: 'all', limit: 9, duration: 1000 }] })
      expect((await mine.post('keys.verifyKey', { key })).code).toBe('VALID')
      expect(await dataOf(call('keys.deleteKey', { keyId, permanent }))).toEqual({})
      expect((await mine.post('keys.verifyKey', { key })).code).toBe('NOT_FOUND')
      for (const again of [false, true])
        expect(await refusalOf(call('keys.deleteKey', { keyId, permanent: again }))).toEqual(NOT_FOUND)
      const rows = await server.server.deps.sql`select 1 from ratelimits where key_id = ${keyId}`
      expect(rows.length).toBe(permanent ? 0 : 1)
    }
  })

  test('the hash of a deleted key stays taken, that of a permanently deleted one is free', async () => {
    const importAgain = async (permanent: boolean) => {
      const { keyId, key } = await create()
      await call('keys.deleteKey', { keyId, permanent })
      return (await server.post('migrations.createKeys', [{ apiId, plaintext: key }], mine.rootKey)).status
    }
    expect([await importAgain(false), await importAgain(true)]).toEqual([409, 200])
  })

  test('missing keys are not found', async () => {
    for (const { keyId } of await missingKeys())
      expect(await refusalOf(call('keys.deleteKey', { keyId }))).toEqual(NOT_FOUND)
  })
})
