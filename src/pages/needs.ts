/** Permissions of which one is enough. `{apiId}`, `{namespaceId}` and `{identityId}` stand for an id. */
export type AnyOf = readonly string[]

/** The rights that a root key needs for a method; `*` is always enough. */
export type Need = {
  /** One permission of each is needed for every call. */
  all: readonly AnyOf[]
  /** What some calls need besides: when, and of which permissions one. */
  also: readonly { when: string; anyOf: AnyOf }[]
  /** What permissions cannot say, as a sentence. */
  note: string | null
  isForOperator: boolean
}

const onApi = (action: string): AnyOf => [`api.*.${action}`, `api.{apiId}.${action}`]
const onNamespace = (action: string): AnyOf => [`ratelimit.*.${action}`, `ratelimit.{namespaceId}.${action}`]
const onIdentity = (action: string): AnyOf => [`identity.*.${action}`, `identity.{identityId}.${action}`]
const rbac = (action: string): AnyOf => [`rbac.*.${action}`]

/** They name keys and identifiers of all APIs and namespaces. */
const EVENTS: readonly AnyOf[] = [['api.*.read_key'], ['ratelimit.*.read_namespace']]

type More = { also?: Need['also']; note?: string }
const needs = (all: readonly AnyOf[], { also = [], note }: More = {}): Need => ({
  all,
  also,
  note: note ?? null,
  isForOperator: false,
})
const FOR_OPERATORS: Need = { all: [], also: [], note: null, isForOperator: true }

/**
 * The needs of each method. The endpoints check the rights; `test/doors/v1/authorisation.test.ts` compares this table with
 * them. The reference shows it in words, and the dashboard offers a root key what is in it.
 */
export const V1_NEEDS: Readonly<Record<string, Need>> = {
  'keys.createKey': needs([onApi('create_key')], {
    also: [{ when: 'with `recoverable`', anyOf: onApi('encrypt_key') }],
  }),
  'keys.getKey': needs([onApi('read_key')], {
    also: [{ when: 'with `decrypt`', anyOf: onApi('decrypt_key') }],
  }),
  'keys.updateKey': needs([onApi('update_key')], {
    note: 'With `roles` or `permissions` also what `keys.setRoles` or `keys.setPermissions` needs.',
  }),
  'keys.deleteKey': needs([onApi('delete_key')]),
  'keys.rerollKey': needs([onApi('create_key')], {
    also: [{ when: 'for a recoverable key', anyOf: onApi('encrypt_key') }],
  }),
  'keys.eraseKey': needs([onApi('erase_key')]),
  'keys.updateRemaining': needs([onApi('update_key')]),
  'keys.whoami': needs([onApi('read_key')]),
  'keys.listKeys': needs([['api.*.read_key']]),
  'keys.searchKeys': needs([['api.*.read_key']], {
    note: 'With `apiId`, `api.{apiId}.read_key` is enough.',
  }),
  'keys.getLastUsed': needs([onApi('read_key')], {
    note: 'The right on single APIs must cover every API that the keys belong to.',
  }),
  'keys.explainKey': needs([onApi('read_key')]),
  'keys.askServers': needs([onApi('read_key')]),
  'keys.getVerifications': needs([onApi('read_key')], {
    note: 'The right on single APIs must cover every API that the keys belong to.',
  }),
  'keys.addPermissions': needs([rbac('add_permission_to_key')], {
    also: [{ when: 'to create one', anyOf: rbac('create_permission') }],
  }),
  'keys.setPermissions': needs([], {
    also: [
      { when: 'to attach one', anyOf: rbac('add_permission_to_key') },
      { when: 'to remove one', anyOf: rbac('remove_permission_from_key') },
      { when: 'to create one', anyOf: rbac('create_permission') },
    ],
  }),
  'keys.removePermissions': needs([rbac('remove_permission_from_key')]),
  'keys.addRoles': needs([rbac('add_role_to_key')], {
    also: [{ when: 'to create one', anyOf: [...rbac('create_role'), ...rbac('create_permission')] }],
  }),
  'keys.setRoles': needs([], {
    also: [
      { when: 'to attach one', anyOf: rbac('add_role_to_key') },
      { when: 'to remove one', anyOf: rbac('remove_role_from_key') },
      { when: 'to create one', anyOf: rbac('create_role') },
    ],
  }),
  'keys.removeRoles': needs([rbac('remove_role_from_key')]),
  'migrations.createKeys': needs([onApi('create_key')], {
    note: 'The right on single APIs must cover every API in the call.',
  }),
  'migrations.checkKeys': needs([onApi('create_key')], {
    note: 'The right on single APIs must cover every API in the call.',
  }),
  'migrations.enqueueKeys': needs([onApi('create_key')], {
    also: [{ when: 'with `plaintext`', anyOf: onApi('encrypt_key') }],
  }),
  'migrations.listImports': needs([['api.*.create_key']]),
  'migrations.retryImports': needs([['api.*.create_key']]),
  'migrations.discardImports': needs([['api.*.create_key']]),
  'permissions.createPermission': needs([rbac('create_permission')]),
  'permissions.getPermission': needs([rbac('read_permission')]),
  'permissions.listPermissions': needs([rbac('read_permission')]),
  'permissions.searchPermissions': needs([rbac('read_permission')]),
  'permissions.deletePermission': needs([rbac('delete_permission')]),
  'permissions.createRole': needs([rbac('create_role')]),
  'permissions.getRole': needs([rbac('read_role')]),
  'permissions.listRoles': needs([rbac('read_role')]),
  'permissions.searchRoles': needs([rbac('read_role')]),
  'permissions.deleteRole': needs([rbac('delete_role')]),
  'permissions.setRolePermissions': needs([rbac('add_permission_to_role')], {
    also: [
      { when: 'to remove one', anyOf: rbac('remove_permission_from_role') },
      { when: 'to create one', anyOf: rbac('create_permission') },
    ],
  }),
  'identities.createIdentity': needs([['identity.*.create_identity']]),
  'identities.getIdentity': needs([onIdentity('read_identity')]),
  'identities.listIdentities': needs([['identity.*.read_identity', 'identity.default.read_identity']]),
  'identities.updateIdentity': needs([['identity.*.update_identity']]),
  'identities.deleteIdentity': needs([onIdentity('delete_identity')]),
  'identities.eraseIdentity': needs([onIdentity('erase_identity')]),
  'ratelimits.limit': needs([onNamespace('limit')], {
    note: 'With `*` or `ratelimit.*.create_namespace`, a namespace that does not exist is created; otherwise the call answers NOT_FOUND.',
  }),
  'ratelimits.multiLimit': needs([onNamespace('limit')], {
    note: 'The right on single namespaces must cover every namespace in the call. Namespaces are created as by `ratelimits.limit`.',
  }),
  'ratelimits.setOverride': needs([['ratelimit.*.set_override']]),
  'ratelimits.getOverride': needs([['ratelimit.*.read_override']]),
  'ratelimits.listOverrides': needs([['ratelimit.*.read_override']]),
  'ratelimits.deleteOverride': needs([['ratelimit.*.delete_override']]),
  'ratelimits.createNamespace': needs([['ratelimit.*.create_namespace']]),
  'ratelimits.updateNamespace': needs([onNamespace('update_namespace')]),
  'ratelimits.listNamespaces': needs([['ratelimit.*.read_namespace']]),
  'ratelimits.getWindows': needs([onNamespace('read_namespace')], {
    also: [{ when: 'to see the override', anyOf: onNamespace('read_override') }],
  }),
  'ratelimits.listNearLimit': needs([['ratelimit.*.read_namespace']], {
    note: 'With a namespace `ratelimit.{namespaceId}.read_namespace` is enough.',
  }),
  'ratelimits.deleteNamespace': needs([['ratelimit.*.delete_namespace']]),
  'apis.createApi': needs([['api.*.create_api']]),
  'apis.getApi': needs([onApi('read_api')]),
  'apis.listApis': needs([['api.*.read_api']]),
  'apis.updateApi': needs([onApi('update_api')]),
  'apis.deleteApi': needs([onApi('delete_api')]),
  'apis.listKeys': needs([onApi('read_key'), onApi('read_api')], {
    also: [{ when: 'with `decrypt`', anyOf: onApi('decrypt_key') }],
  }),
  'apis.deleteKeys': needs([onApi('delete_key')]),
  'analytics.getVerifications': needs([['api.*.read_api']]),
  'analytics.getOverview': needs([['api.*.read_api']]),
  'analytics.getRatelimits': needs([onNamespace('read_namespace')], {
    note: 'Grouped by namespace `*` or `ratelimit.*.read_namespace`.',
  }),
  'events.listRecent': needs(EVENTS),
  'events.watch': needs(EVENTS),
  'events.unwatch': needs(EVENTS),
  'events.listWatches': needs(EVENTS),
  'audit.listEvents': needs([['audit.*.read_event']]),
  'rootKeys.createRootKey': needs([['root_key.*.create_root_key']], {
    note: 'Also every permission that the new root key gets. With `workspaceId`: an operator root key with `*`.',
  }),
  'rootKeys.whoami': needs([], { note: 'Every root key may ask about itself.' }),
  'rootKeys.listRootKeys': needs([['root_key.*.read_root_key']]),
  'rootKeys.updateRootKey': needs([['root_key.*.update_root_key']], {
    note: 'Also every permission that the changed root key has, and every permission that is added.',
  }),
  'rootKeys.rerollRootKey': needs([['root_key.*.create_root_key'], ['root_key.*.update_root_key']], {
    note: 'Also every permission that the root key has.',
  }),
  'rootKeys.deleteRootKey': needs([['root_key.*.delete_root_key']], {
    note: 'Also every permission that the deleted root key has.',
  }),
  'rootKeys.askServers': needs([['root_key.*.read_root_key']]),
  'vault.reseal': FOR_OPERATORS,
  'server.getHistory': FOR_OPERATORS,
  'server.getSettings': FOR_OPERATORS,
  'server.getStatus': FOR_OPERATORS,
  'server.listServers': FOR_OPERATORS,
  'workspaces.createWorkspace': FOR_OPERATORS,
  'workspaces.updateWorkspace': FOR_OPERATORS,
  'workspaces.listWorkspaces': FOR_OPERATORS,
}

/** A need as the reference shows it: code between backticks. */
export function describeNeed({ all, also, note, isForOperator }: Need): string {
  if (isForOperator) return '`*` that is an operator root key.'
  const [only, ...others] = all
  const parts: string[] = []
  if (only === undefined && also.length === 0) parts.push('`*`, or any other permission, or none.')
  else if (only === undefined)
    parts.push(
      `\`*\`, or for what the call changes: ${also.map(({ when, anyOf }) => `${when} ${either(anyOf)}`).join('; ')}.`,
    )
  else if (others.length === 0) parts.push(`${either(['*', ...only])}.`)
  else parts.push(`\`*\`, or ${all.map(either).join(', and ')}.`)
  if (only !== undefined)
    for (const { when, anyOf } of also)
      parts.push(`${when.charAt(0).toUpperCase()}${when.slice(1)} also ${either(anyOf)}.`)
  if (note !== null) parts.push(note)
  return parts.join(' ')
}

function either(permissions: AnyOf): string {
  const codes = permissions.map((each) => `\`${each}\``)
  return codes.length < 2 ? codes.join('') : `${codes.slice(0, -1).join(', ')} or ${codes.at(-1)}`
}

/** The table in words. */
export const NEEDS: Readonly<Record<string, string>> = Object.fromEntries(
  Object.entries(V1_NEEDS).map(([method, need]) => [method, describeNeed(need)]),
)

/** Rights that only the v2 API asks for, by its methods. A test compares them with its needs. */
export const V2_ONLY_NEEDS: Readonly<Record<string, Need>> = {
  'v2 keys.verifyKey': needs([onApi('verify_key')]),
  'v2 analytics.getVerifications': needs([onApi('read_analytics')]),
  'v2 analytics.getRatelimits': needs([onNamespace('read_analytics')]),
}
