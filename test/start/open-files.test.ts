import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { readConfig } from '../../src/config.ts'
import { withinOpenFiles } from '../../src/server/open-files.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { spawnServer } from '../support/process.ts'
import { RawClient } from '../support/raw-client.ts'
import { OPERATOR_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let database: TestDatabase
let env: Record<string, string>
beforeAll(async () => {
  database = await openTestDatabase()
  env = { TOLLGATE_DATA_DIR: database.dataDir, TOLLGATE_HTTP_THREADS: '1', TOLLGATE_SHARDS: '1' }
  if (database.databaseUrl !== null) env.DATABASE_URL = database.databaseUrl
})
afterAll(() => database[Symbol.asyncDispose]())

/** Bug: connections used up all files, so that the thread spun and the database seemed to be away. */
test.skipIf(process.platform !== 'linux')(
  'idle connections beyond the limit of open files are refused in time and logged, and the database still answers',
  async () => {
    const openFilesMax = 500
    await using server = await spawnServer(env, { openFilesMax })
    const lines = server
      .output()
      .split('\n')
      .filter((line) => line.includes('connections_lowered'))
    expect(lines.length).toBe(1)
    const { connectionsMax } = JSON.parse(lines[0] ?? '')
    expect(connectionsMax).toBeGreaterThan(50)
    expect(connectionsMax).toBeLessThan(openFilesMax)

    const port = Number(new URL(server.url).port)
    const clients = Array.from({ length: 700 }, () => new RawClient(port))
    const first = clients[0]
    await first?.send('GET /v1/liveness HTTP/1.1\r\nHost: a\r\n\r\n')
    expect((await first?.answer())?.body).toContain('"database":"ok"')
    // Exactly the surplus connections are refused.
    await Promise.all(clients.slice(connectionsMax).map((client) => client.closed()))
    const body = JSON.stringify({ name: 'needs a connection to the database' })
    await first?.send(
      `POST /v1/apis.createApi HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${OPERATOR_KEY}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    )
    expect((await first?.answer())?.status).toBe(200)
    for (const client of clients) client[Symbol.dispose]()
  },
)

test('a low limit is shared by all listeners, and a sufficient one changes nothing', () => {
  const config = readConfig({
    DATABASE_URL: 'postgres://a@b/c',
    TOLLGATE_SOCKET: '/tmp/x',
    TOLLGATE_HTTP_THREADS: '3',
    TOLLGATE_SHARDS: '1',
    TOLLGATE_CONNECTIONS_MAX: '1000',
  })
  expect(withinOpenFiles(config, null)).toBe(config)
  expect(withinOpenFiles(config, 10_000)).toBe(config)
  const lowered = withinOpenFiles(config, 1024).listen.connectionsMax
  expect(lowered).toBeGreaterThan(200)
  expect(4 * lowered).toBeLessThan(1024)
  expect(withinOpenFiles(config, 10).listen.connectionsMax).toBe(1)
})
