import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { readdirSync } from 'node:fs'
import { openTestDatabase, TEST_DATABASE_URL, type TestDatabase } from '../support/database.ts'
import { spawnServer } from '../support/process.ts'
import { OPERATOR_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { openWire } from '../support/wire.ts'

setDefaultTimeout(SLOW_MS)

/** Only a Postgres of the test's own can be stopped alone: the embedded one lives and dies with its server. */
describe.if(TEST_DATABASE_URL !== null)('while Postgres is away', () => {
  let database: TestDatabase
  beforeAll(async () => {
    database = await openTestDatabase()
  })
  afterAll(() => database[Symbol.asyncDispose]())

  const day = { namespace: 'outage', identifier: 'x', duration: 86_400_000 * 365, limit: 1000 }

  test('limits and cached keys continue, a stop keeps unsent counts, and the next start sends them once', async () => {
    await using wire = await openWire({ kind: 'url', url: database.databaseUrl ?? '' })
    if (wire.address.kind !== 'url') throw new Error('this test needs a real Postgres')
    const env = {
      TOLLGATE_DATA_DIR: database.dataDir,
      DATABASE_URL: wire.address.url,
      TOLLGATE_FLUSH_MS: '100',
    }
    await using first = await spawnServer(env)
    const post = async (method: string, body: unknown) => (await first.post(method, body, OPERATOR_KEY)).body
    const { apiId } = await post('apis.createApi', { name: 'outage' })
    const { key } = await post('keys.createKey', { apiId })
    const counted = await post('keys.createKey', { apiId, remaining: 10 })
    await post('ratelimits.limit', day)
    await post('keys.verifyKey', { key })
    await post('keys.verifyKey', { key: counted.key })

    await wire.cut()
    for (let i = 0; i < 5; i++) {
      expect(await post('ratelimits.limit', day)).toMatchObject({ success: true, remaining: 998 - i })
      expect(await post('keys.verifyKey', { key })).toMatchObject({ valid: true })
    }
    // Unknown results are errors: never NOT_FOUND, and never a credit given away.
    const failure = { status: 500, body: { error: { code: 'INTERNAL_SERVER_ERROR' } } }
    expect(await first.post('keys.verifyKey', { key: 'never seen before' })).toMatchObject(failure)
    expect(await first.post('keys.verifyKey', { key: counted.key })).toMatchObject(failure)
    // A proxy gets this error too, and then decides by its own configuration.
    expect((await first.get('auth.forward', { apiId }, key)).status).toBe(200)
    expect(await first.get('auth.forward', { apiId }, 'never seen before')).toMatchObject(failure)
    expect(await first.post('apis.createApi', { name: 'name' }, OPERATOR_KEY)).toMatchObject(failure)
    expect((await first.get('liveness')).body.services.database).toBe('away')

    const values = async () => {
      const text = await (await fetch(`${first.url}/metrics`)).text()
      const sampleOf = (name: string) => Number(new RegExp(`^${name}(?:{[^}]*})? (.*)$`, 'm').exec(text)?.[1])
      const lags = [
        sampleOf('tollgate_limiter_flush_lag_seconds'),
        sampleOf('tollgate_usage_flush_lag_seconds'),
      ]
      return { up: sampleOf('tollgate_database_up'), isLate: lags.every((lag) => lag > 0) }
    }
    while (!(await values()).isLate) await Bun.sleep(50) // flushes are due every 100 ms
    expect(await values()).toEqual({ up: 0, isLate: true })

    const stoppingAt = performance.now()
    expect(await first.end('SIGTERM')).toBe(0)
    expect(performance.now() - stoppingAt).toBeLessThan(10_000)
    expect(readdirSync(`${database.dataDir}/spill`).length).toBeGreaterThan(0)

    await wire.open()
    for (let start = 0; start < 2; start++) {
      await using next = await spawnServer(env)
      const { body: looked } = await next.post('ratelimits.limit', { ...day, cost: 0 }, OPERATOR_KEY)
      expect(looked.remaining).toBe(994)
      const { body } = await next.post(
        'rootKeys.createRootKey',
        { permissions: ['api.*.read_api'] },
        OPERATOR_KEY,
      )
      // The first flush sends the spill files.
      while (readdirSync(`${database.dataDir}/spill`).length > 0) await Bun.sleep(20)
      const usage = await next.get('analytics.getVerifications', { apiId }, body.rootKey)
      expect(usage.body).toMatchObject([{ total: 8, valid: 8 }])
      expect(await next.end('SIGTERM')).toBe(0)
    }
  })

  test('frozen: limits and cached keys are answered as before, other calls fail in time, and everything recovers with it', async () => {
    await using wire = await openWire({ kind: 'url', url: database.databaseUrl ?? '' })
    if (wire.address.kind !== 'url') throw new Error('this test needs a real Postgres')
    await using server = await spawnServer({
      TOLLGATE_DATA_DIR: database.dataDir,
      DATABASE_URL: wire.address.url,
      TOLLGATE_DB_TIMEOUT_MS: '1000',
    })
    const post = async (method: string, body: unknown) => (await server.post(method, body, OPERATOR_KEY)).body
    const { apiId } = await post('apis.createApi', { name: 'frozen' })
    const { key } = await post('keys.createKey', { apiId })
    const counted = await post('keys.createKey', { apiId, remaining: 10 })
    const take = { ...day, identifier: 'frozen too' }
    const warm = () => Promise.all([post('ratelimits.limit', take), post('keys.verifyKey', { key })])
    await warm()
    await post('keys.verifyKey', { key: counted.key })

    wire.freeze()
    const timed = async (method: string, body: unknown) => {
      const began = performance.now()
      const { status, body: reply } = await server.post(method, body, OPERATOR_KEY)
      return { ms: performance.now() - began, status, code: reply.error?.code }
    }
    const needsDatabase: [string, unknown][] = [
      ['keys.verifyKey', { key: 'cold' }],
      ['keys.verifyKey', { key: counted.key }],
      ['keys.createKey', { apiId }],
      ['ratelimits.limit', { ...take, namespace: 'a new one' }],
    ]
    for (const wait of [1500, 300]) {
      const answers = await Promise.all(needsDatabase.map(([method, body]) => timed(method, body)))
      for (const { ms, status, code } of answers) {
        expect([status, code]).toEqual([500, 'INTERNAL_SERVER_ERROR'])
        expect(ms).toBeLessThan(wait)
      }
      expect(await warm()).toMatchObject([{ success: true }, { valid: true }])
    }
    expect((await server.get('liveness')).body.services.database).toBe('away')

    await wire.cut()
    await wire.open()
    const backAt = performance.now()
    while ((await timed('keys.createKey', { apiId })).status !== 200) await Bun.sleep(50)
    expect(performance.now() - backAt).toBeLessThan(5000)
    // Refused calls took nothing.
    expect(await post('keys.verifyKey', { key: counted.key })).toMatchObject({ valid: true, remaining: 8 })
    await server.end('SIGTERM')
  })

  /** A frozen database is worse than a stopped one: only a time limit can detect it. */
  test('a stop while the database does not answer takes less than ten seconds and loses no count', async () => {
    await using wire = await openWire({ kind: 'url', url: database.databaseUrl ?? '' })
    if (wire.address.kind !== 'url') throw new Error('this test needs a real Postgres')
    const env = {
      TOLLGATE_DATA_DIR: database.dataDir,
      DATABASE_URL: wire.address.url,
      TOLLGATE_HTTP_THREADS: '2',
      TOLLGATE_FLUSH_MS: '200',
    }
    await using first = await spawnServer(env)
    const take = { ...day, identifier: 'frozen' }
    await first.post('ratelimits.limit', take, OPERATOR_KEY)
    wire.freeze()
    for (let i = 0; i < 5; i++) await first.post('ratelimits.limit', take, OPERATOR_KEY)
    const stoppingAt = performance.now()
    expect(await first.end('SIGTERM')).toBe(0)
    expect(performance.now() - stoppingAt).toBeLessThan(10_000)
    await wire.cut()
    await wire.open()
    await using next = await spawnServer(env)
    const { body } = await next.post('ratelimits.limit', { ...take, cost: 0 }, OPERATOR_KEY)
    expect(body.remaining).toBe(994)
    expect(await next.end('SIGTERM')).toBe(0)
  })
})

test('a start without its database ends with one line, which never contains the password', async () => {
  await using database = await openTestDatabase()
  const message = await spawnServer({
    TOLLGATE_DATA_DIR: database.dataDir,
    DATABASE_URL: 'postgres://user:secret_word@127.0.0.1:1/none',
  }).catch((cause: Error) => cause.message)
  expect(message).toContain('ended with 1')
  expect(message).toContain('DATABASE_URL')
  expect(message).not.toContain('secret_word')
  // Besides the event that every start begins with.
  const lines = String(message).trim().split('\n')
  expect(lines.filter((line) => !line.includes('"event":"starting"'))).toHaveLength(1)
})

describe('a stop', () => {
  test('answers requests in flight, then accepts no more', async () => {
    await using database = await openTestDatabase()
    const env: Record<string, string> = { TOLLGATE_DATA_DIR: database.dataDir }
    if (database.databaseUrl !== null) env.DATABASE_URL = database.databaseUrl
    await using server = await spawnServer(env)
    const body = { identifier: 'x', limit: 10_000, duration: 86_400_000 * 365 }
    let answered = 0
    let refused = 0
    const work = async () => {
      while (refused < 8) {
        try {
          const { status } = await server.post('ratelimits.limit', body, OPERATOR_KEY)
          expect(status).toBe(200)
          answered++
        } catch {
          refused++ // refused the connection, not the call: no client gets a wrong answer
        }
      }
    }
    const workers = Array.from({ length: 8 }, work)
    await Bun.sleep(500)
    expect(await server.end('SIGTERM')).toBe(0)
    await Promise.all(workers)
    expect(answered).toBeGreaterThan(0)
    await using next = await spawnServer(env)
    const { body: looked } = await next.post('ratelimits.limit', { ...body, cost: 0 }, OPERATOR_KEY)
    // Each answer is counted. A call cut off on the wire may be counted without an answer, one for each connection.
    expect(10_000 - looked.remaining).toBeGreaterThanOrEqual(answered)
    expect(10_000 - looked.remaining).toBeLessThanOrEqual(answered + 8)
  })

  test('ends at once after a second signal', async () => {
    await using database = await openTestDatabase()
    const env: Record<string, string> = { TOLLGATE_DATA_DIR: database.dataDir }
    if (database.databaseUrl !== null) env.DATABASE_URL = database.databaseUrl
    await using server = await spawnServer(env)
    server.process.kill('SIGTERM')
    const stoppingAt = performance.now()
    // 0 when the first stop ended before the second signal.
    expect(await server.end('SIGTERM')).toBeOneOf([0, 1])
    expect(performance.now() - stoppingAt).toBeLessThan(5000)
  })
})
