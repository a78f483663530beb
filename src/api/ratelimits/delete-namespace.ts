import { audit } from '../../audit/log.ts'
import { notFound } from '../../errors.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { softDeleteNamespace } from './store.ts'

/**
 * Deletes a namespace with its overrides. A later namespace of the same name has a new id and new counters.
 * @throws ApiError NOT_FOUND
 */
export async function deleteNamespace(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  id: string,
): Promise<void> {
  await services.database.write(async (tx, invalidate) => {
    const deleted = await softDeleteNamespace(tx, actor.workspaceId, id, services.clock())
    if (deleted === null) throw notFound(`namespace ${id}`)
    await audit(tx, actor, [
      {
        event: 'ratelimitNamespace.delete',
        description: `deleted namespace ${id}`,
        resources: [{ type: 'ratelimitNamespace', id, name: deleted.name }],
      },
    ])
    invalidate(id)
  })
}
