import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { startTestServer, type TestServer, type TestWorkspace } from '../../../support/server.ts'
import { SLOW_MS } from '../../../support/timeout.ts'
import { callV2, commonCases, dataOf, refusalOf } from '../common-cases.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
let mine: TestWorkspace
let apiId: string
beforeAll(async () => {
  server = await startTestServer()
  mine = await server.workspace()
  apiId = (await dataOf(call('apis.createApi', { name: 'my-api' }))).apiId
})
afterAll(async () => await server[Symbol.asyncDispose]())

const call = (name: string, body: unknown, rootKey: string | null = mine.rootKey) =>
  callV2(server, name, body, rootKey)
const hashOf = (text: string) => Bun.SHA256.hash(text, 'base64')
const migrate = (keys: unknown, more: object = {}) =>
  call('keys.migrateKeys', { migrationId: 'from-elsewhere', apiId, keys, ...more })
const verify = async (key: string) => await dataOf(call('keys.verifyKey', { key }))
const newText = () => `old_${crypto.randomUUID()}`

commonCases(() => ({
  server,
  name: 'keys.migrateKeys',
  rootKey: mine.rootKey,
  permissions: [`api.${apiId}.create_key`],
  body: () => ({ migrationId: 'from-elsewhere', apiId, keys: [{ hash: hashOf(newText()) }] }),
}))

test('imported keys verify by their text, with everything that was sent', async () => {
  const text = newText()
  const { migrated, failed } = await dataOf(
    migrate([
      {
        hash: hashOf(text),
        name: 'from elsewhere',
        externalId: 'user 123@example.com',
        meta: { plan: 'pro' },
        roles: ['migrated role'],
        permissions: ['migrated.read'],
        credits: { remaining: 5, refill: { interval: 'daily', amount: 7 } },
        ratelimits: [{ name: 'calls', limit: 3, duration: 60_000, autoApply: true }],
      },
    ]),
  )
  expect(failed).toEqual([])
  expect(migrated).toEqual([{ hash: hashOf(text), keyId: expect.stringMatching(/^key_/) }])
  expect(await verify(text)).toMatchObject({
    valid: true,
    keyId: migrated[0].keyId,
    name: 'from elsewhere',
    meta: { plan: 'pro' },
    roles: ['migrated role'],
    permissions: ['migrated.read'],
    credits: 4,
    identity: { externalId: 'user 123@example.com' },
    ratelimits: [{ name: 'calls', remaining: 2 }],
  })
})

test('identities, roles and permissions are used again, and made once, also by calls at the same moment', async () => {
  const key = () => ({
    hash: hashOf(newText()),
    externalId: 'shared',
    roles: ['shared role'],
    permissions: ['shared.read'],
  })
  const answers = await Promise.all([1, 2, 3, 4].map(() => migrate([key(), key()])))
  for (const answer of answers) expect((await dataOf(answer)).migrated).toHaveLength(2)
  const found = await call('permissions.listRoles', { search: 'shared role' })
  expect((await dataOf(found)).map(({ name }: { name: string }) => name)).toEqual(['shared role'])
  const slugs = await dataOf(call('permissions.listPermissions', { search: 'shared.read' }))
  expect(slugs).toHaveLength(1)
  expect(await dataOf(call('identities.listIdentities', { search: 'shared' }))).toHaveLength(1)
})

test('a hash that exists, even of a deleted key, and the second of two are reported; the others are imported', async () => {
  const [known, deleted, fresh] = [newText(), newText(), newText()]
  const { migrated } = await dataOf(migrate([{ hash: hashOf(known) }, { hash: hashOf(deleted) }]))
  await dataOf(call('keys.deleteKey', { keyId: migrated[1].keyId }))
  const hashes = [known, fresh, deleted, fresh].map(hashOf)
  const again = await dataOf(migrate(hashes.map((hash) => ({ hash, roles: ['again'] }))))
  expect(again.migrated.map(({ hash }: { hash: string }) => hash)).toEqual([hashOf(fresh)])
  expect(again.failed).toEqual([known, deleted, fresh].map(hashOf))
  expect(await verify(known)).toMatchObject({ keyId: migrated[0].keyId })
  expect((await verify(known)).roles).toBeUndefined()
  expect(await verify(deleted)).toEqual({ valid: false, code: 'NOT_FOUND' })
})

test('credits of null are without limit', async () => {
  const text = newText()
  await dataOf(migrate([{ hash: hashOf(text), credits: { remaining: null } }]))
  const verified = await verify(text)
  expect([verified.valid, verified.credits]).toEqual([true, undefined])
})

test('a text that is no SHA-256 is refused by its place, and nothing is imported', async () => {
  const text = newText()
  const { status, body } = await migrate([{ hash: hashOf(text) }, { hash: 'not a hash' }])
  expect(status).toBe(400)
  expect(body.error.errors[0].location).toBe('/properties/keys/items/properties/hash')
  expect(body.error.detail).toStartWith('keys.1.hash: ')
  expect(await verify(text)).toEqual({ valid: false, code: 'NOT_FOUND' })
  for (const keys of [[], [{ hash: '' }], [{}]])
    expect(await refusalOf(migrate(keys))).toEqual([400, 'unkey/application/invalid_input'])
})

test('a monthly refill without a day, and two limits of one name, are refused', async () => {
  const refill = { interval: 'monthly', amount: 5 }
  expect((await migrate([{ hash: hashOf(newText()), credits: { remaining: 1, refill } }])).status).toBe(400)
  const limit = { name: 'calls', limit: 1, duration: 1000 }
  expect((await migrate([{ hash: hashOf(newText()), ratelimits: [limit, limit] }])).status).toBe(400)
})

test('an unknown API is not found, and the right on another API is not enough', async () => {
  const keys = [{ hash: hashOf(newText()) }]
  expect(await refusalOf(migrate(keys, { apiId: 'api_doesnotexist' }))).toEqual([
    404,
    'unkey/data/api_not_found',
  ])
  const other = await mine.rootKeyWith('api.api_other000000.create_key')
  const answer = call('keys.migrateKeys', { migrationId: 'from-elsewhere', apiId, keys }, other)
  expect(await refusalOf(answer)).toEqual([403, 'unkey/authorization/insufficient_permissions'])
})
