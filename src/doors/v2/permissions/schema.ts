import { Type } from '@sinclair/typebox'
import { PageFields, SearchField } from '../page.ts'
import { Closed, Permission, Slug } from '../schema.ts'

const Description = Type.Optional(Type.String({ maxLength: 512, description: 'Free text.' }))
const Slugs = (description: string) => Type.Array(Slug, { maxItems: 1000, description })

export const CreatePermissionBody = Closed({
  name: Type.String({ minLength: 1, maxLength: 512, description: 'Display name; need not be unique.' }),
  slug: { ...Slug, description: 'The permission as keys are asked for it; unique in the workspace.' },
  description: Description,
})
export const CreatePermissionData = Type.Object({
  permissionId: Type.String({ description: 'Id of the new permission.' }),
})

export const PermissionBody = Closed({
  permission: {
    ...Slug,
    description: 'Id or slug of the permission. The id wins where a text is both.',
  },
})
/** Of lists of permissions and of roles. */
export const ListBody = Closed({ ...PageFields, ...SearchField })

export const CreateRoleBody = Closed({
  name: Type.String({
    minLength: 1,
    maxLength: 128,
    description: 'Name of the role, unique in the workspace.',
  }),
  description: Description,
  permissions: Type.Optional(
    Slugs('Slugs of the permissions that it gives. Those that do not exist are created.'),
  ),
})
export const CreateRoleData = Type.Object({ roleId: Type.String({ description: 'Id of the new role.' }) })

export const RoleBody = Closed({
  role: Type.String({
    minLength: 1,
    maxLength: 128,
    description: 'Id or name of the role. The id wins where a text is both.',
  }),
})
export const Role = Type.Object({
  id: Type.String({ description: 'Id of the role.' }),
  name: Type.String({ description: 'Name of the role, unique in the workspace.' }),
  description: Type.Optional(Type.String({ description: 'Free text. Absent when empty.' })),
  permissions: Type.Optional(
    Type.Array(Permission, { description: 'What it gives, sorted by slug. Absent when it gives nothing.' }),
  ),
})

export const SetRolePermissionsBody = Closed({
  roleId: Type.String({
    minLength: 3,
    maxLength: 255,
    pattern: '^[a-zA-Z0-9_-]+$',
    description: 'Id of the role.',
  }),
  permissions: Slugs(
    'Slugs of all permissions that the role gives afterwards. Those that do not exist are created; an empty list removes all.',
  ),
})
export const SetRolePermissionsData = Type.Array(Permission, {
  description: 'What the role gives now, sorted by slug.',
})
