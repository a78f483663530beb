import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import packageJson from '../../package.json' with { type: 'json' }
import { connect } from '../../src/db/connect.ts'
import { COMMIT } from '../../src/lib/version.ts'
import { hashKey } from '../../src/verify/secret.ts'
import { CHROMIUM } from '../support/browser.ts'
import { DashboardPage } from '../support/dashboard-page.ts'
import { fillWorkspace, SCREENS } from '../support/dashboard-screens.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { outcomeOf } from '../support/outcome.ts'
import { callsTo, type TestServer } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

/**
 * `bun run build` and its binary, run with nothing but the file itself and the C library, and without variables. The
 * embedded suite starts it from an empty folder, the Postgres suite on an empty database.
 */
setDefaultTimeout(2 * SLOW_MS)

const root = join(import.meta.dir, '../..')
const migrations = readdirSync(join(root, 'sql')).sort()
/** The root folder in which the binary runs. */
let machine: string
let database: TestDatabase
let env: Record<string, string> = {}
let prefix: string[]

beforeAll(async () => {
  machine = mkdtempSync(join(tmpdir(), 'tollgate-test-binary-'))
  database = await openTestDatabase()
  if (database.databaseUrl !== null) {
    env = { DATABASE_URL: database.databaseUrl }
    const sql = connect({ kind: 'url', url: database.databaseUrl }, { connectionsMax: 1 })
    await sql`drop schema public cascade`
    await sql`create schema public`
    await sql.end()
  }
  const built = Bun.spawnSync([process.execPath, 'run', 'build', join(machine, 'tollgate')], { cwd: root })
  expect(built.exitCode, built.stderr.toString()).toBe(0)
  expect(readdirSync(machine)).toEqual(['tollgate'])
  prefix = waysToRun(machine).find(([command = '', ...rest]) => succeeds([command, ...rest, '--help'])) ?? []
  // Files of a project's folder must not affect it.
  writeFileSync(join(machine, '.env'), 'TOLLGATE_SHARDS=none\n')
  writeFileSync(join(machine, 'bunfig.toml'), 'preload = ["./absent.ts"]\n')
})
afterAll(async () => {
  rmSync(machine, { recursive: true })
  await database[Symbol.asyncDispose]()
})

/**
 * Ways to isolate the binary, best first: with this folder as root, containing only the C library and the kernel's own
 * files, as root, or as any user where user namespaces are allowed. Otherwise only the folder and the environment are
 * empty.
 */
function waysToRun(folder: string): string[][] {
  const binary = join(folder, 'tollgate')
  if (process.platform === 'linux') {
    mkdirSync(join(folder, 'proc'))
    const listed = Bun.spawnSync(['ldd', binary]).stdout.toString()
    for (const library of listed.match(/\/\S+/g) ?? []) {
      mkdirSync(join(folder, dirname(library)), { recursive: true })
      copyFileSync(library, join(folder, library))
    }
  }
  const script = 'mount --rbind /proc proc && exec chroot . /tollgate "$@"'
  return [
    ['unshare', '--mount', 'sh', '-c', script, 'sh'],
    ['unshare', '--user', '--map-root-user', '--mount', 'sh', '-c', script, 'sh'],
    [binary],
  ]
}

/** For the programs that isolate the binary, which itself finds nothing there. */
const scene = { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' }
const succeeds = (words: string[]) =>
  Bun.which(words[0] ?? '', scene) !== null &&
  Bun.spawnSync(words, { cwd: machine, env: scene, stderr: 'ignore' }).exitCode === 0

const spawn = (words: string[], more: Record<string, string> = {}) =>
  Bun.spawn([...prefix, ...words], {
    cwd: machine,
    env: { ...scene, ...env, ...more },
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
  })

const run = (words: string[], more: Record<string, string> = {}) => outcomeOf(spawn(words, more))

/** Starts a server with several threads of every kind, and waits until it listens. */
async function serve() {
  const child = spawn(['serve'], { PORT: '0', TOLLGATE_SHARDS: '2', TOLLGATE_HTTP_THREADS: '2' })
  let output = ''
  const { promise: listening, resolve } = Promise.withResolvers<string>()
  const read = (async () => {
    const decoder = new TextDecoder()
    for await (const chunk of child.stdout) {
      output += decoder.decode(chunk, { stream: true })
      const url = /^Tollgate listens on (\S+)/m.exec(output)?.[1]
      if (url !== undefined) resolve(url)
    }
  })()
  const ended = child.exited.then(async (code) => {
    await read
    throw new Error(`ended with ${code}: ${output}${await new Response(child.stderr).text()}`)
  })
  ended.catch(() => {}) // it ends later on purpose
  const url = await Promise.race([listening, ended])
  const end = async (signal: NodeJS.Signals) => {
    child.kill(signal)
    return await child.exited
  }
  return { url, ...callsTo(url), end, [Symbol.asyncDispose]: async () => void (await end('SIGKILL')) }
}

test('it prints its version and reports usage errors', async () => {
  const out = `tollgate ${packageJson.version} (commit ${COMMIT})\n`
  expect(await run(['--version'])).toEqual({ code: 0, out, err: '' })
  expect(await run(['nonsense'])).toMatchObject({
    code: 2,
    out: '',
    err: expect.stringContaining('hint: tollgate help lists the commands'),
  })
  expect(await run(['serve'], { DATABASE_URL: 'nonsense' })).toMatchObject({
    code: 1,
    err: expect.stringContaining('DATABASE_URL begins with'),
  })
})

/** Else two builds of one commit differ, and nobody can check a release. */
test('it does not contain the folder in which it was built', () => {
  const bytes = readFileSync(join(machine, 'tollgate'))
  expect(bytes.includes('/$bunfs/root')).toBe(true)
  expect(bytes.includes(root)).toBe(false)
})

test('it migrates, serves, imports, and keeps everything over kill -9 and a stop', async () => {
  expect(await run(['migrate', '--json'])).toEqual({
    code: 0,
    out: `${JSON.stringify({ applied: migrations, later: [] })}\n`,
    err: '',
  })
  if (IS_NIGHTLY)
    expect(await run(['migrate'])).toEqual({ code: 0, out: 'no migrations to apply\n', err: '' })

  const path = join(machine, 'keys.ndjson')
  const lines = Array.from({ length: 300 }, (_, index) =>
    JSON.stringify({ hash: { value: hashKey(`old-${index}`), variant: 'sha256_base64' } }),
  )
  writeFileSync(path, lines.join('\n'))
  const window = { namespace: 'binary', identifier: 'user_1', limit: 10, duration: 86_400_000 * 365 }
  let apiId: string
  let made: { key: string; keyId: string }
  const expectKept = async ({ get, post }: Pick<TestServer, 'get' | 'post'>) => {
    const rootKey = readFileSync(join(machine, '.tollgate/root-key'), 'utf8').trim()
    expect((await get('apis.listKeys', { apiId, limit: 1 }, rootKey)).body.total).toBe(301)
    // After a kill it may forget the last second's counts, but never allow more than the limit.
    expect((await post('ratelimits.limit', { ...window, cost: 0 }, rootKey)).body.remaining).toBeWithin(2, 11)
  }
  {
    await using server = await serve()
    const rootKey = readFileSync(join(machine, '.tollgate/root-key'), 'utf8').trim()
    expect((await server.get('liveness')).status).toBe(200)
    const texts: string[] = []
    for (const page of ['/docs', '/docs/api', '/docs/nginx', '/openapi.json', '/metrics', '/dashboard']) {
      const answer = await fetch(`${server.url}${page}`)
      expect({ page, status: answer.status }).toEqual({ page, status: 200 })
      texts.push(await answer.text())
    }
    const linked = new Set(texts.join('').match(/(?<=href=")\/[^"#]+/g))
    expect(linked.size).toBeGreaterThan(10) // every guide and every error
    for (const page of linked)
      expect({ page, status: (await fetch(`${server.url}${page}`)).status }).toEqual({ page, status: 200 })
    // Connections are spread over the HTTP threads, so each thread answers some of these.
    const taken = Array.from({ length: 8 }, () => server.post('ratelimits.limit', window, rootKey))
    for (const { status } of await Promise.all(taken)) expect(status).toBe(200)

    // As at the first start: the root key is read from the data directory.
    const there = { TOLLGATE_URL: server.url }
    const created = await run(['api', 'create', '--name', 'from the binary', '--json'], there)
    expect(created).toMatchObject({ code: 0, err: '' })
    apiId = JSON.parse(created.out).apiId
    made = JSON.parse((await run(['key', 'create', '--api', apiId, '--json'], there)).out)
    const file = prefix.length === 1 ? path : '/keys.ndjson'
    expect(await run(['import', file, '--api', apiId], there)).toEqual({
      code: 0,
      out: 'imported 300, there already 0, refused 0, skipped 0, of 300 lines\n',
      err: '',
    })
    await server.end('SIGKILL')
  }
  {
    await using server = await serve()
    const there = { TOLLGATE_URL: server.url }
    for (const key of [made.key, 'old-0', 'old-299'])
      expect(await run(['key', 'verify', key], there)).toMatchObject({ code: 0 })
    expect(await run(['key', 'verify', 'old-300'], there)).toMatchObject({ code: 1, err: '' })
    await expectKept(server)
    expect(await server.end('SIGTERM')).toBe(0)
  }
  if (IS_NIGHTLY) {
    await using server = await serve()
    await expectKept(server)
  }
  expect(existsSync(join(machine, '.tollgate/postgres'))).toBe(database.databaseUrl === null)
})

/** Each screen is a file of its own, which the binary must have and the page must find. */
test.skipIf(CHROMIUM === null || !IS_NIGHTLY)(
  'its dashboard signs in with the root key file, makes an API and a key, and has every screen',
  async () => {
    await using server = await serve()
    const rootKey = readFileSync(join(machine, '.tollgate/root-key'), 'utf8').trim()
    await using dashboard = await DashboardPage.start(server.url)
    const { page } = dashboard
    await page.goto(`${server.url}/dashboard`)
    await page.getByLabel('Root key').fill(rootKey)
    await page.keyboard.press('Enter')
    await dashboard.heading('Overview').waitFor()
    const { workspaceId } = (await server.get('rootKeys.whoami', {}, rootKey)).body

    await dashboard.visit({ workspaceId }, 'apis?create')
    await dashboard.dialog().getByLabel('Name').fill('made in the page')
    await page.keyboard.press('Enter')
    await dashboard.heading('made in the page').waitFor()
    const apiId = page.url().split('/').at(-1)
    await dashboard.visit({ workspaceId }, `keys?api=${apiId}&create`)
    await dashboard.dialog().getByRole('button', { name: 'Create key' }).click()
    const key = (await dashboard.dialog().locator('.secret').textContent()) ?? ''
    expect((await server.post('keys.verifyKey', { key })).body).toMatchObject({ valid: true })

    const { pathOf } = await fillWorkspace(server, rootKey)
    const titles = new Set<string>()
    for (const screen of SCREENS) {
      await dashboard.visit({ workspaceId }, pathOf(screen))
      await page.locator('.frame h1').waitFor()
      await page.locator('main h2').first().waitFor()
      titles.add(await page.title())
    }
    expect(titles.size).toBe(SCREENS.length)
    expect(dashboard.complaints).toEqual([])
  },
)
