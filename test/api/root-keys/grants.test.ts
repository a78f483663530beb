import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { removeOldest } from '../../../src/db/kept-rows.ts'
import { DAY_MS } from '../../../src/lib/clock.ts'
import { TEST_DATABASE_URL } from '../../support/database.ts'
import { refusalOf } from '../../support/fixtures.ts'
import {
  type Json,
  OPERATOR_KEY,
  startTestServer,
  type TestServer,
  type TestWorkspace,
} from '../../support/server.ts'
import { listStatements } from '../../support/statements.ts'
import { SLOW_MS } from '../../support/timeout.ts'

/** A root key grants no more than it holds and no longer than it lasts. */

setDefaultTimeout(SLOW_MS)

let server: TestServer
/** The server's time, set by the tests. */
let now = Date.now()
beforeAll(async () => {
  server = await startTestServer({ clock: () => now })
})
afterAll(async () => await server[Symbol.asyncDispose]())

type Made = { rootKeyId: string; rootKey: string; expires?: number }

const REFUSED = { status: 403, code: 'INSUFFICIENT_PERMISSIONS' }
const make = async (by: string, fields: object = {}) =>
  await server.post('rootKeys.createRootKey', { permissions: ['*'], ...fields }, by)
const made = async (by: string, fields: object = {}): Promise<Made> => {
  const { status, body } = await make(by, fields)
  expect(status).toBe(200)
  return body
}
const update = async (by: string, rootKeyId: string, fields: object) =>
  await server.post('rootKeys.updateRootKey', { rootKeyId, ...fields }, by)
const listed = async (workspace: TestWorkspace): Promise<Json[]> =>
  (await workspace.get('rootKeys.listRootKeys')).rootKeys
const stateOf = async (workspace: TestWorkspace, id: string) =>
  (await listed(workspace)).find((each) => each.id === id)
/** The answer to the next request with this root key. */
const use = async (rootKey: string) => {
  const { status, body } = await server.get('apis.listApis', {}, rootKey)
  return status === 200 ? 'works' : body.error.code
}

describe('root keys that a root key creates end no later than itself', () => {
  test('a new one without `expires` ends with its creator, and the answer has the time', async () => {
    const workspace = await server.workspace()
    const expires = now + DAY_MS
    const granter = await made(workspace.rootKey, { expires })
    const granted = await made(granter.rootKey)
    const chained = await made(granted.rootKey)
    expect([granted.expires, chained.expires]).toEqual([expires, expires])
    expect(await stateOf(workspace, granted.rootKeyId)).toMatchObject({ expires })
    const { rootKeys, total } = await workspace.get('rootKeys.listRootKeys', { grantedBy: granter.rootKeyId })
    expect([rootKeys.map(({ id }: Json) => id), total]).toEqual([[granted.rootKeyId], 1])
    expect(await use(chained.rootKey)).toBe('works')
    now = expires + 1
    for (const { rootKey } of [granter, granted, chained]) expect(await use(rootKey)).toBe('EXPIRED')
    expect(await made(workspace.rootKey)).not.toHaveProperty('expires')
  })

  test('a later `expires` is refused, the same or an earlier one is accepted', async () => {
    const workspace = await server.workspace()
    const expires = now + DAY_MS
    const granter = await made(workspace.rootKey, { expires })
    const refused = await make(granter.rootKey, { expires: expires + 1 })
    expect(refusalOf(refused)).toMatchObject(REFUSED)
    expect(refused.body.error.message).toContain(String(expires))
    expect((await make(granter.rootKey, { expires })).status).toBe(200)
    expect((await made(granter.rootKey, { expires: expires - 5 })).expires).toBe(expires - 5)
  })

  test('it can neither extend its own end or another’s, nor clear an end', async () => {
    const workspace = await server.workspace()
    const expires = now + DAY_MS
    const granter = await made(workspace.rootKey, { expires })
    const granted = await made(granter.rootKey, { expires: expires - 1000 })
    const forGood = await made(workspace.rootKey)
    for (const { rootKeyId } of [granter, granted])
      for (const later of [null, expires + 1])
        expect(refusalOf(await update(granter.rootKey, rootKeyId, { expires: later }))).toMatchObject(REFUSED)
    expect((await update(granter.rootKey, granted.rootKeyId, { expires })).status).toBe(200)
    // Giving an end, however late, to a root key without one is not a grant. Removing that end afterwards is one.
    expect((await update(granter.rootKey, forGood.rootKeyId, { expires: expires + DAY_MS })).status).toBe(200)
    expect(refusalOf(await update(granter.rootKey, forGood.rootKeyId, { expires: null }))).toMatchObject(
      REFUSED,
    )
    expect(await stateOf(workspace, granter.rootKeyId)).toMatchObject({ expires })
    // A root key without an end may.
    expect((await update(workspace.rootKey, granter.rootKeyId, { expires: null })).status).toBe(200)
  })

  test('it can neither enable a root key that ends later nor give it permissions', async () => {
    const workspace = await server.workspace()
    const granter = await made(workspace.rootKey, { expires: now + DAY_MS })
    const sleeping = await made(workspace.rootKey, { permissions: ['api.*.read_api'] })
    await update(workspace.rootKey, sleeping.rootKeyId, { enabled: false })
    for (const grant of [{ enabled: true }, { permissions: ['*'] }]) {
      expect(refusalOf(await update(granter.rootKey, sleeping.rootKeyId, grant))).toMatchObject(REFUSED)
      expect(await stateOf(workspace, sleeping.rootKeyId)).toMatchObject({
        enabled: false,
        permissions: ['api.*.read_api'],
      })
    }
    for (const no of [{ name: 'renamed' }, { permissions: [] }, { enabled: false }])
      expect((await update(granter.rootKey, sleeping.rootKeyId, no)).status).toBe(200)
    const grant = { enabled: true, permissions: ['api.*.read_api'], expires: now + 1000 }
    expect((await update(granter.rootKey, sleeping.rootKeyId, grant)).status).toBe(200)
  })

  test('this includes workspaces and root keys that an operator creates', async () => {
    await using own = await startTestServer({ clock: () => now })
    const { body } = await own.post('rootKeys.createRootKey', { permissions: ['*'] }, OPERATOR_KEY)
    const expires = now + DAY_MS
    // As a start does for a second TOLLGATE_ROOT_KEY.
    await own.server.deps.sql`update keys set is_operator = true where id = ${body.rootKeyId}`
    await own.post('rootKeys.updateRootKey', { rootKeyId: body.rootKeyId, expires }, OPERATOR_KEY)
    const workspace = await own.post('workspaces.createWorkspace', { name: 'a workspace' }, body.rootKey)
    expect(workspace.body).toMatchObject({ expires })
    const { workspaceId } = workspace.body
    const other = { permissions: ['*'], workspaceId }
    expect((await own.post('rootKeys.createRootKey', other, body.rootKey)).body).toMatchObject({ expires })
    const later = await own.post('rootKeys.createRootKey', { ...other, expires: expires + 1 }, body.rootKey)
    expect(refusalOf(later)).toMatchObject(REFUSED)
    expect((await own.post('rootKeys.createRootKey', other, OPERATOR_KEY)).body).not.toHaveProperty('expires')
  })

  /** Otherwise an end that is set later would apply to the known root key, but not to those that it created. */
  test('and when its end moves forward, those it created directly or through others end then too', async () => {
    const workspace = await server.workspace()
    const granter = await made(workspace.rootKey)
    const granted = await made(granter.rootKey)
    const chained = await made(granted.rootKey)
    const sooner = await made(granted.rootKey, { expires: now + 500 })
    const apart = await made(workspace.rootKey)
    await server.post('rootKeys.deleteRootKey', { rootKeyId: granted.rootKeyId }, workspace.rootKey)
    expect(await use(chained.rootKey)).toBe('works')
    const expires = now + 1000
    expect((await update(workspace.rootKey, granter.rootKeyId, { expires })).status).toBe(200)
    expect(await stateOf(workspace, chained.rootKeyId)).toMatchObject({ expires })
    expect(await stateOf(workspace, sooner.rootKeyId)).toMatchObject({ expires: now + 500 })
    expect(await stateOf(workspace, apart.rootKeyId)).not.toHaveProperty('expires')
    const { events } = await workspace.get('audit.listEvents', { resourceId: chained.rootKeyId })
    expect(events.at(-1).resources[0]).toMatchObject({ before: { expires: null }, after: { expires } })
    now = expires + 1
    for (const { rootKey } of [granter, chained]) expect(await use(rootKey)).toBe('EXPIRED')
    expect(await use(apart.rootKey)).toBe('works')
  })
})

describe('changing another root key’s life needs all the permissions that it holds', () => {
  const verbs: [string, (by: string, id: string) => Promise<{ status: number; body: Json }>][] = [
    ['enable', (by, id) => update(by, id, { enabled: true })],
    ['disable', (by, id) => update(by, id, { enabled: false })],
    ['let end', (by, id) => update(by, id, { expires: now + 1000 })],
    ['rename', (by, id) => update(by, id, { name: 'renamed' })],
    ['take permissions', (by, id) => update(by, id, { permissions: [] })],
    ['delete', (by, id) => server.post('rootKeys.deleteRootKey', { rootKeyId: id }, by)],
  ]
  const mayChange = ['root_key.*.update_root_key', 'root_key.*.delete_root_key']
  for (const [verb, change] of verbs)
    test(verb, async () => {
      const workspace = await server.workspace()
      const weak = await workspace.rootKeyWith(...mayChange, 'api.*.read_api')
      for (const permissions of [['*'], ['api.*.read_api', 'api.*.read_key']]) {
        const { rootKeyId } = await made(workspace.rootKey, { permissions })
        if (verb === 'enable') await update(workspace.rootKey, rootKeyId, { enabled: false })
        const before = await stateOf(workspace, rootKeyId)
        const refused = await change(weak, rootKeyId)
        expect(refusalOf(refused)).toMatchObject(REFUSED)
        for (const held of permissions.slice(1)) expect(refused.body.error.message).not.toContain(held)
        expect(await stateOf(workspace, rootKeyId)).toEqual(before)
        const equal = await workspace.rootKeyWith(...mayChange, ...permissions)
        expect((await change(equal, rootKeyId)).status).toBe(200)
      }
    })

  test('an operator root key can be changed by operators only, whatever another holds', async () => {
    const { body } = await server.get('rootKeys.listRootKeys', {}, OPERATOR_KEY)
    const [{ id }] = body.rootKeys
    const { rootKey } = await made(OPERATOR_KEY)
    for (const [, change] of verbs) expect(refusalOf(await change(rootKey, id))).toMatchObject(REFUSED)
  })

  test('a root key may change itself, within its own permissions', async () => {
    const workspace = await server.workspace()
    const permissions = ['root_key.*.update_root_key', 'api.*.read_api']
    const { rootKeyId, rootKey } = await made(workspace.rootKey, { permissions })
    expect((await update(rootKey, rootKeyId, { name: 'mine' })).status).toBe(200)
    expect(refusalOf(await update(rootKey, rootKeyId, { permissions: [...permissions, 'x'] }))).toMatchObject(
      REFUSED,
    )
    expect((await update(rootKey, rootKeyId, { permissions: [permissions[0]] })).status).toBe(200)
    expect(refusalOf(await update(rootKey, rootKeyId, { permissions }))).toMatchObject(REFUSED)
  })
})

describe('a root key revoked with `granted` takes the root keys that it created with it', () => {
  const tree = async () => {
    const workspace = await server.workspace()
    const granter = await made(workspace.rootKey)
    const granted = await made(granter.rootKey)
    const chained = await made(granted.rootKey)
    const apart = await made(workspace.rootKey)
    return { workspace, granter, granted, chained, apart }
  }

  test('when it is deleted or disabled, and not without `granted`', async () => {
    for (const method of ['rootKeys.deleteRootKey', 'rootKeys.updateRootKey']) {
      const code = method === 'rootKeys.deleteRootKey' ? 'UNAUTHORIZED' : 'DISABLED'
      const fields = code === 'DISABLED' ? { enabled: false } : {}
      const alone = await tree()
      await alone.workspace.post(method, { rootKeyId: alone.granter.rootKeyId, ...fields })
      expect(await use(alone.granter.rootKey)).toBe(code)
      for (const { rootKey } of [alone.granted, alone.chained]) expect(await use(rootKey)).toBe('works')

      const { workspace, granter, granted, chained, apart } = await tree()
      for (const { rootKey } of [granter, granted, chained]) expect(await use(rootKey)).toBe('works')
      await workspace.post(method, { rootKeyId: granter.rootKeyId, granted: true, ...fields })
      for (const { rootKey } of [granter, granted, chained]) expect(await use(rootKey)).toBe(code)
      expect(await use(apart.rootKey)).toBe('works')
      const { events } = await workspace.get('audit.listEvents', { resourceId: chained.rootKeyId })
      expect(events.at(-1).event).toBe(code === 'DISABLED' ? 'rootKey.update' : 'rootKey.delete')
    }
  })

  test('only by a root key that holds all of their permissions; otherwise nothing changes', async () => {
    const { workspace, granter, chained } = await tree()
    await update(workspace.rootKey, granter.rootKeyId, { permissions: [] })
    const weak = await workspace.rootKeyWith('root_key.*.delete_root_key')
    const body = { rootKeyId: granter.rootKeyId, granted: true }
    expect(refusalOf(await server.post('rootKeys.deleteRootKey', body, weak))).toMatchObject(REFUSED)
    expect(await use(chained.rootKey)).toBe('works')
    expect(await stateOf(workspace, granter.rootKeyId)).toBeDefined()
  })

  /** Rows of deleted root keys are removed one day, but not the link to those that they created. */
  test('also through a root key that was deleted long ago and whose row is gone', async () => {
    const { workspace, granter, granted, chained } = await tree()
    const { workspaceId } = workspace
    const bounds = { deletedRecords: 0 }
    await server.post('workspaces.updateWorkspace', { workspaceId, bounds }, OPERATOR_KEY)
    await workspace.post('rootKeys.deleteRootKey', { rootKeyId: granted.rootKeyId })
    await removeOldest(server.server.deps.sql)
    await workspace.post('rootKeys.deleteRootKey', { rootKeyId: granter.rootKeyId, granted: true })
    expect(await use(chained.rootKey)).toBe('UNAUTHORIZED')
    for (let round = 0; round < 3; round++) await removeOldest(server.server.deps.sql)
    const left = await server.server.deps.sql`
      select id from keys where for_workspace_id = ${workspaceId} and deleted_at is not null`
    expect(left).toHaveLength(0)
  })

  /** After a leak this must not fail because of a statement for each root key. */
  test('and a thousand of them take no more statements than one', async () => {
    const { deps } = server.server
    const countFor = async (
      many: number,
      revoke: (by: string, id: string) => Promise<{ status: number }>,
    ) => {
      const workspace = await server.workspace()
      const granter = await made(workspace.rootKey)
      const { rootKeyId } = await made(granter.rootKey)
      await deps.sql`
        insert into keys (id, workspace_id, keyspace_id, hash, start, for_workspace_id, root_permissions, granted_by, created_at)
        select id || '_' || number, workspace_id, keyspace_id, hash || '_' || number, start, for_workspace_id,
               root_permissions, granted_by, created_at
          from keys, generate_series(2, ${many}::integer) as number where id = ${rootKeyId}`
      expect(await use(granter.rootKey)).toBe('works')
      expect(await use(workspace.rootKey)).toBe('works')
      const sent = await listStatements(server, async () => {
        expect((await revoke(workspace.rootKey, granter.rootKeyId)).status).toBe(200)
      })
      // Notices to other caches are not counted, as each root key needs one.
      const statements = sent.filter((text) => !text.includes('pg_notify')).length
      const { total } = await workspace.get('rootKeys.listRootKeys', { grantedBy: granter.rootKeyId })
      const { events } = await workspace.get('audit.listEvents', { resourceId: `${rootKeyId}_${many}` })
      return { statements, total, events: events.length }
    }
    for (const [left, revoke] of [
      [
        0,
        (by: string, id: string) =>
          server.post('rootKeys.deleteRootKey', { rootKeyId: id, granted: true }, by),
      ],
      [1, (by: string, id: string) => update(by, id, { enabled: false, granted: true })],
      [1, (by: string, id: string) => update(by, id, { expires: now + DAY_MS })],
    ] as const) {
      const [one, thousand] = [await countFor(1, revoke), await countFor(1000, revoke)]
      expect(thousand.statements).toBe(one.statements)
      expect([thousand.total, thousand.events]).toEqual([1000 * left, 1])
    }
  })

  test('`granted` without disabling is refused', async () => {
    const { workspace, granter } = await tree()
    for (const fields of [{ granted: true }, { granted: true, enabled: true }])
      expect((await update(workspace.rootKey, granter.rootKeyId, fields)).status).toBe(400)
  })
})

describe('an operator creates a root key for a workspace that has lost its own', () => {
  test('with permissions of its choice, and both workspaces get an audit event', async () => {
    const workspace = await server.workspace()
    const { workspaceId } = workspace
    await workspace.post('rootKeys.deleteRootKey', { rootKeyId: workspace.rootKeyId })
    expect(await use(workspace.rootKey)).toBe('UNAUTHORIZED')
    const { rootKeyId, rootKey } = await made(OPERATOR_KEY, { workspaceId, name: 'another' })
    expect(await use(rootKey)).toBe('works')
    const own = await server.get('rootKeys.listRootKeys', {}, rootKey)
    expect(own.body.rootKeys.map(({ id }: Json) => id)).toEqual([rootKeyId])
    // It belongs to the workspace, and is not an operator root key.
    expect((await server.get('workspaces.listWorkspaces', {}, rootKey)).status).toBe(403)
    const theirs = await server.get('audit.listEvents', { resourceId: rootKeyId }, rootKey)
    const operators = await server.get('audit.listEvents', { resourceId: rootKeyId }, OPERATOR_KEY)
    for (const { body } of [theirs, operators])
      expect(body.events).toMatchObject([
        { event: 'rootKey.create', resources: [{ after: { name: 'another', permissions: ['*'] } }] },
      ])
    expect(theirs.body.events[0]).not.toHaveProperty('location')
    expect(operators.body.events[0]).toHaveProperty('location')
  })

  /** Otherwise it could get back, in another workspace, everything that was taken from it. */
  test('an operator root key that no longer holds `*` can create neither root keys nor workspaces', async () => {
    await using own = await startTestServer()
    const { body } = await own.post('rootKeys.createRootKey', { permissions: ['*'] }, OPERATOR_KEY)
    await own.server.deps.sql`update keys set is_operator = true where id = ${body.rootKeyId}`
    const permissions = ['root_key.*.create_root_key', 'api.*.read_api']
    const weaker = { rootKeyId: body.rootKeyId, permissions }
    expect((await own.post('rootKeys.updateRootKey', weaker, OPERATOR_KEY)).status).toBe(200)
    const { workspaceId } = await own.workspace()
    for (const [method, input] of [
      ['workspaces.createWorkspace', { name: 'a workspace' }],
      ['workspaces.updateWorkspace', { workspaceId, enabled: false }],
      ['rootKeys.createRootKey', { permissions: [], workspaceId }],
    ] as const)
      expect(refusalOf(await own.post(method, input, body.rootKey))).toMatchObject(REFUSED)
    expect((await own.get('workspaces.listWorkspaces', {}, body.rootKey)).status).toBe(403)
  })

  test('and nobody else can, whether or not the workspace exists, nor in the workspace of the root keys', async () => {
    const workspace = await server.workspace()
    const other = await server.workspace()
    const answers = []
    for (const workspaceId of [other.workspaceId, workspace.workspaceId, 'ws_nowhere'])
      answers.push(refusalOf(await make(workspace.rootKey, { workspaceId })))
    expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1)
    expect(answers[0]).toMatchObject(REFUSED)
    for (const workspaceId of ['ws_nowhere', 'ws_root'])
      expect(refusalOf(await make(OPERATOR_KEY, { workspaceId }))).toMatchObject({ status: 404 })
  })
})

describe.if(TEST_DATABASE_URL !== null)('a permission that was removed meanwhile is not granted', () => {
  /** Authenticated before the change took effect: it must not grant what it no longer holds. */
  test.each([
    ['its end came', { expires_at: 1 }, 'EXPIRED'],
    ['it was disabled', { enabled: false }, 'DISABLED'],
    ['it was deleted', { deleted_at: 1 }, 'UNAUTHORIZED'],
    [
      'its permissions were taken',
      { root_permissions: ['root_key.*.create_root_key'] },
      'INSUFFICIENT_PERMISSIONS',
    ],
  ])('%s', async (_, change, code) => {
    const { deps } = server.server
    const calls = (by: string, target: string) => [
      () => make(by),
      () => update(by, target, { permissions: ['*'] }),
      () => server.post('rootKeys.deleteRootKey', { rootKeyId: target }, by),
    ]
    for (const at of calls('', '').keys()) {
      const workspace = await server.workspace()
      const granter = await made(workspace.rootKey)
      const target = await made(workspace.rootKey, { permissions: ['api.*.read_api'] })
      expect(await use(granter.rootKey)).toBe('works')
      const before = await listed(workspace)
      // No cache is told of this change, so the caller is authenticated. It ends once the call waits for it.
      const { under } = await deps.database.write(async (tx) => {
        await tx`update keys set ${tx(change)} where id = ${granter.rootKeyId}`
        const under = calls(granter.rootKey, target.rootKeyId)[at]?.()
        for (let waiting = 0; waiting < 1; await Bun.sleep(5)) {
          await tx`select pg_stat_clear_snapshot()`
          const [row] = await tx<{ waiting: number }[]>`
            select count(*)::integer as waiting from pg_stat_activity
             where datname = current_database() and wait_event_type = 'Lock'`
          waiting = row?.waiting ?? 0
        }
        return { under }
      })
      const answer = await under
      expect(answer && refusalOf(answer)).toMatchObject({ status: 403, code })
      const others = (rootKeys: Json[]) => rootKeys.filter(({ id }) => id !== granter.rootKeyId)
      expect(others(await listed(workspace))).toEqual(others(before))
    }
  })

  test('of a concurrent new end and grant, the granted root key never outlives the end', async () => {
    for (let round = 0; round < 10; round++) {
      const workspace = await server.workspace()
      const granter = await made(workspace.rootKey)
      const middle = await made(granter.rootKey)
      const expires = now + DAY_MS
      await Promise.all([
        make(middle.rootKey),
        make(granter.rootKey),
        update(workspace.rootKey, granter.rootKeyId, { expires }),
        make(middle.rootKey),
      ])
      const granted = (await listed(workspace)).filter(({ id }) => id !== workspace.rootKeyId)
      expect(granted.map((each) => each.expires)).toEqual(granted.map(() => expires))
    }
  })
})
