import { audit } from '../../audit/log.ts'
import { alreadyExists } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { insertRoles, type NewRole } from './store.ts'

/**
 * Creates a role. The second of two calls with one name is refused, also at the same moment.
 * @returns the id of the role.
 * @throws ApiError CONFLICT; PRECONDITION_FAILED at a bound of the workspace.
 */
export async function createRole(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  { name, description }: Omit<NewRole, 'id'>,
): Promise<string> {
  const id = newId('role')
  await services.database.write(async (tx) => {
    const inserted = await insertRoles(tx, actor.workspaceId, [{ id, name, description }], services.clock())
    if (inserted.length === 0) throw alreadyExists('role', name)
    await audit(tx, actor, [
      { event: 'role.create', description: `created role ${id}`, resources: [{ type: 'role', id, name }] },
    ])
  })
  return id
}
