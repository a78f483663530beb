import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { rmSync } from 'node:fs'
import { hostname } from 'node:os'
import { OWNER_MAX } from '../../../src/records/questions.ts'
import { openTestDatabase, TEST_DATABASE_URL, type TestDatabase } from '../../support/database.ts'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import {
  type Json,
  OPERATOR_KEY,
  startTestServer,
  type TestServer,
  type TestWorkspace,
} from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let database: TestDatabase
let here: TestServer
/** With several HTTP threads, each of which has caches of its own. */
let there: TestServer
beforeAll(async () => {
  database = await openTestDatabase()
  here = await startTestServer({ database })
  if (TEST_DATABASE_URL !== null)
    there = await startTestServer({
      database: { ...database, dataDir: `${database.dataDir}-2` },
      env: { TOLLGATE_HTTP_THREADS: '3' },
    })
})
afterAll(async () => {
  await Promise.all([here, there].map((each) => each?.[Symbol.asyncDispose]()))
  rmSync(`${database.dataDir}-2`, { recursive: true, force: true })
  await database[Symbol.asyncDispose]()
})

const idOf = (server: TestServer) => server.server.deps.self.nodeId
const HERE = { isThis: true }
const THERE = { isThis: false }
/** Closes each connection: the kernel distributes new ones over the threads, so calls reach all of them. */
const closing = { connection: 'close' }
/** Asks again while a busy machine lets a server be late. */
async function ask(workspace: TestWorkspace, method: string, body: object): Promise<Json[]> {
  for (;;) {
    const { servers } = await workspace.post(method, body)
    if (servers.every(({ code }: Json) => code !== undefined)) return servers
    await Bun.sleep(500) // a workspace may ask twice a second
  }
}
const codesOf = async (...asked: Parameters<typeof ask>): Promise<string[]> =>
  (await ask(...asked)).map(({ code }) => code)
/** Until every thread has the key in its cache. */
const warm = (server: TestServer, key: string) =>
  Promise.all(
    Array.from({ length: 30 }, async () =>
      expect((await server.post('keys.verifyKey', { key }, null, closing)).body.valid).toBe(true),
    ),
  )

describe.skipIf(TEST_DATABASE_URL === null)('with two servers on one database', () => {
  test('each server answers what it would about a key: before, while it is disabled, and after it is deleted', async () => {
    const workspace = await here.workspace()
    const { key, keyId } = await makeKey(workspace, await makeApi(workspace))
    await warm(there, key)
    const answers = () => ask(workspace, 'keys.askServers', { keyId })
    const expected = (code: string) => [
      { id: idOf(here), ...HERE, code },
      { id: idOf(there), ...THERE, code, afterMs: expect.any(Number) },
    ]
    expect(await answers()).toEqual(expected('VALID'))
    // Each time at once: what was changed before the question is in the answer.
    for (let round = 0; round < 3; round++) {
      await workspace.post('keys.updateKey', { keyId, enabled: false })
      expect(await answers()).toEqual(expected('DISABLED'))
      await workspace.post('keys.updateKey', { keyId, enabled: true })
      expect(await answers()).toEqual(expected('VALID'))
    }
    await workspace.post('keys.updateKey', { keyId, expires: Date.now() - 1000 })
    expect(await answers()).toEqual(expected('EXPIRED'))
    await workspace.post('keys.deleteKey', { keyId })
    expect(await answers()).toEqual(expected('NOT_FOUND'))
    expect((await there.post('keys.verifyKey', { key })).body.code).toBe('NOT_FOUND')
  })

  /** As when the change has not been heard yet: caches have the record of before. */
  test('a server answers from what it has in memory, and accepts a key that one of its threads accepts', async () => {
    const workspace = await here.workspace()
    const { key, keyId } = await makeKey(workspace, await makeApi(workspace))
    const codes = () => codesOf(workspace, 'keys.askServers', { keyId })
    for (const isForgottenByOne of [false, true]) {
      let seen: string[] = []
      // Again where a busy machine took the connection for lost, and its caches were told to read everything again.
      while (seen.join() !== 'DISABLED,VALID') {
        await workspace.post('keys.updateKey', { keyId, enabled: true })
        expect(await codes()).toEqual(['VALID', 'VALID'])
        await warm(there, key)
        await here.server.deps.sql`update keys set enabled = false where id = ${keyId}`
        await here.server.deps.invalidations.broadcastAndWait([keyId])
        if (isForgottenByOne) there.server.deps.keys.forget(keyId) // on its main thread
        seen = await codes()
      }
      await there.server.deps.invalidations.broadcastAndWait([keyId])
      expect(await codes()).toEqual(['DISABLED', 'DISABLED'])
    }
  })

  test('a server with several threads asks for all of them, whichever is called', async () => {
    const workspace = await here.workspace()
    const { keyId } = await makeKey(workspace, await makeApi(workspace))
    await workspace.post('keys.updateKey', { keyId, enabled: false })
    const call = () => there.post('keys.askServers', { keyId }, workspace.rootKey, closing)
    for (const { status, body } of await Promise.all(Array.from({ length: 12 }, call))) {
      expect(status).toBe(200)
      const [first, second] = body.servers
      expect(first).toEqual({ id: idOf(there), ...HERE, code: 'DISABLED' })
      // On a busy machine it may be late.
      expect(second).toMatchObject({ id: idOf(here), ...THERE })
      expect(['DISABLED', undefined]).toContain(second.code)
    }
  })

  test('asking counts nothing, and takes no credit and no token of a limit', async () => {
    const workspace = await here.workspace()
    const ratelimit = { limit: 1, duration: 86_400_000 }
    const { key, keyId } = await makeKey(workspace, await makeApi(workspace), { remaining: 1, ratelimit })
    for (let round = 0; round < 5; round++) await workspace.post('keys.askServers', { keyId })
    expect((await there.post('keys.verifyKey', { key })).body).toMatchObject({ valid: true, remaining: 0 })
    // Credits are used up now; that is nothing of the key's own state.
    expect(await codesOf(workspace, 'keys.askServers', { keyId })).toEqual(['VALID', 'VALID'])
  })

  test('a root key is asked about in the same way, and of one of another workspace nothing is told', async () => {
    const [workspace, other] = await Promise.all([here.workspace(), here.workspace()])
    const { rootKeyId, rootKey } = await workspace.post('rootKeys.createRootKey', { permissions: ['*'] })
    expect((await there.get('rootKeys.whoami', {}, rootKey)).status).toBe(200)
    const codes = () => codesOf(workspace, 'rootKeys.askServers', { rootKeyId })
    expect(await codes()).toEqual(['VALID', 'VALID'])
    await workspace.post('rootKeys.updateRootKey', { rootKeyId, enabled: false })
    expect(await codes()).toEqual(['DISABLED', 'DISABLED'])
    await workspace.post('rootKeys.deleteRootKey', { rootKeyId })
    expect(await codes()).toEqual(['NOT_FOUND', 'NOT_FOUND'])
    expect((await here.post('rootKeys.askServers', { rootKeyId }, other.rootKey)).body.error.code).toBe(
      'NOT_FOUND',
    )
    const reader = await workspace.rootKeyWith('api.*.read_key')
    expect((await here.post('rootKeys.askServers', { rootKeyId }, reader)).body.error.code).toBe(
      'INSUFFICIENT_PERMISSIONS',
    )
  })

  test('every key of a disabled workspace is FORBIDDEN', async () => {
    const workspace = await here.workspace()
    const { keyId } = await makeKey(workspace, await makeApi(workspace))
    const { rootKeyId } = await workspace.post('rootKeys.createRootKey', { permissions: [] })
    const { workspaceId } = workspace
    const { status } = await here.post(
      'workspaces.updateWorkspace',
      { workspaceId, enabled: false },
      OPERATOR_KEY,
    )
    expect(status).toBe(200)
    // Its root keys may not ask any more, so the services are.
    const hashes = await here.server.deps.sql<{ hash: string }[]>`
      select hash from keys where id in (${keyId}, ${rootKeyId})`
    expect(hashes).toHaveLength(2)
    for (const { hash: subject } of hashes) {
      const expected = { nodeIds: [idOf(there)], processes: 1 }
      const asking = () => here.server.deps.askServers({ subject, owner: workspaceId, expected })
      let asked = await asking()
      while (asked.others.length === 0) asked = await asking()
      expect(asked).toMatchObject({ own: 'FORBIDDEN', others: [{ answer: 'FORBIDDEN' }] })
    }
  })

  test('hosts are told to operators alone', async () => {
    const { body } = await here.get('rootKeys.whoami', {}, OPERATOR_KEY)
    const { rootKeyId } = body
    const { servers } = (await here.post('rootKeys.askServers', { rootKeyId }, OPERATOR_KEY)).body
    expect(servers.map(({ host }: Json) => host)).toEqual([hostname(), hostname()])
  })

  test('a workspace that asks too often is refused, and others are not', async () => {
    const [greedy, other] = await Promise.all([here.workspace(), here.workspace()])
    const outcomeOf = async (workspace: TestWorkspace, keyId: string) =>
      (await here.post('keys.askServers', { keyId }, workspace.rootKey)).body.error?.code ?? 'answered'
    const { keyId } = await makeKey(greedy, await makeApi(greedy))
    const outcomes = await Promise.all(Array.from({ length: OWNER_MAX + 5 }, () => outcomeOf(greedy, keyId)))
    expect(outcomes.filter((each) => each === 'answered')).toHaveLength(OWNER_MAX)
    expect(outcomes.filter((each) => each === 'PRECONDITION_FAILED')).toHaveLength(5)
    expect(await outcomeOf(other, (await makeKey(other, await makeApi(other))).keyId)).toBe('answered')
  })
})

test('a server that is alone answers for itself, of keys of the workspace alone and to those who may read them', async () => {
  await using server = await startTestServer()
  const [workspace, other] = await Promise.all([server.workspace(), server.workspace()])
  const apiId = await makeApi(workspace)
  const { keyId } = await makeKey(workspace, apiId)
  const { nodeId: id } = server.server.deps.self
  const call = (rootKey: string) => server.post('keys.askServers', { keyId }, rootKey)
  const reader = await workspace.rootKeyWith(`api.${apiId}.read_key`)
  expect((await call(reader)).body).toEqual({ servers: [{ id, ...HERE, code: 'VALID' }] })
  await workspace.post('keys.deleteKey', { keyId })
  expect((await call(reader)).body).toEqual({ servers: [{ id, ...HERE, code: 'NOT_FOUND' }] })
  expect((await call(other.rootKey)).body.error.code).toBe('NOT_FOUND')
  const foreign = await workspace.rootKeyWith(`api.${await makeApi(workspace)}.read_key`)
  expect((await call(foreign)).body.error.code).toBe('INSUFFICIENT_PERMISSIONS')
  expect((await call(await workspace.rootKeyWith('api.*.update_key'))).body.error.code).toBe(
    'INSUFFICIENT_PERMISSIONS',
  )
})
