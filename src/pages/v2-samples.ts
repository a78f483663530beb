import type { Samples } from './examples.ts'
import { ID, V1_SAMPLES } from './v1-samples.ts'

const PERMISSION = { id: `perm_${ID}`, name: 'documents.read', slug: 'documents.read' }
const LIMIT = { name: 'requests', limit: 100, duration: 60_000, autoApply: true }
const HASH = 'n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg='

/** Example values of the v2 API. Those of v1 stand where a field of that name means the same. */
export const V2_SAMPLES: Samples = {
  values: {
    ...V1_SAMPLES.values,
    '.meta': { requestId: `req_${ID}` },
    'analytics:data': [],
    'analytics:query': 'SELECT SUM(count) FROM key_verifications_per_day_v1',
    'apis.listKeys:identity': { id: `id_${ID}`, externalId: 'user_123' },
    'apis.listKeys:ratelimits': [{ id: `rl_${ID}`, ...LIMIT }],
    'identities:identity': 'user_123',
    'keys.addRoles:permissions': [PERMISSION],
    'keys.migrateKeys:failed': [],
    'keys.removePermissions:id': `perm_${ID}`,
    'keys.removePermissions:name': 'documents.read',
    'keys.removeRoles:id': `role_${ID}`,
    'keys.removeRoles:name': 'editor',
    'keys.removeRoles:permissions': [PERMISSION],
    'keys.rerollKey:expiration': 86_400_000,
    'keys.setRoles:permissions': [PERMISSION],
    'keys.updateCredits:value': 100,
    'keys.verifyKey:credits': 99,
    'pagination.hasMore': false,
    'permissions.createRole:permissions': ['documents.read'],
    'permissions.getRole:permissions': [PERMISSION],
    'permissions.listRoles:permissions': [PERMISSION],
    'permissions.setRolePermissions:permissions': ['documents.read'],
    'ratelimit:namespace': 'email.send',
    'ratelimits.exceeded': false,
    'ratelimits.id': `rl_${ID}`,
    hash: HASH,
    message: 'serving',
    permission: 'documents.read',
    role: 'editor',
  },
  requests: {
    'keys.createKey': {
      apiId: `api_${ID}`,
      prefix: 'demo',
      externalId: 'user_123',
      credits: { remaining: 1000 },
      ratelimits: [LIMIT],
      meta: { plan: 'pro' },
    },
    'keys.updateKey': { keyId: `key_${ID}`, enabled: true, meta: { plan: 'free' } },
    'keys.migrateKeys': {
      migrationId: 'from-the-old-system',
      apiId: `api_${ID}`,
      keys: [{ hash: HASH, externalId: 'user_123' }],
    },
    'identities.createIdentity': { externalId: 'user_123', meta: { plan: 'pro' }, ratelimits: [LIMIT] },
    'identities.updateIdentity': { identity: 'user_123', meta: { plan: 'free' } },
    'permissions.createRole': { name: 'editor', permissions: ['documents.read'] },
    'ratelimit.multiLimit': [
      { namespace: 'email.send', identifier: 'user_123', limit: 100, duration: 60_000 },
      { namespace: 'email.send', identifier: 'tenant_7', limit: 1000, duration: 3_600_000 },
    ],
  },
}
