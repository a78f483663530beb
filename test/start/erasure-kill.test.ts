import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { spawnServer } from '../support/process.ts'
import { OPERATOR_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(2 * SLOW_MS)

let database: TestDatabase
beforeAll(async () => {
  database = await openTestDatabase()
})
afterAll(async () => await database[Symbol.asyncDispose]())

test('an erasure whose server is killed -9 in the middle is finished by the next start, and no key comes back', async () => {
  const start = () =>
    spawnServer({
      DATABASE_URL: database.databaseUrl ?? '',
      TOLLGATE_DATA_DIR: database.dataDir,
      TOLLGATE_HTTP_THREADS: '1',
      // For slow machines, and because the embedded database has one session.
      TOLLGATE_DB_TIMEOUT_MS: '20000',
    })
  const first = await start()
  const post = async (server: typeof first, method: string, body: unknown) =>
    (await server.post(method, body, OPERATOR_KEY)).body
  const { apiId } = await post(first, 'apis.createApi', { name: 'killed' })
  const externalId = 'someone@killed.example'
  const keys = Array.from({ length: 1000 }, (_, index) => `killed-${index}`)
  for (let from = 0; from < keys.length; from += 100) {
    const batch = keys.slice(from, from + 100).map((plaintext) => ({ apiId, externalId, plaintext }))
    await post(first, 'migrations.createKeys', batch)
  }

  // Killed in the middle of the sweep: the keys are revoked by then, and some are deleted.
  const erasing = first.post('identities.eraseIdentity', { externalId }, OPERATOR_KEY).catch(() => null)
  const known = async (server: typeof first) =>
    (await server.get('audit.listEvents', { event: 'identity.erase' }, OPERATOR_KEY)).body.events.length
  while ((await known(first)) === 0) await Bun.sleep(1)
  while ((await first.post('keys.verifyKey', { key: keys[0] })).body.code !== 'NOT_FOUND') await Bun.sleep(1)
  await first.end('SIGKILL')
  await erasing

  await using second = await start()
  for (const key of [keys[0], keys[500], keys[999]])
    expect((await second.post('keys.verifyKey', { key })).body.code).toBe('NOT_FOUND')
  // The call cannot be repeated: the audit log no longer has an identity with that external id.
  const created = async () =>
    (await second.get('audit.listEvents', { event: 'key.create', limit: 100 }, OPERATOR_KEY)).body.events
  while ((await created()).some((event: { description: string }) => !event.description.includes('erased_')))
    await Bun.sleep(50)
  const reply = await post(second, 'identities.eraseIdentity', { externalId })
  expect(reply.complete).toBe(true)
  expect(await known(second)).toBe(1)
})
