import { afterAll, beforeAll, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type ConfigProblem, type Setting, VARIABLES } from '../../src/config.ts'
import { vaultKeyId } from '../../src/lib/vault-key-id.ts'
import { runHere } from '../support/command-line.ts'

let folder: string
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tollgate-config-'))
})
afterAll(() => rmSync(folder, { recursive: true }))

const command = (words: string[], env: Record<string, string>) => runHere(words, { env })

async function config(environment: Record<string, string>) {
  const { code, out, err } = await command(['config', '--json'], environment)
  const { settings, problems }: { settings: Setting[]; problems: ConfigProblem[] } = JSON.parse(out)
  expect(err).toBe('')
  expect(code).toBe(problems.length === 0 ? 0 : 2)
  const of = (name: string) => settings.find((each) => each.name === name)
  return { out, settings, problems, of }
}

const check = async (environment: Record<string, string>) => {
  const { code, out } = await command(['config', 'check', '--json'], environment)
  const { isValid, problems }: { isValid: boolean; problems: ConfigProblem[] } = JSON.parse(out)
  expect(code).toBe(isValid ? 0 : 2)
  return problems.map(({ message }) => message)
}

const vaultKey = Buffer.alloc(32, 'k')

test('every setting has its value and its source, in the order of the help', async () => {
  const path = join(folder, 'url')
  writeFileSync(path, 'postgres://me@db/tollgate\n', { mode: 0o600 })
  const { settings, of, problems } = await config({
    PORT: '4000',
    DATABASE_URL_FILE: path,
    TOLLGATE_SHARDS: '3',
  })
  expect(problems).toEqual([])
  expect(settings.map(({ name }) => name)).toEqual(Object.keys(VARIABLES))
  expect(of('PORT')).toEqual({
    name: 'PORT',
    value: '4000',
    otherwise: '3000',
    source: 'environment',
    path: null,
  })
  expect(of('HOST')).toMatchObject({ value: '127.0.0.1', source: 'default' })
  expect(of('DATABASE_URL')).toMatchObject({ value: 'postgres://me@db/tollgate', source: 'file', path })
  expect(of('DATABASE_URL_FILE')).toMatchObject({ value: path, source: 'environment' })
  expect(of('TOLLGATE_SHARDS')).toMatchObject({ value: '3', source: 'environment' })
  // What depends on the machine or on other variables is shown as it is in effect.
  expect(Number(of('TOLLGATE_HTTP_THREADS')?.value)).toBeGreaterThan(0)
  expect(of('TOLLGATE_PUBLIC_URL')).toMatchObject({ value: 'http://127.0.0.1:4000', source: 'default' })
  expect(of('TOLLGATE_METRICS_PORT')).toMatchObject({ value: null, otherwise: 'with the API' })
})

test('no secret is shown, neither as a value nor in a problem', async () => {
  const credentials = join(folder, 'credentials')
  mkdirSync(credentials)
  writeFileSync(join(credentials, 'TOLLGATE_VAULT_KEY'), `${vaultKey.toString('base64')}\n`, { mode: 0o600 })
  const { out, of } = await config({
    CREDENTIALS_DIRECTORY: credentials,
    DATABASE_URL:
      'postgres://me:SECRET1@db:5432/t?sslmode=require&sslpassword=SECRET2&password=SECRET3&options=SECRET4',
    TOLLGATE_ROOT_KEY: 'SECRET5_SECRET5_SECRET5',
    TOLLGATE_URL: 'https://me:SECRET6@tollgate.example',
    OTEL_EXPORTER_OTLP_ENDPOINT: 'https://me:SECRET7@otel.example',
    OTEL_EXPORTER_OTLP_HEADERS: 'authorization=SECRET8',
  })
  expect(out).not.toContain('SECRET')
  expect(out).not.toContain(vaultKey.toString('base64'))
  expect(of('DATABASE_URL')?.value).toBe(
    'postgres://me:***@db:5432/t?sslmode=require&sslpassword=***&password=***&options=***',
  )
  expect(of('TOLLGATE_VAULT_KEY')).toMatchObject({
    value: vaultKeyId(new Uint8Array(vaultKey)),
    source: 'file',
    path: join(credentials, 'TOLLGATE_VAULT_KEY'),
  })
  expect(of('OTEL_EXPORTER_OTLP_HEADERS')).toMatchObject({ value: '***', source: 'environment' })
  const wrong = await config({
    DATABASE_URL: 'postgres://me:SECRET%@db/t',
    TOLLGATE_ROOT_KEY: 'SECRET',
    TOLLGATE_VAULT_KEY: 'SECRET',
    OTEL_EXPORTER_OTLP_ENDPOINT: 'http://h',
    OTEL_EXPORTER_OTLP_HEADERS: 'SECRET',
  })
  expect(wrong.problems).toHaveLength(4)
  expect(wrong.out).not.toContain('SECRET')
})

test('a vault key that an earlier start generated is shown by its id', async () => {
  const dataDir = join(folder, 'data')
  mkdirSync(dataDir)
  writeFileSync(join(dataDir, 'vault-key'), vaultKey.toString('base64'))
  const embedded = await config({ TOLLGATE_DATA_DIR: dataDir })
  expect(embedded.of('TOLLGATE_VAULT_KEY')).toMatchObject({
    value: vaultKeyId(new Uint8Array(vaultKey)),
    source: 'file',
    path: join(dataDir, 'vault-key'),
  })
  const external = await config({ TOLLGATE_DATA_DIR: dataDir, DATABASE_URL: 'postgres://me@db/t' })
  expect(external.of('TOLLGATE_VAULT_KEY')).toMatchObject({ value: null, source: 'default' })
})

test('a valid configuration passes the check', async () => {
  expect(await check({})).toEqual([])
  expect(await command(['config', 'check'], {})).toEqual({
    code: 0,
    out: 'the configuration is valid\n',
    err: '',
  })
})

test('the check names every problem, not only the first', async () => {
  const problems = await check({
    PORT: 'none',
    TOLLGATE_FLUSH_MS: 'soon',
    TOLLGATE_SLOW_MS: '-1',
    TOLLGATE_SOKET: '/x',
    TOLLGATE_ROOT_KEY: 'a_root_key_of_the_tests',
    TOLLGATE_ROOT_KEY_FILE: '/a',
    TOLLGATE_VAULT_KEY_FILE: join(folder, 'nowhere'),
    DATABASE_URL: 'postgres://me@db/t',
    PGSSLROOTCERT: '/no/such/ca.pem',
    OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector',
    OTEL_EXPORTER_OTLP_TIMEOUT: 'long',
    OTEL_TRACES_SAMPLER: 'some',
  })
  for (const part of [
    'PORT is "none"; set TOLLGATE_SOCKET',
    'TOLLGATE_FLUSH_MS is "soon"',
    'TOLLGATE_SLOW_MS is "-1"',
    'TOLLGATE_SOKET is not a variable of Tollgate; did you mean TOLLGATE_SOCKET?',
    'TOLLGATE_ROOT_KEY and TOLLGATE_ROOT_KEY_FILE are both set',
    `TOLLGATE_VAULT_KEY_FILE ${join(folder, 'nowhere')} cannot be used`,
    'DATABASE_URL with PGSSLROOTCERT has sslrootcert=/no/such/ca.pem, which cannot be read',
    'OTEL_EXPORTER_OTLP_TIMEOUT is "long"',
    'OTEL_TRACES_SAMPLER is "some"',
  ])
    expect(problems.filter((each) => each.includes(part))).toHaveLength(1)
  expect(problems).toHaveLength(9)
})

test('settings that exclude each other are found by the check', async () => {
  expect(await check({ PORT: '4000', TOLLGATE_METRICS_PORT: '4000' })).toHaveLength(1)
  expect(await check({ TOLLGATE_SHARDS: '0', TOLLGATE_HTTP_THREADS: '2' })).toHaveLength(1)
})

test('for people there is a line for each setting and one for each problem', async () => {
  const shown = await command(['config'], { TOLLGATE_FLUSH_MS: 'soon' })
  expect(shown).toMatchObject({ code: 2, err: '' })
  expect(shown.out).toMatch(/^PORT +3000 +default$/m)
  expect(shown.out).toMatch(/^TOLLGATE_FLUSH_MS +soon +environment$/m)
  expect(shown.out).toMatch(/^TOLLGATE_SOCKET +\(unset\) +default$/m)
  expect(shown.out.trim().split('\n').at(-1)).toStartWith('wrong: TOLLGATE_FLUSH_MS is "soon"')
  const checked = await command(['config', 'check'], { TOLLGATE_FLUSH_MS: 'soon' })
  expect(checked.out).toBe('wrong: TOLLGATE_FLUSH_MS is "soon"; it must be a whole number from 10 to 60000\n')
})
