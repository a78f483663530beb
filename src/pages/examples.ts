import type { JsonSchema } from './json-schema.ts'

/*
 * Example values for the reference, made from the schemas so that they stay up to date. A value is looked up by the field's
 * name, first together with its parent or its method.
 */

/**
 * A request body to copy: the required fields, and the fields that show the method's purpose.
 * @param method `keys.createKey`
 */
export const requestExample = (method: string, schema: JsonSchema): unknown =>
  REQUESTS[method] ?? sampleOf(schema, { method, of: 'request', within: '', name: '' })

/** An answer with every field that is not deprecated, as on the last page of a list. */
export const replyExample = (method: string, schema: JsonSchema): unknown =>
  sampleOf(schema, { method, of: 'reply', within: '', name: '' })

type Place = {
  method: string
  of: 'request' | 'reply'
  /** Name of the parent field; empty at the top. */
  within: string
  /** The field's name; elements of a list have the list's name. */
  name: string
}

function sampleOf(schema: JsonSchema, place: Place): unknown {
  const known = knownSample(place)
  if (known !== undefined) return schema.type === 'array' && !Array.isArray(known) ? [known] : known
  const [first] = schema.enum ?? []
  if (first !== undefined) return first
  if (schema.const !== undefined) return schema.const
  if (schema.anyOf !== undefined) return sampleOf(schema.anyOf[0] ?? {}, place)
  switch (schema.type) {
    case 'object':
      return Object.fromEntries(
        Object.entries(schema.properties ?? {})
          .filter(
            ([field, { deprecated }]) =>
              (schema.required ?? []).includes(field) ||
              (place.of === 'reply' && deprecated !== true && field !== 'cursor'),
          )
          .map(([field, property]) => [
            field,
            sampleOf(property, { ...place, within: place.name, name: field }),
          ]),
      )
    case 'array':
      return schema.items === undefined ? [] : [sampleOf(schema.items, place)]
    case 'integer':
      return schema.minimum ?? 1
    case 'boolean':
      return true
    default:
      return place.name
  }
}

function knownSample({ method, within, name }: Place): unknown {
  const [group] = method.split('.')
  for (const key of [`${method}:${name}`, `${within}.${name}`, `${group}:${name}`, name])
    if (Object.hasOwn(SAMPLES, key)) return SAMPLES[key]
  return undefined
}

const ID = '4aBcDeFgHjKmNpQr'
const NOON = Date.UTC(2026, 0, 31, 12)

/** By `method:field`, `parent.field`, `group:field` or `field`: the first one found is used. */
const SAMPLES: Readonly<Record<string, unknown>> = {
  'analytics:total': 42,
  'analytics.getRatelimits:denied': 3,
  'analytics.getRatelimits:passed': 39,
  'actor.id': `key_${ID}`,
  'actor.type': 'key',
  'apis:id': `api_${ID}`,
  'apis:name': 'my-api',
  'apis.listKeys:id': `key_${ID}`,
  'apis.listKeys:name': 'production',
  'events.description': `created key key_${ID}`,
  'events.id': `log_${ID}`,
  'bounds.permissions': 20_000,
  'bounds.roles': 20_000,
  'hash.value': 'n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg=',
  'identities:id': `id_${ID}`,
  'identity.id': `id_${ID}`,
  'permissions.createRole:name': 'editor',
  'permissions.getRole:id': `role_${ID}`,
  'permissions.getRole:name': 'editor',
  'permissions.getRole:description': 'Writes what readers read',
  'permissions.listRoles:id': `role_${ID}`,
  'permissions.listRoles:name': 'editor',
  'permissions.listRoles:description': 'Writes what readers read',
  'permissions:id': `perm_${ID}`,
  'permissions:name': 'documents.read',
  'keys.eraseKey:pseudonym': `erased_${ID}`,
  'identities.eraseIdentity:pseudonym': `erased_${ID}`,
  'keys.addPermissions:id': `perm_${ID}`,
  'keys.addPermissions:name': 'documents.read',
  'keys.setPermissions:id': `perm_${ID}`,
  'keys.setPermissions:name': 'documents.read',
  'keys.addRoles:id': `role_${ID}`,
  'keys.addRoles:name': 'editor',
  'keys.setRoles:id': `role_${ID}`,
  'keys.setRoles:name': 'editor',
  'keys.updateRemaining:value': 100,
  'keys.getVerifications:rateLimited': 3,
  'keys.getVerifications:success': 39,
  'keys.getVerifications:usageExceeded': 0,
  'keys.verifyKey:valid': true,
  'keys:id': `key_${ID}`,
  'keys:name': 'production',
  'keys:permissions': ['documents.read'],
  'apis.listKeys:permissions': ['documents.read'],
  'ratelimits.createNamespace:name': 'email.send',
  'ratelimits.listNamespaces:id': `rlns_${ID}`,
  'ratelimits.listNamespaces:name': 'email.send',
  'ratelimits.name': 'requests',
  'ratelimits:id': `rlor_${ID}`,
  'refill.interval': 'monthly',
  'resources.id': `key_${ID}`,
  'resources.after': { enabled: false },
  'resources.before': { enabled: true },
  'resources.meta': { apiId: `api_${ID}` },
  'resources.name': 'production',
  'resources.type': 'key',
  'rootKeys:id': `key_${ID}`,
  'rootKeys:name': 'billing service',
  'rootKeys:permissions': ['api.*.create_key', 'api.*.read_key'],
  'rootKeys:start': 'tollgate_3ZWU',
  'services.ratelimit': 'shards',
  'workspaces:id': `ws_${ID}`,
  'workspaces:name': 'acme',
  amount: 1000,
  apiId: `api_${ID}`,
  async: false,
  createdAt: NOON,
  database: 'ok',
  deletedKeys: 1,
  description: 'May read documents',
  duration: 60_000,
  environment: 'live',
  event: 'key.create',
  expires: NOON + 86_400_000,
  externalId: 'user_123',
  identifier: 'user_123',
  identityId: `id_${ID}`,
  key: 'demo_3ZWUpQAoZ7LkM4nDeSjgbRqY',
  keyId: `key_${ID}`,
  keyIds: [`key_${ID}`],
  lastRefillAt: NOON,
  limit: 100,
  location: '203.0.113.7',
  logger: 'stdout',
  meta: { plan: 'pro' },
  metrics: 'memory',
  migrationId: 'from-the-old-system',
  namespaceId: `rlns_${ID}`,
  overrideId: `rlor_${ID}`,
  ownerId: 'user_123',
  permissionId: `perm_${ID}`,
  plaintext: 'demo_3ZWUpQAoZ7LkM4nDeSjgbRqY',
  rateLimited: 3,
  refillDay: 1,
  refillInterval: 60_000,
  refillRate: 100,
  remaining: 99,
  requestId: `req_${ID}`,
  reset: NOON + 60_000,
  roleId: `role_${ID}`,
  rootKey: 'tollgate_3ZWUpQAoZ7LkM4nDeSjgbRqY',
  rootKeyId: `key_${ID}`,
  roles: ['editor'],
  slug: 'documents.read',
  start: 'demo_3ZWU',
  status: 'serving',
  tag: 'path=/documents',
  tags: ['path=/documents'],
  time: NOON,
  total: 1,
  updatedAt: NOON,
  usagelimit: 'postgres',
  userAgent: 'curl/8.5.0',
  valid: 39,
  workspaceId: `ws_${ID}`,
}

/** Requests whose required fields say too little, or are not everything that must be sent. */
const REQUESTS: Readonly<Record<string, unknown>> = {
  'keys.createKey': {
    apiId: `api_${ID}`,
    prefix: 'demo',
    externalId: 'user_123',
    remaining: 1000,
    ratelimit: { limit: 100, duration: 60_000 },
    meta: { plan: 'pro' },
  },
  'keys.updateKey': { keyId: `key_${ID}`, enabled: true, meta: { plan: 'free' } },
  'keys.addPermissions': { keyId: `key_${ID}`, permissions: [{ slug: 'documents.read' }] },
  'keys.setPermissions': { keyId: `key_${ID}`, permissions: [{ slug: 'documents.read', create: true }] },
  'keys.removePermissions': { keyId: `key_${ID}`, permissions: [{ slug: 'documents.read' }] },
  'keys.addRoles': { keyId: `key_${ID}`, roles: [{ name: 'editor' }] },
  'keys.setRoles': { keyId: `key_${ID}`, roles: [{ name: 'editor', create: true }] },
  'keys.removeRoles': { keyId: `key_${ID}`, roles: [{ name: 'editor' }] },
  'migrations.createKeys': [
    {
      apiId: `api_${ID}`,
      hash: { value: 'n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg=', variant: 'sha256_base64' },
      externalId: 'user_123',
    },
  ],
  'migrations.enqueueKeys': {
    migrationId: 'from-the-old-system',
    apiId: `api_${ID}`,
    keys: [{ hash: { value: 'n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg=', variant: 'sha256_base64' } }],
  },
  'permissions.setRolePermissions': { roleId: `role_${ID}`, permissions: [{ slug: 'documents.read' }] },
  'identities.createIdentity': {
    externalId: 'user_123',
    meta: { plan: 'pro' },
    ratelimits: [{ name: 'requests', limit: 100, duration: 60_000 }],
  },
  'identities.eraseIdentity': { externalId: 'user_123' },
  'identities.updateIdentity': { externalId: 'user_123', meta: { plan: 'free' } },
  'ratelimits.limit': { namespace: 'email.send', identifier: 'user_123', limit: 100, duration: 60_000 },
  'ratelimits.multiLimit': [
    { namespace: 'email.send', identifier: 'user_123', limit: 100, duration: 60_000 },
    { namespace: 'email.send', identifier: 'tenant_7', limit: 1000, duration: 3_600_000 },
  ],
  'ratelimits.setOverride': {
    namespaceName: 'email.send',
    identifier: 'user_123',
    limit: 500,
    duration: 60_000,
  },
  'ratelimits.deleteOverride': { namespaceName: 'email.send', identifier: 'user_123' },
  'rootKeys.createRootKey': { name: 'billing service', permissions: ['api.*.create_key', 'api.*.read_key'] },
  'rootKeys.updateRootKey': { rootKeyId: `key_${ID}`, enabled: false },
  'workspaces.updateWorkspace': { workspaceId: `ws_${ID}`, enabled: false },
  'apis.updateApi': { apiId: `api_${ID}`, deleteProtection: true, ipWhitelist: ['203.0.113.0/24'] },
}
