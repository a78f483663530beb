import { audit, deletedKeyResources } from '../../audit/log.ts'
import type { Call } from '../../doors/http/endpoint.ts'
import { notFound } from '../../errors.ts'
import type { Deps } from '../../server/deps.ts'
import { authenticate, type Right, requireOn, requireOnAny } from '../root-keys/authorize.ts'
import type { DeleteKeyBody } from './schema.ts'
import { findKey, removeKey, softDeleteKey } from './store.ts'

const RIGHT: Right = { resource: 'api', action: 'delete_key' }

/** Revokes a key: the very next verification does not find it. */
export async function deleteKey(
  deps: Deps,
  call: Call,
  { keyId, permanent = false }: DeleteKeyBody,
): Promise<Record<string, never>> {
  const actor = await authenticate(deps, call)
  requireOnAny(actor, RIGHT)
  const { workspaceId } = actor
  const key = await findKey(deps.sql, workspaceId, keyId)
  if (key === null) throw notFound(`key ${keyId}`)
  requireOn(actor, RIGHT, key.apiId)
  await deps.database.write(async (tx, touch) => {
    const owner = permanent
      ? await removeKey(tx, workspaceId, keyId)
      : await softDeleteKey(tx, workspaceId, keyId, deps.clock())
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
