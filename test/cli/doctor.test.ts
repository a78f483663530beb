import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { judgeAddress, judgeSpills } from '../../src/cli/doctor/around.ts'
import {
  lookAtCores,
  lookAtMemory,
  lookAtOpenFiles,
  lookAtOwner,
  lookAtProcessor,
  lookAtSpace,
} from '../../src/cli/doctor/machine.ts'
import type { DoctorFinding } from '../../src/cli/doctor.ts'
import { readConfig } from '../../src/config.ts'
import { connect } from '../../src/db/connect.ts'
import { lookAtMigrations, lookAtRoundTrip, lookAtServers, lookAtTls } from '../../src/db/examine.ts'
import { readDatabaseUrl } from '../../src/lib/database-url.ts'
import { VERSION } from '../../src/lib/version.ts'
import { runHere } from '../support/command-line.ts'
import { openTestDatabase, TEST_DATABASE_URL } from '../support/database.ts'
import { freePort } from '../support/nginx.ts'
import { startTestServer, type TestServer, VAULT_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

/** A test for each check that makes it fail. What a database may be besides is in `test/db/inspect.test.ts`. */
setDefaultTimeout(SLOW_MS)

let folder: string
let server: TestServer
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tollgate-test-doctor-'))
  server = await startTestServer()
})
afterAll(async () => {
  await server[Symbol.asyncDispose]()
  rmSync(folder, { recursive: true })
})

async function doctor(env: Record<string, string>) {
  const { code, out, err } = await runHere(['doctor', '--json'], { env })
  const { version, isWell, findings }: { version: string; isWell: boolean; findings: DoctorFinding[] } =
    JSON.parse(out)
  expect([err, version]).toEqual(['', VERSION])
  expect(code).toBe(isWell ? 0 : 1)
  expect(isWell).toBe(findings.every(({ status }) => status !== 'fail'))
  for (const { text } of findings) expect(text).not.toContain('\n')
  const of = (name: string) => findings.filter(({ check }) => check === name)
  return { isWell, findings, of }
}

const CONFIG = readConfig({
  TOLLGATE_SHARDS: '1',
  TOLLGATE_HTTP_THREADS: '1',
  DATABASE_URL: 'postgres://h/d',
})

test('a correct installation has no problems, and the check creates nothing', async () => {
  const env = { PORT: String(await freePort()), TOLLGATE_DATA_DIR: join(folder, 'new') }
  const { isWell, of } = await doctor(env)
  expect(isWell).toBe(true)
  expect(of('data dir')[0]?.text).toContain('which the first start creates')
  expect(of('database')[0]?.text).toContain('embedded, not created yet')
  expect(of('server')[0]?.text).toContain('is free')
  expect(existsSync(env.TOLLGATE_DATA_DIR)).toBe(false)
  const { code, out, err } = await runHere(['doctor'], { env })
  expect({ code, err }).toEqual({ code: 0, err: '' })
  expect(out).toMatch(/^ok +machine +data dir +/m)
  expect(out).toContain('no problems')
})

/** Scripts read it. */
test('with --json each finding has the same four fields, in the four areas', async () => {
  const { findings } = await doctor({
    PORT: String(await freePort()),
    TOLLGATE_DATA_DIR: join(folder, 'new'),
  })
  for (const each of findings) {
    expect(Object.keys(each).sort()).toEqual(['area', 'check', 'status', 'text'])
    expect(['ok', 'warn', 'fail']).toContain(each.status)
  }
  expect([...new Set(findings.map(({ area }) => area))]).toEqual([
    'configuration',
    'machine',
    'database',
    'around',
  ])
})

describe('configuration', () => {
  test('each unusable value is a problem, each unknown variable a warning, and no secret is repeated', async () => {
    const wrong = await doctor({ TOLLGATE_FLUSH_MS: 'soon', PORT: 'x', TOLLGATE_SOKET: '/x' })
    expect(wrong.of('variables')).toMatchObject([
      { status: 'warn', text: expect.stringContaining('TOLLGATE_SOCKET') },
      { status: 'fail', text: expect.stringContaining('PORT is "x"') },
      { status: 'fail', text: expect.stringContaining('TOLLGATE_FLUSH_MS is "soon"') },
    ])
    const once = await runHere(['doctor'], { env: { TOLLGATE_FLUSH_MS: 'soon', TOLLGATE_SOKET: '/x' } })
    expect([once.code, once.err]).toEqual([1, ''])
    expect(once.out.match(/TOLLGATE_SOKET/g)).toHaveLength(1)
    const secret = await runHere(['doctor'], { env: { DATABASE_URL: 'postgres://u:SECRET%@h/db' } })
    expect(secret.out).toContain('write %25')
    expect(secret.out).not.toContain('SECRET')
  })

  test('a file with a secret that everybody can read is a warning', async () => {
    const path = join(folder, 'root-key-file')
    writeFileSync(path, 'a_root_key_of_the_tests')
    const look = async (mode: number) => {
      chmodSync(path, mode)
      return (await doctor({ TOLLGATE_ROOT_KEY_FILE: path })).of('secret files')
    }
    expect(await look(0o600)).toEqual([])
    expect(await look(0o644)).toMatchObject([{ status: 'warn', text: expect.stringContaining('chmod 600') }])
  })
})

describe('machine', () => {
  test('a data directory that cannot be written is a problem', async () => {
    const file = join(folder, 'file')
    writeFileSync(file, '')
    for (const path of [file, join(file, 'below')])
      expect((await doctor({ TOLLGATE_DATA_DIR: path })).of('data dir')).toMatchObject([{ status: 'fail' }])
  })

  test('a data directory or a secret in it that others may open, or that others own, is a warning', () => {
    const dataDir = join(folder, 'owned')
    mkdirSync(dataDir, { mode: 0o700 })
    writeFileSync(join(dataDir, 'vault-key'), '', { mode: 0o600 })
    const uid = process.getuid?.() ?? -1
    const look = (as = uid) => lookAtOwner({ dataDir }, as)
    expect(look()).toMatchObject([{ status: 'ok' }])
    chmodSync(join(dataDir, 'vault-key'), 0o640)
    expect(look()).toMatchObject([
      { status: 'warn', text: expect.stringContaining(`chmod 600 ${join(dataDir, 'vault-key')}`) },
    ])
    chmodSync(dataDir, 0o755)
    expect(look()).toMatchObject([
      { status: 'warn', text: expect.stringContaining(`chmod 700 ${dataDir}`) },
      { status: 'warn' },
    ])
    expect(look(uid + 1)).toMatchObject([
      { status: 'warn', text: expect.stringContaining('belongs to another user') },
      { status: 'warn' },
    ])
    expect(look(-1)).toEqual([]) // a system without owners
  })

  test('little space, few open files, little memory, and more threads than cores are warnings', () => {
    expect(lookAtSpace('/data', 512)).toMatchObject({ status: 'ok' })
    expect(lookAtSpace('/data', 511)).toMatchObject({
      status: 'warn',
      text: expect.stringContaining('/data'),
    })
    expect(lookAtOpenFiles(CONFIG, 20_000)).toMatchObject([{ status: 'ok' }])
    expect(lookAtOpenFiles(CONFIG, 1024)).toMatchObject([
      { status: 'warn', text: expect.stringContaining('the limit is 1024') },
    ])
    // 256 MiB of windows, 128 of keys, 64 of requests, and what the threads need.
    expect(lookAtMemory(CONFIG, 640)).toMatchObject({ status: 'ok' })
    expect(lookAtMemory(CONFIG, 639)).toMatchObject({
      status: 'warn',
      text: expect.stringContaining('there are 639 MiB, and about 640 may be needed'),
    })
    expect(lookAtCores(CONFIG, 1)).toMatchObject({ status: 'ok' })
    const many = readConfig({ TOLLGATE_HTTP_THREADS: '8' })
    expect(lookAtCores(many, 4)).toMatchObject({
      status: 'warn',
      text: expect.stringContaining('share 4 cores'),
    })
  })

  test('a processor without AVX2 is a warning where the program is built with it', () => {
    expect(lookAtProcessor('x64', ['sse4_2', 'avx2'])).toMatchObject([{ status: 'ok' }])
    expect(lookAtProcessor('x64', ['sse4_2'])).toMatchObject([{ status: 'warn' }])
    expect(lookAtProcessor('arm64', ['asimd'])).toEqual([])
    expect(lookAtProcessor('x64', null)).toEqual([])
  })

  test('a running server is found by TOLLGATE_URL, or at HOST and PORT', async () => {
    for (const env of [{ TOLLGATE_URL: server.url }, { PORT: new URL(server.url).port }]) {
      const { of } = await doctor({ ...env, TOLLGATE_DATA_DIR: server.server.deps.config.dataDir })
      expect(of('server')[0]?.text).toBe(`Tollgate ${VERSION} runs at ${server.url}; its database is ok`)
    }
  })

  test('a port used by another program is a problem', async () => {
    for (const answer of [() => new Response('hello'), () => Response.json({ hello: 1 })]) {
      await using other = Bun.serve({ hostname: '127.0.0.1', port: 0, fetch: answer })
      const { of } = await doctor({ PORT: String(other.port) })
      expect(of('server')).toMatchObject([{ status: 'fail' }])
    }
    const { of } = await doctor({ HOST: '192.0.2.1', PORT: String(await freePort()) })
    expect(of('server')).toMatchObject([{ status: 'fail', text: expect.stringContaining('set HOST') }])
  })
})

describe('database', () => {
  test('an unreachable Postgres is a problem', async () => {
    const { isWell, of } = await doctor({ DATABASE_URL: 'postgres://u@127.0.0.1:1/db' })
    expect(isWell).toBe(false)
    expect(of('connection')[0]?.text).toContain('nothing listens at 127.0.0.1:1')
  })

  test('a database that a newer release migrated is a warning', () => {
    const state = { isNew: false, pending: [], ahead: [] }
    expect(lookAtMigrations(state)).toMatchObject({ status: 'ok', text: 'all are applied' })
    expect(lookAtMigrations({ ...state, isNew: true })).toMatchObject({ status: 'ok' })
    expect(lookAtMigrations({ ...state, pending: ['0099_more.sql'] })).toMatchObject({
      status: 'ok',
      text: expect.stringContaining('1 not applied yet'),
    })
    expect(lookAtMigrations({ ...state, ahead: ['0099_more.sql'] })).toMatchObject({
      status: 'warn',
      text: expect.stringContaining('0099_more.sql'),
    })
  })

  test('a connection over a network that is not encrypted, or not verified, is a warning', () => {
    const look = (place: string, isTls: boolean | null) =>
      lookAtTls(readDatabaseUrl(`postgres://u@${place}`), isTls).status
    expect(look('127.0.0.1/d', false)).toBe('ok')
    expect(look('/d?host=/var/run/postgresql', false)).toBe('ok')
    expect(look('[::1]/d?sslmode=require', true)).toBe('ok')
    expect(look('db.example/d', false)).toBe('warn')
    expect(look('db.example/d?sslmode=prefer', false)).toBe('warn')
    expect(look('db.example/d?sslmode=require', true)).toBe('warn')
    expect(look('db.example/d?sslmode=require&sslrootcert=/ca', true)).toBe('ok')
    expect(look('db.example/d?sslmode=verify-full', true)).toBe('ok')
    // Through a pooler only the URL tells.
    expect(look('db.example/d?sslmode=verify-full', null)).toBe('ok')
    expect(look('db.example/d?sslmode=prefer', null)).toBe('warn')
  })

  test('a database far away is a warning with the time of a round trip', () => {
    expect(lookAtRoundTrip(0.41)).toMatchObject({ status: 'ok', text: '0.4 ms' })
    expect(lookAtRoundTrip(12)).toMatchObject({ status: 'warn', text: expect.stringContaining('12.0 ms') })
  })

  test.skipIf(TEST_DATABASE_URL === null)('a Postgres is checked, and nothing is made in it', async () => {
    const name = `tollgate_test_${Math.floor(Date.now() / 1000)}_doctor`
    const admin = connect({ kind: 'url', url: TEST_DATABASE_URL ?? '' }, { connectionsMax: 1 })
    await admin`create database ${admin(name)}`
    const url = new URL(TEST_DATABASE_URL ?? '')
    url.pathname = `/${name}`
    try {
      const found = await doctor({ DATABASE_URL: url.href, PORT: String(await freePort()) })
      expect(found.isWell).toBe(true)
      const checks = 'version encoding writable clock pooler connections schema rights migrations tls'.split(
        ' ',
      )
      for (const check of checks) expect(found.of(check)).toMatchObject([{ area: 'database', status: 'ok' }])
      expect(found.of('round trip')).toHaveLength(1)
      expect(found.of('servers')).toMatchObject([
        { status: 'ok', text: expect.stringContaining('none was seen') },
      ])
      const own = connect({ kind: 'url', url: url.href }, { connectionsMax: 1 })
      const tables = await own`select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                               where nspname = 'public'`
      await own.end()
      expect(tables).toHaveLength(0)
    } finally {
      await admin`drop database ${admin(name)} with (force)`
      await admin.end()
    }
  })
})

describe('around', () => {
  const trusting = (proxies: string) => startTestServer({ env: { TOLLGATE_TRUSTED_PROXIES: proxies } })
  const publicUrl = async (url: string) => (await doctor({ TOLLGATE_PUBLIC_URL: url })).of('public url')

  test('the public URL tells which address arrives', async () => {
    expect(await publicUrl(server.url)).toMatchObject([
      { status: 'ok', text: `through ${server.url} this machine arrives as 127.0.0.1` },
    ])
  })

  test('a public URL that nobody or another program answers is a warning', async () => {
    const nobody = `http://127.0.0.1:${await freePort()}`
    expect(await publicUrl(nobody)).toMatchObject([
      { status: 'warn', text: expect.stringContaining('cannot be reached') },
    ])
    await using other = Bun.serve({ hostname: '127.0.0.1', port: 0, fetch: () => new Response('hello') })
    expect(await publicUrl(other.url.origin)).toMatchObject([
      { status: 'warn', text: expect.stringContaining('is no Tollgate') },
    ])
  })

  test('a server that believes an invented X-Forwarded-For is a warning, also through a proxy', async () => {
    await using believing = await trusting('127.0.0.1')
    // The proxy of this test appends the address that it saw, as it should; one more range is trusted than it should be.
    await using proxy = Bun.serve({
      hostname: '127.0.0.1',
      port: 0,
      fetch: (request) => {
        const forwarded = [request.headers.get('x-forwarded-for'), '127.0.0.1'].filter(
          (each) => each !== null,
        )
        const { pathname } = new URL(request.url)
        return fetch(`${believing.url}${pathname}`, { headers: { 'X-Forwarded-For': forwarded.join(', ') } })
      },
    })
    for (const url of [believing.url, proxy.url.origin])
      expect(await publicUrl(url)).toMatchObject([
        { status: 'warn', text: expect.stringContaining('clients choose their address') },
      ])
  })

  test('an address of a proxy in place of the client’s is a warning, and no address too', () => {
    const look = (seen: Partial<Parameters<typeof judgeAddress>[1]>) =>
      judgeAddress('https://gate.example', {
        usual: '198.51.100.7',
        invented: '198.51.100.7',
        places: ['203.0.113.1'],
        own: ['127.0.0.1', '10.0.0.9'],
        ...seen,
      })
    expect(look({})).toMatchObject({ status: 'ok', text: expect.stringContaining('as 198.51.100.7') })
    expect(look({ usual: '10.0.0.9' })).toMatchObject({ status: 'ok' }) // this machine itself
    for (const usual of ['10.0.0.5', '127.0.0.1', '172.17.0.1', 'fd00::5'])
      expect(look({ usual, invented: usual })).toMatchObject({
        status: 'warn',
        text: expect.stringContaining('name it in TOLLGATE_TRUSTED_PROXIES'),
      })
    expect(look({ usual: null })).toMatchObject({ status: 'warn' })
  })

  test('servers of another version are a warning that names them', () => {
    const one = { nodeId: 'node_1', host: 'a', version: '1.2.0' }
    expect(lookAtServers([], '1.2.0')).toMatchObject({ status: 'ok' })
    expect(lookAtServers([one, one], '1.2.0')).toMatchObject({
      status: 'ok',
      text: expect.stringContaining('2 seen'),
    })
    expect(lookAtServers([one, { ...one, host: 'b', version: '1.1.0' }], '1.2.0')).toMatchObject({
      status: 'warn',
      text: expect.stringContaining('b (1.1.0)'),
    })
  })

  test('spill files are a warning that says what becomes of them', async () => {
    const dataDir = join(folder, 'spilling')
    mkdirSync(join(dataDir, 'spill'), { recursive: true, mode: 0o700 })
    expect((await doctor({ TOLLGATE_DATA_DIR: dataDir })).of('spill')).toMatchObject([{ status: 'ok' }])
    writeFileSync(join(dataDir, 'spill', 'usage-1.msgpack'), '')
    writeFileSync(join(dataDir, 'spill', 'usage-2.msgpack.unreadable'), '')
    expect((await doctor({ TOLLGATE_DATA_DIR: dataDir })).of('spill')).toMatchObject([
      { status: 'warn', text: expect.stringMatching(/1 waiting for Postgres.*1 damaged/) },
    ])
    const told = judgeSpills('/data', { waiting: 0, rejected: 2, unreadable: 0, otherDatabase: 3 })
    expect(told.text).toMatch(/2 that Postgres refused.*3 of another database/)
  })

  test.skipIf(TEST_DATABASE_URL === null)(
    'beside a server, the database and the vault are right; another vault key is a problem, none a warning',
    async () => {
      await using database = await openTestDatabase()
      const env = {
        DATABASE_URL: database.databaseUrl ?? '',
        TOLLGATE_DATA_DIR: database.dataDir,
        PORT: String(await freePort()),
      }
      // Before the first start nothing is sealed.
      expect((await doctor({ ...env, TOLLGATE_VAULT_KEY: VAULT_KEY })).of('vault')).toMatchObject([
        { status: 'ok' },
      ])
      await using own = await startTestServer({ database })
      const right = await doctor({ ...env, TOLLGATE_VAULT_KEY: VAULT_KEY })
      expect([right.isWell, right.of('vault')[0]?.status]).toEqual([true, 'ok'])
      expect(right.of('servers')[0]?.text).toContain(`1 seen in the last minute, all of version ${VERSION}`)
      expect(right.of('migrations')[0]?.text).toBe('all are applied')
      const another = Buffer.alloc(32, 'another').toString('base64')
      const wrong = await doctor({ ...env, TOLLGATE_VAULT_KEY: another })
      expect([wrong.isWell, wrong.of('vault')]).toMatchObject([
        false,
        [{ status: 'fail', text: expect.stringMatching(/sealed by vault key mk_\w+, and here is mk_/) }],
      ])
      expect(
        (await doctor({ ...env, TOLLGATE_VAULT_KEY: another, TOLLGATE_VAULT_LOST: '1' })).of('vault'),
      ).toMatchObject([
        { status: 'warn', text: expect.stringContaining('TOLLGATE_VAULT_LOST is 1') },
        { status: 'warn' },
      ])
      expect((await doctor(env)).of('vault')).toMatchObject([
        { status: 'warn', text: expect.stringContaining('set TOLLGATE_VAULT_KEY') },
      ])

      const { sql } = own.server.deps
      await sql`insert into servers (node_id, host, version, seen_at)
                values ('node_other', 'elsewhere', '9.9.9', ${Date.now()})`
      await sql`insert into tollgate_migrations (number, name, checksum, applied_at, oldest_server)
                values (9999, '9999_of_a_newer_release.sql', 'x', 0, '99.0.0')`
      const newer = await doctor({ ...env, TOLLGATE_VAULT_KEY: VAULT_KEY })
      expect(newer.of('servers')).toMatchObject([
        { status: 'warn', text: expect.stringContaining('elsewhere (9.9.9)') },
      ])
      expect(newer.of('migrations')).toMatchObject([
        { status: 'fail', text: expect.stringContaining('needs version 99.0.0') },
      ])
    },
  )
})
