import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { V2_NEEDS } from '../../../src/pages/v2-needs.ts'
import { allEndpoints } from '../../../src/server/app.ts'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import { type Answer, startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import { callV2, TYPES } from './common-cases.ts'

/** Which rights open which method of the v2 API, and that the reference says so. */
setDefaultTimeout(SLOW_MS)

let server: TestServer
/** For calls that leave everything where it is. */
let shared: Fixture
beforeAll(async () => {
  server = await startTestServer()
  shared = await makeFixture()
})
afterAll(() => server[Symbol.asyncDispose]())

/** A workspace with one of everything. */
type Fixture = Awaited<ReturnType<typeof makeFixture>>

async function makeFixture() {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const { permissionId } = await workspace.post('permissions.createPermission', {
    name: 'a.permission',
    slug: 'a.permission',
  })
  const { roleId } = await workspace.post('permissions.createRole', { name: 'a role' })
  const { identityId } = await workspace.post('identities.createIdentity', { externalId: 'user_1' })
  const fields = { remaining: 1000, externalId: 'user_1', roles: ['a role'], permissions: ['a.permission'] }
  const { keyId, key } = await makeKey(workspace, apiId, fields)
  const [namespace, identifier] = ['a namespace', 'somebody']
  const { namespaceId } = await workspace.post('ratelimits.createNamespace', { name: namespace })
  await workspace.post('ratelimits.setOverride', { namespaceId, identifier, limit: 1, duration: 1000 })
  return {
    workspace,
    apiId,
    keyId,
    key,
    permissionId,
    roleId,
    identityId,
    namespaceId,
    namespace,
    identifier,
  }
}

type Row = {
  /** A valid request about things of the fixture. */
  input: (fixture: Fixture) => unknown
  /** Sets of permissions that are each enough. `{A}`, `{I}`, `{N}`: ids of API, identity, namespace. `*` is always enough. */
  accepts: readonly (readonly string[])[]
  /** Where a refusal must not tell what exists: the type of the answer; null = a verification that finds nothing. */
  hiddenAs?: string | null
  /** The success, where it is no 200. */
  status?: number
  /** Each success needs a fixture of its own: the call takes something away, or answers with all that is there. */
  isAlone?: true
  /** The request names no API and no namespace, so the right on any of them is enough. */
  isForAny?: true
}

const API = 'unkey/data/api_not_found'
const KEY = 'unkey/data/key_not_found'
const onKey = (fields: object) => (fixture: Fixture) => ({ keyId: fixture.keyId, ...fields })
const onOverride = ({ namespace, identifier }: Fixture) => ({ namespace, identifier })
const ofApi = (action: string) => [[`api.*.${action}`], [`api.{A}.${action}`]]
const ofNamespace = (action: string) => [[`ratelimit.*.${action}`], [`ratelimit.{N}.${action}`]]
/** With the right to change the key. */
const andUpdate = (...permissions: string[]) => [
  ['api.*.update_key', ...permissions],
  ['api.{A}.update_key', ...permissions],
]

/** By method. The tests below fail for an endpoint without a row: add one with the endpoint. */
const ROWS: Readonly<Record<string, Row>> = {
  'keys.createKey': { input: ({ apiId }) => ({ apiId }), accepts: ofApi('create_key'), hiddenAs: API },
  'keys.verifyKey': { input: ({ key }) => ({ key }), accepts: ofApi('verify_key'), hiddenAs: null },
  'keys.getKey': { input: onKey({}), accepts: ofApi('read_key') },
  'keys.whoami': { input: ({ key }) => ({ key }), accepts: ofApi('read_key'), hiddenAs: KEY },
  'keys.updateKey': {
    input: onKey({ roles: ['a role'], permissions: ['made.here'] }),
    accepts: ofApi('update_key'),
  },
  'keys.deleteKey': { input: onKey({}), accepts: ofApi('delete_key'), isAlone: true },
  'keys.updateCredits': { input: onKey({ operation: 'set', value: 1000 }), accepts: ofApi('update_key') },
  'keys.rerollKey': {
    input: onKey({ expiration: 60_000 }),
    accepts: ofApi('create_key'),
    isAlone: true, // a key has one successor
  },
  'keys.migrateKeys': {
    input: ({ apiId }) => ({
      migrationId: 'a migration',
      apiId,
      keys: [{ hash: Bun.SHA256.hash(crypto.randomUUID(), 'base64') }],
    }),
    accepts: ofApi('create_key'),
  },
  'keys.addPermissions': {
    input: onKey({ permissions: ['a.permission'] }),
    accepts: andUpdate('rbac.*.add_permission_to_key'),
  },
  'keys.setPermissions': {
    input: onKey({ permissions: ['a.permission'] }),
    accepts: andUpdate('rbac.*.add_permission_to_key', 'rbac.*.remove_permission_from_key'),
  },
  'keys.removePermissions': {
    input: onKey({ permissions: ['a.permission'] }),
    accepts: andUpdate('rbac.*.remove_permission_from_key'),
  },
  'keys.addRoles': { input: onKey({ roles: ['a role'] }), accepts: andUpdate('rbac.*.add_role_to_key') },
  'keys.setRoles': { input: onKey({ roles: ['a role'] }), accepts: ofApi('update_key') },
  'keys.removeRoles': { input: onKey({ roles: ['a role'] }), accepts: ofApi('update_key') },
  'apis.createApi': { input: () => ({ name: 'an api' }), accepts: [['api.*.create_api']] },
  'apis.getApi': { input: ({ apiId }) => ({ apiId }), accepts: ofApi('read_api') },
  'apis.deleteApi': { input: ({ apiId }) => ({ apiId }), accepts: ofApi('delete_api'), isAlone: true },
  'apis.listKeys': {
    input: ({ apiId }) => ({ apiId }),
    accepts: [
      ['api.*.read_key', 'api.*.read_api'],
      ['api.{A}.read_key', 'api.{A}.read_api'],
    ],
    hiddenAs: API,
  },
  'identities.createIdentity': {
    input: () => ({ externalId: crypto.randomUUID() }),
    accepts: [['identity.*.create_identity']],
  },
  'identities.getIdentity': {
    input: ({ identityId }) => ({ identity: identityId }),
    accepts: [['identity.*.read_identity'], ['identity.{I}.read_identity']],
  },
  'identities.listIdentities': {
    input: () => ({ search: 'user_1' }), // createIdentity makes others in the same workspace
    accepts: [['identity.*.read_identity'], ['identity.{I}.read_identity']],
    isAlone: true,
  },
  'identities.updateIdentity': {
    input: ({ identityId }) => ({ identity: identityId, meta: {} }),
    accepts: [['identity.*.update_identity']],
  },
  'identities.deleteIdentity': {
    input: ({ identityId }) => ({ identity: identityId }),
    accepts: [['identity.*.delete_identity']],
    isAlone: true,
  },
  'permissions.createPermission': {
    input: () => ({ name: 'new', slug: crypto.randomUUID() }),
    accepts: [['rbac.*.create_permission']],
  },
  'permissions.getPermission': {
    input: () => ({ permission: 'a.permission' }),
    accepts: [['rbac.*.read_permission']],
  },
  'permissions.listPermissions': { input: () => ({}), accepts: [['rbac.*.read_permission']] },
  'permissions.deletePermission': {
    input: () => ({ permission: 'a.permission' }),
    accepts: [['rbac.*.delete_permission']],
    isAlone: true,
  },
  'permissions.createRole': {
    input: () => ({ name: crypto.randomUUID(), permissions: ['a.permission'] }),
    accepts: [['rbac.*.create_role', 'rbac.*.add_permission_to_role']],
  },
  'permissions.getRole': { input: () => ({ role: 'a role' }), accepts: [['rbac.*.read_role']] },
  'permissions.listRoles': { input: () => ({}), accepts: [['rbac.*.read_role']] },
  'permissions.deleteRole': {
    input: () => ({ role: 'a role' }),
    accepts: [['rbac.*.delete_role']],
    isAlone: true,
  },
  'permissions.setRolePermissions': {
    input: ({ roleId }) => ({ roleId, permissions: ['a.permission'] }),
    accepts: [['rbac.*.add_permission_to_role', 'rbac.*.remove_permission_from_role']],
  },
  'ratelimit.limit': {
    input: (fixture) => ({ ...onOverride(fixture), limit: 9, duration: 60_000 }),
    accepts: ofNamespace('limit'),
  },
  'ratelimit.multiLimit': {
    input: (fixture) => [{ ...onOverride(fixture), limit: 9, duration: 60_000 }],
    accepts: ofNamespace('limit'),
  },
  'ratelimit.setOverride': {
    input: (fixture) => ({ ...onOverride(fixture), limit: 9, duration: 60_000 }),
    accepts: ofNamespace('set_override'),
  },
  'ratelimit.getOverride': {
    input: onOverride,
    accepts: ofNamespace('read_override'),
    hiddenAs: 'unkey/data/ratelimit_override_not_found',
  },
  'ratelimit.listOverrides': {
    input: ({ namespace }) => ({ namespace }),
    accepts: ofNamespace('read_override'),
  },
  'ratelimit.deleteOverride': {
    input: onOverride,
    accepts: ofNamespace('delete_override'),
    isAlone: true,
  },
  'analytics.getVerifications': {
    input: () => ({ query: 'SELECT 1' }),
    accepts: ofApi('read_analytics'),
    status: 412,
    isForAny: true,
  },
  'analytics.getRatelimits': {
    input: () => ({ query: 'SELECT 1' }),
    accepts: ofNamespace('read_analytics'),
    status: 412,
    isForAny: true,
  },
}

const methods = allEndpoints
  .filter(({ path, access }) => path.startsWith('/v2/') && access === 'root-key')
  .map(({ path }) => path.slice('/v2/'.length))

const permissionsOf = (set: readonly string[], { apiId, identityId, namespaceId }: Fixture) =>
  set.map((each) => each.replace('{A}', apiId).replace('{I}', identityId).replace('{N}', namespaceId))

describe.each(methods)('%s', (method) => {
  const row = ROWS[method]
  if (row === undefined) throw new Error(`${method} has no row`)
  const { input, accepts, hiddenAs, status: success = 200, isAlone = false, isForAny = false } = row
  const call = async (fixture: Fixture, rootKey: string): Promise<Answer> =>
    await callV2(server, method, input(fixture), rootKey)

  test('each of its sets of rights opens it, and so does `*`', async () => {
    for (const set of [['*'], ...accepts]) {
      const fixture = isAlone ? await makeFixture() : shared
      const rootKey = await fixture.workspace.rootKeyWith(...permissionsOf(set, fixture))
      const { status, body } = await call(fixture, rootKey)
      expect({ set, status, error: body.error }).toEqual({
        set,
        status: success,
        error: success === 200 ? undefined : expect.anything(),
      })
      if (hiddenAs === null) expect(body.data.code).toBe('VALID')
    }
  })

  test('with one right less, and with that right elsewhere, it is refused', async () => {
    const fixture = shared
    for (const set of accepts)
      for (const [index, missing] of set.entries()) {
        const others = permissionsOf(set.toSpliced(index, 1), fixture)
        // The same right, on something else.
        const elsewhere =
          missing.includes('{') && !isForAny ? [missing.replace(/\{.\}/, 'elsewhere_12345678')] : []
        for (const held of [others, [...others, ...elsewhere]])
          expectHidden(await call(fixture, await fixture.workspace.rootKeyWith(...held)))
      }
  })

  const expectHidden = ({ status, body }: Answer) => {
    if (hiddenAs === null) return expect({ status, data: body.data }).toEqual({ status: 200, data: UNKNOWN })
    const type = `${TYPES}${hiddenAs ?? 'unkey/authorization/insufficient_permissions'}`
    expect({ status, type: body.error?.type }).toEqual({ status: hiddenAs === undefined ? 403 : 404, type })
  }
  const UNKNOWN = { valid: false, code: 'NOT_FOUND' }

  /** The reference must say what the server does. */
  test('its description names these rights and no others', () => {
    const sentence = V2_NEEDS[method] ?? ''
    expect(sentence).toStartWith('`*`')
    const said = [...sentence.matchAll(/`([^`]+)`/g)].map(([, code]) => code ?? '')
    const expected = accepts
      .flat()
      .map((each) =>
        each.replace('{A}', '{apiId}').replace('{I}', '{identityId}').replace('{N}', '{namespaceId}'),
      )
    for (const permission of expected) expect(said).toContain(permission)
    // Other permissions are for actions that the row's request does not contain: create, encrypt, decrypt.
    const others = said.filter((each) => each.includes('.*.') && !expected.includes(each))
    for (const each of others) expect(each).toMatch(/\.(encrypt_key|decrypt_key|create_\w+)$/)
  })
})
