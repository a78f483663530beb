import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { listRoleRows, type RoleRow } from './store.ts'

/** All roles of the workspace, oldest first. */
export async function listRoles(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
): Promise<RoleRow[]> {
  return await listRoleRows(sql, workspaceId)
}
