import { audit } from '../../audit/log.ts'
import { notFound } from '../../errors.ts'
import { insertNamespaceSweep } from '../../sweep/store.ts'
import { SWEEP_WAIT_MS } from '../../sweep/sweeper.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { softDeleteNamespace } from './store.ts'

/**
 * Deletes a namespace with its overrides, at a cost that does not depend on their number: the rows of many are marked as
 * deleted in the background. A later namespace of the same name has a new id and new counters.
 * @throws ApiError NOT_FOUND
 */
export async function deleteNamespace(
  services: Pick<Services, 'database' | 'clock' | 'sweeper'>,
  actor: Actor,
  id: string,
): Promise<void> {
  const now = services.clock()
  const isSwept = await services.database.write(async (tx, invalidate) => {
    const deleted = await softDeleteNamespace(tx, actor.workspaceId, id, now)
    if (deleted === null) throw notFound('namespace', id)
    await audit(tx, actor, [
      {
        event: 'ratelimitNamespace.delete',
        description: `deleted namespace ${id}`,
        resources: [{ type: 'ratelimitNamespace', id, name: deleted.name }],
      },
    ])
    invalidate(id)
    return await insertNamespaceSweep(tx, actor.workspaceId, { namespaceId: id, now })
  })
  if (isSwept) await services.sweeper.finishWithin(SWEEP_WAIT_MS, [id])
}
