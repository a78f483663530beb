import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { DAY_MS } from '../../../src/lib/clock.ts'
import { refusalOf } from '../../support/fixtures.ts'
import {
  type Json,
  OPERATOR_KEY,
  startTestServer,
  type TestServer,
  type TestWorkspace,
} from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const HOUR_MS = 3_600_000
const REROLL = ['root_key.*.create_root_key', 'root_key.*.update_root_key']
const REFUSED = { status: 403, code: 'INSUFFICIENT_PERMISSIONS' }

let server: TestServer
/** The server's time, set by the tests. */
let now = Date.now()
beforeAll(async () => {
  server = await startTestServer({ clock: () => now })
})
afterAll(async () => await server[Symbol.asyncDispose]())

type Made = { rootKeyId: string; rootKey: string; expires?: number; oldRootKeyExpires: number }

const make = async (by: string, fields: object = {}): Promise<Made> => {
  const { status, body } = await server.post('rootKeys.createRootKey', { permissions: ['*'], ...fields }, by)
  expect(status).toBe(200)
  return body
}
const ask = async (by: string, rootKeyId: string, overlap = HOUR_MS) =>
  await server.post('rootKeys.rerollRootKey', { rootKeyId, overlap }, by)
const reroll = async (by: string, rootKeyId: string, overlap = HOUR_MS): Promise<Made> => {
  const { status, body } = await ask(by, rootKeyId, overlap)
  expect(status).toBe(200)
  return body
}
const stateOf = async (workspace: TestWorkspace, id: string): Promise<Json> =>
  (await workspace.get('rootKeys.listRootKeys')).rootKeys.find((each: Json) => each.id === id)
const grantedBy = async (workspace: TestWorkspace, id: string): Promise<string[]> =>
  (await workspace.get('rootKeys.listRootKeys', { grantedBy: id })).rootKeys.map((each: Json) => each.id)
/** The answer to the next request with this root key. */
const use = async (rootKey: string) => {
  const { status, body } = await server.get('apis.listApis', {}, rootKey)
  return status === 200 ? 'works' : body.error.code
}

describe('the successor', () => {
  test('has the name, permissions and end of the root key, which works beside it during the overlap', async () => {
    const workspace = await server.workspace()
    const expires = now + 30 * DAY_MS
    const fields = { name: 'backend', permissions: ['api.*.read_api', 'api.*.create_key'], expires }
    const old = await make(workspace.rootKey, fields)
    const made = await reroll(workspace.rootKey, old.rootKeyId)
    expect(made.expires).toBe(expires)
    expect(made.rootKey).toStartWith('tollgate_')
    expect(await stateOf(workspace, made.rootKeyId)).toMatchObject({ ...fields, enabled: true })
    expect(await stateOf(workspace, old.rootKeyId)).toMatchObject({ expires: made.oldRootKeyExpires })
    for (const { rootKey } of [old, made]) expect(await use(rootKey)).toBe('works')
    now = made.oldRootKeyExpires + 1
    expect([await use(old.rootKey), await use(made.rootKey)]).toEqual(['EXPIRED', 'works'])
  })

  test('with an overlap of 0 replaces the root key at once', async () => {
    const workspace = await server.workspace()
    const old = await make(workspace.rootKey)
    expect(await use(old.rootKey)).toBe('works')
    const made = await reroll(workspace.rootKey, old.rootKeyId, 0)
    expect([await use(old.rootKey), await use(made.rootKey)]).toEqual(['EXPIRED', 'works'])
    expect(made).not.toHaveProperty('expires')
  })

  test('of a disabled root key is disabled; an earlier end stays for both', async () => {
    const workspace = await server.workspace()
    const expires = now + 90_000
    const old = await make(workspace.rootKey, { expires })
    await workspace.post('rootKeys.updateRootKey', { rootKeyId: old.rootKeyId, enabled: false })
    const made = await reroll(workspace.rootKey, old.rootKeyId, DAY_MS)
    expect(made).toMatchObject({ expires, oldRootKeyExpires: expires })
    expect(await use(made.rootKey)).toBe('DISABLED')
  })

  test('of a root key that rerolls itself is created by whoever created that', async () => {
    const workspace = await server.workspace()
    const old = await make(workspace.rootKey, { permissions: ['api.*.read_api', ...REROLL] })
    const made = await reroll(old.rootKey, old.rootKeyId)
    expect(await grantedBy(workspace, workspace.rootKeyId)).toEqual([old.rootKeyId, made.rootKeyId].sort())
    expect(await use(made.rootKey)).toBe('works')
  })
})

describe('root keys that the old one created', () => {
  test('do not end with it: they count as created by the successor', async () => {
    const workspace = await server.workspace()
    const old = await make(workspace.rootKey)
    const child = await make(old.rootKey)
    const made = await reroll(workspace.rootKey, old.rootKeyId)
    expect(await stateOf(workspace, child.rootKeyId)).not.toHaveProperty('expires')
    expect(await grantedBy(workspace, made.rootKeyId)).toEqual([child.rootKeyId])
    // An earlier end of the old one does not reach them, one of the successor does.
    const update = (rootKeyId: string, expires: number) =>
      workspace.post('rootKeys.updateRootKey', { rootKeyId, expires })
    await update(old.rootKeyId, now + 1000)
    for (const id of [child.rootKeyId, made.rootKeyId])
      expect(await stateOf(workspace, id)).not.toHaveProperty('expires')
    await update(made.rootKeyId, now + DAY_MS)
    expect(await stateOf(workspace, child.rootKeyId)).toMatchObject({ expires: now + DAY_MS })
  })

  /** After a leak: whoever had the root key may have rerolled it, and others with it. */
  test.each(['deleteRootKey', 'updateRootKey'])(
    '%s with `granted` also revokes successors, however they were made',
    async (method) => {
      const workspace = await server.workspace()
      const leaked = await make(workspace.rootKey)
      const [mine, bystander] = [await make(leaked.rootKey), await make(workspace.rootKey)]
      const itself = await reroll(leaked.rootKey, leaked.rootKeyId)
      const again = await reroll(itself.rootKey, itself.rootKeyId)
      const ofMine = await reroll(again.rootKey, mine.rootKeyId)
      const ofBystander = await reroll(again.rootKey, bystander.rootKeyId)
      const rootKeyId = leaked.rootKeyId
      await workspace.post(`rootKeys.${method}`, {
        rootKeyId,
        granted: true,
        ...(method === 'updateRootKey' ? { enabled: false } : {}),
      })
      const code = method === 'deleteRootKey' ? 'UNAUTHORIZED' : 'DISABLED'
      for (const { rootKey } of [leaked, mine, itself, again, ofMine, ofBystander])
        expect(await use(rootKey)).toBe(code)
      expect(await use(bystander.rootKey)).toBe('works') // until its overlap ends
      expect(await use(workspace.rootKey)).toBe('works')
    },
  )

  test('a root key that its successor’s creator loses is found from there too', async () => {
    const workspace = await server.workspace()
    const granter = await make(workspace.rootKey)
    const old = await make(granter.rootKey)
    const made = await reroll(workspace.rootKey, old.rootKeyId)
    await workspace.post('rootKeys.deleteRootKey', { rootKeyId: granter.rootKeyId, granted: true })
    for (const { rootKey } of [granter, old, made]) expect(await use(rootKey)).toBe('UNAUTHORIZED')
  })
})

describe('refused', () => {
  test('a root key that holds more than the caller, or ends later', async () => {
    const workspace = await server.workspace()
    const strong = await make(workspace.rootKey)
    const weak = await make(workspace.rootKey, { permissions: [...REROLL, 'api.*.read_api'] })
    expect(refusalOf(await ask(weak.rootKey, strong.rootKeyId))).toMatchObject(REFUSED)
    const equal = await make(workspace.rootKey, { permissions: ['api.*.read_api'] })
    expect((await ask(weak.rootKey, equal.rootKeyId)).status).toBe(200)

    const short = await make(workspace.rootKey, { expires: now + DAY_MS })
    const refused = await ask(short.rootKey, strong.rootKeyId)
    expect(refusalOf(refused)).toMatchObject(REFUSED)
    expect(await stateOf(workspace, strong.rootKeyId)).not.toHaveProperty('expires')
    const shorter = await make(workspace.rootKey, { expires: now + DAY_MS - 1 })
    expect((await reroll(short.rootKey, shorter.rootKeyId)).expires).toBe(now + DAY_MS - 1)
  })

  test('without both rights, whether the root key exists or not', async () => {
    const workspace = await server.workspace()
    const old = await make(workspace.rootKey, { permissions: [] })
    for (const right of REROLL) {
      const by = await make(workspace.rootKey, { permissions: [right] })
      const answers = [await ask(by.rootKey, old.rootKeyId), await ask(by.rootKey, 'key_unknown')]
      const [found, absent] = answers.map(refusalOf)
      expect(found).toMatchObject(REFUSED)
      expect(found).toEqual(absent)
    }
    const both = await make(workspace.rootKey, { permissions: REROLL })
    expect((await ask(both.rootKey, old.rootKeyId)).status).toBe(200)
  })

  test('an unknown, a deleted and another workspace’s root key, and an ordinary key', async () => {
    const [workspace, other] = [await server.workspace(), await server.workspace()]
    const deleted = await make(workspace.rootKey)
    await workspace.post('rootKeys.deleteRootKey', { rootKeyId: deleted.rootKeyId })
    const { apiId } = await workspace.post('apis.createApi', { name: 'test api' })
    const { keyId } = await workspace.post('keys.createKey', { apiId })
    for (const id of ['key_unknown', deleted.rootKeyId, other.rootKeyId, keyId])
      expect(refusalOf(await ask(workspace.rootKey, id))).toEqual({
        status: 404,
        code: 'NOT_FOUND',
        message: `root key ${id} not found`,
      })
    // Nor does keys.rerollKey take a root key.
    const body = { keyId: workspace.rootKeyId, overlap: 0 }
    expect((await server.post('keys.rerollKey', body, workspace.rootKey)).status).toBe(404)
  })

  test('an expired one, and a second successor, also at once', async () => {
    const workspace = await server.workspace()
    const old = await make(workspace.rootKey, { expires: now + 10 * HOUR_MS })
    const answers = await Promise.all([1, 2, 3].map(() => ask(workspace.rootKey, old.rootKeyId)))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 412, 412])
    const made: Made = answers.find(({ status }) => status === 200)?.body
    now += 10 * HOUR_MS + 1
    const refused = refusalOf(await ask(workspace.rootKey, made.rootKeyId))
    expect(refused).toMatchObject({ status: 412, code: 'PRECONDITION_FAILED' })
    expect(refused.message).toContain('expired')
  })

  test('an operator root key, which a start replaces', async () => {
    const { body } = await server.get('rootKeys.listRootKeys', {}, OPERATOR_KEY)
    const rootKeyId = body.rootKeys[0].id
    const refused = refusalOf(await ask(OPERATOR_KEY, rootKeyId))
    expect(refused).toMatchObject({ status: 412, code: 'PRECONDITION_FAILED' })
    expect(refused.message).toContain('TOLLGATE_ROOT_KEY')
    const workspace = await server.workspace()
    expect((await ask(workspace.rootKey, rootKeyId)).status).toBe(404)
    expect(await use(OPERATOR_KEY)).toBe('works')
  })
})

test('the audit log has one event with both root keys and no text', async () => {
  const workspace = await server.workspace()
  const old = await make(workspace.rootKey, { name: 'backend' })
  const made = await reroll(workspace.rootKey, old.rootKeyId)
  const { events } = await workspace.get('audit.listEvents', { event: 'rootKey.reroll' })
  expect(events).toHaveLength(1)
  expect(events[0].resources).toMatchObject([
    { type: 'rootKey', id: old.rootKeyId, after: { expires: made.oldRootKeyExpires } },
    { type: 'rootKey', id: made.rootKeyId, after: { name: 'backend', permissions: ['*'] } },
  ])
  for (const { rootKey } of [old, made]) expect(JSON.stringify(events)).not.toContain(rootKey)
})
