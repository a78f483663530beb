import { Type } from '@sinclair/typebox'
import { createPermission } from '../../../api/permissions/create-permission.ts'
import { createRole } from '../../../api/permissions/create-role.ts'
import { deletePermission } from '../../../api/permissions/delete-permission.ts'
import { deleteRole } from '../../../api/permissions/delete-role.ts'
import { getPermission } from '../../../api/permissions/get-permission.ts'
import { getRole } from '../../../api/permissions/get-role.ts'
import { listPermissions } from '../../../api/permissions/list-permissions.ts'
import { listRoles } from '../../../api/permissions/list-roles.ts'
import { setRolePermissions } from '../../../api/permissions/set-role-permissions.ts'
import { type Actor, anyOf, authenticate, requirePermission } from '../../../api/root-keys/authorize.ts'
import type { LinkPlan } from '../../../lib/link-plan.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { get, post } from '../endpoint.ts'
import { EmptyReply } from '../page.ts'
import { readReferences } from '../references.ts'
import { presentPermission, presentRole } from './present.ts'
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
} from './schema.ts'

const NoQuery = Type.Object({})

/** Schemas and rights of the role and permission endpoints. `api/permissions/` does the work. */
export const permissionRoutes: Endpoint[] = [
  post(
    '/v1/permissions.createPermission',
    {
      input: CreatePermissionBody,
      reply: CreatePermissionReply,
      summary: 'Create a permission',
      errors: ['CONFLICT', 'PRECONDITION_FAILED'],
    },
    async (services, call, { name, slug = name, description = null }) => {
      const actor = await authenticate(services, call, anyOf('*', 'rbac.*.create_permission'))
      return { permissionId: await createPermission(services, actor, { name, slug, description }) }
    },
  ),
  get(
    '/v1/permissions.getPermission',
    { input: GetPermissionQuery, reply: PermissionReply, summary: 'Get a permission', errors: ['NOT_FOUND'] },
    async (services, call, { permissionId }) => {
      const actor = await authenticate(services, call, anyOf('*', 'rbac.*.read_permission'))
      return presentPermission(await getPermission(services, actor, { id: permissionId }))
    },
  ),
  get(
    '/v1/permissions.listPermissions',
    { input: NoQuery, reply: ListPermissionsReply, summary: 'List permissions' },
    async (services, call) => {
      const actor = await authenticate(services, call, anyOf('*', 'rbac.*.read_permission'))
      return (await listPermissions(services, actor)).map(presentPermission)
    },
  ),
  post(
    '/v1/permissions.deletePermission',
    { input: DeletePermissionBody, reply: EmptyReply, summary: 'Delete a permission', errors: ['NOT_FOUND'] },
    async (services, call, { permissionId }) => {
      const actor = await authenticate(services, call, anyOf('*', 'rbac.*.delete_permission'))
      await deletePermission(services, actor, { id: permissionId })
      return {}
    },
  ),
  post(
    '/v1/permissions.createRole',
    {
      input: CreateRoleBody,
      reply: CreateRoleReply,
      summary: 'Create a role',
      errors: ['CONFLICT', 'PRECONDITION_FAILED'],
    },
    async (services, call, { name, description = null }) => {
      const actor = await authenticate(services, call, anyOf('*', 'rbac.*.create_role'))
      return { roleId: await createRole(services, actor, { name, description }) }
    },
  ),
  get(
    '/v1/permissions.getRole',
    { input: GetRoleQuery, reply: RoleReply, summary: 'Get a role', errors: ['NOT_FOUND'] },
    async (services, call, { roleId }) => {
      const actor = await authenticate(services, call, anyOf('*', 'rbac.*.read_role'))
      return presentRole(await getRole(services, actor, { id: roleId }))
    },
  ),
  get(
    '/v1/permissions.listRoles',
    { input: NoQuery, reply: ListRolesReply, summary: 'List roles' },
    async (services, call) => {
      const actor = await authenticate(services, call, anyOf('*', 'rbac.*.read_role'))
      return (await listRoles(services, actor)).map(presentRole)
    },
  ),
  post(
    '/v1/permissions.deleteRole',
    { input: DeleteRoleBody, reply: EmptyReply, summary: 'Delete a role', errors: ['NOT_FOUND'] },
    async (services, call, { roleId }) => {
      const actor = await authenticate(services, call, anyOf('*', 'rbac.*.delete_role'))
      await deleteRole(services, actor, { id: roleId })
      return {}
    },
  ),
  post(
    '/v1/permissions.setRolePermissions',
    {
      input: SetRolePermissionsBody,
      reply: SetRolePermissionsReply,
      summary: 'Replace the permissions of a role',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    async (services, call, { roleId, permissions }) => {
      const references = readReferences(permissions, 'permissions')
      const actor = await authenticate(services, call, anyOf('*', 'rbac.*.add_permission_to_role'))
      const held = await setRolePermissions(services, actor, roleId, references, {
        mayChange: (plan) => requireRightsFor(actor, plan),
      })
      return held.map(({ id, name }) => ({ id, name }))
    },
  ),
]

/** Further rights of permissions.setRolePermissions: for permissions that are removed from the role, and for new ones. */
function requireRightsFor(actor: Actor, { detach, create }: Pick<LinkPlan, 'detach' | 'create'>): void {
  if (detach.length > 0) requirePermission(actor, anyOf('*', 'rbac.*.remove_permission_from_role'))
  if (create.length > 0) requirePermission(actor, anyOf('*', 'rbac.*.create_permission'))
}
