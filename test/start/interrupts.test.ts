import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { makeApi } from '../support/fixtures.ts'
import { startTestServer, type TestServer, type TestWorkspace } from '../support/server.ts'
import { spawnOnTerminal } from '../support/terminal.ts'
import { SLOW_MS } from '../support/timeout.ts'

/** Commands on a terminal under `bun run`: Ctrl-C reaches them twice. */
setDefaultTimeout(SLOW_MS)

let server: TestServer
let workspace: TestWorkspace
let folder: string
let env: Record<string, string>
beforeAll(async () => {
  server = await startTestServer()
  workspace = await server.workspace()
  folder = mkdtempSync(join(tmpdir(), 'tollgate-test-interrupts-'))
  env = { TOLLGATE_URL: server.url, TOLLGATE_ROOT_KEY: workspace.rootKey }
})
afterAll(async () => {
  rmSync(folder, { recursive: true })
  await server[Symbol.asyncDispose]()
})

const bunRun = (...words: string[]) => [process.execPath, 'run', ...words]

test('an interrupted import prints where it continues, continues there, and creates every key once', async () => {
  const apiId = await makeApi(workspace)
  const path = join(folder, 'keys.ndjson')
  const count = 20_000
  const lines = Array.from({ length: count }, (_, i) => JSON.stringify({ plaintext: `interrupted_key_${i}` }))
  writeFileSync(path, lines.join('\n'))
  const command = bunRun('tollgate', 'import', path, '--api', apiId, '--connections', '1')
  {
    await using started = spawnOnTerminal(command, env)
    await started.shown(/[1-9]\d* keys/)
    started.interrupt()
    expect(await started.ended(), started.output()).toBe(130)
    expect(started.output()).toMatch(
      /stopped after line \d+; run the same command again to continue from there/,
    )
  }
  await using again = spawnOnTerminal([...command.slice(0, -1), '4'], env)
  expect(await again.ended(), again.output()).toBe(0)
  const { total } = await workspace.get('apis.listKeys', { apiId, limit: 1 })
  expect(total).toBe(count)
})

test('an interrupted load run prints its results so far, and never the root key', async () => {
  const load = ['load', '--url', server.url, '--rate', '50', '--duration', '600']
  await using started = spawnOnTerminal(bunRun('bench', ...load, '--root-key', workspace.rootKey), {
    ...env,
    TOLLGATE_ROOT_KEY: '',
  })
  await started.shown(/[1-9]\d* answered/)
  started.interrupt()
  expect(await started.ended(), started.output()).toBe(130)
  const [, answered, all] =
    /(\d+) of (\d+) requests answered in [\d.]+ s, 0 failed/.exec(started.output()) ?? []
  expect(Number(answered)).toBeGreaterThan(0)
  expect(answered).toBe(all ?? '')
  expect(started.output()).toContain('p99')
  expect(started.output()).not.toContain(workspace.rootKey)
})

test('`tollgate bench` does the same', async () => {
  await using started = spawnOnTerminal(
    bunRun('tollgate', 'bench', '--seconds', '600', '--connections', '1'),
    env,
  )
  await Bun.sleep(50)
  // The signal has an effect once the program runs; before that it ends like any other.
  for (let asked = 0; asked < 400; asked++) {
    const { body } = await server.get('ratelimits.listNamespaces', {}, workspace.rootKey)
    if (body.namespaces.some(({ name }: { name: string }) => name === 'tollgate.bench')) break
    await Bun.sleep(20)
  }
  started.interrupt()
  expect(await started.ended(), started.output()).toBe(130)
  expect(started.output()).toMatch(/requests +per second/)
})
