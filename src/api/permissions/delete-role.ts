import { audit } from '../../audit/log.ts'
import { notFound } from '../../errors.ts'
import { MANY_KEYS_MS } from '../../records/database.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { removeRole } from './store.ts'

/** Removes a role for good, from every key and permission it hung on too. @throws ApiError NOT_FOUND */
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
      // Which keys held it is known to the database alone: every key of the workspace is read anew.
      touch(actor.workspaceId)
    },
    { timeoutMs: MANY_KEYS_MS },
  )
}
