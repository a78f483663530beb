import { audit } from '../../audit/log.ts'
import { notFound } from '../../errors.ts'
import { SWEEP_WAIT_MS } from '../../sweep/sweeper.ts'
import { permissionName } from '../../verify/key-changes.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { type LinkName, removePermission, textOf } from './store.ts'

/**
 * Deletes a permission for good, at the same cost however many keys and roles have it. The next verification finds it on none
 * of them.
 * @throws ApiError NOT_FOUND
 */
export async function deletePermission(
  services: Pick<Services, 'database' | 'sweeper'>,
  actor: Actor,
  by: LinkName,
): Promise<void> {
  const deletedId = await services.database.write(async (tx, invalidate) => {
    const removed = await removePermission(tx, actor.workspaceId, by)
    if (removed === null) throw notFound('permission', textOf(by))
    const { id } = removed
    await audit(tx, actor, [
      {
        event: 'permission.delete',
        description: `deleted permission ${id}`,
        resources: [{ type: 'permission', id, name: removed.name }],
      },
    ])
    invalidate(permissionName(actor.workspaceId, removed.slug))
    return id
  })
  await services.sweeper.finishWithin(SWEEP_WAIT_MS, [deletedId])
}
