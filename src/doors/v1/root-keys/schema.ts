import { type Static, Type } from '@sinclair/typebox'
import { Nullable, PageQuery, PageReply } from '../page.ts'
import { UnixMs } from '../unix-ms.ts'

const Permissions = Type.Array(Type.String({ minLength: 1, maxLength: 512 }), {
  maxItems: 1000,
  description: 'What the root key may do, as `<resource>.<id or *>.<action>`, or `*` for everything.',
})
const Name = Type.String({ minLength: 1, maxLength: 256, description: 'For people.' })
const Expires = UnixMs({
  description: 'Unix milliseconds from which the root key is refused.',
})
const RootKeyId = Type.String({
  minLength: 1,
  maxLength: 256,
  description: 'From createRootKey or listRootKeys.',
})

export const CreateRootKeyBody = Type.Object({
  name: Type.Optional(Name),
  permissions: Permissions,
  expires: Type.Optional(
    UnixMs({
      description:
        'Unix milliseconds from which the root key is refused; no later than the one that makes it. Without it, as that one.',
    }),
  ),
  workspaceId: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 256,
      description: 'Another workspace, such as one that lost its root keys. Operator root keys only.',
    }),
  ),
})
export type CreateRootKeyBody = Static<typeof CreateRootKeyBody>
export const CreateRootKeyReply = Type.Object({
  rootKeyId: Type.String({ description: 'Names it in later calls; not secret.' }),
  rootKey: Type.String({ description: 'The root key itself, shown once.' }),
  expires: Type.Optional(
    Type.Integer({ description: 'Unix milliseconds from which it is refused; absent = never.' }),
  ),
})
export type CreateRootKeyReply = Static<typeof CreateRootKeyReply>

export const ListRootKeysQuery = Type.Object({
  ...PageQuery,
  grantedBy: Type.Optional(
    Type.String({ minLength: 1, maxLength: 256, description: 'Only those that this root key made.' }),
  ),
})
export type ListRootKeysQuery = Static<typeof ListRootKeysQuery>
export const ListRootKeysReply = Type.Object({
  rootKeys: Type.Array(
    Type.Object({
      id: Type.String({ description: 'Id of the root key.' }),
      name: Type.Optional(Type.String({ description: 'For people.' })),
      start: Type.String({ description: 'The visible beginning of the root key.' }),
      permissions: Type.Array(Type.String(), { description: 'What it may do.' }),
      enabled: Type.Boolean({ description: 'False: it is refused.' }),
      expires: Type.Optional(
        Type.Integer({ description: 'Unix milliseconds from which it is refused; absent = never.' }),
      ),
      createdAt: Type.Integer({ description: 'Unix milliseconds.' }),
    }),
    { description: 'One page, oldest first.' },
  ),
  ...PageReply,
})
export type ListRootKeysReply = Static<typeof ListRootKeysReply>

export const UpdateRootKeyBody = Type.Object({
  rootKeyId: RootKeyId,
  name: Type.Optional(Nullable(Name, 'Null clears it.')),
  permissions: Type.Optional(Permissions),
  enabled: Type.Optional(Type.Boolean({ description: 'False refuses the root key.' })),
  expires: Type.Optional(
    Nullable(
      Expires,
      'Null = never. An earlier end is also that of the root keys it made, and of those that they made.',
    ),
  ),
  granted: Type.Optional(
    Type.Boolean({
      default: false,
      description:
        'With `enabled: false`: also disable the root keys it made, and those that they made. Default false.',
    }),
  ),
})
export type UpdateRootKeyBody = Static<typeof UpdateRootKeyBody>

export const DeleteRootKeyBody = Type.Object({
  rootKeyId: RootKeyId,
  granted: Type.Optional(
    Type.Boolean({
      default: false,
      description: 'Also delete the root keys it made, and those that they made. Default false.',
    }),
  ),
})
export type DeleteRootKeyBody = Static<typeof DeleteRootKeyBody>
