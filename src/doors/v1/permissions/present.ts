import type { PermissionRow, RoleRow } from '../../../api/permissions/store.ts'
import type { PermissionReply, RoleReply } from './schema.ts'

/** A permission in a reply, without its unset fields. */
export const presentPermission = ({ id, name, slug, description }: PermissionRow): PermissionReply =>
  description === null ? { id, name, slug } : { id, name, slug, description }

export const presentRole = ({ id, name, description }: RoleRow): RoleReply =>
  description === null ? { id, name } : { id, name, description }
