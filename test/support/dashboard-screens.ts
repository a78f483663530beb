import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Json, TestServer } from './server.ts'

/** The paths of all screens of the dashboard, as its source has them: `keys/:id`. */
export const SCREENS: readonly string[] = [
  ...readFileSync(join(import.meta.dir, '../../src/dashboard/ui/screens.ts'), 'utf8').matchAll(
    /path: '([^']+)'/g,
  ),
].map(([, path = '']) => path)

/** Makes one of everything that a workspace can have, with usage and refusals, so that each screen has something to show. */
export async function fillWorkspace(
  server: Pick<TestServer, 'get' | 'post'>,
  rootKey: string,
): Promise<{ pathOf: (screen: string) => string; requestId: string }> {
  const post = async (method: string, body: object): Promise<Json> => {
    const answer = await server.post(method, body, rootKey)
    if (answer.status >= 300) throw new Error(`${method}: ${JSON.stringify(answer.body)}`)
    return answer.body
  }
  const { apiId } = await post('apis.createApi', { name: 'shop' })
  await post('apis.updateApi', { apiId, defaultPrefix: 'shop', ipWhitelist: ['127.0.0.0/8', '10.0.0.0/8'] })
  await post('apis.createApi', { name: 'internal tools of the billing department, second generation' })
  const { permissionId } = await post('permissions.createPermission', {
    name: 'documents.read',
    description: 'May read documents',
  })
  await post('permissions.createPermission', { name: 'documents.write' })
  const { roleId } = await post('permissions.createRole', { name: 'editor', description: 'Reads and writes' })
  await post('permissions.setRolePermissions', {
    roleId,
    permissions: [{ slug: 'documents.read' }, { slug: 'documents.write' }],
  })
  const { identityId } = await post('identities.createIdentity', {
    externalId: 'user_881',
    meta: { plan: 'pro', seats: 12 },
    ratelimits: [{ name: 'requests', limit: 1000, duration: 60_000 }],
  })
  for (const externalId of [
    'user_882',
    'tenant_with_a_rather_long_external_id_of_another_system@example.com',
  ])
    await post('identities.createIdentity', { externalId })
  const make = (fields: object) => post('keys.createKey', { apiId, prefix: 'shop', ...fields })
  const { keyId, key } = await make({
    name: 'web checkout',
    externalId: 'user_881',
    meta: { plan: 'pro' },
    roles: ['editor'],
    permissions: ['documents.read'],
    remaining: 500,
    refill: { interval: 'monthly', amount: 1000, refillDay: 1 },
    ratelimit: { type: 'fast', limit: 4, refillRate: 4, refillInterval: 3_600_000 },
  })
  await make({ name: 'nightly export', enabled: false })
  await make({ name: 'trial', remaining: 3, expires: Date.now() + 86_400_000 })
  await make({ externalId: 'user_882' })
  const other = await make({
    name: 'a name that is longer than the column in which it is shown on most screens',
  })
  for (let times = 0; times < 3; times++)
    await server.post('keys.verifyKey', { key: other.key, tags: ['web'] })
  let requestId = ''
  for (let times = 0; times < 6; times++)
    requestId =
      (await server.post('keys.verifyKey', { key, tags: ['web', 'eu'] })).body.requestId ?? requestId
  const limit = { namespace: 'email.send', limit: 3, duration: 3_600_000 }
  for (const identifier of ['user_881', 'user_881', 'user_881', 'user_881', 'user_882', '203.0.113.7'])
    await post('ratelimits.limit', { ...limit, identifier })
  const vip = { namespaceName: 'email.send', identifier: 'vip_*', limit: 50, duration: 60_000 }
  await post('ratelimits.setOverride', vip)
  const { body } = await server.get('ratelimits.listNamespaces', {}, rootKey)
  const namespaceId: string = body.namespaces[0].id
  await post('events.watch', { keyId })
  await post('rootKeys.createRootKey', { name: 'checkout service', permissions: ['ratelimit.*.limit'] })
  await post('keys.updateKey', { keyId, name: 'web checkout', remaining: 450 })
  const paths: Record<string, string> = {
    'keys/:id': `keys/${keyId}`,
    'apis/:id': `apis/${apiId}`,
    'identities/:id': `identities/${identityId}`,
    'roles/:id': `roles/${roleId}`,
    'permissions/:id': `permissions/${permissionId}`,
    'limits/:namespace': `limits/${namespaceId}`,
    'limits/:namespace/:identifier': `limits/${namespaceId}/user_881`,
    why: `why?request=${requestId}`,
  }
  return {
    requestId,
    pathOf: (screen) => {
      const path = paths[screen] ?? screen
      if (path.includes(':')) throw new Error(`fillWorkspace makes nothing for ${screen}`)
      return path
    },
  }
}
