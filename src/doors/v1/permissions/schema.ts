import { type Static, Type } from '@sinclair/typebox'
import { PageQuery } from '../page.ts'

const Slug = (description: string) =>
  Type.String({
    minLength: 3,
    maxLength: 256,
    pattern: '^[a-zA-Z0-9_.:-]+$',
    errorMessage: 'Only letters (a-z, A-Z), digits, underscores, periods, colons and hyphens are allowed',
    description,
  })
/** Empty, or 3 to 256 characters. One pattern, so that the message is v1's usual one. */
const Description = Type.String({
  maxLength: 256,
  pattern: '^(?:|[\\s\\S]{3,})$',
  errorMessage: 'String must contain at least 3 character(s)',
  description: 'Free text; 3 to 256 characters, or empty.',
})
const Id = (what: string, minLength: number) =>
  Type.String({ minLength, maxLength: 256, description: `Id of the ${what}.` })

export const CreatePermissionBody = Type.Object({
  name: Slug('Display name; need not be unique.'),
  slug: Type.Optional(Slug('Text that verifications ask for, unique in the workspace. Default: the name.')),
  description: Type.Optional(Description),
})
export type CreatePermissionBody = Static<typeof CreatePermissionBody>
export const CreatePermissionReply = Type.Object({
  permissionId: Type.String({ description: 'Id of the new permission.' }),
})
export type CreatePermissionReply = Static<typeof CreatePermissionReply>

export const DeletePermissionBody = Type.Object({ permissionId: Id('permission', 0) })
export type DeletePermissionBody = Static<typeof DeletePermissionBody>
export const GetPermissionQuery = Type.Object({ permissionId: Id('permission', 1) })
export type GetPermissionQuery = Static<typeof GetPermissionQuery>
export const PermissionReply = Type.Object({
  id: Type.String({ description: 'Id of the permission.' }),
  name: Type.String({ description: 'Display name.' }),
  slug: Type.String({ description: 'Text that verifications ask for, unique in the workspace.' }),
  description: Type.Optional(Type.String({ description: 'Free text.' })),
})
export type PermissionReply = Static<typeof PermissionReply>

/** A count that ends at 100. */
const Holders = (what: string) => Type.Integer({ description: `Number of ${what}; counts to 100.` })

export const GetPermissionReply = Type.Object({
  ...PermissionReply.properties,
  roles: Type.Array(
    Type.Object({
      id: Type.String({ description: 'Id of the role.' }),
      name: Type.String({ description: 'Name of the role.' }),
    }),
    { description: 'Roles that have the permission, oldest first; at most 100.' },
  ),
  keys: Holders('keys that have the permission of their own, not through a role'),
})
export type GetPermissionReply = Static<typeof GetPermissionReply>

const Search = Type.Optional(
  Type.String({
    maxLength: 256,
    description: 'Only those in whose id, name, slug or description this text occurs. Case does not matter.',
  }),
)
const Cursor = Type.Optional(
  Type.String({
    description:
      'Send this as `cursor` to get the next page. Absent on the last page. A page of a search may hold fewer than `limit`, or none.',
  }),
)

export const SearchPermissionsQuery = Type.Object({ ...PageQuery, search: Search })
export type SearchPermissionsQuery = Static<typeof SearchPermissionsQuery>
export const SearchPermissionsReply = Type.Object({
  permissions: Type.Array(
    Type.Object({
      ...PermissionReply.properties,
      roles: Holders('roles that have the permission'),
      keys: Holders('keys that have the permission of their own, not through a role'),
    }),
    { description: 'One page of the list, oldest first.' },
  ),
  cursor: Cursor,
})
export type SearchPermissionsReply = Static<typeof SearchPermissionsReply>

export const ListPermissionsReply = Type.Array(PermissionReply)
export type ListPermissionsReply = Static<typeof ListPermissionsReply>

export const CreateRoleBody = Type.Object({
  name: Type.String({
    minLength: 3,
    maxLength: 256,
    description: 'Name of the role, unique in the workspace.',
  }),
  description: Type.Optional(Description),
})
export type CreateRoleBody = Static<typeof CreateRoleBody>
export const CreateRoleReply = Type.Object({ roleId: Type.String({ description: 'Id of the new role.' }) })
export type CreateRoleReply = Static<typeof CreateRoleReply>

export const DeleteRoleBody = Type.Object({ roleId: Id('role', 0) })
export type DeleteRoleBody = Static<typeof DeleteRoleBody>
export const GetRoleQuery = Type.Object({ roleId: Id('role', 1) })
export type GetRoleQuery = Static<typeof GetRoleQuery>
export const RoleReply = Type.Object({
  id: Type.String({ description: 'Id of the role.' }),
  name: Type.String({ description: 'Name of the role, unique in the workspace.' }),
  description: Type.Optional(Type.String({ description: 'Free text.' })),
})
export type RoleReply = Static<typeof RoleReply>

export const GetRoleReply = Type.Object({
  ...RoleReply.properties,
  permissions: Type.Array(PermissionReply, { description: 'Permissions of the role, by slug.' }),
  keys: Holders('keys that have the role'),
})
export type GetRoleReply = Static<typeof GetRoleReply>

export const SearchRolesQuery = Type.Object({ ...PageQuery, search: Search })
export type SearchRolesQuery = Static<typeof SearchRolesQuery>
export const SearchRolesReply = Type.Object({
  roles: Type.Array(GetRoleReply, {
    description:
      'One page of the list, oldest first. It holds fewer than `limit` where roles have many permissions.',
  }),
  cursor: Cursor,
})
export type SearchRolesReply = Static<typeof SearchRolesReply>

export const ListRolesReply = Type.Array(RoleReply)
export type ListRolesReply = Static<typeof ListRolesReply>

export const SetRolePermissionsBody = Type.Object({
  roleId: Id('role', 1),
  permissions: Type.Array(
    Type.Object({
      id: Type.Optional(
        Type.String({
          minLength: 3,
          maxLength: 256,
          description: 'Id of the permission; if given, `slug` is ignored.',
        }),
      ),
      slug: Type.Optional(
        Type.String({ minLength: 1, maxLength: 256, description: 'Slug of the permission.' }),
      ),
      create: Type.Optional(
        Type.Boolean({
          default: false,
          description: 'Create the permission if it does not exist. Default false.',
        }),
      ),
    }),
    { maxItems: 1000, description: 'Replaces the permissions of the role; an empty list removes all.' },
  ),
})
export type SetRolePermissionsBody = Static<typeof SetRolePermissionsBody>
export const SetRolePermissionsReply = Type.Array(
  Type.Object({
    id: Type.String({ description: 'Id of the permission.' }),
    name: Type.String({ description: 'Display name.' }),
  }),
)
export type SetRolePermissionsReply = Static<typeof SetRolePermissionsReply>
