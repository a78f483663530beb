import { audit } from '../../audit/log.ts'
import { notFound } from '../../errors.ts'
import { SWEEP_WAIT_MS } from '../../sweep/sweeper.ts'
import { roleName } from '../../verify/key-changes.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { type LinkName, removeRole, textOf } from './store.ts'

/**
 * Deletes a role for good, at the same cost however many keys have it. The next verification finds it on none of them.
 * @throws ApiError NOT_FOUND
 */
export async function deleteRole(
  services: Pick<Services, 'database' | 'sweeper'>,
  actor: Actor,
  by: LinkName,
): Promise<void> {
  const deletedId = await services.database.write(async (tx, invalidate) => {
    const removed = await removeRole(tx, actor.workspaceId, by)
    if (removed === null) throw notFound('role', textOf(by))
    const { id } = removed
    await audit(tx, actor, [
      {
        event: 'role.delete',
        description: `deleted role ${id}`,
        resources: [{ type: 'role', id, name: removed.name }],
      },
    ])
    invalidate(roleName(actor.workspaceId, removed.name))
    return id
  })
  await services.sweeper.finishWithin(SWEEP_WAIT_MS, [deletedId])
}
