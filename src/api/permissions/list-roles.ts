import type { Call } from '../../doors/http/endpoint.ts'
import type { Deps } from '../../server/deps.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import { presentRole } from './present.ts'
import type { ListRolesReply } from './schema.ts'
import { listRoleRows } from './store.ts'

/** All roles of the workspace, oldest first; the v1 API knows no pages here. */
export async function listRoles(deps: Deps, call: Call): Promise<ListRolesReply> {
  const actor = await authenticate(deps, call, anyOf('*', 'rbac.*.read_role'))
  return (await listRoleRows(deps.sql, actor.workspaceId)).map(presentRole)
}
