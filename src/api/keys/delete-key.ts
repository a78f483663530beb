import { audit, deletedKeyResources } from '../../audit/log.ts'
import { notFound } from '../../errors.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { removeKey, softDeleteKey } from './store.ts'

/**
 * Revokes a key: the next verification does not find it.
 * @param key From `getKey`.
 * @param options.isPermanent Also remove the row, so that a key with the same hash can be imported again.
 * @throws ApiError NOT_FOUND when it was deleted meanwhile.
 */
export async function deleteKey(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  { id, apiId }: { id: string; apiId: string },
  { isPermanent }: { isPermanent: boolean },
): Promise<void> {
  const { workspaceId } = actor
  await services.database.write(async (tx, invalidate) => {
    const owner = isPermanent
      ? await removeKey(tx, workspaceId, id)
      : await softDeleteKey(tx, workspaceId, id, services.clock())
    if (owner === null) throw notFound('key', id)
    await audit(tx, actor, [
      {
        event: 'key.delete',
        description: `deleted key ${id} of API ${apiId}${isPermanent ? ' permanently' : ''}`,
        resources: deletedKeyResources(id, apiId, owner),
      },
    ])
    invalidate(id)
  })
}
