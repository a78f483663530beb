import { audit } from '../../audit/log.ts'
import { ApiError } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import type { CreateRoleBody, CreateRoleReply } from './schema.ts'
import { insertRoles } from './store.ts'

/** Makes a role. Of two with one name, also at once, the second is a conflict. */
export async function createRole(
  services: Services,
  call: Call,
  body: CreateRoleBody,
): Promise<CreateRoleReply> {
  const actor = await authenticate(services, call, anyOf('*', 'rbac.*.create_role'))
  const id = newId('role')
  const { name, description = null } = body
  await services.database.write(async (tx) => {
    const inserted = await insertRoles(tx, actor.workspaceId, [{ id, name, description }], services.clock())
    if (inserted.length === 0) throw new ApiError('CONFLICT', `role ${name} exists already`)
    await audit(tx, actor, [
      { event: 'role.create', description: `created role ${id}`, resources: [{ type: 'role', id, name }] },
    ])
  })
  return { roleId: id }
}
