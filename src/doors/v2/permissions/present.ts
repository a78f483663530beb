import type { Static } from '@sinclair/typebox'
import type { PermissionRow, RoleWithPermissions } from '../../../api/permissions/store.ts'
import type { Permission } from '../schema.ts'
import type { Role } from './schema.ts'

/** A permission in an answer, without what is empty. */
export const presentPermission = ({
  id,
  name,
  slug,
  description,
}: PermissionRow): Static<typeof Permission> => ({
  id,
  name,
  slug,
  ...(description === null || description === '' ? {} : { description }),
})

/** A role in an answer, without what is empty. */
export const presentRole = ({
  id,
  name,
  description,
  permissions,
}: RoleWithPermissions): Static<typeof Role> => ({
  id,
  name,
  ...(description === null || description === '' ? {} : { description }),
  ...(permissions.length === 0 ? {} : { permissions: permissions.map(presentPermission) }),
})
