import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { countHolders, findRolesWith, type Holders, type RoleRow } from './store.ts'

/** More are not counted: a page of a list would take longer the more there are. */
export const HOLDERS_MAX = 100

/** How many keys have each role, at most {@link HOLDERS_MAX}. */
export async function countKeysOfRoles(
  { history }: Pick<Services, 'history'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  ids: readonly string[],
): Promise<Map<string, Holders>> {
  return await countHolders(history, workspaceId, {
    table: 'keys_roles',
    column: 'role_id',
    ids,
    max: HOLDERS_MAX,
  })
}

/** How many keys have each permission of their own, and how many roles have it, each at most {@link HOLDERS_MAX}. */
export async function countHoldersOfPermissions(
  { history }: Pick<Services, 'history'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  ids: readonly string[],
): Promise<Map<string, Holders>> {
  return await countHolders(history, workspaceId, {
    table: 'keys_permissions',
    column: 'permission_id',
    ids,
    max: HOLDERS_MAX,
  })
}

/** The roles that have a permission, the oldest {@link HOLDERS_MAX} of them. */
export async function rolesWithPermission(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  permissionId: string,
): Promise<RoleRow[]> {
  return await findRolesWith(sql, workspaceId, permissionId, HOLDERS_MAX)
}
