import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { listPermissionRows, type PermissionRow } from './store.ts'

/** All permissions of the workspace, oldest first. */
export async function listPermissions(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
): Promise<PermissionRow[]> {
  return await listPermissionRows(sql, workspaceId)
}
