import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { existsSync, statSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { listen } from '../../src/doors/http/listen.ts'
import { createApp } from '../../src/server/app.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { spawnServer } from '../support/process.ts'
import { OPERATOR_KEY, startTestServer } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let database: TestDatabase
let env: Record<string, string>
let path: string
beforeAll(async () => {
  database = await openTestDatabase()
  path = `${database.dataDir}/http.sock`
  env = { TOLLGATE_DATA_DIR: database.dataDir, TOLLGATE_SOCKET: path }
  if (database.databaseUrl !== null) env.DATABASE_URL = database.databaseUrl
})
afterAll(() => database[Symbol.asyncDispose]())

const limitThroughSocket = async () => {
  const response = await fetch('http://localhost/v1/ratelimits.limit', {
    unix: path,
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${OPERATOR_KEY}` },
    body: JSON.stringify({ identifier: 'x', limit: 10, duration: 86_400_000 * 365 }),
  })
  return { status: response.status, body: await response.json() }
}

test('with TCP and a socket, both count in the same windows; the socket is for owner and group, and gone after a stop', async () => {
  await using server = await spawnServer(env)
  expect(server.output()).toContain(`and ${path}`)
  expect(statSync(path).mode & 0o777).toBe(0o660)
  expect(await limitThroughSocket()).toMatchObject({ status: 200, body: { remaining: 9 } })
  const body = { identifier: 'x', limit: 10, duration: 86_400_000 * 365 }
  expect((await server.post('ratelimits.limit', body, OPERATOR_KEY)).body.remaining).toBe(8)
  expect(await server.end('SIGTERM')).toBe(0)
  expect(existsSync(path)).toBe(false)
})

test('a socket file of a killed server does not prevent a start', async () => {
  await using first = await spawnServer(env)
  await first.end('SIGKILL')
  expect(existsSync(path)).toBe(true)
  await using second = await spawnServer(env)
  expect((await limitThroughSocket()).status).toBe(200)
  await second.end('SIGTERM')
})

/** A stop waits for its clients. A path that it removed after that could belong to the next server by then. */
test('the next server may listen as soon as a stop has begun, and keeps its socket when that stop ends', async () => {
  await using server = await startTestServer()
  const { deps } = server.server
  const where = {
    host: '',
    port: null,
    socketPath: `${path}-handed-over`,
    connectionsMax: 10,
    memoryBytesMax: 2 ** 22,
    isShared: false,
    counts: deps.measures.connections,
  }
  const first = await listen(createApp(deps), where)
  const held = connect(where.socketPath)
  // The second request is incomplete, so the connection stays open for it.
  held.write('GET /v1/liveness HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v1/liveness HTTP/1.1\r\n')
  await new Promise((resolve) => held.once('data', resolve))
  let isStopped = false
  const stopping = first.stop().then(() => {
    isStopped = true
  })
  const second = await listen(createApp(deps), where)
  expect(isStopped).toBe(false)
  held.destroy()
  await stopping
  const answer = await fetch('http://localhost/v1/liveness', { unix: where.socketPath })
  expect(answer.status).toBe(200)
  await second.stop()
  expect(existsSync(where.socketPath)).toBe(false)
})

test('with PORT=none the socket is the only way in', async () => {
  // Waits for the log line: the file exists a moment before the server listens.
  await using server = await spawnServer({ ...env, PORT: 'none' })
  expect(server.url).toBe(path)
  expect((await limitThroughSocket()).status).toBe(200)
})

test('a socket in use, or a file that is not a socket, ends the start with one line', async () => {
  await using other = await openTestDatabase()
  const elsewhere: Record<string, string> = { ...env, TOLLGATE_DATA_DIR: other.dataDir }
  if (other.databaseUrl !== null) elsewhere.DATABASE_URL = other.databaseUrl
  const refusal = (settings: Record<string, string>) =>
    spawnServer(settings).catch((cause: Error) => cause.message)
  {
    await using _server = await spawnServer(env)
    expect(await refusal(elsewhere)).toContain(`another server listens on TOLLGATE_SOCKET ${path}`)
  }
  const file = `${other.dataDir}/file`
  writeFileSync(file, 'something')
  expect(await refusal({ ...elsewhere, TOLLGATE_SOCKET: file })).toContain('is a file but not a socket')
  expect(await refusal({ ...elsewhere, TOLLGATE_SOCKET: '', PORT: 'none' })).toContain('PORT is "none"')
})
