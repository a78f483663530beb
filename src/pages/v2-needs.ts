/**
 * The rights that a root key needs for each method of the v2 API, as the reference shows them: code between backticks, `{…}`
 * stands for an id. The endpoints check the rights; `test/doors/v2/rights.test.ts` compares these sentences with them.
 */
export const V2_NEEDS: Readonly<Record<string, string>> = {
  'keys.createKey':
    '`*`, `api.*.create_key` or `api.{apiId}.create_key`. With `recoverable` also `api.*.encrypt_key` or `api.{apiId}.encrypt_key`. Without them the API is not found.',
  'keys.verifyKey':
    '`*`, `api.*.verify_key` or `api.{apiId}.verify_key`. Without them every key is `NOT_FOUND`.',
  'keys.getKey':
    '`*`, `api.*.read_key` or `api.{apiId}.read_key`. With `decrypt` also `api.*.decrypt_key` or `api.{apiId}.decrypt_key`.',
  'keys.whoami': '`*`, `api.*.read_key` or `api.{apiId}.read_key`. Without them the key is not found.',
  'keys.updateKey':
    '`*`, `api.*.update_key` or `api.{apiId}.update_key`, also for `permissions` and `roles`.',
  'keys.deleteKey': '`*`, `api.*.delete_key` or `api.{apiId}.delete_key`.',
  'keys.updateCredits': '`*`, `api.*.update_key` or `api.{apiId}.update_key`.',
  'keys.rerollKey':
    '`*`, `api.*.create_key` or `api.{apiId}.create_key`. For a recoverable key also `api.*.encrypt_key` or `api.{apiId}.encrypt_key`.',
  'keys.migrateKeys': '`*`, `api.*.create_key` or `api.{apiId}.create_key`.',
  'keys.addPermissions':
    '`*`, or `rbac.*.add_permission_to_key` and one of `api.*.update_key` and `api.{apiId}.update_key`; to create a permission also `rbac.*.create_permission`.',
  'keys.setPermissions':
    '`*`, or `rbac.*.add_permission_to_key`, `rbac.*.remove_permission_from_key` and one of `api.*.update_key` and `api.{apiId}.update_key`; to create a permission also `rbac.*.create_permission`.',
  'keys.removePermissions':
    '`*`, or `rbac.*.remove_permission_from_key` and one of `api.*.update_key` and `api.{apiId}.update_key`.',
  'keys.addRoles':
    '`*`, or `rbac.*.add_role_to_key` and one of `api.*.update_key` and `api.{apiId}.update_key`.',
  'keys.setRoles': '`*`, `api.*.update_key` or `api.{apiId}.update_key`.',
  'keys.removeRoles': '`*`, `api.*.update_key` or `api.{apiId}.update_key`.',
  'apis.createApi': '`*` or `api.*.create_api`.',
  'apis.getApi': '`*`, `api.*.read_api` or `api.{apiId}.read_api`.',
  'apis.deleteApi': '`*`, `api.*.delete_api` or `api.{apiId}.delete_api`.',
  'apis.listKeys':
    '`*`, or both `api.*.read_key` or `api.{apiId}.read_key` and `api.*.read_api` or `api.{apiId}.read_api`; without them the API is not found. With `decrypt` also `api.*.decrypt_key` or `api.{apiId}.decrypt_key`.',
  'identities.createIdentity': '`*` or `identity.*.create_identity`.',
  'identities.getIdentity': '`*`, `identity.*.read_identity` or `identity.{identityId}.read_identity`.',
  'identities.listIdentities':
    '`*`, `identity.*.read_identity`, or `identity.{identityId}.read_identity` of every identity on the page.',
  'identities.updateIdentity': '`*` or `identity.*.update_identity`.',
  'identities.deleteIdentity': '`*` or `identity.*.delete_identity`.',
  'permissions.createPermission': '`*` or `rbac.*.create_permission`.',
  'permissions.getPermission': '`*` or `rbac.*.read_permission`.',
  'permissions.listPermissions': '`*` or `rbac.*.read_permission`.',
  'permissions.deletePermission': '`*` or `rbac.*.delete_permission`.',
  'permissions.createRole':
    '`*` or `rbac.*.create_role`. With `permissions` also `rbac.*.add_permission_to_role`, and to create one `rbac.*.create_permission`.',
  'permissions.getRole': '`*` or `rbac.*.read_role`.',
  'permissions.listRoles': '`*` or `rbac.*.read_role`.',
  'permissions.deleteRole': '`*` or `rbac.*.delete_role`.',
  'permissions.setRolePermissions':
    '`*`, or both `rbac.*.add_permission_to_role` and `rbac.*.remove_permission_from_role`; to create a permission also `rbac.*.create_permission`.',
  'ratelimit.limit':
    '`*`, `ratelimit.*.limit` or `ratelimit.{namespaceId}.limit`. With `*` or `ratelimit.*.create_namespace`, a namespace that does not exist is created.',
  'ratelimit.multiLimit':
    '`*`, `ratelimit.*.limit`, or `ratelimit.{namespaceId}.limit` of every namespace in the call. Namespaces are created as by `ratelimit.limit`.',
  'ratelimit.setOverride': '`*`, `ratelimit.*.set_override` or `ratelimit.{namespaceId}.set_override`.',
  'ratelimit.getOverride':
    '`*`, `ratelimit.*.read_override` or `ratelimit.{namespaceId}.read_override`. Without them the override is not found.',
  'ratelimit.listOverrides': '`*`, `ratelimit.*.read_override` or `ratelimit.{namespaceId}.read_override`.',
  'ratelimit.deleteOverride':
    '`*`, `ratelimit.*.delete_override` or `ratelimit.{namespaceId}.delete_override`.',
  'analytics.getVerifications': '`*`, `api.*.read_analytics` or `api.{apiId}.read_analytics`.',
  'analytics.getRatelimits': '`*`, `ratelimit.*.read_analytics` or `ratelimit.{namespaceId}.read_analytics`.',
}
