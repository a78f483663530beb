import { Type } from '@sinclair/typebox'
import {
  countHoldersOfPermissions,
  countKeysOfRoles,
  rolesWithPermission,
} from '../../../api/permissions/counts.ts'
import { createPermission } from '../../../api/permissions/create-permission.ts'
import { createRole } from '../../../api/permissions/create-role.ts'
import { deletePermission } from '../../../api/permissions/delete-permission.ts'
import { deleteRole } from '../../../api/permissions/delete-role.ts'
import { findPermissions } from '../../../api/permissions/find-permissions.ts'
import { findRoles } from '../../../api/permissions/find-roles.ts'
import { getPermission } from '../../../api/permissions/get-permission.ts'
import { getRoleWithPermissions } from '../../../api/permissions/get-role.ts'
import { listPermissions } from '../../../api/permissions/list-permissions.ts'
import { listRoles } from '../../../api/permissions/list-roles.ts'
import { setRolePermissions } from '../../../api/permissions/set-role-permissions.ts'
import { type Actor, anyOf, authenticate, requirePermission } from '../../../api/root-keys/authorize.ts'
import type { LinkPlan } from '../../../lib/link-plan.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { get, post } from '../endpoint.ts'
import { EmptyReply, pageOf } from '../page.ts'
import { readReferences } from '../references.ts'
import { presentPermission, presentRole, presentRoleWithHolders } from './present.ts'
import {
  CreatePermissionBody,
  CreatePermissionReply,
  CreateRoleBody,
  CreateRoleReply,
  DeletePermissionBody,
  DeleteRoleBody,
  GetPermissionQuery,
  GetPermissionReply,
  GetRoleQuery,
  GetRoleReply,
  ListPermissionsReply,
  ListRolesReply,
  SearchPermissionsQuery,
  SearchPermissionsReply,
  SearchRolesQuery,
  SearchRolesReply,
  SetRolePermissionsBody,
  SetRolePermissionsReply,
} from './schema.ts'

const NoQuery = Type.Object({})
const idsOf = (rows: readonly { id: string }[]) => rows.map(({ id }) => id)

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
    {
      input: GetPermissionQuery,
      reply: GetPermissionReply,
      summary: 'Get a permission and the roles that have it',
      errors: ['NOT_FOUND'],
    },
    async (services, call, { permissionId }) => {
      const actor = await authenticate(services, call, anyOf('*', 'rbac.*.read_permission'))
      const permission = await getPermission(services, actor, { id: permissionId })
      const [roles, holders] = await Promise.all([
        rolesWithPermission(services, actor, permissionId),
        countHoldersOfPermissions(services, actor, [permissionId]),
      ])
      return {
        ...presentPermission(permission),
        roles: roles.map(({ id, name }) => ({ id, name })),
        keys: holders.get(permissionId)?.keys ?? 0,
      }
    },
  ),
  get(
    '/v1/permissions.searchPermissions',
    {
      input: SearchPermissionsQuery,
      reply: SearchPermissionsReply,
      summary: 'Search permissions, with the number of their roles and keys',
    },
    async (services, call, { search = '', ...query }) => {
      const actor = await authenticate(services, call, anyOf('*', 'rbac.*.read_permission'))
      const { items, ...page } = await findPermissions(services, actor, search, pageOf(query))
      const holders = await countHoldersOfPermissions(services, actor, idsOf(items))
      const permissions = items.map((permission) => ({
        ...presentPermission(permission),
        roles: holders.get(permission.id)?.roles ?? 0,
        keys: holders.get(permission.id)?.keys ?? 0,
      }))
      return { permissions, ...page }
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
    {
      input: GetRoleQuery,
      reply: GetRoleReply,
      summary: 'Get a role and its permissions',
      errors: ['NOT_FOUND'],
    },
    async (services, call, { roleId }) => {
      const actor = await authenticate(services, call, anyOf('*', 'rbac.*.read_role'))
      const role = await getRoleWithPermissions(services, actor, { id: roleId })
      const holders = await countKeysOfRoles(services, actor, [roleId])
      return presentRoleWithHolders(role, holders.get(roleId))
    },
  ),
  get(
    '/v1/permissions.searchRoles',
    {
      input: SearchRolesQuery,
      reply: SearchRolesReply,
      summary: 'Search roles, with their permissions and the number of their keys',
    },
    async (services, call, { search = '', ...query }) => {
      const actor = await authenticate(services, call, anyOf('*', 'rbac.*.read_role'))
      const { items, ...page } = await findRoles(services, actor, search, pageOf(query))
      const holders = await countKeysOfRoles(services, actor, idsOf(items))
      return { roles: items.map((role) => presentRoleWithHolders(role, holders.get(role.id))), ...page }
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
