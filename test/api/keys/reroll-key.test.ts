import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { hashKey } from '../../../src/verify/secret.ts'
import { makeApi, makeKey, refusalOf } from '../../support/fixtures.ts'
import {
  type Json,
  OPERATOR_KEY,
  startTestServer,
  type TestServer,
  type TestWorkspace,
} from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const MINUTE_MS = 60_000
const HOUR_MS = 60 * MINUTE_MS

let server: TestServer
/** The server's time, set by the tests. */
let now = Date.now()
beforeAll(async () => {
  server = await startTestServer({ clock: () => now })
})
afterAll(async () => await server[Symbol.asyncDispose]())

type Rerolled = { keyId: string; key: string; oldKeyExpires: number }

const reroll = async (workspace: TestWorkspace, keyId: string, overlap = HOUR_MS): Promise<Rerolled> =>
  await workspace.post('keys.rerollKey', { keyId, overlap })
const verify = async (key: string): Promise<Json> => (await server.post('keys.verifyKey', { key })).body
const stateOf = async (workspace: TestWorkspace, keyId: string): Promise<Json> =>
  await workspace.get('keys.getKey', { keyId })
const refused = async (workspace: TestWorkspace, keyId: string, overlap = HOUR_MS) =>
  refusalOf(await server.post('keys.rerollKey', { keyId, overlap }, workspace.rootKey))

async function prepare(fields: Record<string, unknown> = {}) {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  return { workspace, apiId, ...(await makeKey(workspace, apiId, fields)) }
}

/** Everything that a key can have. */
async function prepareFull() {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const mark = crypto.randomUUID().slice(0, 8)
  await workspace.post('permissions.createRole', { name: `role ${mark}` })
  await workspace.post('permissions.createPermission', { name: `permission.${mark}` })
  const made = await makeKey(workspace, apiId, {
    name: 'a name',
    externalId: 'user_1',
    meta: { plan: 'pro' },
    environment: 'live',
    expires: now + 48 * HOUR_MS,
    remaining: 50,
    refill: { interval: 'monthly', amount: 10, refillDay: 5 },
    ratelimit: { limit: 7, duration: MINUTE_MS },
    roles: [`role ${mark}`],
    permissions: [`permission.${mark}`],
    recoverable: true,
    prefix: 'my_app',
  })
  return { workspace, apiId, ...made }
}

describe('the successor', () => {
  test('has everything that the key has, with another id and text', async () => {
    const { workspace, keyId, key } = await prepareFull()
    const before = await stateOf(workspace, keyId)
    const made = await reroll(workspace, keyId)
    expect(made.keyId).toStartWith('key_')
    expect(made.keyId).not.toBe(keyId)
    expect(made.key).not.toBe(key)
    const after = await stateOf(workspace, made.keyId)
    const { id: _, start, createdAt, updatedAt, ...rest } = before
    expect(after).toMatchObject(rest)
    expect(Object.keys(after).sort()).toEqual(
      Object.keys(before)
        .filter((name) => name !== 'updatedAt')
        .sort(),
    )
    expect((await verify(made.key)).keyId).toBe(made.keyId)
  })

  /** A column that is added to keys later must be copied too, or be named here. */
  test('equals the key in every stored column but those of its own', async () => {
    const { workspace, keyId } = await prepareFull()
    const { sql } = server.server.deps
    const rowOf = async (id: string) => (await sql<Json[]>`select * from keys where id = ${id}`)[0]
    const limitsOf = async (id: string) => await sql<Json[]>`select * from ratelimits where key_id = ${id}`
    await sql`insert into ratelimits (id, workspace_id, name, key_id, "limit", duration_ms, auto_apply, created_at)
              values (${`rl_${crypto.randomUUID()}`}, ${workspace.workspaceId}, 'tokens', ${keyId}, 3, 1000, false, 1)`
    const [before, limits] = [await rowOf(keyId), await limitsOf(keyId)]
    const made = await reroll(workspace, keyId)
    const after = await rowOf(made.keyId)
    const own = ['id', 'hash', 'start', 'created_at', 'updated_at', 'counts_as']
    const differing = Object.keys(before).filter((name) => !Bun.deepEquals(before[name], after[name]))
    expect(differing.filter((name) => !own.includes(name))).toEqual([])
    expect(after).toMatchObject({ hash: hashKey(made.key), counts_as: keyId, successor_id: null })
    const bare = (rows: Json[]) =>
      rows
        .map(({ id, key_id, created_at, updated_at, ...rest }) => rest)
        .sort((a, b) => (a.name < b.name ? -1 : 1))
    const copied = await limitsOf(made.keyId)
    expect(bare(copied)).toEqual(bare(limits))
    expect(copied.map(({ id }) => id)).not.toEqual(limits.map(({ id }) => id))
  })

  test('is recoverable exactly when the key is', async () => {
    const { workspace, keyId } = await prepareFull()
    const made = await reroll(workspace, keyId)
    const plaintext = async (id: string) =>
      (await workspace.get('keys.getKey', { keyId: id, decrypt: true })).plaintext
    expect(await plaintext(made.keyId)).toBe(made.key)
    const plain = await prepare()
    expect(
      await plain.workspace.get('keys.getKey', { keyId: plain.keyId, decrypt: true }),
    ).not.toHaveProperty('plaintext')
    const successor = await reroll(plain.workspace, plain.keyId)
    expect(
      await plain.workspace.get('keys.getKey', { keyId: successor.keyId, decrypt: true }),
    ).not.toHaveProperty('plaintext')
  })

  test('has the whole prefix of the key, or else the default prefix of its API', async () => {
    const { workspace, apiId, keyId } = await prepareFull()
    expect((await reroll(workspace, keyId)).key).toStartWith('my_app_3Z')
    const bare = await makeKey(workspace, apiId)
    expect((await reroll(workspace, bare.keyId)).key).toStartWith('3Z')
    const later = await makeKey(workspace, apiId)
    await workspace.post('apis.updateApi', { apiId, defaultPrefix: 'own', defaultBytes: 32 })
    expect((await reroll(workspace, later.keyId)).key).toMatch(/^own_.{40,}$/)
  })

  test('of a disabled key is disabled', async () => {
    const { workspace, keyId } = await prepare({ enabled: false })
    const made = await reroll(workspace, keyId)
    expect(await verify(made.key)).toMatchObject({ valid: false, code: 'DISABLED' })
  })

  test('of a key whose identity and role were deleted has neither', async () => {
    const { workspace, keyId } = await prepareFull()
    const before = await stateOf(workspace, keyId)
    for (const { id } of await workspace.get('permissions.listRoles'))
      await workspace.post('permissions.deleteRole', { roleId: id })
    await workspace.post('identities.deleteIdentity', { identityId: before.identity.id })
    const made = await reroll(workspace, keyId)
    const after = await stateOf(workspace, made.keyId)
    expect(after.roles).toEqual([])
    expect(after).not.toHaveProperty('identity')
    expect(after.permissions).toEqual(before.permissions)
  })
})

describe('the old key', () => {
  test('works beside its successor until the next full minute after the overlap', async () => {
    const { workspace, keyId, key } = await prepare()
    const { key: newKey, oldKeyExpires } = await reroll(workspace, keyId, MINUTE_MS)
    expect(oldKeyExpires % MINUTE_MS).toBe(0)
    expect(oldKeyExpires).toBeGreaterThanOrEqual(now + MINUTE_MS)
    expect(oldKeyExpires).toBeLessThan(now + 2 * MINUTE_MS)
    expect(await stateOf(workspace, keyId)).toMatchObject({ expires: oldKeyExpires })
    for (const each of [key, newKey]) expect(await verify(each)).toMatchObject({ valid: true })
    now = oldKeyExpires + 1
    expect(await verify(key)).toMatchObject({ valid: false, code: 'EXPIRED' })
    expect(await verify(newKey)).toMatchObject({ valid: true })
  })

  test('with an overlap of 0 is EXPIRED on the next verification, also while cached', async () => {
    const { workspace, keyId, key } = await prepare()
    expect(await verify(key)).toMatchObject({ valid: true })
    const { key: newKey } = await reroll(workspace, keyId, 0)
    expect(await verify(key)).toMatchObject({ valid: false, code: 'EXPIRED' })
    expect(await verify(newKey)).toMatchObject({ valid: true })
  })

  test('never gets a later end, and neither does the successor', async () => {
    const expires = now + 90_000
    const { workspace, keyId, key } = await prepare({ expires })
    const made = await reroll(workspace, keyId, HOUR_MS)
    expect(made.oldKeyExpires).toBe(expires)
    for (const id of [keyId, made.keyId]) expect(await stateOf(workspace, id)).toMatchObject({ expires })
    now = expires + 1
    for (const each of [key, made.key]) expect(await verify(each)).toMatchObject({ code: 'EXPIRED' })
  })
})

describe('credits', () => {
  test('are there once: both keys spend the same ones, and the old key shows them', async () => {
    const { workspace, keyId, key } = await prepare({ remaining: 5 })
    expect(await verify(key)).toMatchObject({ remaining: 4 })
    const made = await reroll(workspace, keyId)
    expect(await verify(key)).toMatchObject({ valid: true, remaining: 3 })
    expect(await verify(made.key)).toMatchObject({ valid: true, remaining: 2 })
    for (const id of [keyId, made.keyId]) expect(await stateOf(workspace, id)).toMatchObject({ remaining: 2 })
    // In one statement.
    const answers = await Promise.all([key, made.key, key, made.key].map(verify))
    expect(answers.filter(({ valid }) => valid)).toHaveLength(2)
    expect(answers.filter(({ code }) => code === 'USAGE_EXCEEDED')).toHaveLength(2)
    for (const id of [keyId, made.keyId]) expect(await stateOf(workspace, id)).toMatchObject({ remaining: 0 })
  })

  test('are still there once after several rerolls', async () => {
    const { workspace, keyId, key } = await prepare({ remaining: 10 })
    const second = await reroll(workspace, keyId)
    const third = await reroll(workspace, second.keyId)
    for (const [index, each] of [key, second.key, third.key].entries())
      expect(await verify(each)).toMatchObject({ valid: true, remaining: 9 - index })
    for (const id of [keyId, second.keyId, third.keyId])
      expect(await stateOf(workspace, id)).toMatchObject({ remaining: 7 })
  })

  test('verifications during rerolls spend exactly as many as passed, and none is refused', async () => {
    const { workspace, keyId, key } = await prepare({ remaining: 1_000 })
    let [id, passed] = [keyId, 0]
    let isRunning = true
    const spend = async () => {
      while (isRunning) {
        const { valid, code } = await verify(key)
        expect([valid, code]).toEqual([true, 'VALID'])
        passed++
      }
    }
    const spenders = [spend(), spend(), spend(), spend()]
    for (let round = 0; round < 5; round++) id = (await reroll(workspace, id)).keyId
    isRunning = false
    await Promise.all(spenders)
    expect(passed).toBeGreaterThan(0)
    expect(await stateOf(workspace, id)).toMatchObject({ remaining: 1_000 - passed })
  })

  test('of the successor are refilled, those of the old key are not', async () => {
    const { workspace, keyId, key } = await prepare({
      remaining: 1,
      refill: { interval: 'daily', amount: 3 },
    })
    const made = await reroll(workspace, keyId, 72 * HOUR_MS)
    expect(await stateOf(workspace, keyId)).not.toHaveProperty('refill')
    now += 24 * HOUR_MS
    expect(await verify(made.key)).toMatchObject({ valid: true, remaining: 3 })
    expect(await verify(key)).toMatchObject({ valid: true, remaining: 2 })
  })

  test('cannot be changed on the old key while its successor has them', async () => {
    const { workspace, keyId, key } = await prepare({ remaining: 1 })
    const made = await reroll(workspace, keyId)
    const post = async (method: string, body: object) =>
      refusalOf(await server.post(method, { keyId, ...body }, workspace.rootKey))
    for (const refusal of [
      await post('keys.updateRemaining', { op: 'set', value: 5 }),
      await post('keys.updateKey', { remaining: 5 }),
      await post('keys.updateKey', { refill: { interval: 'daily', amount: 3 } }),
    ]) {
      expect(refusal).toMatchObject({ status: 412, code: 'PRECONDITION_FAILED' })
      expect(refusal.message).toContain(made.keyId)
    }
    await workspace.post('keys.updateKey', { keyId, name: 'renamed' })
    await workspace.post('keys.updateRemaining', { keyId: made.keyId, op: 'increment', value: 4 })
    expect(await verify(key)).toMatchObject({ remaining: 4 })
  })

  test('go with a deleted successor; the old key has none until it is given its own', async () => {
    const { workspace, keyId, key } = await prepare({ remaining: 5 })
    const made = await reroll(workspace, keyId)
    await workspace.post('keys.deleteKey', { keyId: made.keyId })
    expect(await verify(key)).toMatchObject({ code: 'USAGE_EXCEEDED', remaining: 0 })
    expect(await stateOf(workspace, keyId)).toMatchObject({ remaining: 0 })
    await workspace.post('keys.updateRemaining', { keyId, op: 'set', value: 2 })
    expect(await verify(key)).toMatchObject({ valid: true, remaining: 1 })
  })

  test('of a successor outlast the deletion of the old key', async () => {
    const { workspace, keyId } = await prepare({ remaining: 5 })
    const made = await reroll(workspace, keyId)
    await workspace.post('keys.deleteKey', { keyId, permanent: true })
    expect(await verify(made.key)).toMatchObject({ valid: true, remaining: 4 })
  })
})

describe('limits', () => {
  test('both keys count in the same window, so a reroll gives no fresh one', async () => {
    const { workspace, keyId, key } = await prepare({ ratelimit: { limit: 3, duration: HOUR_MS } })
    expect(await verify(key)).toMatchObject({ ratelimit: { remaining: 2 } })
    const second = await reroll(workspace, keyId)
    expect(await verify(second.key)).toMatchObject({ ratelimit: { remaining: 1 } })
    const third = await reroll(workspace, second.keyId, 0)
    expect(await verify(key)).toMatchObject({ ratelimit: { remaining: 0 } })
    expect(await verify(third.key)).toMatchObject({ valid: false, code: 'RATE_LIMITED' })
  })

  test.each(['v1', 'v2'])('that a verification of %s brings with it go on as well', async (api) => {
    const { workspace, keyId, key } = await prepare()
    const ratelimits = [{ name: 'exports', limit: 2, duration: HOUR_MS }]
    const codeOf = async (text: string) => {
      const body = { key: text, ratelimits }
      const answer = await server.post(
        `/${api}/keys.verifyKey`,
        body,
        api === 'v2' ? workspace.rootKey : null,
      )
      return (api === 'v2' ? answer.body.data : answer.body).code
    }
    expect(await codeOf(key)).toBe('VALID')
    const successor = await reroll(workspace, keyId)
    expect([await codeOf(successor.key), await codeOf(key), await codeOf(successor.key)]).toEqual([
      'VALID',
      'RATE_LIMITED',
      'RATE_LIMITED',
    ])
  })

  test('of a successor work on after the old key was erased, and nothing names that', async () => {
    const { workspace, keyId } = await prepare({ ratelimit: { limit: 3, duration: HOUR_MS } })
    const second = await reroll(workspace, keyId)
    const third = await reroll(workspace, second.keyId)
    await workspace.post('keys.eraseKey', { keyId })
    await workspace.post('keys.eraseKey', { keyId: third.keyId })
    expect(await verify(second.key)).toMatchObject({ valid: true })
    const { sql } = server.server.deps
    for (const id of [keyId, third.keyId]) {
      const named = await sql`select id from keys where successor_id = ${id} or counts_as = ${id}`
      expect(named).toHaveLength(0)
      const events = await sql<{ id: string }[]>`
        select id from audit_events where resources::text like ${`%${id}%`} or description like ${`%${id}%`}`
      expect(events).toHaveLength(0)
    }
  })
})

describe('refused', () => {
  test('a key that is unknown, deleted, or of another workspace is NOT_FOUND', async () => {
    const { workspace, keyId } = await prepare()
    const other = await prepare()
    const message = (id: string) => ({ status: 404, code: 'NOT_FOUND', message: `key ${id} not found` })
    expect(await refused(workspace, 'key_unknown')).toEqual(message('key_unknown'))
    expect(await refused(workspace, other.keyId)).toEqual(message(other.keyId))
    await workspace.post('keys.deleteKey', { keyId })
    expect(await refused(workspace, keyId)).toEqual(message(keyId))
  })

  test('an expired key, as its successor would be expired too', async () => {
    const { workspace, keyId } = await prepare({ expires: now + 1000 })
    now += 1001
    const refusal = await refused(workspace, keyId)
    expect(refusal).toMatchObject({ status: 412, code: 'PRECONDITION_FAILED' })
    expect(refusal.message).toContain('expired')
    await workspace.post('keys.updateKey', { keyId, expires: null })
    expect(await verify((await reroll(workspace, keyId)).key)).toMatchObject({ valid: true })
  })

  test('a second successor, also when two are asked for at once', async () => {
    const { workspace, apiId, keyId } = await prepare({ remaining: 5 })
    const body = { keyId, overlap: HOUR_MS }
    const answers = await Promise.all(
      [1, 2, 3].map(() => server.post('keys.rerollKey', body, workspace.rootKey)),
    )
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 412, 412])
    const made = answers.find(({ status }) => status === 200)?.body
    for (const answer of answers)
      if (answer.status === 412) expect(refusalOf(answer).message).toContain(made.keyId)
    expect((await workspace.get('apis.listKeys', { apiId })).total).toBe(2)
    // The successor was not received: it goes, and another can be made, which lasts no longer than the old key.
    await workspace.post('keys.deleteKey', { keyId: made.keyId })
    const again = await reroll(workspace, keyId, 0)
    expect(await stateOf(workspace, again.keyId)).toMatchObject({ expires: made.oldKeyExpires, remaining: 0 })
  })

  test('a recoverable key, without the right to encrypt or while its API stores none', async () => {
    const { workspace, apiId, keyId } = await prepare({ recoverable: true })
    const rootKey = await workspace.rootKeyWith('api.*.create_key')
    const lacking = refusalOf(await server.post('keys.rerollKey', { keyId, overlap: 0 }, rootKey))
    expect(lacking).toMatchObject({ status: 403, code: 'INSUFFICIENT_PERMISSIONS' })
    await workspace.post('apis.updateApi', { apiId, storeEncryptedKeys: false })
    expect(await refused(workspace, keyId)).toMatchObject({ status: 412, code: 'PRECONDITION_FAILED' })
    await workspace.post('apis.updateApi', { apiId, storeEncryptedKeys: true })
    expect((await refused(workspace, keyId)).status).toBe(200)
  })

  test('an overlap that is missing, negative, fractional or longer than a hundred years', async () => {
    const { workspace, keyId } = await prepare()
    for (const overlap of [undefined, -1, 1.5, 3_155_760_000_001, '60000', null]) {
      const answer = await server.post('keys.rerollKey', { keyId, overlap }, workspace.rootKey)
      expect(refusalOf(answer)).toMatchObject({ status: 400, code: 'BAD_REQUEST' })
    }
    expect(await stateOf(workspace, keyId)).not.toHaveProperty('expires')
  })

  test('at the bound of keys: the old key still counts', async () => {
    const { workspace, keyId, key } = await prepare()
    const { post } = server
    const bounds = { keys: 1 }
    await post('workspaces.updateWorkspace', { workspaceId: workspace.workspaceId, bounds }, OPERATOR_KEY)
    const refusal = await refused(workspace, keyId)
    expect(refusal).toMatchObject({ status: 412, code: 'PRECONDITION_FAILED' })
    expect(await verify(key)).toMatchObject({ valid: true })
    expect(await stateOf(workspace, keyId)).not.toHaveProperty('expires')
  })
})

test('the audit log has one event that names both keys and the old end, and no text', async () => {
  const { workspace, keyId, key } = await prepare()
  const made = await reroll(workspace, keyId)
  const { events } = await workspace.get('audit.listEvents', { event: 'key.reroll' })
  expect(events).toHaveLength(1)
  expect(events[0].resources).toMatchObject([
    { type: 'key', id: keyId, before: { expires: null }, after: { expires: made.oldKeyExpires } },
    { type: 'key', id: made.keyId },
    { type: 'api' },
  ])
  for (const text of [key, made.key]) expect(JSON.stringify(events)).not.toContain(text)
})
