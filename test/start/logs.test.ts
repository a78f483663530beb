import { expect, setDefaultTimeout, test } from 'bun:test'
import { readConfig } from '../../src/config.ts'
import { logLine } from '../../src/log.ts'
import { openTestDatabase } from '../support/database.ts'
import { spawnServer } from '../support/process.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

async function outputOf(env: Record<string, string>): Promise<string> {
  await using database = await openTestDatabase()
  await using server = await spawnServer({
    DATABASE_URL: database.databaseUrl ?? '',
    TOLLGATE_DATA_DIR: database.dataDir,
    ...env,
  })
  await server.post('keys.verifyKey', { key: 'unknown' })
  expect(await server.end('SIGTERM')).toBe(0)
  return server.output()
}

/** Shards are threads of their own, which the level must reach too. */
test('requests are logged only when configured, and the log level applies in every thread', async () => {
  const usual = await outputOf({})
  expect(usual).toContain('"event":"shard_started"')
  expect(usual).not.toContain('/v1/keys.verifyKey')
  const quiet = await outputOf({ TOLLGATE_LOG_LEVEL: 'error', TOLLGATE_ACCESS_LOG: '1' })
  expect(quiet).not.toContain('"level"')
})

test('the access log has a line for each request, as JSON when there is no terminal', async () => {
  const output = await outputOf({ TOLLGATE_ACCESS_LOG: '1' })
  const line = output.split('\n').find((text) => text.includes('/v1/keys.verifyKey')) ?? ''
  expect(JSON.parse(line)).toEqual({
    at: expect.any(String),
    level: 'info',
    event: 'request',
    message: 'a request',
    requestId: expect.stringMatching(/^req_/),
    route: '/v1/keys.verifyKey',
    status: 200,
    tookMs: expect.any(Number),
  })
})

/** Bug: only the handler of unhandled rejections kept it alive, and it logged the lost reader as an error of its own. */
test('a server whose log has no reader any more continues in every thread, without a message, and stops cleanly', async () => {
  await using database = await openTestDatabase()
  await using server = await spawnServer({
    DATABASE_URL: database.databaseUrl ?? '',
    TOLLGATE_DATA_DIR: database.dataDir,
    TOLLGATE_HTTP_THREADS: '3',
    TOLLGATE_ACCESS_LOG: '1',
    TOLLGATE_SLOW_MS: '1', // for warnings too
  })
  const verify = () => server.post('keys.verifyKey', { key: 'unknown' }, null, { connection: 'close' })
  for (const stream of ['stdout', 'stderr'] as const) {
    await server.stopReading(stream)
    for (let round = 0; round < 5; round++) {
      const answers = await Promise.all(Array.from({ length: 10 }, verify))
      expect(answers.map(({ status }) => status)).toEqual(Array(10).fill(200))
    }
  }
  const metrics = await (await fetch(`${server.url}/metrics`)).text()
  for (const thread of [0, 1, 2]) expect(metrics).toContain(`tollgate_thread_up{thread="http-${thread}"} 1\n`)
  expect(await server.end('SIGTERM')).toBe(0)
  expect(server.output()).not.toContain('"level":"error"')
})

test('on a terminal an event is one readable line', () => {
  const line = logLine({
    at: new Date('2030-01-01T12:00:00.123Z'),
    level: 'warn',
    event: 'slow_request',
    message: 'a request took long',
    fields: { route: '/v1/x', tookMs: 1200.5 },
    isPretty: true,
  })
  expect(Bun.stripANSI(line)).toBe(
    '12:00:00.123 warn  a request took long  event=slow_request  route=/v1/x  tookMs=1200.5',
  )
})

test('wrong values are refused with the valid ones', () => {
  expect(() => readConfig({ TOLLGATE_LOG_LEVEL: 'loud' })).toThrow(
    'TOLLGATE_LOG_LEVEL is "loud"; it must be one of debug, info, warn, error',
  )
  expect(() => readConfig({ TOLLGATE_SLOW_MS: '-1' })).toThrow('TOLLGATE_SLOW_MS')
})
