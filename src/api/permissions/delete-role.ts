import { audit } from '../../audit/log.ts'
import { notFound } from '../../errors.ts'
import { MANY_KEYS_MS } from '../../records/database.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { removeRole } from './store.ts'

/** Deletes a role for good and removes it from every key and permission. @throws ApiError NOT_FOUND */
export async function deleteRole(
  services: Pick<Services, 'database'>,
  actor: Actor,
  id: string,
): Promise<void> {
  await services.database.write(
    async (tx, touch) => {
      const removed = await removeRole(tx, actor.workspaceId, id)
      if (removed === null) throw notFound(`role ${id}`)
      await audit(tx, actor, [
        {
          event: 'role.delete',
          description: `deleted role ${id}`,
          resources: [{ type: 'role', id, name: removed.name }],
        },
      ])
      // Only the database knows which keys held it, so all cached keys of the workspace are dropped.
      touch(actor.workspaceId)
    },
    { timeoutMs: MANY_KEYS_MS },
  )
}
