import { createPermission } from '../../../api/permissions/create-permission.ts'
import { createRole } from '../../../api/permissions/create-role.ts'
import { deletePermission } from '../../../api/permissions/delete-permission.ts'
import { deleteRole } from '../../../api/permissions/delete-role.ts'
import { findPermissions } from '../../../api/permissions/find-permissions.ts'
import { findRoles } from '../../../api/permissions/find-roles.ts'
import { getPermission } from '../../../api/permissions/get-permission.ts'
import { getRoleWithPermissions } from '../../../api/permissions/get-role.ts'
import { setRolePermissions } from '../../../api/permissions/set-role-permissions.ts'
import { anyOf, authenticate, requirePermission } from '../../../api/root-keys/authorize.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { create, list, post } from '../endpoint.ts'
import { Listed, pageOf } from '../page.ts'
import { EmptyReply, Permission } from '../schema.ts'
import { presentPermission, presentRole } from './present.ts'
import {
  CreatePermissionBody,
  CreatePermissionData,
  CreateRoleBody,
  CreateRoleData,
  ListBody,
  PermissionBody,
  Role,
  RoleBody,
  SetRolePermissionsBody,
  SetRolePermissionsData,
} from './schema.ts'

export const permissionRoutes: Endpoint[] = [
  create(
    '/v2/permissions.createPermission',
    {
      input: CreatePermissionBody,
      reply: CreatePermissionData,
      summary: 'Create a permission',
      errors: ['CONFLICT', 'PRECONDITION_FAILED'],
    },
    async (services, call, { name, slug, description = null }, keep) => {
      const actor = await authenticate(services, call, CREATE_PERMISSION)
      const permission = { name, slug, description }
      const permissionId = await createPermission(services, actor, permission, (tx, permissionId) =>
        keep(tx, { permissionId }),
      )
      return { permissionId }
    },
  ),
  post(
    '/v2/permissions.getPermission',
    { input: PermissionBody, reply: Permission, summary: 'Get a permission', errors: ['NOT_FOUND'] },
    async (services, call, { permission }) => {
      const actor = await authenticate(services, call, anyOf('*', 'rbac.*.read_permission'))
      return presentPermission(await getPermission(services, actor, { idOrText: permission }))
    },
  ),
  list(
    '/v2/permissions.listPermissions',
    { input: ListBody, item: Permission, summary: 'List or search permissions' },
    async (services, call, { search = '', ...body }) => {
      const actor = await authenticate(services, call, anyOf('*', 'rbac.*.read_permission'))
      const { items, ...page } = await findPermissions(services, actor, search.trim(), pageOf(body))
      return new Listed(items.map(presentPermission), page)
    },
  ),
  post(
    '/v2/permissions.deletePermission',
    { input: PermissionBody, reply: EmptyReply, summary: 'Delete a permission', errors: ['NOT_FOUND'] },
    async (services, call, { permission }) => {
      const actor = await authenticate(services, call, anyOf('*', 'rbac.*.delete_permission'))
      await deletePermission(services, actor, { idOrText: permission })
      return {}
    },
  ),
  create(
    '/v2/permissions.createRole',
    {
      input: CreateRoleBody,
      reply: CreateRoleData,
      summary: 'Create a role',
      errors: ['CONFLICT', 'PRECONDITION_FAILED'],
    },
    async (services, call, { name, description = null, permissions: slugs = [] }, keep) => {
      const actor = await authenticate(services, call, anyOf('*', 'rbac.*.create_role'))
      if (slugs.length > 0) requirePermission(actor, ADD)
      const mayCreate = () => requirePermission(actor, CREATE_PERMISSION)
      const role = { name, description }
      const roleId = await createRole(services, actor, role, { slugs, mayCreate }, (tx, roleId) =>
        keep(tx, { roleId }),
      )
      return { roleId }
    },
  ),
  post(
    '/v2/permissions.getRole',
    { input: RoleBody, reply: Role, summary: 'Get a role', errors: ['NOT_FOUND'] },
    async (services, call, { role }) => {
      const actor = await authenticate(services, call, anyOf('*', 'rbac.*.read_role'))
      return presentRole(await getRoleWithPermissions(services, actor, { idOrText: role }))
    },
  ),
  list(
    '/v2/permissions.listRoles',
    { input: ListBody, item: Role, summary: 'List or search roles' },
    async (services, call, { search = '', ...body }) => {
      const actor = await authenticate(services, call, anyOf('*', 'rbac.*.read_role'))
      const { items, ...page } = await findRoles(services, actor, search.trim(), pageOf(body))
      return new Listed(items.map(presentRole), page)
    },
  ),
  post(
    '/v2/permissions.deleteRole',
    { input: RoleBody, reply: EmptyReply, summary: 'Delete a role', errors: ['NOT_FOUND'] },
    async (services, call, { role }) => {
      const actor = await authenticate(services, call, anyOf('*', 'rbac.*.delete_role'))
      await deleteRole(services, actor, { idOrText: role })
      return {}
    },
  ),
  post(
    '/v2/permissions.setRolePermissions',
    {
      input: SetRolePermissionsBody,
      reply: SetRolePermissionsData,
      summary: 'Replace the permissions of a role',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    async (services, call, { roleId, permissions }) => {
      // Both, also where nothing is removed.
      const actor = await authenticate(services, call, {
        or: ['*', { and: ['rbac.*.add_permission_to_role', 'rbac.*.remove_permission_from_role'] }],
      })
      const references = permissions.map((text) => ({ text, create: true }))
      const held = await setRolePermissions(services, actor, roleId, references, {
        mayChange: ({ create }) => {
          if (create.length > 0) requirePermission(actor, CREATE_PERMISSION)
        },
      })
      return held.map(presentPermission).sort(({ slug: one }, { slug: other }) => (one < other ? -1 : 1))
    },
  ),
]

const CREATE_PERMISSION = anyOf('*', 'rbac.*.create_permission')
const ADD = anyOf('*', 'rbac.*.add_permission_to_role')
