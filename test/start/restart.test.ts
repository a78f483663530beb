import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { type ServerProcess, spawnServer } from '../support/process.ts'
import { OPERATOR_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let database: TestDatabase
let env: Record<string, string>
beforeAll(async () => {
  database = await openTestDatabase()
  env = { TOLLGATE_DATA_DIR: database.dataDir, TOLLGATE_SHARDS: '2' }
  if (database.databaseUrl !== null) env.DATABASE_URL = database.databaseUrl
})
afterAll(() => database[Symbol.asyncDispose]())

const post = async (server: ServerProcess, method: string, body: unknown) => {
  const answer = await server.post(method, body, OPERATOR_KEY)
  expect(answer).toMatchObject({ status: 200 })
  return answer.body
}

/** A window longer than any restart. */
const day = { namespace: 'restarts', duration: 86_400_000 * 365, limit: 1000 }

test('a clean stop loses nothing: keys, credits, windows and usage are there after the next start', async () => {
  await using first = await spawnServer(env)
  const { apiId } = await post(first, 'apis.createApi', { name: 'restart' })
  const { key } = await post(first, 'keys.createKey', { apiId, remaining: 100, meta: { a: 1 } })
  for (let i = 0; i < 7; i++) await post(first, 'keys.verifyKey', { key })
  for (let i = 0; i < 9; i++) await post(first, 'ratelimits.limit', { ...day, identifier: 'clean' })
  expect(await first.end('SIGTERM')).toBe(0)

  await using second = await spawnServer(env)
  expect(await post(second, 'keys.verifyKey', { key })).toMatchObject({
    valid: true,
    remaining: 92,
    meta: { a: 1 },
  })
  expect((await post(second, 'ratelimits.limit', { ...day, identifier: 'clean' })).remaining).toBe(990)
  expect(await second.end('SIGINT')).toBe(0)

  await using third = await spawnServer({ ...env, TOLLGATE_SHARDS: '3' })
  expect((await post(third, 'ratelimits.limit', { ...day, identifier: 'clean' })).remaining).toBe(989)
  const analytics = await third.get('analytics.getVerifications', { apiId }, await analyst(third))
  expect(analytics.body).toMatchObject([{ total: 8, valid: 8 }])
  expect(await third.end('SIGTERM')).toBe(0)

  await using fourth = await spawnServer({ ...env, TOLLGATE_SHARDS: '0' })
  expect((await post(fourth, 'ratelimits.limit', { ...day, identifier: 'clean' })).remaining).toBe(988)
})

/** The operator root key holds `*`, which is not enough for analytics. */
const analyst = async (server: ServerProcess) =>
  (await post(server, 'rootKeys.createRootKey', { permissions: ['api.*.read_api'] })).rootKey

describe('kill -9 at any moment', () => {
  /** Keys and credits are written before the answer, counts at most one flush later. */
  test('loses no acknowledged key and no acknowledged credit, and at most one flush interval of counts', async () => {
    const acknowledged: { key: string; remaining: number }[] = []
    const flushMs = 200
    for (let round = 0; round < (IS_NIGHTLY ? 3 : 1); round++) {
      await using server = await spawnServer({ ...env, TOLLGATE_FLUSH_MS: String(flushMs) })
      const { apiId } = await post(server, 'apis.createApi', { name: 'crash' })
      const identifier = `crash ${round}`
      const takenAt: number[] = []
      let isKilled = false
      const work = async () => {
        while (!isKilled) {
          const made = { key: '', remaining: 50 }
          made.key = (await server.post('keys.createKey', { apiId, remaining: 50 }, OPERATOR_KEY)).body.key
          acknowledged.push(made)
          for (let use = 0; use < 3 && !isKilled; use++)
            made.remaining = (await server.post('keys.verifyKey', { key: made.key })).body.remaining
          await server.post('ratelimits.limit', { ...day, limit: 1_000_000, identifier }, OPERATOR_KEY)
          takenAt.push(performance.now())
        }
      }
      const workers = Array.from({ length: 4 }, () => work().catch(() => {})) // cut off by the kill
      await Bun.sleep(700 + 300 * round)
      const killedAt = performance.now()
      isKilled = true
      await server.end('SIGKILL')
      await Promise.all(workers)

      await using next = await spawnServer(env)
      for (const { key, remaining } of acknowledged) {
        const { body } = await next.post('keys.verifyKey', { key, remaining: { cost: 0 } })
        // A credit whose answer the kill cut off may have been taken: never more than one, and none is given back.
        expect(body).toMatchObject({ valid: true })
        expect(body.remaining).toBeGreaterThanOrEqual(remaining - 1)
        expect(body.remaining).toBeLessThanOrEqual(remaining)
      }
      const look = { ...day, limit: 1_000_000, identifier, cost: 0 }
      const { body } = await next.post('ratelimits.limit', look, OPERATOR_KEY)
      const counted = 1_000_000 - body.remaining
      // Two intervals: a flush may have been running, and its statement takes time.
      const safe = takenAt.filter((at) => at < killedAt - 2 * flushMs).length
      expect(counted).toBeGreaterThanOrEqual(safe)
      expect(counted).toBeLessThanOrEqual(takenAt.length + workers.length)
      acknowledged.length = 0
      await next.end('SIGTERM')
    }
  })
})

test('a revoked key stays revoked over kill -9 and restart', async () => {
  await using first = await spawnServer(env)
  const { rootKeyId, rootKey } = await post(first, 'rootKeys.createRootKey', { permissions: ['*'] })
  await post(first, 'rootKeys.deleteRootKey', { rootKeyId })
  await first.end('SIGKILL')
  await using second = await spawnServer(env)
  expect((await second.post('apis.createApi', { name: 'name' }, rootKey)).body.error.code).toBe(
    'UNAUTHORIZED',
  )
})

test.if(!process.env.TEST_DATABASE_URL)(
  'a second server on the same embedded database is refused with one line',
  async () => {
    await using _first = await spawnServer(env)
    const refused = await spawnServer(env).catch((cause: Error) => cause.message)
    expect(refused).toContain('ended with 1')
    expect(refused).toContain(database.dataDir)
  },
)

describe('the operator root key', () => {
  test('is generated at the first start into a file of mode 0600, and works after every later start', async () => {
    await using fresh = await openTestDatabase()
    const settings: Record<string, string> = { TOLLGATE_ROOT_KEY: '', TOLLGATE_DATA_DIR: fresh.dataDir }
    if (fresh.databaseUrl !== null) settings.DATABASE_URL = fresh.databaseUrl
    await using first = await spawnServer(settings)
    const file = Bun.file(`${fresh.dataDir}/root-key`)
    const rootKey = (await file.text()).trim()
    expect((await file.stat()).mode & 0o777).toBe(0o600)
    expect(first.output()).toContain(`${fresh.dataDir}/root-key`)
    expect(first.output()).not.toContain(rootKey)
    expect((await first.post('apis.createApi', { name: 'name' }, rootKey)).status).toBe(200)
    await first.end('SIGKILL')
    await using second = await spawnServer(settings)
    expect((await file.text()).trim()).toBe(rootKey)
    expect((await second.post('apis.createApi', { name: 'name' }, rootKey)).status).toBe(200)
    expect(second.output()).not.toContain('operator root key')
  })

  test('from TOLLGATE_ROOT_KEY is registered beside earlier ones', async () => {
    await using server = await spawnServer({ ...env, TOLLGATE_ROOT_KEY: 'another_operator_key' })
    for (const rootKey of ['another_operator_key', OPERATOR_KEY])
      expect((await server.get('workspaces.listWorkspaces', {}, rootKey)).status).toBe(200)
  })
})

test('a wrong variable ends the start with one line that names it, its value and the wanted form', async () => {
  const wrong: [Record<string, string>, RegExp][] = [
    [{ PORT: 'http' }, /PORT is "http"; it must be a whole number from 0 to 65535/],
    [{ TOLLGATE_FLUSH_MS: '0' }, /TOLLGATE_FLUSH_MS is "0"/],
    [{ TOLLGATE_SHARDS: '1.5' }, /TOLLGATE_SHARDS is "1.5"/],
    [{ TOLLGATE_HTTP_THREADS: '0' }, /TOLLGATE_HTTP_THREADS is "0"/],
    [
      { TOLLGATE_SHARDS: '0', TOLLGATE_HTTP_THREADS: '2' },
      /TOLLGATE_SHARDS is "0"; it must be at least 1 because TOLLGATE_HTTP_THREADS is 2/,
    ],
    [{ TOLLGATE_PUBLIC_URL: 'example.org' }, /TOLLGATE_PUBLIC_URL is "example.org"/],
    [{ DATABASE_URL: 'mysql://user:secret@host/db' }, /DATABASE_URL begins with "mysql:"/],
    [{ TOLLGATE_ROOT_KEY: 'short' }, /TOLLGATE_ROOT_KEY has 5 characters/],
    [{ TOLLGATE_VAULT_KEY: 'AAAA' }, /TOLLGATE_VAULT_KEY has 3 bytes of base64 in entry 1/],
    [
      { TOLLGATE_TRUSTED_PROXIES: '10.0.0.0/8, proxy' },
      /TOLLGATE_TRUSTED_PROXIES has "proxy"; it must be addresses or CIDR ranges/,
    ],
  ]
  for (const [settings, line] of wrong) {
    const message = await spawnServer({ ...env, ...settings }).catch((cause: Error) => cause.message)
    expect(message).toMatch(line)
    expect(message).toContain('ended with 1')
    expect(message).not.toContain('secret')
    expect(String(message).trim().split('\n')).toHaveLength(1)
  }
})
