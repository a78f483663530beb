import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readConfig } from '../../src/config.ts'
import { copyEmbedded, openTestDatabase, TEST_DATABASE_URL, type TestDatabase } from '../support/database.ts'
import { outcomeOf } from '../support/outcome.ts'
import { spawnServer } from '../support/process.ts'
import { OPERATOR_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

/** Places to listen are tried before anything else, and a problem is reported in one line. */
setDefaultTimeout(SLOW_MS)

const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-places-'))
const other = Bun.listen({ hostname: '127.0.0.1', port: 0, socket: { data() {} } })
/** Holds its port like another Tollgate with several threads. */
const shared = Bun.serve({ hostname: '127.0.0.1', port: 0, reusePort: true, fetch: () => new Response() })
const sharedPort = shared.port ?? 0
let database: TestDatabase
beforeAll(async () => {
  database = await openTestDatabase()
})
afterAll(async () => {
  other.stop(true)
  shared.stop(true)
  rmSync(folder, { recursive: true, force: true })
  await database[Symbol.asyncDispose]()
})

/** The error of a start that must fail, on the embedded database in a folder that does not exist yet. */
async function refusal(env: Record<string, string>) {
  const dataDir = join(folder, crypto.randomUUID())
  const main = join(import.meta.dir, '../../src/main.ts')
  const outcome = await outcomeOf(
    Bun.spawn([process.execPath, main, 'serve'], {
      env: { PATH: process.env.PATH ?? '', PORT: '0', TOLLGATE_DATA_DIR: dataDir, ...env },
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'pipe',
    }),
  )
  return { ...outcome, isUntouched: !existsSync(dataDir) }
}

const inUse = (variable: string, port: number) =>
  `${variable} ${port} is in use by another program on 127.0.0.1; stop that program, or set ${variable} to another port\n`

test('a port in use is reported before a database is created', async () => {
  expect(await refusal({ PORT: String(other.port) })).toEqual({
    code: 1,
    out: '',
    err: inUse('PORT', other.port),
    isUntouched: true,
  })
  expect(await refusal({ TOLLGATE_METRICS_PORT: String(other.port) })).toMatchObject({
    code: 1,
    err: inUse('TOLLGATE_METRICS_PORT', other.port),
    isUntouched: true,
  })
})

/** The kernel would distribute connections over the two servers. */
test('a port that another server shares between its threads is in use, also for a server that would share it', async () => {
  for (const threads of ['1', '2'])
    expect(await refusal({ PORT: String(sharedPort), TOLLGATE_HTTP_THREADS: threads })).toMatchObject({
      code: 1,
      err: inUse('PORT', sharedPort),
    })
})

test('another machine’s address, a missing folder and a repeated port are refused with one line', async () => {
  expect((await refusal({ HOST: '203.0.113.7', PORT: '3000' })).err).toBe(
    'HOST 203.0.113.7 is not an address of this machine; set HOST to one of its addresses, or to 0.0.0.0 for all\n',
  )
  expect((await refusal({ HOST: 'nonsense', PORT: '3000' })).err).toBe(
    'HOST nonsense is not an address of this machine; set HOST to one of its addresses, or to 0.0.0.0 for all\n',
  )
  const path = join(folder, 'nowhere/http.sock')
  expect((await refusal({ TOLLGATE_SOCKET: path })).err).toBe(
    `TOLLGATE_SOCKET ${path} cannot be created: its folder does not exist\n`,
  )
  expect(() => readConfig({ PORT: '3000', TOLLGATE_METRICS_PORT: '3000' })).toThrow(
    'TOLLGATE_METRICS_PORT is "3000"; it must not be the same port as PORT',
  )
})

test('a data directory in use is reported with the process that holds it', async () => {
  const embedded = { TOLLGATE_DATA_DIR: join(folder, 'held'), DATABASE_URL: '' }
  await copyEmbedded(embedded.TOLLGATE_DATA_DIR)
  await using server = await spawnServer(embedded)
  const { err, code } = await refusal(embedded)
  expect(code).toBe(1)
  expect(err).toBe(
    `the data directory ${embedded.TOLLGATE_DATA_DIR} is in use by another server (process ${server.process.pid}); stop it, or set TOLLGATE_DATA_DIR to another folder\n`,
  )
})

test('the first lines have version, data directory, database, threads, documentation and the root key’s file', async () => {
  const dataDir = mkdtempSync(join(folder, 'data-'))
  const url = database.databaseUrl
  const env = { TOLLGATE_DATA_DIR: dataDir, DATABASE_URL: url ?? '', TOLLGATE_ROOT_KEY: '' }
  const firstLines = async () => {
    await using server = await spawnServer(env)
    const line =
      server
        .output()
        .split('\n')
        .find((text) => text.includes('"event":"starting"')) ?? ''
    expect(server.output()).toContain(`Documentation is at ${server.url}/docs\n`)
    expect(await server.end('SIGTERM')).toBe(0)
    return { ...JSON.parse(line), output: server.output() }
  }
  const { default: packageJson } = await import('../../package.json')
  const first = await firstLines()
  expect(first).toMatchObject({
    version: packageJson.version,
    commit: expect.stringMatching(/^([0-9a-f]{12}|unknown)$/),
    dataDir,
    dataDirState: 'new',
    database: url === null ? 'embedded' : `postgres://${new URL(url).host}${new URL(url).pathname}`,
    shards: expect.any(Number),
    httpThreads: expect.any(Number),
  })
  const keyLine = `The operator root key is in ${dataDir}/root-key\n`
  expect(first.output).toContain(keyLine)
  if (url === null) expect(first.output).toMatch(/"event":"database_creating".*\n(.*\n)*.*"database_created"/)
  // The second start prints them too, as the first one's output may be gone.
  const second = await firstLines()
  expect(second).toMatchObject({ dataDirState: 'found' })
  expect(second.output).toContain(`The root key that an earlier start generated is in ${dataDir}/root-key\n`)
  expect(second.output).not.toContain('database_creating')
  expect(readdirSync(dataDir)).toContain('root-key')
})

/** An embedded database is in the same folder as its key. */
const onPostgres = test.if(TEST_DATABASE_URL !== null)
onPostgres('a key file without a root key of this database is not shown as the operator’s', async () => {
  const dataDir = mkdtempSync(join(folder, 'data-'))
  const url = database.databaseUrl ?? ''
  await Bun.write(join(dataDir, 'root-key'), 'tollgate_key_of_another_database\n')
  const env = { TOLLGATE_DATA_DIR: dataDir, DATABASE_URL: url, TOLLGATE_ROOT_KEY: '' }
  {
    await using server = await spawnServer({ ...env, TOLLGATE_ROOT_KEY: OPERATOR_KEY })
    expect(server.output()).not.toContain('root-key')
  }
  await using server = await spawnServer(env)
  expect(server.output()).not.toContain('root-key')
})

test('no line of a start contains the database’s password', async () => {
  const dataDir = join(folder, 'secret')
  const env = {
    TOLLGATE_DATA_DIR: dataDir,
    DATABASE_URL: 'postgres://u:hid%64en@127.0.0.1:1/x?password=hidden',
  }
  const { out, err, code } = await refusal(env)
  expect(code).toBe(1)
  expect(out).toBe('')
  expect(`${out}${err}`).not.toMatch(/hid(%64|d)en/)
})
