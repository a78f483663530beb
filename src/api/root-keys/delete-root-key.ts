import { changesOf } from '../../audit/changes.ts'
import { audit } from '../../audit/log.ts'
import { ApiError, notFound } from '../../errors.ts'
import { MANY_KEYS_MS } from '../../records/database.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { fieldsOf } from './audit.ts'
import { anyOf, authenticate } from './authorize.ts'
import { deleteGranted } from './granted.ts'
import { asAsked, findGranter, requireMayChange } from './granter.ts'
import type { DeleteRootKeyBody } from './schema.ts'
import { countOtherOperatorKeys, findRootKey, lockRootKeys, softDeleteRootKeys } from './store.ts'

const RIGHT = 'root_key.*.delete_root_key'

/** Revokes a root key of the caller's workspace for good: the very next request with it is refused. */
export async function deleteRootKey(
  services: Services,
  call: Call,
  { rootKeyId: id, granted = false }: DeleteRootKeyBody,
): Promise<Record<string, never>> {
  const actor = await authenticate(services, call, anyOf('*', RIGHT))
  const now = services.clock()
  await services.database.write(
    async (tx, touch) => {
      await lockRootKeys(tx, actor.workspaceId, { id, actorId: actor.rootKeyId })
      const rootKey = await findRootKey(tx, actor.workspaceId, id)
      if (rootKey === null) throw notFound(`root key ${id}`)
      requireMayChange(asAsked(actor), actor, rootKey)
      if (rootKey.isOperator && (await countOtherOperatorKeys(tx, id)) === 0)
        throw new ApiError(
          'PRECONDITION_FAILED',
          `root key ${id} is the last operator root key: without it nobody could enter`,
        )
      const granter = await findGranter(tx, actor, { right: RIGHT, now })
      requireMayChange(granter, actor, rootKey)
      await softDeleteRootKeys(tx, [id], now)
      await audit(tx, actor, [
        {
          event: 'rootKey.delete',
          description: `deleted root key ${id}`,
          resources: [{ type: 'rootKey', id, ...changesOf(fieldsOf(rootKey), null) }],
        },
      ])
      if (granted) await deleteGranted({ tx, touch, actor, now }, granter, id)
      touch(id)
    },
    granted ? { timeoutMs: MANY_KEYS_MS } : {},
  )
  return {}
}
