import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { KEY_IMPORTS, KeyImporter } from '../../../src/api/migrations/import-queue.ts'
import { hashKey } from '../../../src/verify/secret.ts'
import { makeApi, makeApiWithoutKeyspace, refusalOf } from '../../support/fixtures.ts'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let now = Date.now()
let server: TestServer
beforeAll(async () => {
  server = await startTestServer({ clock: () => now })
})
afterAll(async () => await server[Symbol.asyncDispose]())

const newText = () => crypto.randomUUID()
const hashOf = (text: string) => ({ value: hashKey(text), variant: 'sha256_base64' })

type Waiting = { attempts: number; reason: string | null; failed: boolean; nextAt: number }
const waiting = async ({ workspaceId }: TestWorkspace) =>
  await server.server.deps.sql<Waiting[]>`
    select attempts, reason, failed_at is not null as failed, next_at as "nextAt" from key_imports
     where workspace_id = ${workspaceId} order by id`

/** Waits for the queue, which is processed in the background. */
async function until(isSo: () => Promise<boolean>): Promise<void> {
  for (let wait = 0; wait < 500; wait++) {
    if (await isSo()) return
    await Bun.sleep(10)
  }
  throw new Error('it did not happen')
}

async function prepare() {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const send = (keys: unknown[], rootKey = workspace.rootKey) =>
    server.post('migrations.enqueueKeys', { migrationId: 'm_1', apiId, keys }, rootKey)
  return {
    workspace,
    apiId,
    send,
    keys: async (): Promise<Json[]> => (await workspace.get('apis.listKeys', { apiId, decrypt: true })).keys,
    isDone: async () => (await waiting(workspace)).length === 0,
  }
}

test('a key is accepted at once, and soon exists with all given fields', async () => {
  const { workspace, send, keys, isDone } = await prepare()
  await workspace.post('permissions.createRole', { name: 'a role' })
  await workspace.post('permissions.createPermission', { name: 'p.1' })
  const text = newText()
  const fields = {
    name: 'queued',
    start: 'start_',
    enabled: true,
    meta: { a: 1 },
    roles: ['a role'],
    permissions: ['p.1'],
    environment: 'test',
    remaining: 10,
    externalId: 'user_1',
  }
  const answer = await send([
    { ...fields, plaintext: text, ratelimit: { limit: 5, duration: 50_000_000 } },
    { hash: hashOf(newText()), enabled: false },
  ])
  expect([answer.status, answer.body]).toEqual([202, {}])
  await until(isDone)
  const made = await keys()
  expect(made).toHaveLength(2)
  const { externalId, ...shown } = fields
  expect(made.find(({ name }) => name === 'queued')).toMatchObject({
    ...shown,
    plaintext: text,
    ratelimit: { limit: 5, duration: 50_000_000 },
    identity: { externalId },
  })
  const { body } = await server.post('keys.verifyKey', { key: text })
  expect(body).toMatchObject({ valid: true, remaining: 9, permissions: ['p.1'] })
  const events = await server.server.deps.sql`
    select 1 from audit_events where workspace_id = ${workspace.workspaceId} and event = 'key.create'
       and actor_id = ${workspace.rootKeyId}`
  expect(events).toHaveLength(2)
})

/** A reader of the database must not find keys in the queue. */
test('a plaintext in the queue is encrypted', async () => {
  const { workspace, send } = await prepare()
  const text = newText()
  await send([{ plaintext: text, roles: ['missing'] }])
  const rows = await server.server.deps
    .sql`select * from key_imports where workspace_id = ${workspace.workspaceId}`
  expect(rows).toHaveLength(1)
  expect(JSON.stringify(rows)).not.toContain(text)
})

test('a key that cannot be created is retried after 2, 4, 8 … seconds, ten times, then kept with the reason', async () => {
  const { workspace, send, keys } = await prepare()
  const text = newText()
  await send([{ hash: hashOf(text), roles: ['missing'] }, { hash: hashOf(newText()) }])
  for (let attempt = 1; attempt <= 11; attempt++) {
    await server.server.deps.invalidations.broadcastAndWait([KEY_IMPORTS])
    await until(async () => (await waiting(workspace))[0]?.attempts === attempt)
    const [row] = await waiting(workspace)
    expect(row).toMatchObject({ reason: 'roles not found: missing', failed: attempt === 11 })
    expect(row?.nextAt).toBe(now + 1000 * 2 ** attempt)
    now += 1000 * 2 ** attempt - 1
    await server.server.deps.invalidations.broadcastAndWait([KEY_IMPORTS])
    await Bun.sleep(30)
    expect((await waiting(workspace))[0]?.attempts).toBe(attempt) // one millisecond early: not yet
    now += 1
  }
  expect(await keys()).toHaveLength(1) // the other element was not held up
})

test('a key is created once what it lacked exists, and a taken hash is the stored reason', async () => {
  const { workspace, send, isDone, keys } = await prepare()
  const text = newText()
  await send([{ hash: hashOf(text), permissions: ['later.on'] }])
  await until(async () => (await waiting(workspace))[0]?.attempts === 1)
  await send([{ hash: hashOf(newText()) }, { hash: hashOf(newText()) }])
  await workspace.post('permissions.createPermission', { name: 'later.on' })
  now += 2000
  await server.server.deps.invalidations.broadcastAndWait([KEY_IMPORTS])
  await until(isDone)
  expect(await keys()).toHaveLength(3)

  await send([{ hash: hashOf(text) }])
  await until(async () => (await waiting(workspace))[0]?.attempts === 1)
  expect((await waiting(workspace))[0]?.reason).toBe('a key with this hash already exists')
})

test('several servers share the queue, and each key is created once', async () => {
  const { workspace, send, isDone, keys } = await prepare()
  const others = [1, 2, 3].map(() => new KeyImporter(server.server.deps))
  for (const other of others) other.start()
  const texts = Array.from({ length: 500 }, newText)
  await Promise.all(
    [0, 1, 2, 3, 4].map((part) =>
      send(texts.slice(part * 100, part * 100 + 100).map((text) => ({ hash: hashOf(text) }))),
    ),
  )
  await until(isDone)
  for (const other of others) await other.stop()
  expect(await keys()).toHaveLength(100)
  const [row] = await server.server.deps.sql`
    select count(*) as total from keys where workspace_id = ${workspace.workspaceId}`
  expect(row?.total).toBe(500)
})

describe('refusals', () => {
  test('an unknown API and one without keyspace are not found', async () => {
    const { workspace } = await prepare()
    const bare = await makeApiWithoutKeyspace(server, workspace)
    for (const apiId of ['api_unknown', bare, await makeApi(await server.workspace())]) {
      const body = { migrationId: 'm_1', apiId, keys: [] }
      const answer = await server.post('migrations.enqueueKeys', body, workspace.rootKey)
      expect(refusalOf(answer)).toMatchObject({ status: 404, code: 'NOT_FOUND' })
      expect(answer.body.error.message).toContain(apiId)
    }
  })

  test('a key without hash and plaintext is a 400, and no key is queued', async () => {
    const { workspace, send } = await prepare()
    const answer = await send([{ hash: hashOf(newText()) }, {}])
    expect(refusalOf(answer).message).toBe('keys.1: either hash or plaintext is required')
    expect(await waiting(workspace)).toHaveLength(0)
  })

  test.each([
    [{ apiId: 'a', keys: [] }, 'migrationId: Required'],
    [{ migrationId: 'm', keys: [] }, 'apiId: Required'],
    [{ migrationId: 'm', apiId: 'a', keys: {} }, 'keys: Expected array, received object'],
    [
      { migrationId: 'm', apiId: 'a', keys: Array.from({ length: 101 }, () => ({})) },
      'keys: Array must contain at most 100 element(s)',
    ],
    [
      { migrationId: 'm', apiId: 'a', keys: [{ ratelimit: { limit: 1, duration: 999 } }] },
      'keys.0.ratelimit.duration: Number must be greater than or equal to 1000',
    ],
  ])('%j is a 400', async (body, message) => {
    const answer = await server.post('migrations.enqueueKeys', body)
    expect(refusalOf(answer)).toEqual({ status: 400, code: 'BAD_REQUEST', message })
  })

  test('create_key is enough for hashes, a plaintext also needs encrypt_key', async () => {
    const { workspace, apiId, send } = await prepare()
    const statusWith = async (key: object, ...permissions: string[]) =>
      (await send([key], await workspace.rootKeyWith(...permissions))).status
    const hash = () => ({ hash: hashOf(newText()) })
    const plaintext = () => ({ plaintext: newText() })
    for (const create of ['*', 'api.*.create_key', `api.${apiId}.create_key`])
      expect(await statusWith(hash(), create)).toBe(202)
    expect(await statusWith(hash())).toBe(403)
    expect(await statusWith(plaintext())).toBe(403)
    expect(await statusWith(plaintext(), 'api.*.create_key')).toBe(403)
    for (const create of ['api.*.create_key', `api.${apiId}.create_key`])
      for (const encrypt of ['api.*.encrypt_key', `api.${apiId}.encrypt_key`])
        expect(await statusWith(plaintext(), create, encrypt)).toBe(202)
  })
})
