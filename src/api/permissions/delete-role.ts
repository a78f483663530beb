import { audit } from '../../audit/log.ts'
import { notFound } from '../../errors.ts'
import { SWEEP_WAIT_MS } from '../../sweep/sweeper.ts'
import { roleName } from '../../verify/key-changes.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { removeRole } from './store.ts'

/**
 * Deletes a role for good, at the same cost however many keys have it. The next verification finds it on none of them.
 * @throws ApiError NOT_FOUND
 */
export async function deleteRole(
  services: Pick<Services, 'database' | 'sweeper'>,
  actor: Actor,
  id: string,
): Promise<void> {
  await services.database.write(async (tx, invalidate) => {
    const removed = await removeRole(tx, actor.workspaceId, id)
    if (removed === null) throw notFound('role', id)
    await audit(tx, actor, [
      {
        event: 'role.delete',
        description: `deleted role ${id}`,
        resources: [{ type: 'role', id, name: removed.name }],
      },
    ])
    invalidate(roleName(actor.workspaceId, removed.name))
  })
  await services.sweeper.finishWithin(SWEEP_WAIT_MS, [id])
}
