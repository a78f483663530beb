import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ROOT } from '../docs/blocks.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { spawnServer } from '../support/process.ts'
import { callsTo, OPERATOR_KEY, startTestServer, VAULT_KEY } from '../support/server.ts'
import { spawnOnTerminal } from '../support/terminal.ts'
import { SLOW_MS } from '../support/timeout.ts'

/**
 * Ctrl-C, a closed window, a signal to the group, `docker stop`: one or several signals, one clean stop. No flush is due
 * before the stop, so counts that a later start finds were written by the stop. The servers run one after the other on one
 * database, and the last test checks the counts of each.
 */
setDefaultTimeout(2 * SLOW_MS)

let database: TestDatabase
beforeAll(async () => {
  database = await openTestDatabase()
})
afterAll(() => database[Symbol.asyncDispose]())

const CALLS = 50
const SERVE = [process.execPath, 'src/main.ts', 'serve']
const window = { namespace: 'stopping', limit: 2 * CALLS, duration: 86_400_000 * 365 }

const env = (): Record<string, string> => ({
  TOLLGATE_DATA_DIR: database.dataDir,
  DATABASE_URL: database.databaseUrl ?? '',
  TOLLGATE_VAULT_KEY: VAULT_KEY, // of the server that counts in the end
  TOLLGATE_FLUSH_MS: '60000',
  TOLLGATE_DB_TIMEOUT_MS: '20000',
})

/** Each server's counts: how it is stopped, and where its counts are. */
const counted: { name: string; identifier: string; apiId: string }[] = []

/** Takes half of a limit and verifies a key as often. */
async function count(url: string, name: string): Promise<void> {
  const { post } = callsTo(url)
  const identifier = `user of ${name}`
  const { apiId } = (await post('apis.createApi', { name: 'stopping' }, OPERATOR_KEY)).body
  const { key } = (await post('keys.createKey', { apiId }, OPERATOR_KEY)).body
  const calls = Array.from({ length: CALLS }, async () => {
    const limited = await post('ratelimits.limit', { ...window, identifier }, OPERATOR_KEY)
    expect(limited.body).toMatchObject({ success: true })
    expect((await post('keys.verifyKey', { apiId, key })).body).toMatchObject({ valid: true })
  })
  await Promise.all(calls)
  counted.push({ name, identifier, apiId })
}

/** The ways with the most between the terminal and the server, and the least. */
const BY_DAY = ['npm start', 'the binary']

const LISTENS = /^Tollgate listens on (\S+)/m

describe('Ctrl-C on a terminal', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-stopping-'))
  beforeAll(() => {
    const built = Bun.spawnSync([process.execPath, 'run', 'build', join(folder, 'tollgate')], { cwd: ROOT })
    expect(built.exitCode, built.stderr.toString()).toBe(0)
  })
  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  const ways: [string, string[]][] = [
    ['bun run start', [process.execPath, 'run', 'start']],
    ['npm start', ['npm', 'start']],
    ['the binary', [join(folder, 'tollgate')]],
    ['bun src/main.ts serve', SERVE],
  ]
  for (const [name, command] of ways)
    test.skipIf(
      (Bun.which(command[0] ?? '') === null && name === 'npm start') ||
        (!IS_NIGHTLY && !BY_DAY.includes(name)),
    )(`${name} loses no count, ends with 0 and waits for its server`, async () => {
      await using started = spawnOnTerminal(command, env())
      const [, url = ''] = await started.shown(LISTENS)
      await count(url, name)
      const pid = Number(readFileSync(join(database.dataDir, 'node-0.pid'), 'utf8'))
      started.interrupt()
      expect(await started.ended(), started.output()).toBe(0)
      // Otherwise the prompt would return while the server still writes.
      expect(() => process.kill(pid, 0)).toThrow('ESRCH')
      expect(started.output()).toMatch(/info\s+stopped /)
      expect(started.output()).not.toContain('exited with code')
    })

  test('pressed several times in impatience counts once', async () => {
    await using started = spawnOnTerminal([process.execPath, 'run', 'start'], env())
    const [, url = ''] = await started.shown(LISTENS)
    await count(url, 'impatience')
    for (let press = 0; press < 5; press++) started.interrupt()
    expect(await started.ended(), started.output()).toBe(0)
  })
})

test('a closed window stops it like Ctrl-C, although nothing can be written any more', async () => {
  await using started = spawnOnTerminal(SERVE, { ...env(), TOLLGATE_ACCESS_LOG: '1' })
  const [, url = ''] = await started.shown(LISTENS)
  await count(url, 'a closed window')
  started.closeWindow()
  expect(await started.ended()).toBe(0)
})

/** By day the first; the terminal above sends the others. */
const signalsOf = (...signals: NodeJS.Signals[]) => (IS_NIGHTLY ? signals : signals.slice(0, 1))

describe('any of the signals', () => {
  test.each(signalsOf('SIGTERM', 'SIGINT', 'SIGHUP'))('%s to the server, twice', async (signal) => {
    await using server = await spawnServer(env())
    await count(server.url, `${signal}, twice`)
    server.process.kill(signal)
    expect(await server.end(signal)).toBe(0)
    expect(server.output()).toContain('"event":"stopped"')
  })

  test.each(signalsOf('SIGTERM', 'SIGHUP'))(
    '%s to its whole group, as supervisors send it',
    async (signal) => {
      const log = join(database.dataDir, `log of ${signal}`)
      const child = Bun.spawn([process.execPath, 'run', 'start'], {
        cwd: ROOT,
        env: { ...process.env, PORT: '0', TOLLGATE_ROOT_KEY: OPERATOR_KEY, ...env() },
        stdin: 'ignore',
        stdout: Bun.file(log),
        stderr: Bun.file(log),
        detached: true,
      })
      let url: string | undefined
      while (url === undefined && child.exitCode === null) {
        url = LISTENS.exec(readFileSync(log, 'utf8'))?.[1]
        await Bun.sleep(10)
      }
      await count(url ?? '', `${signal} to a group`)
      const pid = Number(readFileSync(join(database.dataDir, 'node-0.pid'), 'utf8'))
      process.kill(-child.pid, signal)
      await child.exited
      // A shell's or npm's wrapper may treat a signal in its own way; the server must have stopped by itself.
      await ended(pid)
      expect(readFileSync(log, 'utf8')).toContain('"event":"stopped"')
    },
  )
})

async function ended(pid: number): Promise<void> {
  for (;;) {
    try {
      process.kill(pid, 0)
    } catch {
      return
    }
    await Bun.sleep(10)
  }
}

test.skipIf(Bun.which('nohup') === null || process.platform !== 'linux')(
  'under nohup a server outlives its terminal, and still stops on request',
  async () => {
    await using started = spawnOnTerminal(['nohup', ...SERVE], env())
    const log = join(ROOT, 'nohup.out')
    let url: string | undefined
    try {
      while (url === undefined && started.process.exitCode === null) {
        url = LISTENS.exec(
          await Bun.file(log)
            .text()
            .catch(() => ''),
        )?.[1]
        await Bun.sleep(10)
      }
      await count(url ?? '', 'nohup')
      started.closeWindow()
      process.kill(started.process.pid, 'SIGHUP')
      for (let call = 0; call < 20; call++)
        expect((await callsTo(url ?? '').get('liveness')).status).toBe(200)
      process.kill(started.process.pid, 'SIGTERM')
      expect(await started.ended()).toBe(0)
    } finally {
      rmSync(log, { force: true })
    }
  },
)

describe('a signal during a start', () => {
  test('while it waits for a Postgres that never answers ends it', async () => {
    const asked = Promise.withResolvers<void>()
    using silent = Bun.listen({
      hostname: '127.0.0.1',
      port: 0,
      socket: { open: () => asked.resolve(), data() {} },
    })
    await using started = spawnOnTerminal(SERVE, {
      TOLLGATE_DATA_DIR: database.dataDir,
      DATABASE_URL: `postgres://nobody:hidden@127.0.0.1:${silent.port}/x`,
    })
    await asked.promise
    started.process.kill('SIGTERM')
    started.process.kill('SIGHUP')
    expect(await started.ended(), started.output()).toBe(0)
    expect(started.output()).toMatch(/info\s+stopped /)
    expect(started.output()).not.toContain('hidden')
  })
})

test('the counts of each of these servers are there at a later start', async () => {
  await using server = await startTestServer({ database })
  const { rootKey: analyst } = (
    await server.post('rootKeys.createRootKey', { permissions: ['api.*.read_api'] }, OPERATOR_KEY)
  ).body
  expect(counted.length).toBeGreaterThanOrEqual(3)
  for (const { name, identifier, apiId } of counted) {
    const limited = await server.post('ratelimits.limit', { ...window, identifier }, OPERATOR_KEY)
    const query = { apiId, start: Date.now() - 3 * 3_600_000, groupBy: 'hour' }
    const { body } = await server.get('analytics.getVerifications', query, analyst)
    const total = body.reduce((sum: number, each: { total: number }) => sum + each.total, 0)
    expect({ name, remaining: limited.body.remaining, total }).toEqual({
      name,
      remaining: CALLS - 1,
      total: CALLS,
    })
  }
})
