import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Finding } from '../../src/db/inspect.ts'
import { TEST_DATABASE_URL } from '../support/database.ts'
import { freePort } from '../support/nginx.ts'
import { outcomeOf } from '../support/outcome.ts'
import { startTestServer, type TestServer } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

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

const spawn = (words: string[], env: Record<string, string>) =>
  outcomeOf(
    Bun.spawn([process.execPath, join(import.meta.dir, '../../src/main.ts'), 'doctor', ...words], {
      cwd: folder,
      env: { PATH: process.env.PATH ?? '', HOME: process.env.HOME ?? '', ...env },
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'pipe',
    }),
  )

async function doctor(env: Record<string, string>) {
  const { code, out } = await spawn(['--json'], env)
  const { isWell, findings }: { isWell: boolean; findings: Finding[] } = JSON.parse(out)
  expect(code).toBe(isWell ? 0 : 1)
  expect(isWell).toBe(findings.every(({ status }) => status !== 'problem'))
  for (const { text } of findings) expect(text).not.toContain('\n')
  const of = (name: string) => findings.filter(({ check }) => check === name)
  return { isWell, of }
}

test('a correct installation has no findings, and the check creates nothing', async () => {
  const env = { PORT: String(await freePort()), TOLLGATE_DATA_DIR: join(folder, 'new') }
  const { isWell, of } = await doctor(env)
  expect(isWell).toBe(true)
  expect(of('data dir')[0]?.text).toContain('which the first start creates')
  expect(of('database')[0]?.text).toContain('embedded, not created yet')
  expect(of('server')[0]?.text).toContain('is free')
  expect(existsSync(env.TOLLGATE_DATA_DIR)).toBe(false)
  const { code, out, err } = await spawn([], env)
  expect({ code, err }).toEqual({ code: 0, err: '' })
  expect(out).toContain('no problems')
})

test('a running server is found by TOLLGATE_URL, or at HOST and PORT', async () => {
  for (const env of [{ TOLLGATE_URL: server.url }, { PORT: new URL(server.url).port }]) {
    const { isWell, of } = await doctor({ ...env, TOLLGATE_DATA_DIR: server.server.deps.config.dataDir })
    expect(isWell).toBe(true)
    expect(of('server')[0]?.text).toBe(`Tollgate runs at ${server.url}; its database is ok`)
  }
})

test('a port used by another program is a problem', async () => {
  for (const answer of [() => new Response('hello'), () => Response.json({ hello: 1 })]) {
    await using other = Bun.serve({ hostname: '127.0.0.1', port: 0, fetch: answer })
    const { of } = await doctor({ PORT: String(other.port) })
    expect(of('server')).toMatchObject([{ status: 'problem' }])
  }
  const { of } = await doctor({ HOST: '192.0.2.1', PORT: String(await freePort()) })
  expect(of('server')).toMatchObject([{ status: 'problem', text: expect.stringContaining('set HOST') }])
})

test('an unusable or misspelt variable is named', async () => {
  const wrong = await doctor({ TOLLGATE_FLUSH_MS: 'soon', TOLLGATE_SOKET: '/x' })
  expect(wrong.of('configuration')).toMatchObject([
    { status: 'warning', text: expect.stringContaining('TOLLGATE_SOCKET') },
    { status: 'problem', text: expect.stringContaining('TOLLGATE_FLUSH_MS is "soon"') },
  ])
  // Other commands name a mistyped variable on stderr. The doctor already has it among its findings.
  const once = await spawn([], { TOLLGATE_FLUSH_MS: 'soon', TOLLGATE_SOKET: '/x' })
  expect(once.err).toBe('')
  expect(once.out.match(/TOLLGATE_SOKET/g)).toHaveLength(1)
  const secret = await spawn([], { DATABASE_URL: 'postgres://u:SECRET%@h/db' })
  expect(secret).toMatchObject({ code: 1, err: '' })
  expect(secret.out).toContain('write %25')
  expect(secret.out).not.toContain('SECRET')
})

test('a data directory that cannot be written is a problem', async () => {
  const file = join(folder, 'file')
  writeFileSync(file, '')
  for (const path of [file, join(file, 'below')])
    expect((await doctor({ TOLLGATE_DATA_DIR: path })).of('data dir')).toMatchObject([{ status: 'problem' }])
})

test('too few open files are a warning with the numbers', async () => {
  const { of } = await doctor({ TOLLGATE_CONNECTIONS_MAX: '1000000', PORT: String(await freePort()) })
  const [found] = of('open files')
  // Only Linux shows this limit.
  if (existsSync('/proc/self/limits')) expect(found).toMatchObject({ status: 'warning' })
})

test.skipIf(TEST_DATABASE_URL === null)(
  'a Postgres is checked, and an unreachable one is a problem',
  async () => {
    const found = await doctor({ DATABASE_URL: TEST_DATABASE_URL ?? '', PORT: String(await freePort()) })
    expect(found.isWell).toBe(true)
    for (const check of ['version', 'encoding', 'writable', 'clock', 'pooler', 'schema', 'rights'])
      expect(found.of(check)).toMatchObject([{ status: 'ok' }])
  },
)

test('an unreachable Postgres is a problem', async () => {
  const { isWell, of } = await doctor({ DATABASE_URL: 'postgres://u@127.0.0.1:1/db' })
  expect(isWell).toBe(false)
  expect(of('connection')[0]?.text).toContain('nothing listens at 127.0.0.1:1')
})
