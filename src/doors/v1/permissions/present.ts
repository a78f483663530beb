import type { Holders, PermissionRow, RoleRow, RoleWithPermissions } from '../../../api/permissions/store.ts'
import type { GetRoleReply, PermissionReply, RoleReply } from './schema.ts'

/** A permission in a reply, without its unset fields. */
export const presentPermission = ({ id, name, slug, description }: PermissionRow): PermissionReply =>
  description === null ? { id, name, slug } : { id, name, slug, description }

export const presentRole = ({ id, name, description }: RoleRow): RoleReply =>
  description === null ? { id, name } : { id, name, description }

export const presentRoleWithHolders = (
  role: RoleWithPermissions,
  holders: Holders | undefined,
): GetRoleReply => ({
  ...presentRole(role),
  permissions: role.permissions.map(presentPermission),
  keys: holders?.keys ?? 0,
})
