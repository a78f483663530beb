import { hashKey } from '../../src/verify/secret.ts'
import { makeApi, makeKey } from '../support/fixtures.ts'
import type { TestServer, TestWorkspace } from '../support/server.ts'

/**
 * The rights that a root key needs for each request, from the tables of the v1 API and of the operator API. A route has
 * several rows when its needs depend on the request.
 */
export type Row = {
  /** `<group>.<method>`. */
  route: string
  /** The kind of request, where the route has several rows. */
  what?: string
  input: (fixture: Fixture) => unknown
  /** All of these lists, any permission of each; or `*`. `{A}`, `{B}`, `{N}`, `{I}`: ids of APIs, namespace, identity. */
  needs: readonly (readonly string[])[]
  /** Only an operator root key is accepted, whatever it holds. */
  isForOperator?: true
}

/** A workspace with one of everything. Each of its texts is unique. */
export type Fixture = { workspace: TestWorkspace; texts: Texts }
export type Texts = Record<(typeof TEXTS)[number], string>

const TEXTS = [
  ...['apiId', 'otherApiId', 'keyId', 'key', 'otherKeyId', 'otherKey', 'externalId', 'identityId', 'ownerId'],
  ...['roleId', 'role', 'otherRoleId', 'otherRole', 'permissionId', 'permission', 'otherPermissionId'],
  ...[
    'otherPermission',
    'namespaceId',
    'namespace',
    'identifier',
    'overrideId',
    'rootKeyId',
    'rootKey',
    'tag',
    'eventId',
  ],
] as const

export async function makeFixture(server: TestServer): Promise<Fixture> {
  const workspace = await server.workspace()
  const mark = crypto.randomUUID().slice(0, 8)
  const [role, otherRole] = [`role ${mark}`, `other role ${mark}`]
  const [permission, otherPermission] = [`permission.${mark}`, `other.permission.${mark}`]
  const [externalId, ownerId] = [`user-${mark}`, `owner-${mark}`]
  const [namespace, identifier, tag] = [`namespace ${mark}`, `identifier-${mark}`, `tag-${mark}`]
  const apiId = await makeApi(workspace, { name: `api ${mark}` })
  const otherApiId = await makeApi(workspace, { name: `other api ${mark}` })
  const { permissionId } = await workspace.post('permissions.createPermission', { name: permission })
  const other = await workspace.post('permissions.createPermission', { name: otherPermission })
  const { roleId } = await workspace.post('permissions.createRole', { name: role })
  const { roleId: otherRoleId } = await workspace.post('permissions.createRole', { name: otherRole })
  await workspace.post('permissions.setRolePermissions', { roleId, permissions: [{ id: permissionId }] })
  const { identityId } = await workspace.post('identities.createIdentity', {
    externalId,
    meta: { mark },
    ratelimits: [{ name: `limit ${mark}`, limit: 5, duration: 60_000 }],
  })
  const { keyId, key } = await makeKey(workspace, apiId, {
    name: `key ${mark}`,
    externalId,
    remaining: 100,
    recoverable: true,
    roles: [role],
    permissions: [permission],
    meta: { mark },
  })
  const inOther = await makeKey(workspace, otherApiId, { ownerId, externalId })
  await makeKey(workspace, apiId, { ownerId, externalId })
  const { namespaceId } = await workspace.post('ratelimits.createNamespace', { name: namespace })
  const { overrideId } = await workspace.post('ratelimits.setOverride', {
    namespaceId,
    identifier,
    limit: 3,
    duration: 1000,
  })
  const made = await workspace.post('rootKeys.createRootKey', { permissions: [], name: `root key ${mark}` })
  // Usage of the key and of the namespace.
  await server.post('keys.verifyKey', { key, tags: [tag] })
  await workspace.post('ratelimits.limit', { namespace, identifier, limit: 10, duration: 60_000 })
  await server.server.deps.usage.flush()
  const { events } = await workspace.get('audit.listEvents', { limit: 1 })
  return {
    workspace,
    texts: {
      ...{
        apiId,
        otherApiId,
        keyId,
        key,
        otherKeyId: inOther.keyId,
        otherKey: inOther.key,
        externalId,
        identityId,
      },
      ...{ ownerId: externalId, roleId, role, otherRoleId, otherRole, permissionId, permission },
      ...{
        otherPermissionId: other.permissionId,
        otherPermission,
        namespaceId,
        namespace,
        identifier,
        overrideId,
      },
      ...{ rootKeyId: made.rootKeyId, rootKey: made.rootKey, tag, eventId: events[0].id },
    },
  }
}

type Input = (texts: Texts, workspace: TestWorkspace) => unknown

const row = (route: string, needs: readonly (readonly string[])[], input: Input, what?: string): Row => ({
  route,
  needs,
  input: ({ texts, workspace }) => input(texts, workspace),
  ...(what === undefined ? {} : { what }),
})

const onApi = (action: string) => [`api.*.${action}`, `api.{A}.${action}`]
const none = () => ({})
const newHash = () => ({ value: hashKey(crypto.randomUUID()), variant: 'sha256_base64' })
const duration = 60_000

export const ROWS: readonly Row[] = [
  row('apis.createApi', [['api.*.create_api']], () => ({ name: 'another' })),
  row('apis.getApi', [onApi('read_api')], ({ apiId }) => ({ apiId })),
  row('apis.listApis', [['api.*.read_api']], none),
  row('apis.listApis', [['api.*.read_api']], ({ otherApiId }) => ({ cursor: otherApiId }), 'from a cursor'),
  row('apis.updateApi', [onApi('update_api')], ({ apiId }) => ({ apiId, name: 'new name' })),
  row('apis.deleteApi', [onApi('delete_api')], ({ apiId }) => ({ apiId })),
  row('apis.listKeys', [onApi('read_key'), onApi('read_api')], ({ apiId }) => ({ apiId })),
  row(
    'apis.listKeys',
    [onApi('read_key'), onApi('read_api')],
    ({ apiId, keyId }) => ({ apiId, cursor: keyId }),
    'from a cursor',
  ),
  row(
    'apis.listKeys',
    [onApi('read_key'), onApi('read_api')],
    ({ apiId, externalId }) => ({ apiId, externalId }),
    'of an identity',
  ),
  row(
    'apis.listKeys',
    [onApi('read_key'), onApi('read_api')],
    ({ apiId, ownerId }) => ({ apiId, ownerId }),
    'of an owner',
  ),
  row(
    'apis.listKeys',
    [onApi('read_key'), onApi('read_api'), onApi('decrypt_key')],
    ({ apiId }) => ({ apiId, decrypt: true }),
    'with decrypt',
  ),
  row('apis.deleteKeys', [onApi('delete_key')], ({ apiId }) => ({ apiId })),
  row('apis.deleteKeys', [onApi('delete_key')], ({ apiId }) => ({ apiId, permanent: true }), 'for good'),

  row('keys.createKey', [onApi('create_key')], ({ apiId }) => ({ apiId })),
  row(
    'keys.createKey',
    [onApi('create_key')],
    ({ apiId, role, permission, externalId }) => ({
      apiId,
      roles: [role],
      permissions: [permission],
      externalId,
    }),
    'with what exists',
  ),
  row(
    'keys.createKey',
    [onApi('create_key'), onApi('encrypt_key')],
    ({ apiId }) => ({ apiId, recoverable: true }),
    'recoverable',
  ),
  row('keys.getKey', [onApi('read_key')], ({ keyId }) => ({ keyId })),
  row(
    'keys.getKey',
    [onApi('read_key'), onApi('decrypt_key')],
    ({ keyId }) => ({ keyId, decrypt: true }),
    'with decrypt',
  ),
  row('keys.whoami', [onApi('read_key')], ({ key }) => ({ key })),
  row('keys.updateKey', [onApi('update_key')], ({ keyId }) => ({ keyId, name: 'new name' })),
  row(
    'keys.updateKey',
    [onApi('update_key')],
    ({ keyId, externalId }) => ({ keyId, externalId }),
    'to an identity',
  ),
  row(
    'keys.updateKey',
    [onApi('update_key'), ['rbac.*.remove_role_from_key']],
    ({ keyId }) => ({ keyId, roles: [] }),
    'taking roles away',
  ),
  row(
    'keys.updateKey',
    [onApi('update_key'), ['rbac.*.add_permission_to_key']],
    ({ keyId, permissionId, otherPermissionId }) => ({
      keyId,
      permissions: [{ id: permissionId }, { id: otherPermissionId }],
    }),
    'adding permissions',
  ),
  row(
    'keys.updateKey',
    [onApi('update_key'), ['rbac.*.add_role_to_key'], ['rbac.*.create_role']],
    ({ keyId, roleId }) => ({ keyId, roles: [{ id: roleId }, { name: 'a new role', create: true }] }),
    'making a role',
  ),
  row('keys.deleteKey', [onApi('delete_key')], ({ keyId }) => ({ keyId })),
  row('keys.rerollKey', [onApi('create_key'), onApi('encrypt_key')], ({ keyId }) => ({ keyId, overlap: 0 })),
  row('keys.searchKeys', [onApi('read_key')], ({ apiId }) => ({ apiId })),
  row('keys.getLastUsed', [onApi('read_key')], ({ keyId }) => ({ keyId: [keyId] })),
  row('keys.explainKey', [onApi('read_key')], ({ keyId }) => ({ keyId })),
  row('keys.askServers', [onApi('read_key')], ({ keyId }) => ({ keyId })),
  row('keys.eraseKey', [onApi('erase_key')], ({ keyId }) => ({ keyId })),
  row('keys.updateRemaining', [onApi('update_key')], ({ keyId }) => ({ keyId, op: 'set', value: 1 })),
  row('keys.listKeys', [['api.*.read_key']], ({ identityId }) => ({ identityId })),
  row('keys.listKeys', [['api.*.read_key']], ({ roleId }) => ({ roleId }), 'of a role'),
  row('keys.listKeys', [['api.*.read_key']], ({ permissionId }) => ({ permissionId }), 'of a permission'),
  row(
    'keys.listKeys',
    [['api.*.read_key']],
    ({ roleId, keyId }) => ({ roleId, cursor: keyId }),
    'from a cursor',
  ),
  row('keys.getVerifications', [onApi('read_key')], ({ keyId }) => ({ keyId })),

  row('keys.addPermissions', [['rbac.*.add_permission_to_key']], ({ keyId, otherPermission }) => ({
    keyId,
    permissions: [{ slug: otherPermission }],
  })),
  row(
    'keys.addPermissions',
    [['rbac.*.add_permission_to_key']],
    ({ keyId, otherPermissionId }) => ({ keyId, permissions: [{ id: otherPermissionId }] }),
    'by id',
  ),
  row(
    'keys.addPermissions',
    [['rbac.*.add_permission_to_key'], ['rbac.*.create_permission']],
    ({ keyId }) => ({ keyId, permissions: [{ slug: 'new.one', create: true }] }),
    'making one',
  ),
  row('keys.removePermissions', [['rbac.*.remove_permission_from_key']], ({ keyId, permission }) => ({
    keyId,
    permissions: [{ slug: permission }],
  })),
  row(
    'keys.setPermissions',
    [],
    ({ keyId, permissionId }) => ({ keyId, permissions: [{ id: permissionId }] }),
    'to what it has',
  ),
  row(
    'keys.setPermissions',
    [['rbac.*.add_permission_to_key']],
    ({ keyId, permissionId, otherPermissionId }) => ({
      keyId,
      permissions: [{ id: permissionId }, { id: otherPermissionId }],
    }),
    'adding',
  ),
  row(
    'keys.setPermissions',
    [['rbac.*.add_permission_to_key'], ['rbac.*.remove_permission_from_key']],
    ({ keyId, otherPermissionId }) => ({ keyId, permissions: [{ id: otherPermissionId }] }),
    'replacing',
  ),
  row(
    'keys.setPermissions',
    [['rbac.*.add_permission_to_key'], ['rbac.*.create_permission']],
    ({ keyId, permissionId }) => ({
      keyId,
      permissions: [{ id: permissionId }, { slug: 'new.one', create: true }],
    }),
    'making one',
  ),
  row('keys.addRoles', [['rbac.*.add_role_to_key']], ({ keyId, otherRole }) => ({
    keyId,
    roles: [{ name: otherRole }],
  })),
  // The right for permissions is also enough here, as in the v1 API.
  row(
    'keys.addRoles',
    [['rbac.*.add_role_to_key'], ['rbac.*.create_role', 'rbac.*.create_permission']],
    ({ keyId }) => ({ keyId, roles: [{ name: 'a new role', create: true }] }),
    'making one',
  ),
  row('keys.removeRoles', [['rbac.*.remove_role_from_key']], ({ keyId, roleId }) => ({
    keyId,
    roles: [{ id: roleId }],
  })),
  row('keys.setRoles', [], ({ keyId, roleId }) => ({ keyId, roles: [{ id: roleId }] }), 'to what it has'),
  row(
    'keys.setRoles',
    [['rbac.*.add_role_to_key'], ['rbac.*.remove_role_from_key']],
    ({ keyId, otherRoleId }) => ({ keyId, roles: [{ id: otherRoleId }] }),
    'replacing',
  ),
  row(
    'keys.setRoles',
    [['rbac.*.add_role_to_key'], ['rbac.*.create_role']],
    ({ keyId, role }) => ({ keyId, roles: [{ name: role }, { name: 'a new role', create: true }] }),
    'making one',
  ),

  row('migrations.createKeys', [onApi('create_key')], ({ apiId }) => [{ apiId, hash: newHash() }]),
  row(
    'migrations.createKeys',
    [onApi('create_key'), ['api.*.create_key', 'api.{B}.create_key']],
    ({ apiId, otherApiId }) => [
      { apiId, hash: newHash() },
      { apiId: otherApiId, hash: newHash() },
    ],
    'in two APIs',
  ),
  row(
    'migrations.createKeys',
    [onApi('create_key')],
    ({ apiId }) => [{ apiId, plaintext: crypto.randomUUID() }],
    'with plaintext',
  ),
  row(
    'migrations.createKeys',
    [onApi('create_key')],
    ({ apiId, role, permission, externalId }) => [
      { apiId, hash: newHash(), roles: [role], permissions: [permission], externalId },
    ],
    'with what exists',
  ),
  row('migrations.checkKeys', [onApi('create_key')], ({ apiId }) => ({ keys: [{ apiId, hash: newHash() }] })),
  row('migrations.enqueueKeys', [onApi('create_key')], ({ apiId }) => ({
    migrationId: 'm',
    apiId,
    keys: [{ hash: newHash() }],
  })),
  row(
    'migrations.enqueueKeys',
    [onApi('create_key'), onApi('encrypt_key')],
    ({ apiId }) => ({ migrationId: 'm', apiId, keys: [{ plaintext: crypto.randomUUID() }] }),
    'with plaintext',
  ),

  row('migrations.listImports', [['api.*.create_key']], none),
  row('migrations.retryImports', [['api.*.create_key']], () => ({ importIds: ['1'] })),
  row('migrations.discardImports', [['api.*.create_key']], () => ({ importIds: ['1'] })),
  row('permissions.createPermission', [['rbac.*.create_permission']], () => ({ name: 'another.one' })),
  row('permissions.getPermission', [['rbac.*.read_permission']], ({ permissionId }) => ({ permissionId })),
  row('permissions.listPermissions', [['rbac.*.read_permission']], none),
  row('permissions.searchPermissions', [['rbac.*.read_permission']], none),
  row('permissions.searchRoles', [['rbac.*.read_role']], none),
  row('permissions.deletePermission', [['rbac.*.delete_permission']], ({ permissionId }) => ({
    permissionId,
  })),
  row('permissions.createRole', [['rbac.*.create_role']], () => ({ name: 'another role' })),
  row('permissions.getRole', [['rbac.*.read_role']], ({ roleId }) => ({ roleId })),
  row('permissions.listRoles', [['rbac.*.read_role']], none),
  row('permissions.deleteRole', [['rbac.*.delete_role']], ({ roleId }) => ({ roleId })),
  row(
    'permissions.setRolePermissions',
    [['rbac.*.add_permission_to_role']],
    ({ roleId, permissionId, otherPermissionId }) => ({
      roleId,
      permissions: [{ id: permissionId }, { id: otherPermissionId }],
    }),
  ),
  row(
    'permissions.setRolePermissions',
    [['rbac.*.add_permission_to_role'], ['rbac.*.remove_permission_from_role']],
    ({ roleId }) => ({ roleId, permissions: [] }),
    'taking away',
  ),
  row(
    'permissions.setRolePermissions',
    [['rbac.*.add_permission_to_role'], ['rbac.*.create_permission']],
    ({ roleId, permission }) => ({
      roleId,
      permissions: [{ slug: permission }, { slug: 'new.one', create: true }],
    }),
    'making one',
  ),

  row('identities.createIdentity', [['identity.*.create_identity']], () => ({ externalId: 'somebody new' })),
  row(
    'identities.getIdentity',
    [['identity.*.read_identity', 'identity.{I}.read_identity']],
    ({ identityId }) => ({ identityId }),
  ),
  row(
    'identities.getIdentity',
    [['identity.*.read_identity', 'identity.{I}.read_identity']],
    ({ externalId }) => ({ externalId }),
    'by externalId',
  ),
  row('identities.listIdentities', [['identity.*.read_identity', 'identity.default.read_identity']], none),
  row(
    'identities.listIdentities',
    [['identity.*.read_identity', 'identity.default.read_identity']],
    ({ identityId }) => ({ cursor: identityId, environment: 'default' }),
    'from a cursor',
  ),
  row('identities.updateIdentity', [['identity.*.update_identity']], ({ identityId }) => ({
    identityId,
    meta: { a: 1 },
  })),
  row(
    'identities.updateIdentity',
    [['identity.*.update_identity']],
    ({ externalId }) => ({ externalId, ratelimits: [] }),
    'by externalId',
  ),
  row(
    'identities.deleteIdentity',
    [['identity.*.delete_identity', 'identity.{I}.delete_identity']],
    ({ identityId }) => ({ identityId }),
  ),
  row(
    'identities.eraseIdentity',
    [['identity.*.erase_identity', 'identity.{I}.erase_identity']],
    ({ identityId }) => ({ identityId }),
  ),

  row('ratelimits.limit', [['ratelimit.*.limit', 'ratelimit.{N}.limit']], ({ namespace }) => ({
    namespace,
    identifier: 'x',
    limit: 10,
    duration,
  })),
  row(
    'ratelimits.limit',
    [['ratelimit.*.create_namespace'], ['ratelimit.*.limit']],
    () => ({ namespace: 'a new one', identifier: 'x', limit: 10, duration }),
    'in a new namespace',
  ),
  row('ratelimits.multiLimit', [['ratelimit.*.limit', 'ratelimit.{N}.limit']], ({ namespace }) => [
    { namespace, identifier: 'x', limit: 10, duration },
  ]),
  row('ratelimits.setOverride', [['ratelimit.*.set_override']], ({ namespaceId, identifier }) => ({
    namespaceId,
    identifier,
    limit: 2,
    duration,
  })),
  row(
    'ratelimits.setOverride',
    [['ratelimit.*.set_override']],
    ({ namespace, identifier }) => ({ namespaceName: namespace, identifier, limit: 2, duration }),
    'by name',
  ),
  row('ratelimits.getOverride', [['ratelimit.*.read_override']], ({ namespaceId, identifier }) => ({
    namespaceId,
    identifier,
  })),
  row('ratelimits.listOverrides', [['ratelimit.*.read_override']], ({ namespaceId }) => ({ namespaceId })),
  row(
    'ratelimits.listOverrides',
    [['ratelimit.*.read_override']],
    ({ namespace, overrideId }) => ({ namespaceName: namespace, cursor: overrideId }),
    'by name from a cursor',
  ),
  row('ratelimits.deleteOverride', [['ratelimit.*.delete_override']], ({ namespaceId, identifier }) => ({
    namespaceId,
    identifier,
  })),
  row('ratelimits.createNamespace', [['ratelimit.*.create_namespace']], () => ({ name: 'a new one' })),
  row('ratelimits.listNamespaces', [['ratelimit.*.read_namespace']], none),
  row(
    'ratelimits.listNamespaces',
    [['ratelimit.*.read_namespace']],
    ({ namespaceId }) => ({ cursor: namespaceId }),
    'from a cursor',
  ),
  row(
    'ratelimits.getWindows',
    [['ratelimit.*.read_namespace', 'ratelimit.{N}.read_namespace']],
    ({ namespaceId, identifier }) => ({ namespaceId, identifier }),
  ),
  row(
    'ratelimits.listNearLimit',
    [['ratelimit.*.read_namespace', 'ratelimit.{N}.read_namespace']],
    ({ namespaceId }) => ({ namespaceId }),
  ),
  row('ratelimits.listNearLimit', [['ratelimit.*.read_namespace']], none, 'of all namespaces'),
  row(
    'ratelimits.updateNamespace',
    [['ratelimit.*.update_namespace', 'ratelimit.{N}.update_namespace']],
    ({ namespaceId }) => ({ namespaceId, scope: 'local' }),
  ),
  row('ratelimits.deleteNamespace', [['ratelimit.*.delete_namespace']], ({ namespaceId }) => ({
    namespaceId,
  })),

  row('analytics.getVerifications', [['api.*.read_api']], ({ apiId }) => ({ apiId })),
  row(
    'analytics.getVerifications',
    [['api.*.read_api']],
    ({ apiId, keyId }) => ({ apiId, keyId, groupBy: 'key' }),
    'of a key',
  ),
  row(
    'analytics.getVerifications',
    [['api.*.read_api']],
    ({ apiId, externalId }) => ({ apiId, externalId, groupBy: 'identity' }),
    'of an identity',
  ),
  row(
    'analytics.getVerifications',
    [['api.*.read_api']],
    ({ apiId, tag }) => ({ apiId, tag, groupBy: 'tags' }),
    'of a tag',
  ),
  row(
    'analytics.getRatelimits',
    [['ratelimit.*.read_namespace', 'ratelimit.{N}.read_namespace']],
    ({ namespaceId }) => ({ namespaceId, groupBy: 'identifier' }),
  ),
  row(
    'analytics.getRatelimits',
    [['ratelimit.*.read_namespace', 'ratelimit.{N}.read_namespace']],
    ({ namespace, identifier }) => ({ namespaceName: namespace, identifier }),
    'by name, of an identifier',
  ),
  row(
    'analytics.getRatelimits',
    [['ratelimit.*.read_namespace']],
    () => ({ groupBy: 'namespace' }),
    'of all namespaces',
  ),
  row('events.listRecent', [['api.*.read_key'], ['ratelimit.*.read_namespace']], () => ({
    outcome: 'all',
    top: 10,
  })),
  row('events.watch', [['api.*.read_key'], ['ratelimit.*.read_namespace']], ({ keyId }) => ({ keyId })),
  row('events.unwatch', [['api.*.read_key'], ['ratelimit.*.read_namespace']], () => ({ watchId: 'watch_1' })),
  row('events.listWatches', [['api.*.read_key'], ['ratelimit.*.read_namespace']], none),
  row('audit.listEvents', [['audit.*.read_event']], none),
  row('audit.listEvents', [['audit.*.read_event']], ({ eventId }) => ({ cursor: eventId }), 'from a cursor'),
  row('audit.listEvents', [['audit.*.read_event']], ({ keyId }) => ({ resourceId: keyId }), 'of a resource'),
  row(
    'audit.listEvents',
    [['audit.*.read_event']],
    (_, { rootKeyId }) => ({ actorId: rootKeyId }),
    'of an actor',
  ),

  row('rootKeys.createRootKey', [['root_key.*.create_root_key']], () => ({ permissions: [] })),
  row(
    'rootKeys.createRootKey',
    [['root_key.*.create_root_key'], ['api.*.read_key'], ['something.else']],
    () => ({ permissions: ['api.*.read_key', 'something.else'] }),
    'that holds something',
  ),
  {
    ...row(
      'rootKeys.createRootKey',
      [],
      (_, { workspaceId }) => ({ permissions: ['api.*.read_key'], workspaceId }),
      'in a workspace that is named',
    ),
    isForOperator: true,
  },
  row('rootKeys.whoami', [], none),
  row('analytics.getOverview', [['api.*.read_api']], () => ({ top: 10 })),
  row('rootKeys.listRootKeys', [['root_key.*.read_root_key']], none),
  row(
    'rootKeys.listRootKeys',
    [['root_key.*.read_root_key']],
    ({ rootKeyId }) => ({ cursor: rootKeyId }),
    'from a cursor',
  ),
  row('rootKeys.updateRootKey', [['root_key.*.update_root_key']], ({ rootKeyId }) => ({
    rootKeyId,
    name: 'new name',
  })),
  row(
    'rootKeys.updateRootKey',
    [['root_key.*.update_root_key'], ['api.*.read_key']],
    ({ rootKeyId }) => ({ rootKeyId, permissions: ['api.*.read_key'] }),
    'giving it something',
  ),
  row(
    'rootKeys.rerollRootKey',
    [['root_key.*.create_root_key'], ['root_key.*.update_root_key']],
    ({ rootKeyId }) => ({ rootKeyId, overlap: 0 }),
  ),
  row('rootKeys.askServers', [['root_key.*.read_root_key']], ({ rootKeyId }) => ({ rootKeyId })),
  row('rootKeys.deleteRootKey', [['root_key.*.delete_root_key']], ({ rootKeyId }) => ({ rootKeyId })),

  { ...row('vault.reseal', [], none), isForOperator: true },
  { ...row('server.getHistory', [], none), isForOperator: true },
  { ...row('server.getSettings', [], none), isForOperator: true },
  { ...row('server.getStatus', [], none), isForOperator: true },
  { ...row('server.listServers', [], none), isForOperator: true },
  { ...row('workspaces.createWorkspace', [], () => ({ name: 'another' })), isForOperator: true },
  {
    ...row('workspaces.updateWorkspace', [], (_, { workspaceId }) => ({ workspaceId, name: 'new name' })),
    isForOperator: true,
  },
  { ...row('workspaces.listWorkspaces', [], none), isForOperator: true },
]

export const titleOf = ({ route, what }: Row) => (what === undefined ? route : `${route}, ${what}`)

/** A permission of a row with the ids of the fixture. */
export const permissionFor = (permission: string, { apiId, otherApiId, namespaceId, identityId }: Texts) =>
  permission
    .replace('{A}', apiId)
    .replace('{B}', otherApiId)
    .replace('{N}', namespaceId)
    .replace('{I}', identityId)
