import type { PermissionRow, RoleRow } from '../../../api/permissions/store.ts'
import type { PermissionReply, RoleReply } from './schema.ts'

/** As replies show it: what is not set is left out. */
export const presentPermission = ({ id, name, slug, description }: PermissionRow): PermissionReply =>
  description === null ? { id, name, slug } : { id, name, slug, description }

export const presentRole = ({ id, name, description }: RoleRow): RoleReply =>
  description === null ? { id, name } : { id, name, description }
