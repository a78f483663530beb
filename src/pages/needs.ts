/**
 * The rights that a root key needs for each method, as the reference shows them: code between backticks, `{…}` stands for
 * an id. The endpoints check the rights; `test/doors/v1/authorisation.test.ts` compares these sentences with them.
 */
export const NEEDS: Readonly<Record<string, string>> = {
  'keys.createKey':
    '`*`, `api.*.create_key` or `api.{apiId}.create_key`. With `recoverable` also `api.*.encrypt_key` or `api.{apiId}.encrypt_key`.',
  'keys.getKey':
    '`*`, `api.*.read_key` or `api.{apiId}.read_key`. With `decrypt` also `api.*.decrypt_key` or `api.{apiId}.decrypt_key`.',
  'keys.updateKey':
    '`*`, `api.*.update_key` or `api.{apiId}.update_key`. With `roles` or `permissions` also what `keys.setRoles` or `keys.setPermissions` needs.',
  'keys.deleteKey': '`*`, `api.*.delete_key` or `api.{apiId}.delete_key`.',
  'keys.rerollKey':
    '`*`, `api.*.create_key` or `api.{apiId}.create_key`. For a recoverable key also `api.*.encrypt_key` or `api.{apiId}.encrypt_key`.',
  'keys.eraseKey': '`*`, `api.*.erase_key` or `api.{apiId}.erase_key`.',
  'keys.updateRemaining': '`*`, `api.*.update_key` or `api.{apiId}.update_key`.',
  'keys.whoami': '`*`, `api.*.read_key` or `api.{apiId}.read_key`.',
  'keys.getVerifications':
    '`*`, `api.*.read_key`, or `api.{apiId}.read_key` of every API that the keys belong to.',
  'keys.addPermissions':
    '`*` or `rbac.*.add_permission_to_key`; to create one also `rbac.*.create_permission`.',
  'keys.setPermissions':
    '`*`, or the ones for what the call changes: `rbac.*.add_permission_to_key`, `rbac.*.remove_permission_from_key`, `rbac.*.create_permission`.',
  'keys.removePermissions': '`*` or `rbac.*.remove_permission_from_key`.',
  'keys.addRoles':
    '`*` or `rbac.*.add_role_to_key`; to create one also `rbac.*.create_role` or `rbac.*.create_permission`.',
  'keys.setRoles':
    '`*`, or the ones for what the call changes: `rbac.*.add_role_to_key`, `rbac.*.remove_role_from_key`, `rbac.*.create_role`.',
  'keys.removeRoles': '`*` or `rbac.*.remove_role_from_key`.',
  'migrations.createKeys': '`*`, `api.*.create_key` or `api.{apiId}.create_key`, for every API in the call.',
  'migrations.enqueueKeys':
    '`*`, `api.*.create_key` or `api.{apiId}.create_key`. With `plaintext` also `api.*.encrypt_key` or `api.{apiId}.encrypt_key`.',
  'permissions.createPermission': '`*` or `rbac.*.create_permission`.',
  'permissions.getPermission': '`*` or `rbac.*.read_permission`.',
  'permissions.listPermissions': '`*` or `rbac.*.read_permission`.',
  'permissions.deletePermission': '`*` or `rbac.*.delete_permission`.',
  'permissions.createRole': '`*` or `rbac.*.create_role`.',
  'permissions.getRole': '`*` or `rbac.*.read_role`.',
  'permissions.listRoles': '`*` or `rbac.*.read_role`.',
  'permissions.deleteRole': '`*` or `rbac.*.delete_role`.',
  'permissions.setRolePermissions':
    '`*` or `rbac.*.add_permission_to_role`; to remove one also `rbac.*.remove_permission_from_role`, to create one also `rbac.*.create_permission`.',
  'identities.createIdentity': '`*` or `identity.*.create_identity`.',
  'identities.getIdentity': '`*`, `identity.*.read_identity` or `identity.{identityId}.read_identity`.',
  'identities.listIdentities': '`*`, `identity.*.read_identity` or `identity.default.read_identity`.',
  'identities.updateIdentity': '`*` or `identity.*.update_identity`.',
  'identities.deleteIdentity':
    '`*`, `identity.*.delete_identity` or `identity.{identityId}.delete_identity`.',
  'identities.eraseIdentity': '`*`, `identity.*.erase_identity` or `identity.{identityId}.erase_identity`.',
  'ratelimits.limit':
    '`*`, `ratelimit.*.limit` or `ratelimit.{namespaceId}.limit`. With `*` or `ratelimit.*.create_namespace`, a namespace that does not exist is created; otherwise the call answers NOT_FOUND.',
  'ratelimits.multiLimit':
    '`*`, `ratelimit.*.limit`, or `ratelimit.{namespaceId}.limit` of every namespace in the call. Namespaces are created as by `ratelimits.limit`.',
  'ratelimits.setOverride': '`*` or `ratelimit.*.set_override`.',
  'ratelimits.getOverride': '`*` or `ratelimit.*.read_override`.',
  'ratelimits.listOverrides': '`*` or `ratelimit.*.read_override`.',
  'ratelimits.deleteOverride': '`*` or `ratelimit.*.delete_override`.',
  'ratelimits.createNamespace': '`*` or `ratelimit.*.create_namespace`.',
  'ratelimits.listNamespaces': '`*` or `ratelimit.*.read_namespace`.',
  'ratelimits.deleteNamespace': '`*` or `ratelimit.*.delete_namespace`.',
  'apis.createApi': '`*` or `api.*.create_api`.',
  'apis.getApi': '`*`, `api.*.read_api` or `api.{apiId}.read_api`.',
  'apis.listApis': '`*` or `api.*.read_api`.',
  'apis.updateApi': '`*`, `api.*.update_api` or `api.{apiId}.update_api`.',
  'apis.deleteApi': '`*`, `api.*.delete_api` or `api.{apiId}.delete_api`.',
  'apis.listKeys':
    '`*`, or both `api.*.read_key` or `api.{apiId}.read_key` and `api.*.read_api` or `api.{apiId}.read_api`. With `decrypt` also `api.*.decrypt_key` or `api.{apiId}.decrypt_key`.',
  'apis.deleteKeys': '`*`, `api.*.delete_key` or `api.{apiId}.delete_key`.',
  'analytics.getVerifications': '`*` or `api.*.read_api`.',
  'analytics.getOverview': '`*` or `api.*.read_api`.',
  'analytics.getRatelimits': '`*`, `ratelimit.*.read_namespace` or `ratelimit.{namespaceId}.read_namespace`.',
  'audit.listEvents': '`*` or `audit.*.read_event`.',
  'rootKeys.createRootKey':
    '`*` or `root_key.*.create_root_key`, and every permission that the new root key gets. With `workspaceId`: an operator root key with `*`.',
  'rootKeys.whoami': '`*`, or any other permission, or none: every root key may ask about itself.',
  'rootKeys.listRootKeys': '`*` or `root_key.*.read_root_key`.',
  'rootKeys.updateRootKey':
    '`*` or `root_key.*.update_root_key`, every permission that the changed root key has, and every permission that is added.',
  'rootKeys.rerollRootKey':
    '`*`, or both `root_key.*.create_root_key` and `root_key.*.update_root_key`; and every permission that the root key has.',
  'rootKeys.deleteRootKey':
    '`*` or `root_key.*.delete_root_key`, and every permission that the deleted root key has.',
  'vault.reseal': '`*` that is an operator root key.',
  'workspaces.createWorkspace': '`*` that is an operator root key.',
  'workspaces.updateWorkspace': '`*` that is an operator root key.',
  'workspaces.listWorkspaces': '`*` that is an operator root key.',
}
