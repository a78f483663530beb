import { type Static, Type } from '@sinclair/typebox'
import {
  type AttachedPermission,
  type AttachedRole,
  listAttachedPermissions,
  listAttachedRoles,
} from '../../../api/keys/attached/store.ts'
import { addLinks, type LinkKind, removeLinks, setLinks } from '../../../api/keys/links.ts'
import { permissionLinks } from '../../../api/keys/permission-links.ts'
import { roleLinks } from '../../../api/keys/role-links.ts'
import { type Actor, anyOf, requirePermission } from '../../../api/root-keys/authorize.ts'
import type { DoorServices, Endpoint, HttpCall } from '../../http/endpoint.ts'
import { post } from '../endpoint.ts'
import { Closed, Permission, Slug } from '../schema.ts'
import { keyWithRight } from './key-with-right.ts'
import { KeyId } from './schema.ts'

const Slugs = (minItems: number) =>
  Type.Array(Slug, { minItems, maxItems: 1000, description: 'Slugs of permissions.' })
const Names = (minItems: number) =>
  Type.Array(Type.String({ minLength: 1, maxLength: 128 }), {
    minItems,
    maxItems: 100,
    description: 'Names of roles. Each must exist.',
  })
const PermissionsBody = Closed({ keyId: KeyId, permissions: Slugs(1) })
const SetPermissionsBody = Closed({ keyId: KeyId, permissions: Slugs(0) })
const RolesBody = Closed({ keyId: KeyId, roles: Names(1) })
const SetRolesBody = Closed({ keyId: KeyId, roles: Names(0) })

const Permissions = Type.Array(Permission, {
  description: 'All permissions that the key now holds itself, without those of its roles.',
})
const Roles = Type.Array(
  Type.Object({
    id: Type.String({ description: 'Id of the role.' }),
    name: Type.String({ description: 'Name of the role.' }),
    description: Type.Optional(Type.String({ description: 'Free text. Absent when empty.' })),
    permissions: Type.Optional(
      Type.Array(Permission, { description: 'What it gives its keys. Absent when it has none.' }),
    ),
  }),
  { description: 'All roles that the key now has.' },
)

/** Roles are only looked up. Permissions that do not exist are created, by those who may. */
export const keyLinkRoutes: Endpoint[] = [
  post(
    '/v2/keys.addPermissions',
    {
      input: PermissionsBody,
      reply: Permissions,
      summary: 'Attach permissions to a key',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    async (services, call, { keyId, permissions }) => {
      const actor = await authenticateToChange(services, call, keyId, ['rbac.*.add_permission_to_key'])
      const request = { keyId, references: referencesTo(permissions, { create: true }) }
      await addLinks(services, actor, permissionLinks, request, mayCreatePermission(actor))
      return await permissionsOf(services, actor, keyId)
    },
  ),
  post(
    '/v2/keys.setPermissions',
    {
      input: SetPermissionsBody,
      reply: Permissions,
      summary: 'Replace the permissions of a key',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    async (services, call, { keyId, permissions }) => {
      const rights = ['rbac.*.add_permission_to_key', 'rbac.*.remove_permission_from_key']
      const actor = await authenticateToChange(services, call, keyId, rights)
      const request = { keyId, references: referencesTo(permissions, { create: true }) }
      const rules = { mayChange() {}, ...mayCreatePermission(actor) }
      await setLinks(services, actor, permissionLinks, request, rules)
      return await permissionsOf(services, actor, keyId)
    },
  ),
  post(
    '/v2/keys.removePermissions',
    {
      input: PermissionsBody,
      reply: Permissions,
      summary: 'Detach permissions from a key',
      errors: ['NOT_FOUND'],
    },
    async (services, call, { keyId, permissions }) => {
      const actor = await authenticateToChange(services, call, keyId, ['rbac.*.remove_permission_from_key'])
      await remove(services, actor, permissionLinks, keyId, permissions)
      return await permissionsOf(services, actor, keyId)
    },
  ),
  post(
    '/v2/keys.addRoles',
    {
      input: RolesBody,
      reply: Roles,
      summary: 'Attach roles to a key',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    async (services, call, { keyId, roles }) => {
      const actor = await authenticateToChange(services, call, keyId, ['rbac.*.add_role_to_key'])
      const request = { keyId, references: referencesTo(roles, { create: false }) }
      await addLinks(services, actor, roleLinks, request, NO_RULES)
      return await rolesOf(services, actor, keyId)
    },
  ),
  post(
    '/v2/keys.setRoles',
    {
      input: SetRolesBody,
      reply: Roles,
      summary: 'Replace the roles of a key',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    async (services, call, { keyId, roles }) => {
      const actor = await authenticateToChange(services, call, keyId, [])
      const request = { keyId, references: referencesTo(roles, { create: false }) }
      await setLinks(services, actor, roleLinks, request, NO_RULES)
      return await rolesOf(services, actor, keyId)
    },
  ),
  post(
    '/v2/keys.removeRoles',
    { input: RolesBody, reply: Roles, summary: 'Detach roles from a key', errors: ['NOT_FOUND'] },
    async (services, call, { keyId, roles }) => {
      const actor = await authenticateToChange(services, call, keyId, [])
      await remove(services, actor, roleLinks, keyId, roles)
      return await rolesOf(services, actor, keyId)
    },
  ),
]

/** @param rights All of these, besides the right to update the key. */
async function authenticateToChange(
  services: DoorServices,
  call: HttpCall,
  keyId: string,
  rights: readonly string[],
): Promise<Actor> {
  const { actor } = await keyWithRight(services, call, 'update_key', keyId)
  for (const right of rights) requirePermission(actor, anyOf('*', right))
  return actor
}

const NO_RULES = { mayChange() {}, mayCreate() {} }
const mayCreatePermission = (actor: Actor) => ({
  mayCreate: () => requirePermission(actor, anyOf('*', 'rbac.*.create_permission')),
})

const referencesTo = (texts: readonly string[], { create }: { create: boolean }) =>
  texts.map((text) => ({ text, create }))

const remove = (
  services: DoorServices,
  actor: Actor,
  kind: LinkKind,
  keyId: string,
  texts: readonly string[],
): Promise<void> =>
  removeLinks(
    services,
    actor,
    kind,
    { keyId, references: referencesTo(texts, { create: false }) },
    { requiresAll: true },
  )

const permissionsOf = async ({ sql }: DoorServices, { workspaceId }: Actor, keyId: string) =>
  (await listAttachedPermissions(sql, workspaceId, keyId)).map(permissionObject)

const rolesOf = async ({ sql }: DoorServices, { workspaceId }: Actor, keyId: string) =>
  (await listAttachedRoles(sql, workspaceId, keyId)).map(roleObject)

const permissionObject = ({
  id,
  name,
  slug,
  description,
}: AttachedPermission): Static<typeof Permission> => ({
  id,
  name,
  slug,
  ...(description ? { description } : {}),
})

const roleObject = ({ id, name, description, permissions }: AttachedRole): Static<typeof Roles>[number] => ({
  id,
  name,
  ...(description ? { description } : {}),
  ...(permissions.length === 0 ? {} : { permissions: permissions.map(permissionObject) }),
})
