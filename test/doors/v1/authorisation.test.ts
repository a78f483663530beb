import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { newId } from '../../../src/lib/ids.ts'
import { NEEDS } from '../../../src/pages/needs.ts'
import { endpoints } from '../../../src/server/app.ts'
import { hashKey } from '../../../src/verify/secret.ts'
import { makeApi, makeKey, refusalOf } from '../../support/fixtures.ts'
import {
  type Answer,
  OPERATOR_KEY,
  startTestServer,
  type TestServer,
  type TestWorkspace,
} from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

/** Cases that all endpoints share: who is refused, with which answer, and that no caller sees another's data. */

setDefaultTimeout(SLOW_MS)

let server: TestServer
/** Used by refused calls only: nothing of it changes. */
let untouched: Fixture
/** Root key of a disabled workspace. */
let disabledKey: string
/** Root key of a workspace with nothing in it. */
let foreignKey: string
/** Root keys without permissions, with useless ones, and with those for other APIs. */
let uselessKeys: string[]
beforeAll(async () => {
  server = await startTestServer()
  untouched = await makeFixture()
  foreignKey = (await server.workspace()).rootKey
  const actions = [
    'read_api',
    'update_api',
    'delete_api',
    'read_key',
    'update_key',
    'delete_key',
    'create_key',
  ]
  uselessKeys = await Promise.all(
    [
      [],
      [crypto.randomUUID(), crypto.randomUUID()],
      actions.map((action) => `api.${newId('api')}.${action}`),
    ].map((permissions) => untouched.workspace.rootKeyWith(...permissions)),
  )
  const { workspaceId, rootKey } = await server.workspace()
  await server.post('workspaces.updateWorkspace', { workspaceId, enabled: false }, OPERATOR_KEY)
  disabledKey = rootKey
})
afterAll(async () => await server[Symbol.asyncDispose]())

/** A workspace with one of everything. */
type Fixture = { workspace: TestWorkspace } & Record<
  | 'apiId'
  | 'keyId'
  | 'key'
  | 'permissionId'
  | 'roleId'
  | 'identityId'
  | 'namespaceId'
  | 'namespace'
  | 'identifier'
  | 'rootKeyId',
  string
>

/**
 * @param names What is needed of it, with what that needs itself; all of it unless given. The rest is ''.
 */
async function makeFixture(names: ReadonlySet<string> = ALL): Promise<Fixture> {
  const workspace = await server.workspace()
  const needs = (...any: (keyof Fixture)[]) => any.some((name) => names.has(name))
  const made = { ...NOTHING, workspace, namespace: 'a namespace', identifier: 'somebody' }
  if (needs('apiId', 'keyId', 'key')) made.apiId = await makeApi(workspace)
  if (needs('permissionId', 'keyId', 'key'))
    made.permissionId = (
      await workspace.post('permissions.createPermission', { name: 'a.permission' })
    ).permissionId
  if (needs('roleId', 'keyId', 'key'))
    made.roleId = (await workspace.post('permissions.createRole', { name: 'a role' })).roleId
  if (needs('identityId'))
    made.identityId = (await workspace.post('identities.createIdentity', { externalId: 'user_1' })).identityId
  if (needs('keyId', 'key')) {
    const fields = { remaining: 5, roles: ['a role'], permissions: ['a.permission'] }
    Object.assign(made, await makeKey(workspace, made.apiId, fields))
  }
  if (needs('namespaceId', 'namespace'))
    made.namespaceId = (
      await workspace.post('ratelimits.createNamespace', { name: made.namespace })
    ).namespaceId
  if (needs('identifier')) {
    const { namespaceId, identifier } = made
    await workspace.post('ratelimits.setOverride', { namespaceId, identifier, limit: 1, duration: 1000 })
  }
  if (needs('rootKeyId'))
    made.rootKeyId = (await workspace.post('rootKeys.createRootKey', { permissions: [] })).rootKeyId
  return made
}

const NOTHING = {
  apiId: '',
  keyId: '',
  key: '',
  permissionId: '',
  roleId: '',
  identityId: '',
  namespaceId: '',
  namespace: '',
  identifier: '',
  rootKeyId: '',
}
const ALL: ReadonlySet<string> = new Set(Object.keys(NOTHING))

/** What the request of a row and its permissions name of the fixture. */
function namedBy({ input, accepts }: Row): ReadonlySet<string> {
  const named = new Set<string>()
  const nothing = { ...NOTHING, workspace: untouched.workspace }
  const spy = new Proxy<Fixture>(nothing, {
    get: (target, name) => {
      named.add(String(name))
      return Reflect.get(target, name)
    },
  })
  input(spy)
  for (const set of accepts) permissionsOf(set, spy)
  return named
}

type Row = {
  /** A valid request about things of the fixture. */
  input: (fixture: Fixture) => unknown
  /** The answer for another workspace's root key with `*`. 200 where the request names nothing of the fixture. */
  foreign: 200 | 202 | 404 | 412
  /** Sets of permissions that are each enough, with `{A}` for the API. `*` is always enough. */
  accepts: string[][]
  /** Only an operator root key is accepted. */
  isForOperator?: true
  /** Any root key is accepted. */
  isForAll?: true
}

const newHash = () => ({ value: hashKey(crypto.randomUUID()), variant: 'sha256_base64' })
const onKey = (list: 'roles' | 'permissions', extra: object) => (fixture: Fixture) => ({
  keyId: fixture.keyId,
  [list]: [{ ...extra }],
})

/** By method name. The test below fails for an endpoint without a row: add one with the endpoint. */
const ROWS: Record<string, Row> = {
  'keys.createKey': {
    input: ({ apiId }) => ({ apiId }),
    foreign: 404,
    accepts: [['api.*.create_key'], ['api.{A}.create_key']],
  },
  'keys.getKey': {
    input: ({ keyId }) => ({ keyId }),
    foreign: 404,
    accepts: [['api.*.read_key'], ['api.{A}.read_key']],
  },
  'keys.updateKey': {
    input: ({ keyId }) => ({ keyId, name: 'new' }),
    foreign: 404,
    accepts: [['api.*.update_key'], ['api.{A}.update_key']],
  },
  'keys.deleteKey': {
    input: ({ keyId }) => ({ keyId }),
    foreign: 404,
    accepts: [['api.*.delete_key'], ['api.{A}.delete_key']],
  },
  'keys.rerollKey': {
    input: ({ keyId }) => ({ keyId, overlap: 0 }),
    foreign: 404,
    accepts: [['api.*.create_key'], ['api.{A}.create_key']],
  },
  'keys.searchKeys': {
    input: ({ apiId }) => ({ apiId }),
    foreign: 404,
    accepts: [['api.*.read_key'], ['api.{A}.read_key']],
  },
  'keys.getLastUsed': {
    input: ({ keyId }) => ({ keyId }),
    foreign: 200,
    accepts: [['api.*.read_key'], ['api.{A}.read_key']],
  },
  'keys.explainKey': {
    input: ({ keyId }) => ({ keyId }),
    foreign: 404,
    accepts: [['api.*.read_key'], ['api.{A}.read_key']],
  },
  'keys.askServers': {
    input: ({ keyId }) => ({ keyId }),
    foreign: 404,
    accepts: [['api.*.read_key'], ['api.{A}.read_key']],
  },
  'keys.eraseKey': {
    input: ({ keyId }) => ({ keyId }),
    foreign: 404,
    accepts: [['api.*.erase_key'], ['api.{A}.erase_key']],
  },
  'keys.updateRemaining': {
    input: ({ keyId }) => ({ keyId, op: 'set', value: 1 }),
    foreign: 404,
    accepts: [['api.*.update_key'], ['api.{A}.update_key']],
  },
  'keys.whoami': {
    input: ({ key }) => ({ key }),
    foreign: 404,
    accepts: [['api.*.read_key'], ['api.{A}.read_key']],
  },
  'keys.listKeys': {
    input: ({ roleId }) => ({ roleId }),
    foreign: 404,
    accepts: [['api.*.read_key']],
  },
  'keys.getVerifications': {
    input: ({ keyId }) => ({ keyId }),
    foreign: 404,
    accepts: [['api.*.read_key'], ['api.{A}.read_key']],
  },
  'keys.addPermissions': {
    input: onKey('permissions', { name: 'a.permission' }),
    foreign: 404,
    accepts: [['rbac.*.add_permission_to_key']],
  },
  'keys.setPermissions': {
    input: onKey('permissions', { name: 'new.one', create: true }),
    foreign: 404,
    accepts: [
      ['rbac.*.add_permission_to_key', 'rbac.*.create_permission', 'rbac.*.remove_permission_from_key'],
    ],
  },
  'keys.removePermissions': {
    input: onKey('permissions', { name: 'a.permission' }),
    foreign: 404,
    accepts: [['rbac.*.remove_permission_from_key']],
  },
  'keys.addRoles': {
    input: onKey('roles', { name: 'a role' }),
    foreign: 404,
    accepts: [['rbac.*.add_role_to_key']],
  },
  'keys.setRoles': {
    input: onKey('roles', { name: 'new one', create: true }),
    foreign: 404,
    accepts: [['rbac.*.add_role_to_key', 'rbac.*.create_role', 'rbac.*.remove_role_from_key']],
  },
  'keys.removeRoles': {
    input: onKey('roles', { name: 'a role' }),
    foreign: 404,
    accepts: [['rbac.*.remove_role_from_key']],
  },
  'migrations.createKeys': {
    input: ({ apiId }) => [{ apiId, hash: newHash() }],
    foreign: 404,
    accepts: [['api.*.create_key'], ['api.{A}.create_key']],
  },
  'migrations.checkKeys': {
    input: ({ apiId }) => ({ keys: [{ apiId, hash: newHash() }] }),
    // Whether the API exists is said of each key.
    foreign: 200,
    accepts: [['api.*.create_key'], ['api.{A}.create_key']],
  },
  'migrations.enqueueKeys': {
    input: ({ apiId }) => ({ migrationId: 'm_1', apiId, keys: [{ hash: newHash() }] }),
    foreign: 404,
    accepts: [['api.*.create_key'], ['api.{A}.create_key']],
  },
  'migrations.listImports': { input: () => ({}), foreign: 200, accepts: [['api.*.create_key']] },
  'migrations.retryImports': {
    input: () => ({ importIds: ['1'] }),
    foreign: 200,
    accepts: [['api.*.create_key']],
  },
  'migrations.discardImports': {
    input: () => ({ importIds: ['1'] }),
    foreign: 200,
    accepts: [['api.*.create_key']],
  },
  'permissions.createPermission': {
    input: () => ({ name: 'another.one' }),
    foreign: 200,
    accepts: [['rbac.*.create_permission']],
  },
  'permissions.getPermission': {
    input: ({ permissionId }) => ({ permissionId }),
    foreign: 404,
    accepts: [['rbac.*.read_permission']],
  },
  'permissions.listPermissions': { input: () => ({}), foreign: 200, accepts: [['rbac.*.read_permission']] },
  'permissions.searchPermissions': {
    input: () => ({ search: 'a' }),
    foreign: 200,
    accepts: [['rbac.*.read_permission']],
  },
  'permissions.deletePermission': {
    input: ({ permissionId }) => ({ permissionId }),
    foreign: 404,
    accepts: [['rbac.*.delete_permission']],
  },
  'permissions.createRole': {
    input: () => ({ name: 'another one' }),
    foreign: 200,
    accepts: [['rbac.*.create_role']],
  },
  'permissions.getRole': {
    input: ({ roleId }) => ({ roleId }),
    foreign: 404,
    accepts: [['rbac.*.read_role']],
  },
  'permissions.listRoles': { input: () => ({}), foreign: 200, accepts: [['rbac.*.read_role']] },
  'permissions.searchRoles': {
    input: () => ({ search: 'a' }),
    foreign: 200,
    accepts: [['rbac.*.read_role']],
  },
  'permissions.deleteRole': {
    input: ({ roleId }) => ({ roleId }),
    foreign: 404,
    accepts: [['rbac.*.delete_role']],
  },
  'permissions.setRolePermissions': {
    input: ({ roleId, permissionId }) => ({ roleId, permissions: [{ id: permissionId }] }),
    foreign: 404,
    accepts: [['rbac.*.add_permission_to_role']],
  },
  'identities.createIdentity': {
    input: () => ({ externalId: 'user_2' }),
    foreign: 200,
    accepts: [['identity.*.create_identity']],
  },
  'identities.getIdentity': {
    input: ({ identityId }) => ({ identityId }),
    foreign: 404,
    accepts: [['identity.*.read_identity'], ['identity.{I}.read_identity']],
  },
  'identities.listIdentities': {
    input: () => ({}),
    foreign: 200,
    accepts: [['identity.*.read_identity'], ['identity.default.read_identity']],
  },
  'identities.updateIdentity': {
    input: ({ identityId }) => ({ identityId, meta: {} }),
    foreign: 404,
    accepts: [['identity.*.update_identity']],
  },
  'identities.deleteIdentity': {
    input: ({ identityId }) => ({ identityId }),
    foreign: 404,
    accepts: [['identity.*.delete_identity'], ['identity.{I}.delete_identity']],
  },
  'identities.eraseIdentity': {
    input: ({ identityId }) => ({ identityId }),
    foreign: 404,
    accepts: [['identity.*.erase_identity'], ['identity.{I}.erase_identity']],
  },
  'ratelimits.limit': {
    // In another workspace this is another namespace, which is created there.
    input: ({ namespace }) => ({ namespace, identifier: 'anybody', limit: 10, duration: 60_000 }),
    foreign: 200,
    accepts: [['ratelimit.*.limit'], ['ratelimit.{N}.limit']],
  },
  'ratelimits.multiLimit': {
    input: ({ namespace }) => [{ namespace, identifier: 'anybody', limit: 10, duration: 60_000 }],
    foreign: 200,
    accepts: [['ratelimit.*.limit'], ['ratelimit.{N}.limit']],
  },
  'ratelimits.setOverride': {
    input: ({ namespaceId, identifier }) => ({ namespaceId, identifier, limit: 2, duration: 1000 }),
    foreign: 404,
    accepts: [['ratelimit.*.set_override']],
  },
  'ratelimits.getOverride': {
    input: ({ namespaceId, identifier }) => ({ namespaceId, identifier }),
    foreign: 404,
    accepts: [['ratelimit.*.read_override']],
  },
  'ratelimits.listOverrides': {
    input: ({ namespaceId }) => ({ namespaceId }),
    foreign: 404,
    accepts: [['ratelimit.*.read_override']],
  },
  'ratelimits.deleteOverride': {
    input: ({ namespaceId, identifier }) => ({ namespaceId, identifier }),
    foreign: 404,
    accepts: [['ratelimit.*.delete_override']],
  },
  'ratelimits.createNamespace': {
    input: () => ({ name: 'another namespace' }),
    foreign: 200,
    accepts: [['ratelimit.*.create_namespace']],
  },
  'ratelimits.listNamespaces': {
    input: () => ({}),
    foreign: 200,
    accepts: [['ratelimit.*.read_namespace']],
  },
  'ratelimits.getWindows': {
    input: ({ namespaceId, identifier }) => ({ namespaceId, identifier }),
    foreign: 404,
    accepts: [['ratelimit.*.read_namespace'], ['ratelimit.{N}.read_namespace']],
  },
  'ratelimits.listNearLimit': {
    input: ({ namespaceId }) => ({ namespaceId }),
    foreign: 404,
    accepts: [['ratelimit.*.read_namespace'], ['ratelimit.{N}.read_namespace']],
  },
  'ratelimits.updateNamespace': {
    input: ({ namespaceId }) => ({ namespaceId, scope: 'local' }),
    foreign: 404,
    accepts: [['ratelimit.*.update_namespace'], ['ratelimit.{N}.update_namespace']],
  },
  'ratelimits.deleteNamespace': {
    input: ({ namespaceId }) => ({ namespaceId }),
    foreign: 404,
    accepts: [['ratelimit.*.delete_namespace']],
  },
  'apis.createApi': { input: () => ({ name: 'another' }), foreign: 200, accepts: [['api.*.create_api']] },
  'apis.getApi': {
    input: ({ apiId }) => ({ apiId }),
    foreign: 404,
    accepts: [['api.*.read_api'], ['api.{A}.read_api']],
  },
  'apis.listApis': { input: () => ({}), foreign: 200, accepts: [['api.*.read_api']] },
  'apis.updateApi': {
    input: ({ apiId }) => ({ apiId, name: 'new name' }),
    foreign: 404,
    accepts: [['api.*.update_api'], ['api.{A}.update_api']],
  },
  'apis.deleteApi': {
    input: ({ apiId }) => ({ apiId }),
    foreign: 404,
    accepts: [['api.*.delete_api'], ['api.{A}.delete_api']],
  },
  'apis.listKeys': {
    input: ({ apiId }) => ({ apiId }),
    foreign: 404,
    accepts: [
      ['api.*.read_key', 'api.*.read_api'],
      ['api.{A}.read_key', 'api.*.read_api'],
      ['api.*.read_key', 'api.{A}.read_api'],
      ['api.{A}.read_key', 'api.{A}.read_api'],
    ],
  },
  'apis.deleteKeys': {
    input: ({ apiId }) => ({ apiId }),
    foreign: 404,
    accepts: [['api.*.delete_key'], ['api.{A}.delete_key']],
  },
  'analytics.getVerifications': {
    input: ({ apiId }) => ({ apiId, start: Date.now() - 3_600_000 }),
    foreign: 404,
    accepts: [['api.*.read_api']],
  },
  'analytics.getOverview': { input: () => ({}), foreign: 200, accepts: [['api.*.read_api']] },
  'analytics.getRatelimits': {
    input: ({ namespaceId }) => ({ namespaceId, start: Date.now() - 3_600_000 }),
    foreign: 404,
    accepts: [['ratelimit.*.read_namespace'], ['ratelimit.{N}.read_namespace']],
  },
  'events.listRecent': {
    input: () => ({}),
    foreign: 200,
    accepts: [['api.*.read_key', 'ratelimit.*.read_namespace']],
  },
  'events.watch': {
    input: ({ keyId }) => ({ keyId }),
    foreign: 404,
    accepts: [['api.*.read_key', 'ratelimit.*.read_namespace']],
  },
  'events.unwatch': {
    input: () => ({ watchId: 'watch_1' }),
    foreign: 200,
    accepts: [['api.*.read_key', 'ratelimit.*.read_namespace']],
  },
  'events.listWatches': {
    input: () => ({}),
    foreign: 200,
    accepts: [['api.*.read_key', 'ratelimit.*.read_namespace']],
  },
  'audit.listEvents': { input: () => ({}), foreign: 200, accepts: [['audit.*.read_event']] },
  'rootKeys.createRootKey': {
    input: () => ({ permissions: [] }),
    foreign: 200,
    accepts: [['root_key.*.create_root_key']],
  },
  'rootKeys.whoami': { input: () => ({}), foreign: 200, accepts: [], isForAll: true },
  'rootKeys.listRootKeys': { input: () => ({}), foreign: 200, accepts: [['root_key.*.read_root_key']] },
  'rootKeys.updateRootKey': {
    input: ({ rootKeyId }) => ({ rootKeyId, name: 'new' }),
    foreign: 404,
    accepts: [['root_key.*.update_root_key']],
  },
  'rootKeys.rerollRootKey': {
    input: ({ rootKeyId }) => ({ rootKeyId, overlap: 0 }),
    foreign: 404,
    accepts: [['root_key.*.create_root_key', 'root_key.*.update_root_key']],
  },
  'rootKeys.deleteRootKey': {
    input: ({ rootKeyId }) => ({ rootKeyId }),
    foreign: 404,
    accepts: [['root_key.*.delete_root_key']],
  },
  'rootKeys.askServers': {
    input: ({ rootKeyId }) => ({ rootKeyId }),
    foreign: 404,
    accepts: [['root_key.*.read_root_key']],
  },
  'vault.reseal': { input: () => ({}), foreign: 200, accepts: [], isForOperator: true },
  'server.getHistory': { input: () => ({}), foreign: 200, accepts: [], isForOperator: true },
  'server.getSettings': { input: () => ({}), foreign: 200, accepts: [], isForOperator: true },
  'server.getStatus': { input: () => ({}), foreign: 200, accepts: [], isForOperator: true },
  'server.listServers': { input: () => ({}), foreign: 200, accepts: [], isForOperator: true },
  'workspaces.createWorkspace': {
    input: () => ({ name: 'another' }),
    foreign: 200,
    accepts: [],
    isForOperator: true,
  },
  'workspaces.updateWorkspace': {
    input: ({ workspace }) => ({ workspaceId: workspace.workspaceId, name: 'new name' }),
    foreign: 200,
    accepts: [],
    isForOperator: true,
  },
  'workspaces.listWorkspaces': { input: () => ({}), foreign: 200, accepts: [], isForOperator: true },
}

const protectedEndpoints = endpoints.filter(({ access }) => access === 'root-key')
const nameOf = (path: string) => path.slice('/v1/'.length)

test('every endpoint that needs a root key has a row here', () => {
  expect(Object.keys(ROWS).sort()).toEqual(protectedEndpoints.map(({ path }) => nameOf(path)).sort())
})

/** The reference must say what the server does. */
test('the description of every endpoint names the permissions of its row and no others', () => {
  for (const [name, { accepts, isForOperator = false }] of Object.entries(ROWS)) {
    const sentence = NEEDS[name] ?? ''
    const said = [...sentence.matchAll(/`([^`]+)`/g)].map(([, code]) => code ?? '')
    const expected = accepts
      .flat()
      .map((each) =>
        each.replace('{A}', '{apiId}').replace('{I}', '{identityId}').replace('{N}', '{namespaceId}'),
      )
    for (const permission of expected) expect(said).toContain(permission)
    expect(sentence).toStartWith('`*`')
    expect(sentence.includes('that is an operator')).toBe(isForOperator)
    // Other permissions are for what the row's request or its answer does not contain.
    const others = said.filter((each) => each.includes('.*.') && !expected.includes(each))
    for (const each of others)
      expect(each).toMatch(/\.(encrypt_key|decrypt_key|read_override|create_\w+|remove_\w+)$/)
  }
  expect(Object.keys(NEEDS).sort()).toEqual(Object.keys(ROWS).sort())
})

const permissionsOf = (set: readonly string[], fixture: Fixture) =>
  set.map((permission) =>
    permission
      .replace('{A}', () => fixture.apiId)
      .replace('{I}', () => fixture.identityId)
      .replace('{N}', () => fixture.namespaceId),
  )

describe.each(protectedEndpoints.map(({ path, method }) => [nameOf(path), method] as const))(
  '%s',
  (name, method) => {
    const row = ROWS[name]
    if (row === undefined) return // the test above reports it
    const { input, foreign, accepts, isForOperator = false, isForAll = false } = row
    const makeNamed = () => makeFixture(namedBy(row))
    const call = async (fixture: Fixture, rootKey: string | null): Promise<Answer> =>
      method === 'GET'
        ? await server.get(name, Object(input(fixture)), rootKey)
        : await server.post(name, input(fixture), rootKey)
    const expectRefusal = (answer: Answer, code: string, message?: string) => {
      expect(refusalOf(answer)).toMatchObject({
        status: 403,
        code,
        ...(message === undefined ? {} : { message }),
      })
      expect(answer.body.error.docs).toBe(`${server.url}/errors/${code}`)
      expect(answer.body.error.requestId).toBe(answer.headers.get('unkey-request-id'))
    }

    test('without a root key, with an unknown key and with an ordinary key', async () => {
      expectRefusal(await call(untouched, null), 'UNAUTHORIZED', 'key required')
      expectRefusal(await call(untouched, 'INVALID_KEY'), 'UNAUTHORIZED', 'key not found')
      const { status, body } = await call(untouched, untouched.key) // an ordinary key
      expect(status).toBe(403)
      expect(body.error.code).toBeOneOf(['UNAUTHORIZED', 'INSUFFICIENT_PERMISSIONS'])
    })

    test('in a disabled workspace', async () => {
      expectRefusal(await call(untouched, disabledKey), 'FORBIDDEN', 'workspace is disabled')
    })

    test('with no permissions, with useless ones, and with those for other APIs', async () => {
      for (const rootKey of uselessKeys) {
        const answer = await call(untouched, rootKey)
        expect(answer.status).toBe(isForAll ? 200 : 403)
        if (isForAll) continue
        // The v1 API answers UNAUTHORIZED for a few rights of set and create.
        const isEither = name === 'keys.setPermissions' || name === 'keys.setRoles'
        expect(answer.body.error.code).toBeOneOf(
          isEither ? ['UNAUTHORIZED', 'INSUFFICIENT_PERMISSIONS'] : ['INSUFFICIENT_PERMISSIONS'],
        )
      }
    })

    test('a root key of another workspace finds nothing in this one', async () => {
      // What is accepted is done in a workspace of its own.
      const isRefused = foreign === 404 || foreign === 412
      const other = isRefused || isForOperator ? foreignKey : (await server.workspace()).rootKey
      const { status, body } = await call(
        isRefused ? untouched : await makeNamed(),
        isForOperator ? OPERATOR_KEY : other,
      )
      expect(status).toBe(foreign)
      if (status === 404) expect(body.error.code).toBe('NOT_FOUND')
    })

    if (isForOperator) return
    test('`*` is enough', async () => {
      const fixture = await makeNamed()
      const { status } = await call(fixture, fixture.workspace.rootKey)
      expect(status).toBeOneOf([200, 202])
    })

    test.each(accepts.map((set) => [set.join(' and '), set] as const))('%s is enough', async (_, set) => {
      const fixture = await makeNamed()
      const permissions = permissionsOf(set, fixture)
      for (const [index] of permissions.entries()) {
        const fewer = await fixture.workspace.rootKeyWith(...permissions.toSpliced(index, 1))
        expect((await call(fixture, fewer)).status).toBeOneOf([403, 404])
      }
      const rootKey = await fixture.workspace.rootKeyWith(...permissions, 'another.one')
      expect((await call(fixture, rootKey)).status).toBeOneOf([200, 202])
    })
  },
)
