import { Type } from '@sinclair/typebox'
import { createPermission } from '../../../api/permissions/create-permission.ts'
import { createRole } from '../../../api/permissions/create-role.ts'
import { deletePermission } from '../../../api/permissions/delete-permission.ts'
import { deleteRole } from '../../../api/permissions/delete-role.ts'
import { getPermission } from '../../../api/permissions/get-permission.ts'
import { getRole } from '../../../api/permissions/get-role.ts'
import { listPermissions } from '../../../api/permissions/list-permissions.ts'
import { listRoles } from '../../../api/permissions/list-roles.ts'
import {
  CreatePermissionBody,
  CreatePermissionReply,
  CreateRoleBody,
  CreateRoleReply,
  DeletePermissionBody,
  DeleteRoleBody,
  GetPermissionQuery,
  GetRoleQuery,
  ListPermissionsReply,
  ListRolesReply,
  PermissionReply,
  RoleReply,
  SetRolePermissionsBody,
  SetRolePermissionsReply,
} from '../../../api/permissions/schema.ts'
import { setRolePermissions } from '../../../api/permissions/set-role-permissions.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { get, post } from '../endpoint.ts'
import { EmptyReply } from '../page.ts'

const NoQuery = Type.Object({})

export const permissionRoutes: Endpoint[] = [
  post(
    '/v1/permissions.createPermission',
    {
      input: CreatePermissionBody,
      reply: CreatePermissionReply,
      summary: 'Create a permission',
      errors: ['CONFLICT', 'PRECONDITION_FAILED'],
    },
    createPermission,
  ),
  get(
    '/v1/permissions.getPermission',
    { input: GetPermissionQuery, reply: PermissionReply, summary: 'Get a permission', errors: ['NOT_FOUND'] },
    getPermission,
  ),
  get(
    '/v1/permissions.listPermissions',
    { input: NoQuery, reply: ListPermissionsReply, summary: 'List permissions' },
    listPermissions,
  ),
  post(
    '/v1/permissions.deletePermission',
    { input: DeletePermissionBody, reply: EmptyReply, summary: 'Delete a permission', errors: ['NOT_FOUND'] },
    deletePermission,
  ),
  post(
    '/v1/permissions.createRole',
    {
      input: CreateRoleBody,
      reply: CreateRoleReply,
      summary: 'Create a role',
      errors: ['CONFLICT', 'PRECONDITION_FAILED'],
    },
    createRole,
  ),
  get(
    '/v1/permissions.getRole',
    { input: GetRoleQuery, reply: RoleReply, summary: 'Get a role', errors: ['NOT_FOUND'] },
    getRole,
  ),
  get(
    '/v1/permissions.listRoles',
    { input: NoQuery, reply: ListRolesReply, summary: 'List roles' },
    listRoles,
  ),
  post(
    '/v1/permissions.deleteRole',
    { input: DeleteRoleBody, reply: EmptyReply, summary: 'Delete a role', errors: ['NOT_FOUND'] },
    deleteRole,
  ),
  post(
    '/v1/permissions.setRolePermissions',
    {
      input: SetRolePermissionsBody,
      reply: SetRolePermissionsReply,
      summary: 'Replace the permissions of a role',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    setRolePermissions,
  ),
]
