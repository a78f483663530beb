import { audit } from '../../audit/log.ts'
import { notFound } from '../../errors.ts'
import { MANY_KEYS_MS } from '../../records/database.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import type { DeleteRoleBody } from './schema.ts'
import { removeRole } from './store.ts'

/** Removes a role for good, from every key and permission it hung on too. */
export async function deleteRole(
  services: Services,
  call: Call,
  { roleId: id }: DeleteRoleBody,
): Promise<Record<string, never>> {
  const actor = await authenticate(services, call, anyOf('*', 'rbac.*.delete_role'))
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
  return {}
}
