import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openTestDatabase, TEST_DATABASE_URL, type TestDatabase } from '../support/database.ts'
import { outcomeOf } from '../support/outcome.ts'
import { spawnServer } from '../support/process.ts'
import { SLOW_MS } from '../support/timeout.ts'

/** Secrets in files instead of in variables. */
setDefaultTimeout(SLOW_MS)

const ROOT_KEY = 'root_key_from_a_file_of_the_tests'
let folder: string
let database: TestDatabase
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tollgate-secrets-'))
  database = await openTestDatabase()
})
afterAll(async () => {
  rmSync(folder, { recursive: true, force: true })
  await database[Symbol.asyncDispose]()
})

let files = 0
function fileWith(text: string, { mode = 0o600, name = `secret-${++files}` } = {}): string {
  const path = join(folder, name)
  writeFileSync(path, text, { mode })
  chmodSync(path, mode) // whatever the umask is
  return path
}

const main = join(import.meta.dir, '../../src/main.ts')
const run = (args: string[], env: Record<string, string>) =>
  outcomeOf(
    Bun.spawn([process.execPath, main, ...args], {
      env: { PATH: process.env.PATH ?? '', PORT: '0', TOLLGATE_DATA_DIR: database.dataDir, ...env },
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'pipe',
    }),
  )
const start = (env: Record<string, string>) =>
  spawnServer({
    TOLLGATE_ROOT_KEY: '',
    TOLLGATE_DATA_DIR: database.dataDir,
    ...(database.databaseUrl !== null && { DATABASE_URL: database.databaseUrl }),
    ...env,
  })

test('a root key from a file works at the server and at the command line', async () => {
  const path = fileWith(`${ROOT_KEY}\n`)
  await using server = await start({ TOLLGATE_ROOT_KEY_FILE: path })
  expect((await server.get('workspaces.listWorkspaces', {}, ROOT_KEY)).status).toBe(200)
  const listed = await run(['workspace', 'list'], { TOLLGATE_URL: server.url, TOLLGATE_ROOT_KEY_FILE: path })
  expect([listed.err, listed.code]).toEqual(['', 0])
})

test('credentials of systemd are found by their names, unless the variable or its file is set', async () => {
  const credentials = join(folder, 'credentials')
  mkdirSync(credentials)
  fileWith(ROOT_KEY, { name: 'credentials/TOLLGATE_ROOT_KEY' })
  const own = `${ROOT_KEY}_in_the_environment`
  for (const [env, key] of [
    [{}, ROOT_KEY],
    [{ TOLLGATE_ROOT_KEY: own }, own],
    [{ TOLLGATE_ROOT_KEY_FILE: fileWith(own) }, own],
  ] as const) {
    await using server = await start({ CREDENTIALS_DIRECTORY: credentials, ...env })
    expect((await server.get('workspaces.listWorkspaces', {}, key)).status).toBe(200)
  }
})

test.skipIf(TEST_DATABASE_URL === null)(
  'the URL of the database and the vault key may be in files',
  async () => {
    const env = {
      DATABASE_URL: '',
      DATABASE_URL_FILE: fileWith(database.databaseUrl ?? ''),
      TOLLGATE_VAULT_KEY_FILE: fileWith(Buffer.alloc(32, 'v').toString('base64')),
      TOLLGATE_ROOT_KEY: ROOT_KEY,
    }
    await using server = await start(env)
    const { apiId } = (await server.post('apis.createApi', { name: 'from files' }, ROOT_KEY)).body
    await server.post('apis.updateApi', { apiId, storeEncryptedKeys: true }, ROOT_KEY)
    const made = await server.post('keys.createKey', { apiId, recoverable: true }, ROOT_KEY)
    expect(made.status).toBe(200)
  },
)

test.each([
  ['missing', () => join(folder, 'nowhere'), 'cannot be used: the file or its folder does not exist'],
  ['a folder', () => folder, 'cannot be used: it is a folder, not a file'],
  ['empty', () => fileWith(' \n'), 'cannot be used: it is empty'],
  ['no root key', () => fileWith('too_short'), 'has 9 characters; it must have 16 to 256 printable'],
])('a file that is %s ends the start with one line, without its text', async (_, make, problem) => {
  const path = make()
  const { code, out, err } = await run(['serve'], { TOLLGATE_ROOT_KEY_FILE: path })
  expect([code, out, err.split('\n').length]).toEqual([1, '', 2])
  expect(err).toContain(`TOLLGATE_ROOT_KEY_FILE ${path} ${problem}`)
  expect(err).not.toContain('too_short')
})

test('a variable and its file together end the start', async () => {
  const env = { TOLLGATE_ROOT_KEY: ROOT_KEY, TOLLGATE_ROOT_KEY_FILE: fileWith(ROOT_KEY) }
  const { code, err } = await run(['serve'], env)
  expect([code, err]).toEqual([
    1,
    'TOLLGATE_ROOT_KEY and TOLLGATE_ROOT_KEY_FILE are both set; set one of them\n',
  ])
})

test('a file that every user can read is named in the log, another is not', async () => {
  for (const [mode, told] of [
    [0o644, 1],
    [0o600, 0],
  ] as const) {
    const path = fileWith(ROOT_KEY, { mode })
    await using server = await start({ TOLLGATE_ROOT_KEY_FILE: path })
    const log = server.output()
    expect(log.split('secret_file_exposed').length - 1).toBe(told)
    expect(log.includes(path)).toBe(told === 1)
    expect(log).not.toContain(ROOT_KEY)
  }
})
