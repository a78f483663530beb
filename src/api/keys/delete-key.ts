import { audit, deletedKeyResources } from '../../audit/log.ts'
import type { DeleteKeyBody } from '../../doors/v1/keys/schema.ts'
import { notFound } from '../../errors.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { authenticate, type Right, requireOn, requireOnAny } from '../root-keys/authorize.ts'
import { findKey, removeKey, softDeleteKey } from './store.ts'

const RIGHT: Right = { resource: 'api', action: 'delete_key' }

/** Revokes a key: the very next verification does not find it. */
export async function deleteKey(
  services: Services,
  call: Call,
  { keyId, permanent = false }: DeleteKeyBody,
): Promise<Record<string, never>> {
  const actor = await authenticate(services, call)
  requireOnAny(actor, RIGHT)
  const { workspaceId } = actor
  const key = await findKey(services.sql, workspaceId, keyId)
  if (key === null) throw notFound(`key ${keyId}`)
  requireOn(actor, RIGHT, key.apiId)
  await services.database.write(async (tx, touch) => {
    const owner = permanent
      ? await removeKey(tx, workspaceId, keyId)
      : await softDeleteKey(tx, workspaceId, keyId, services.clock())
    if (owner === null) throw notFound(`key ${keyId}`)
    await audit(tx, actor, [
      {
        event: 'key.delete',
        description: `deleted key ${keyId} of API ${key.apiId}${permanent ? ' permanently' : ''}`,
        resources: deletedKeyResources(keyId, key.apiId, owner),
      },
    ])
    touch(keyId)
  })
  return {}
}
