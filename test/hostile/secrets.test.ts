import { beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect, type DatabaseAddress } from '../../src/db/connect.ts'
import { copyEmbedded, openTestDatabase, TEST_DATABASE_URL } from '../support/database.ts'
import { spawnServer } from '../support/process.ts'
import { callsTo, type Json, OPERATOR_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(2 * SLOW_MS)

/**
 * A server in its own process, with full logging, does everything that involves secrets: correctly, wrongly, and while its
 * database fails. Then every place with remaining data is searched for each secret.
 */

const PASSWORD = `password-${crypto.randomUUID()}`
const VAULT = crypto.getRandomValues(Buffer.alloc(32))

type Place = { name: string; text: string }
const secrets = new Map<string, string>()
/** Places that must not contain a secret. */
const places: Place[] = []
/** Modes of files in the data directory, by path. */
const modes = new Map<string, number>()

beforeAll(async () => {
  secrets.set('operator root key', OPERATOR_KEY)
  secrets.set('vault key', VAULT.toString('base64'))
  secrets.set('vault key, hex', VAULT.toString('hex'))
  secrets.set('vault key, bytes', VAULT.toString('latin1'))
  if (TEST_DATABASE_URL !== null) secrets.set('password of the database', PASSWORD)
  const umask = process.umask(0) // the most permissive one
  try {
    await runScenario()
  } finally {
    process.umask(umask)
  }
}, 2 * SLOW_MS)

async function runScenario(): Promise<void> {
  await using database = await openTestDatabase()
  const parent = mkdtempSync(join(tmpdir(), 'tollgate-secrets-'))
  const dataDir = join(parent, 'data')
  if (database.databaseUrl === null) {
    // As an earlier version left it: readable by all.
    mkdirSync(dataDir, { mode: 0o700 })
    await copyEmbedded(dataDir)
    chmodSync(join(dataDir, 'postgres', 'PG_VERSION'), 0o666)
  }
  const env = {
    TOLLGATE_DATA_DIR: dataDir,
    DATABASE_URL: withPassword(database.databaseUrl),
    TOLLGATE_VAULT_KEY: VAULT.toString('base64'),
    TOLLGATE_LOG_LEVEL: 'debug',
    TOLLGATE_ACCESS_LOG: '1',
    TOLLGATE_FLUSH_MS: '50',
    TOLLGATE_SHARDS: '1',
    TOLLGATE_HTTP_THREADS: '2',
    TOLLGATE_SOCKET: join(parent, 'tollgate.sock'),
  }
  try {
    await using server = await spawnServer(env)
    const address: DatabaseAddress =
      database.databaseUrl === null
        ? { kind: 'embedded', socketPath: join(dataDir, 'postgres.sock') }
        : { kind: 'url', url: database.databaseUrl }
    const sql = connect(address, { connectionsMax: 1 })
    await useSecrets(server.url)
    // A server error, with a secret in each request.
    await sql`alter table keys rename to keys_elsewhere`
    await useSecrets(server.url)
    await sql`alter table keys_elsewhere rename to keys`
    // Files that the embedded database creates now.
    await sql`create table made_later (text text)`
    await sql`insert into made_later values ('anything')`
    await sql`checkpoint`
    await Bun.sleep(200)
    for (const { name } of await sql<{ name: string }[]>`
      select relname as name from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace`) {
      const rows = await sql<{ row: string }[]>`select to_jsonb(t)::text as row from ${sql(name)} t`
      places.push({ name: `table ${name}`, text: rows.map(({ row }) => row).join('\n') })
    }
    places.push({ name: 'metrics', text: await (await fetch(`${server.url}/metrics`)).text() })
    await sql.end({ timeout: 1 })
    readModes(dataDir)
    await server.end('SIGSEGV') // for the output of a crash
    places.push({ name: 'output', text: server.output() })
    for (const path of modes.keys())
      if (statSync(path).isFile()) places.push({ name: path, text: readFileSync(path, 'latin1') })
  } finally {
    rmSync(parent, { recursive: true, force: true })
  }
  await failToStart(env)
}

/** The suite's Postgres accepts any password. */
function withPassword(text: string | null): string {
  if (text === null) return ''
  const url = new URL(text)
  url.password = PASSWORD
  return url.href
}

/**
 * Makes every request that contains or creates a secret. Answers become places, without the secrets that they should
 * contain.
 */
async function useSecrets(url: string): Promise<void> {
  const { get, post } = callsTo(url)
  const note = (route: string, { body }: { body: Json }, ...shown: (string | undefined)[]) => {
    let text = JSON.stringify(body)
    for (const each of shown) if (each !== undefined) text = text.replaceAll(each, '…')
    places.push({ name: `answer of ${route}`, text })
    return body
  }
  const learn = (what: string, secret: string | undefined) => {
    if (secret !== undefined) secrets.set(`${what} ${secrets.size}`, secret)
    return secret ?? 'not made'
  }
  const made = await post('workspaces.createWorkspace', { name: 'secretive' }, OPERATOR_KEY)
  const rootKey = learn('root key', made.body.rootKey)
  note('workspaces.createWorkspace', made, rootKey)
  const child = await post('rootKeys.createRootKey', { permissions: ['api.*.read_api'] }, rootKey)
  const weak = learn('root key', child.body.rootKey)
  note('rootKeys.createRootKey', child, weak)
  const { apiId } = note('apis.createApi', await post('apis.createApi', { name: 'an api' }, rootKey))
  const created = await post(
    'keys.createKey',
    { apiId, recoverable: true, prefix: 'demo', remaining: 9 },
    rootKey,
  )
  const key = learn('key', created.body.key)
  note('keys.createKey', created, key)
  const keyId = created.body.keyId
  note('keys.getKey', await get('keys.getKey', { keyId, decrypt: true }, rootKey), key)
  const imported = [0, 1].map(() => learn('imported key', `imported_${crypto.randomUUID()}`))
  note(
    'migrations.createKeys',
    await post('migrations.createKeys', [{ apiId, plaintext: imported[0] }], rootKey),
  )
  // The same again: refused with a message that names the duplicate.
  note(
    'migrations.createKeys',
    await post('migrations.createKeys', [{ apiId, plaintext: imported[0] }], rootKey),
  )
  const queued = { migrationId: 'm', apiId, keys: [{ plaintext: imported[1] }, { plaintext: imported[0] }] }
  note('migrations.enqueueKeys', await post('migrations.enqueueKeys', queued, rootKey))
  for (const each of [key, rootKey, weak, `${key}x`, imported[0]]) {
    note('keys.verifyKey', await post('keys.verifyKey', { key: each, tags: ['a'] }))
    note('keys.verifyKey', await post('keys.verifyKey', { key: each, ratelimits: [{ name: 'unknown' }] }))
    note('auth.forward', await get('auth.forward', {}, null, { 'x-api-key': each ?? '' }))
    note('auth.forward', await get('auth.forward', { apiId }, each ?? ''))
    note('keys.whoami', await post('keys.whoami', { key: each }, rootKey))
    note('keys.whoami', await post('keys.whoami', { key: each }, weak))
    note('apis.listApis', await get('apis.listApis', {}, each ?? ''))
    note('a key as text', await post('apis.createApi', { name: 5, key: each }, each ?? ''))
    note('malformed', await post('keys.verifyKey', `{"key":"${each}"`, rootKey))
  }
  for (const [route, query] of [
    ['apis.listKeys', { apiId }],
    ['audit.listEvents', {}],
    ['rootKeys.listRootKeys', {}],
    ['analytics.getVerifications', { apiId, groupBy: 'key' }],
    ['liveness', {}],
  ] as const)
    note(route, await get(route, query, rootKey))
  note(
    'rootKeys.updateRootKey',
    await post('rootKeys.updateRootKey', { rootKeyId: child.body.rootKeyId, enabled: false }, rootKey),
  )
  note('apis.listApis', await get('apis.listApis', {}, weak))
  note('keys.deleteKey', await post('keys.deleteKey', { keyId }, rootKey))
}

/** Starts that fail with one line, each about a secret. */
async function failToStart(env: Record<string, string>): Promise<void> {
  const attempts: Record<string, string>[] = [
    { DATABASE_URL: `postgres://postgres:${PASSWORD}@127.0.0.1:1/nothing` },
    { DATABASE_URL: `postgres://postgres:${PASSWORD}@127.0.0.1:port/nothing` },
    { DATABASE_URL: `mysql://root:${PASSWORD}@127.0.0.1/nothing` },
    { DATABASE_URL: PASSWORD },
    { TOLLGATE_VAULT_KEY: `${VAULT.toString('base64')}!` },
    { TOLLGATE_VAULT_KEY: VAULT.toString('hex') },
    { TOLLGATE_ROOT_KEY: `${OPERATOR_KEY} ` },
  ]
  secrets.set('password of the database', PASSWORD)
  const parent = mkdtempSync(join(tmpdir(), 'tollgate-secrets-'))
  for (const wrong of attempts) {
    const failure: unknown = await spawnServer({
      ...env,
      DATABASE_URL: '',
      TOLLGATE_DATA_DIR: join(parent, 'data'),
      ...wrong,
    }).then(
      () => new Error('it started'),
      (cause: unknown) => cause,
    )
    const text = failure instanceof Error ? failure.message : ''
    expect(text).toStartWith('the server ended with 1')
    places.push({ name: `failed start with ${Object.keys(wrong)}`, text })
  }
  rmSync(parent, { recursive: true, force: true })
}

function readModes(folder: string): void {
  modes.set(folder, statSync(folder).mode & 0o777)
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name)
    if (existsSync(path)) modes.set(path, statSync(path).mode & 0o777)
  }
}

test('no secret is in the log, an answer, a table, a file of the data directory, or the output of a crash or a failed start', () => {
  expect(secrets.size).toBeGreaterThan(8)
  const output = places.find(({ name }) => name === 'output')?.text ?? ''
  // Proves that it logged and failed; otherwise there would be nothing to find.
  expect(output.match(/"event":"request"/g)?.length).toBeGreaterThan(60)
  expect(output).toContain('request_failed')
  expect(output).toContain('keys')
  expect(places.find(({ name }) => name === 'table encrypted_keys')?.text).toContain('ciphertext')
  const found: string[] = []
  for (const { name, text } of places)
    for (const [what, secret] of secrets) {
      // The end of a secret is secret too; its beginning may be shown.
      if (text.includes(secret) || text.includes(secret.slice(-12))) found.push(`${what} in ${name}`)
    }
  expect(found).toEqual([])
})

test('the search finds a secret where there is one', () => {
  const key = [...secrets].find(([what]) => what.startsWith('key'))?.[1] ?? ''
  expect(key.length).toBeGreaterThan(20)
  const hash = new Bun.CryptoHasher('sha256').update(key).digest('base64')
  // The stored hash is found in the same way.
  expect(places.filter(({ text }) => text.includes(hash)).map(({ name }) => name)).toContain('table keys')
})

test('only the server’s user may read its files, whatever the umask', () => {
  expect(modes.size).toBeGreaterThan(TEST_DATABASE_URL === null ? 500 : 3)
  const open = [...modes].filter(([, mode]) => (mode & 0o077) !== 0)
  expect(open.map(([path, mode]) => `${mode.toString(8)} ${path}`)).toEqual([])
})
