import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { hashKey } from '../../src/verify/secret.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { outcomeOf } from '../support/outcome.ts'
import { type ServerProcess, spawnServer } from '../support/process.ts'
import { OPERATOR_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const newVaultKey = () => Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString('base64')
const oldKey = newVaultKey()

let database: TestDatabase
let env: Record<string, string>
beforeAll(async () => {
  database = await openTestDatabase()
  env = { TOLLGATE_DATA_DIR: database.dataDir, TOLLGATE_SHARDS: '1', TOLLGATE_VAULT_KEY: oldKey }
  if (database.databaseUrl !== null) env.DATABASE_URL = database.databaseUrl
})
afterAll(() => database[Symbol.asyncDispose]())

const post = async (server: ServerProcess, method: string, body: unknown) =>
  (await server.post(method, body, OPERATOR_KEY)).body

test('keys accepted for import are created once each, even when the server is killed at once', async () => {
  await using first = await spawnServer(env)
  const { apiId } = await post(first, 'apis.createApi', { name: 'queued' })
  const texts = Array.from({ length: 500 }, () => crypto.randomUUID())
  const statuses: number[] = []
  for (let from = 0; from < texts.length; from += 100) {
    const keys = texts
      .slice(from, from + 100)
      .map((text) => ({ hash: { value: hashKey(text), variant: 'sha256_base64' } }))
    const body = { migrationId: 'm_1', apiId, keys }
    statuses.push((await first.post('migrations.enqueueKeys', body, OPERATOR_KEY)).status)
  }
  await first.end('SIGKILL')
  expect(statuses).toEqual(Array(5).fill(202))

  await using second = await spawnServer(env)
  const total = async () => (await second.get('apis.listKeys', { apiId, limit: 1 }, OPERATOR_KEY)).body.total
  for (let wait = 0; wait < 500 && (await total()) < texts.length; wait++) await Bun.sleep(20)
  expect(await total()).toBe(texts.length)
  const verified = await Promise.all(
    texts.map(async (key) => (await second.post('keys.verifyKey', { key })).body.keyId),
  )
  expect(new Set(verified).size).toBe(texts.length)
})

/** The vault key is not in the database, so these steps are the only way to change it. */
test('the vault key is changed by setting both, resealing, and removing the old one', async () => {
  const newKey = newVaultKey()
  const withKeys = (...keys: string[]) => spawnServer({ ...env, TOLLGATE_VAULT_KEY: keys.join(',') })
  const first = await withKeys(oldKey)
  const { apiId } = await post(first, 'apis.createApi', { name: 'recoverable' })
  const { keyId, key } = await post(first, 'keys.createKey', { apiId, recoverable: true })
  await first.end('SIGTERM')
  const read = async (server: ServerProcess) =>
    await server.get('keys.getKey', { keyId, decrypt: true }, OPERATOR_KEY)

  // The start is refused with one line, before anything can fail later.
  const refused = await withKeys(newKey).then(
    () => 'it started',
    (cause: Error) => cause.message,
  )
  const [line = '', ...more] = refused.trim().split('\n').slice(-1)
  expect(more).toEqual([])
  expect(line).toMatch(/sealed by vault key mk_[0-9a-f]{16}, and TOLLGATE_VAULT_KEY holds mk_[0-9a-f]{16}/)
  for (const secret of [oldKey, newKey, key]) expect(refused).not.toContain(secret)

  await using both = await withKeys(newKey, oldKey)
  expect((await read(both)).body.plaintext).toBe(key)
  expect(await reseal(both)).toEqual({
    code: 0,
    output: 'resealed 1 of 1 data keys with the first vault key\n',
    errors: '',
  })
  expect((await read(both)).body.plaintext).toBe(key)
  expect(await reseal(both, '--json')).toEqual({ code: 0, output: '{"resealed":0,"total":1}\n', errors: '' })
  const audited = await both.get('audit.listEvents', { event: 'vault.reseal' }, OPERATOR_KEY)
  expect(audited.body.events).toHaveLength(1)
  await both.end('SIGTERM')

  await using last = await withKeys(newKey)
  expect((await read(last)).body.plaintext).toBe(key)
})

/** Runs `tollgate vault reseal` as an operator does. */
async function reseal(
  { url }: ServerProcess,
  ...words: string[]
): Promise<{ code: number; output: string; errors: string }> {
  const main = `${import.meta.dir}/../../src/main.ts`
  const child = Bun.spawn([process.execPath, main, 'vault', 'reseal', ...words], {
    env: { PATH: process.env.PATH ?? '', TOLLGATE_URL: url, TOLLGATE_ROOT_KEY: OPERATOR_KEY },
    stdout: 'pipe',
    stderr: 'pipe',
  })
  const { out, err, code } = await outcomeOf(child)
  return { code, output: out, errors: err }
}
