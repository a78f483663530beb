import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import { presentRole } from './present.ts'
import type { ListRolesReply } from './schema.ts'
import { listRoleRows } from './store.ts'

/** All roles of the workspace, oldest first; the v1 API knows no pages here. */
export async function listRoles(services: Services, call: Call): Promise<ListRolesReply> {
  const actor = await authenticate(services, call, anyOf('*', 'rbac.*.read_role'))
  return (await listRoleRows(services.sql, actor.workspaceId)).map(presentRole)
}
