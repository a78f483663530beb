import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { existsSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { runHere } from '../support/command-line.ts'
import { openTestDatabase, TEST_DATABASE_URL, type TestDatabase } from '../support/database.ts'
import { callsTo, OPERATOR_KEY, startTestServer, type TestServer } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let database: TestDatabase
let env: Record<string, string>
let server: TestServer
beforeAll(async () => {
  database = await openTestDatabase()
  env = { DATABASE_URL: database.databaseUrl ?? '', TOLLGATE_DATA_DIR: database.dataDir }
})
afterAll(async () => {
  await server[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
})

const rescue = (...words: string[]) => runHere(['root-key', 'rescue', ...words], { env })

/** In this order, as all share one server: it starts after the first. */
test('a database without a server has no root key to rescue', async () => {
  expect(await rescue()).toMatchObject({
    code: 1,
    out: '',
    err: expect.stringContaining('start a server, which makes one'),
  })
  server = await startTestServer({ database })
})

test('beside a running server a new operator root key works at once and is in the audit log', async () => {
  const { code, out, err } = await rescue('--json')
  expect({ code, err }).toEqual({ code: 0, err: '' })
  const { rootKey, rootKeyId, disabled } = JSON.parse(out)
  expect(disabled).toEqual([])

  const calls = callsTo(server.url)
  expect((await calls.post('workspaces.createWorkspace', { name: 'rescued' }, rootKey)).status).toBe(200)
  expect((await calls.get('workspaces.listWorkspaces', {}, OPERATOR_KEY)).status).toBe(200)
  const { body } = await calls.get('audit.listEvents', { event: 'rootKey.rescue' }, rootKey)
  expect(body.events).toMatchObject([
    {
      actor: { id: rootKeyId },
      userAgent: expect.stringContaining('tollgate root-key rescue'),
      resources: [{ type: 'rootKey', id: rootKeyId }],
    },
  ])
  expect(JSON.stringify(body)).not.toContain(rootKey)
})

test('saved, the root key is not shown, and commands on this machine find it', async () => {
  const { code, out } = await rescue('--save')
  const path = join(database.dataDir, 'root-key')
  expect({ code, out: out.split('\n')[0] }).toEqual({ code: 0, out: `The operator root key is in ${path}` })
  expect(statSync(path).mode & 0o777).toBe(0o600)
  const key = readFileSync(path, 'utf8').trim()
  expect(out).not.toContain(key)
  expect((await runHere(['workspace', 'list'], { env: { ...env, TOLLGATE_URL: server.url } })).code).toBe(0)
})

test.skipIf(TEST_DATABASE_URL === null)(
  'replaced operator root keys are refused by running servers, and stay as disabled',
  async () => {
    const calls = callsTo(server.url)
    expect((await calls.get('workspaces.listWorkspaces', {}, OPERATOR_KEY)).status).toBe(200) // it is cached now
    const { rootKey, rootKeyId, disabled } = JSON.parse((await rescue('--replace', '--json')).out)
    expect(disabled).toHaveLength(3)
    while ((await calls.get('workspaces.listWorkspaces', {}, OPERATOR_KEY)).status !== 403)
      await Bun.sleep(20)
    const { body } = await calls.get('rootKeys.listRootKeys', { limit: 100 }, rootKey)
    const states = body.rootKeys.map(({ id, enabled }: { id: string; enabled: boolean }) => [id, enabled])
    expect(states.sort()).toEqual([[rootKeyId, true], ...disabled.map((id: string) => [id, false])].sort())
  },
)

test.skipIf(TEST_DATABASE_URL !== null)(
  'on the embedded database of a running server --replace is refused, and nothing is saved',
  async () => {
    const path = join(database.dataDir, 'root-key')
    const before = readFileSync(path, 'utf8')
    expect(await rescue('--replace', '--save')).toMatchObject({
      code: 2,
      out: '',
      err: expect.stringContaining('stopped'),
    })
    expect(readFileSync(path, 'utf8')).toBe(before)
  },
)

test('a data dir without a database is left as it is', async () => {
  const dataDir = join(database.dataDir, 'nothing')
  const { code, err } = await runHere(['root-key', 'rescue'], { env: { TOLLGATE_DATA_DIR: dataDir } })
  expect({ code, err }).toEqual({ code: 1, err: expect.stringContaining('there is no embedded database') })
  expect(existsSync(dataDir)).toBe(false)
})
