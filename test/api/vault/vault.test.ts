import { afterAll, beforeAll, describe, expect, setDefaultTimeout, spyOn, test } from 'bun:test'
import type { WorkspaceId } from '../../../src/lib/ids.ts'
import { resealDataKeys } from '../../../src/vault/reseal.ts'
import { importMaster, Vault } from '../../../src/vault/vault.ts'
import { openTestDatabase, TEST_DATABASE_URL } from '../../support/database.ts'
import { makeApi, makeKey, refusalOf } from '../../support/fixtures.ts'
import { OPERATOR_KEY, startTestServer, type TestServer, VAULT_KEY } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

const bytesOf = (base64: string) => new Uint8Array(Buffer.from(base64, 'base64'))
const newMaster = () => crypto.getRandomValues(new Uint8Array(32))
const reseal = async (...vaultKeys: Uint8Array[]) => {
  const masters = await Promise.all(vaultKeys.map(importMaster))
  return await server.server.deps.database.write((tx) => resealDataKeys(tx, masters, Date.now()))
}
const vaultWith = (...vaultKeys: Uint8Array[]) =>
  new Vault(server.server.deps.sql, { vaultKeys, clock: Date.now })

async function prepare() {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const { keyId, key } = await makeKey(workspace, apiId, { recoverable: true })
  const decrypted = async (rootKey = workspace.rootKey) =>
    await server.get('keys.getKey', { keyId, decrypt: true }, rootKey)
  return { workspace, apiId, keyId, key, decrypted }
}

/** A row in the form that the vault decrypts. */
async function sealedOf(keyId: string) {
  const [row] = await server.server.deps.sql<{ id: string; ciphertext: string; encryptionKeyId: string }[]>`
    select key_id as id, ciphertext, encryption_key_id as "encryptionKeyId" from encrypted_keys where key_id = ${keyId}`
  if (row === undefined) throw new Error('not recoverable')
  return row
}

const scoped = (workspaceId: string) => workspaceId as WorkspaceId // as authenticate() would mint it

describe('recoverable keys', () => {
  test('can be decrypted by getKey and listKeys, and other keys have no plaintext', async () => {
    const { workspace, apiId, keyId, key, decrypted } = await prepare()
    const other = await makeKey(workspace, apiId)
    expect((await decrypted()).body.plaintext).toBe(key)
    const { keys } = await workspace.get('apis.listKeys', { apiId, decrypt: true })
    const shown = new Map(keys.map((one: { id: string; plaintext?: string }) => [one.id, one.plaintext]))
    expect(shown).toEqual(
      new Map([
        [keyId, key],
        [other.keyId, undefined],
      ]),
    )
    expect(await workspace.get('keys.getKey', { keyId })).not.toHaveProperty('plaintext')
    const bare = await workspace.get('keys.getKey', { keyId: other.keyId, decrypt: true })
    expect(bare).not.toHaveProperty('plaintext')
  })

  test('are stored encrypted: neither the key nor the data key is in the database', async () => {
    const { key, keyId, workspace } = await prepare()
    const { sql } = server.server.deps
    const rows = await sql`
      select k.*, e.* from keys k join encrypted_keys e on e.key_id = k.id where k.id = ${keyId}`
    expect(rows).toHaveLength(1)
    expect(JSON.stringify(rows)).not.toContain(key)
    const { encryptionKeyId } = await sealedOf(keyId)
    const dataKeys = await sql`select id from vault_data_keys where workspace_id = ${workspace.workspaceId}`
    expect([...dataKeys]).toEqual([{ id: encryptionKeyId }])
  })

  test('need the decrypt permission, otherwise UNAUTHORIZED, whatever else is held', async () => {
    const { workspace, apiId, keyId, key, decrypted } = await prepare()
    const read = ['api.*.read_key', 'api.*.read_api']
    const without = await workspace.rootKeyWith(...read, 'api.api_another.decrypt_key')
    expect(refusalOf(await decrypted(without))).toMatchObject({ status: 403, code: 'UNAUTHORIZED' })
    const listed = await server.get('apis.listKeys', { apiId, decrypt: true }, without)
    expect(refusalOf(listed)).toMatchObject({ status: 403, code: 'UNAUTHORIZED' })
    expect(JSON.stringify([await decrypted(without), listed])).not.toContain(key)
    expect((await server.get('keys.getKey', { keyId }, without)).status).toBe(200)
    for (const right of ['api.*.decrypt_key', `api.${apiId}.decrypt_key`])
      expect((await decrypted(await workspace.rootKeyWith(...read, right))).body.plaintext).toBe(key)
  })

  test('need the encrypt permission to be created, and nothing is created without it', async () => {
    const { workspace, apiId } = await prepare()
    const create = async (...permissions: string[]) =>
      await server.post(
        'keys.createKey',
        { apiId, recoverable: true },
        await workspace.rootKeyWith(...permissions),
      )
    const before = (await workspace.get('apis.listKeys', { apiId })).total
    expect(refusalOf(await create('api.*.create_key'))).toMatchObject({
      status: 403,
      code: 'INSUFFICIENT_PERMISSIONS',
    })
    expect((await workspace.get('apis.listKeys', { apiId })).total).toBe(before)
    for (const right of ['api.*.encrypt_key', `api.${apiId}.encrypt_key`])
      expect((await create('api.*.create_key', right)).status).toBe(200)
  })

  test('are refused by an API that does not store encrypted keys', async () => {
    const { workspace, apiId } = await prepare()
    await workspace.post('apis.updateApi', { apiId, storeEncryptedKeys: false })
    const answer = await server.post('keys.createKey', { apiId, recoverable: true }, workspace.rootKey)
    expect(refusalOf(answer)).toMatchObject({ status: 412, code: 'PRECONDITION_FAILED' })
    expect(answer.body.error.message).toContain(apiId)
    expect((await makeKey(workspace, apiId)).key).toBeString()
  })

  test('created concurrently in one workspace share one data key', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const made = await Promise.all(
      Array.from({ length: 10 }, () => makeKey(workspace, apiId, { recoverable: true })),
    )
    const ids = await Promise.all(made.map(async ({ keyId }) => (await sealedOf(keyId)).encryptionKeyId))
    expect(new Set(ids).size).toBe(1)
  })
})

describe('a ciphertext cannot be decrypted', () => {
  /** A writer of the database must not be able to read a key through a row of their own. */
  test('in the row of another key', async () => {
    const { workspace, apiId, keyId, key, decrypted } = await prepare()
    const other = await makeKey(workspace, apiId, { recoverable: true })
    const { sql } = server.server.deps
    await sql`
      update encrypted_keys e set ciphertext = o.ciphertext from encrypted_keys o
       where e.key_id = ${other.keyId} and o.key_id = ${keyId}`
    const errors = spyOn(process.stderr, 'write').mockImplementation(() => true)
    const answer = await server.get('keys.getKey', { keyId: other.keyId, decrypt: true }, workspace.rootKey)
    const logged = errors.mock.calls.map(([text]) => String(text)).join('')
    errors.mockRestore()
    expect(refusalOf(answer)).toMatchObject({ status: 500, code: 'INTERNAL_SERVER_ERROR' })
    expect(JSON.stringify(answer.body)).not.toContain(key)
    expect(logged).toContain(other.keyId)
    expect(logged).not.toContain(key)
    expect((await decrypted()).body.plaintext).toBe(key)
  })

  test('when one bit of it changed', async () => {
    const { workspace, keyId } = await prepare()
    const row = await sealedOf(keyId)
    const bytes = Buffer.from(row.ciphertext.slice(3), 'base64')
    bytes[20] = (bytes[20] ?? 0) ^ 1
    const vault = vaultWith(bytesOf(VAULT_KEY))
    const changed = { ...row, ciphertext: `v1.${bytes.toString('base64')}` }
    await expect(vault.open(scoped(workspace.workspaceId), [changed])).rejects.toThrow(
      'could not be decrypted',
    )
  })

  test('for another workspace, even when the rows are right', async () => {
    const { keyId } = await prepare()
    const other = await prepare()
    const vault = vaultWith(bytesOf(VAULT_KEY))
    const opening = vault.open(scoped(other.workspace.workspaceId), [await sealedOf(keyId)])
    await expect(opening).rejects.toThrow('could not be decrypted')
  })

  test('without its vault key: the cause names data key and vault key, never a secret', async () => {
    const { workspace, keyId } = await prepare()
    const row = await sealedOf(keyId)
    const failed = await vaultWith(newMaster())
      .open(scoped(workspace.workspaceId), [row])
      .catch((cause: Error) => cause)
    expect(failed).toMatchObject({ code: 'INTERNAL_SERVER_ERROR' })
    const reason = failed instanceof Error && failed.cause instanceof Error ? failed.cause.message : ''
    expect(reason).toContain(row.encryptionKeyId)
    expect(reason).toMatch(/mk_[0-9a-f]{16}/)
    expect(reason).toContain('TOLLGATE_VAULT_KEY')
  })
})

describe('changing the vault key', () => {
  test('the first seals, all open, and after a reseal the old one is not needed', async () => {
    const { workspace, keyId, key } = await prepare()
    const [oldMaster, master] = [bytesOf(VAULT_KEY), newMaster()]
    const id = scoped(workspace.workspaceId)
    const open = async (vault: Vault) => (await vault.open(id, [await sealedOf(keyId)])).get(keyId)
    expect(await open(vaultWith(master, oldMaster))).toBe(key)
    const { resealed, total } = await reseal(master, oldMaster)
    expect(resealed).toBe(total)
    expect(await open(vaultWith(master))).toBe(key)
    await expect(open(vaultWith(oldMaster))).rejects.toThrow('could not be decrypted')
    expect(await reseal(master, oldMaster)).toEqual({ resealed: 0, total })
    await reseal(oldMaster, master) // restores the vault key for the other tests
  })

  test('a reseal without the old vault key changes nothing', async () => {
    await prepare()
    const { sql } = server.server.deps
    const before = await sql`select id, sealed, master_key_id from vault_data_keys order by id`
    await expect(reseal(newMaster())).rejects.toThrow('nothing was resealed: data key ')
    expect([...(await sql`select id, sealed, master_key_id from vault_data_keys order by id`)]).toEqual([
      ...before,
    ])
  })
})

/** Keys whose text is lost go on working. */
test('when its vault key is declared lost, old texts are a 412 in each API, and new keys are recoverable', async () => {
  await using database = await openTestDatabase()
  const anotherKey = Buffer.from(newMaster()).toString('base64')
  const start = (env: Record<string, string> = {}) => startTestServer({ database, env })
  let made: Awaited<ReturnType<typeof makeKey>>
  let apiId = ''
  {
    await using first = await start()
    apiId = (await first.post('apis.createApi', { name: 'recoverable' }, OPERATOR_KEY)).body.apiId
    made = (await first.post('keys.createKey', { apiId, recoverable: true }, OPERATOR_KEY)).body
  }
  const refused = start({ TOLLGATE_VAULT_KEY: anotherKey })
  await expect(refused).rejects.toThrow(
    /sealed by vault key mk_[0-9a-f]{16}, and TOLLGATE_VAULT_KEY holds mk_/,
  )
  const errors = spyOn(process.stderr, 'write').mockImplementation(() => true)
  await using next = await start({ TOLLGATE_VAULT_KEY: anotherKey, TOLLGATE_VAULT_LOST: '1' })
  const logged = errors.mock.calls.map(([text]) => String(text)).join('')
  errors.mockRestore()
  expect(logged).toContain('"event":"vault_key_lost"')
  const { keyId, key } = made
  for (const { status, body } of [
    await next.get('keys.getKey', { keyId, decrypt: true }, OPERATOR_KEY),
    await next.get('apis.listKeys', { apiId, decrypt: true }, OPERATOR_KEY),
  ]) {
    expect([status, body.error.code]).toEqual([412, 'PRECONDITION_FAILED'])
    expect(body.error.message).toContain(`key ${keyId} cannot be shown any more`)
  }
  for (const { status, body } of [
    await next.post('/v2/keys.getKey', { keyId, decrypt: true }, OPERATOR_KEY),
    await next.post('/v2/apis.listKeys', { apiId, decrypt: true }, OPERATOR_KEY),
  ]) {
    expect([status, body.error.status]).toEqual([412, 412])
    expect(body.error.detail).toContain(`key ${keyId} cannot be shown any more`)
  }
  expect((await next.get('keys.getKey', { keyId }, OPERATOR_KEY)).status).toBe(200)
  expect((await next.post('keys.verifyKey', { key })).body.valid).toBe(true)
  const rerolled = (await next.post('keys.rerollKey', { keyId, overlap: 0 }, OPERATOR_KEY)).body
  const shown = await next.get('keys.getKey', { keyId: rerolled.keyId, decrypt: true }, OPERATOR_KEY)
  expect(shown.body.plaintext).toBe(rerolled.key)
})

test.skipIf(TEST_DATABASE_URL === null)(
  'without TOLLGATE_VAULT_KEY, recoverable keys are refused on an external database',
  async () => {
    await using bare = await startTestServer({ env: { TOLLGATE_VAULT_KEY: '' } })
    const workspace = await bare.workspace()
    const apiId = await makeApi(workspace)
    const created = await bare.post('keys.createKey', { apiId, recoverable: true }, workspace.rootKey)
    expect(refusalOf(created)).toMatchObject({ status: 412, code: 'PRECONDITION_FAILED' })
    const plaintext = [{ apiId, plaintext: 'text' }]
    const imported = await bare.post('migrations.createKeys', plaintext, workspace.rootKey)
    expect(refusalOf(imported)).toMatchObject({ status: 412, code: 'PRECONDITION_FAILED' })
    expect((await makeKey(workspace, apiId)).key).toBeString()
  },
)
