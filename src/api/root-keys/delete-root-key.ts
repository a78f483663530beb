import { changesOf } from '../../audit/changes.ts'
import { audit } from '../../audit/log.ts'
import { ApiError, notFound } from '../../errors.ts'
import { MANY_KEYS_MS } from '../../records/database.ts'
import type { Services } from '../parts.ts'
import { fieldsOf } from './audit.ts'
import type { Actor } from './authorize.ts'
import { deleteGranted } from './granted.ts'
import { asAsked, findGranter, requireMayChange } from './granter.ts'
import { countOtherOperatorKeys, findRootKey, lockRootKeys, softDeleteRootKeys } from './store.ts'

/**
 * Revokes a root key of the actor's workspace for good: the next request with it is refused.
 * @param options.right What the actor must still hold when it is deleted.
 * @param options.isGrantedToo Also delete the root keys that it created, directly or through others.
 * @throws ApiError NOT_FOUND; as {@link findGranter}; INSUFFICIENT_PERMISSIONS for a root key that holds more than the
 *   actor; PRECONDITION_FAILED for the last operator root key.
 */
export async function deleteRootKey(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  id: string,
  { right, isGrantedToo }: { right: string; isGrantedToo: boolean },
): Promise<void> {
  const now = services.clock()
  await services.database.write(
    async (tx, invalidate) => {
      await lockRootKeys(tx, actor.workspaceId, { id, actorId: actor.rootKeyId })
      const rootKey = await findRootKey(tx, actor.workspaceId, id)
      if (rootKey === null) throw notFound('root key', id)
      requireMayChange(asAsked(actor), actor, rootKey)
      if (rootKey.isOperator && (await countOtherOperatorKeys(tx, id)) === 0)
        throw new ApiError(
          'PRECONDITION_FAILED',
          `root key ${id} is the last operator root key: without it nobody could manage this server`,
        )
      const granter = await findGranter(tx, actor, { right, now })
      requireMayChange(granter, actor, rootKey)
      await softDeleteRootKeys(tx, [id], now)
      await audit(tx, actor, [
        {
          event: 'rootKey.delete',
          description: `deleted root key ${id}`,
          resources: [{ type: 'rootKey', id, ...changesOf(fieldsOf(rootKey), null) }],
        },
      ])
      if (isGrantedToo) await deleteGranted({ tx, invalidate, actor, now }, granter, id)
      invalidate(id)
    },
    isGrantedToo ? { timeoutMs: MANY_KEYS_MS } : {},
  )
}
