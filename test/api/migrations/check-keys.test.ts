import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { hashKey } from '../../../src/verify/secret.ts'
import { makeApi, makeApiWithoutKeyspace, refusalOf } from '../../support/fixtures.ts'
import { startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
let sealless: TestServer
beforeAll(async () => {
  ;[server, sealless] = await Promise.all([
    startTestServer(),
    startTestServer({ env: { TOLLGATE_VAULT_KEY: '' } }),
  ])
})
afterAll(async () => {
  await Promise.all([server, sealless].map((each) => each[Symbol.asyncDispose]()))
})

const hashOf = (text: string) => ({ value: hashKey(text), variant: 'sha256_base64' })
const newHash = () => hashOf(crypto.randomUUID())

/** Whoever imports sees all problems at once, and not the first of a call alone. */
test('each key is told what an import would do with it, in the words of the import', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const bare = await makeApiWithoutKeyspace(server, workspace)
  const foreign = await makeApi(await server.workspace())
  const [there, deleted, twice] = [newHash(), newHash(), newHash()]
  const { keyIds } = await workspace.post('migrations.createKeys', [
    { apiId, hash: there },
    { apiId, hash: deleted },
  ])
  await workspace.post('keys.deleteKey', { keyId: keyIds[1] })
  await workspace.post('permissions.createRole', { name: 'known' })
  const asked: [unknown, unknown][] = [
    [{ apiId, hash: newHash(), roles: ['known'], unknown: 1 }, { outcome: 'new' }],
    [{ apiId, plaintext: crypto.randomUUID() }, { outcome: 'new' }],
    [{ apiId, hash: twice }, { outcome: 'new' }],
    [{ apiId, hash: twice }, { outcome: 'exists' }],
    [{ apiId, hash: there }, { outcome: 'exists' }],
    [{ apiId, hash: deleted }, { outcome: 'exists' }],
    [{ apiId, hash: newHash(), roles: ['a', 'known', 'b'] }, refused('roles not found: a, b')],
    [{ apiId, hash: newHash(), permissions: ['p.a'] }, refused('permissions not found: p.a')],
    [{ apiId: 'api_unknown', hash: newHash() }, refused('api api_unknown not found')],
    [{ apiId: foreign, hash: newHash() }, refused(`api ${foreign} not found`)],
    [{ apiId: bare, hash: newHash() }, refused(`api ${bare} has no keyspace`)],
    [{ apiId }, refused('either hash or plaintext is required')],
    [{ hash: newHash() }, refused('apiId: Required')],
    [
      { apiId, hash: newHash(), remaining: 0 },
      refused('remaining: Number must be greater than or equal to 1'),
    ],
    [
      { apiId, hash: { value: 'f'.repeat(40), variant: 'sha256_base64' } },
      refused('hash.value: must be the SHA-256 of the key: 44 characters of base64, or 64 hex digits'),
    ],
    [
      { apiId, hash: newHash(), roles: Array.from({ length: 101 }, () => 'known'), permissions: [] },
      { outcome: 'new' }, // one role, named often
    ],
  ]
  const before = await countsOf(server)
  const { keys } = await workspace.post('migrations.checkKeys', { keys: asked.map(([key]) => key) })
  for (const [index, [, wanted]] of asked.entries()) expect([index, keys[index]]).toEqual([index, wanted])
  expect(await countsOf(server)).toEqual(before)

  // What was said to be new is.
  const fresh = asked.flatMap(([key], index) => (keys[index].outcome === 'new' ? [key] : []))
  expect((await workspace.post('migrations.createKeys', fresh)).keyIds).toHaveLength(fresh.length)
})

const refused = (reason: string) => ({ outcome: 'refused', reason })

/** Rows that an import could leave behind. */
const countsOf = async ({ server: { deps } }: TestServer) =>
  (
    await deps.sql`
      select (select count(*) from keys) as keys, (select count(*) from identities) as identities,
             (select count(*) from key_imports) as imports, (select count(*) from encrypted_keys) as texts,
             (select count(*) from audit_events) as events`
  )[0]

test('a key with more roles than a key may have is refused, and the others are not', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const roles = Array.from({ length: 101 }, (_, index) => `role ${index}`)
  for (const name of roles) await workspace.post('permissions.createRole', { name })
  const { keys } = await workspace.post('migrations.checkKeys', {
    keys: [
      { apiId, hash: newHash(), roles },
      { apiId, hash: newHash(), roles: roles.slice(1) },
    ],
  })
  expect(keys).toEqual([
    { outcome: 'refused', reason: expect.stringContaining('no room for more roles') },
    { outcome: 'new' },
  ])
})

test('without a vault key texts are refused, and hashes are not', async () => {
  const workspace = await sealless.workspace()
  const apiId = await makeApi(workspace)
  const { keys } = await workspace.post('migrations.checkKeys', {
    keys: [
      { apiId, plaintext: 'some key text' },
      { apiId, hash: newHash() },
    ],
  })
  expect(keys).toEqual([
    { outcome: 'refused', reason: expect.stringContaining('TOLLGATE_VAULT_KEY') },
    { outcome: 'new' },
  ])
})

test('a call is refused without the right for each of its APIs, with too many keys, and with none', async () => {
  const workspace = await server.workspace()
  const [first, second] = [await makeApi(workspace), await makeApi(workspace)]
  const rootKey = await workspace.rootKeyWith(`api.${first}.create_key`)
  const ask = async (...apiIds: (string | undefined)[]) => {
    const keys = apiIds.map((apiId) => ({ apiId, hash: newHash() }))
    const answer = await server.post('migrations.checkKeys', { keys }, rootKey)
    return answer.status === 200 ? answer.body : refusalOf(answer)
  }
  expect(await ask(first, undefined)).toEqual({ keys: [{ outcome: 'new' }, refused('apiId: Required')] })
  expect(await ask(first, second)).toMatchObject({ status: 403, code: 'INSUFFICIENT_PERMISSIONS' })
  // A root key without the right must not learn the texts of the schema either.
  expect(await ask(undefined)).toMatchObject({ status: 403, code: 'INSUFFICIENT_PERMISSIONS' })
  expect(await ask(...Array.from({ length: 101 }, () => first))).toMatchObject({
    status: 400,
    message: 'keys: Array must contain at most 100 element(s)',
  })
  expect(await ask()).toMatchObject({ status: 400 })
})
