import { type Static, Type } from '@sinclair/typebox'
import { Overlap } from '../overlap.ts'
import { Nullable, PageQuery, PageReply } from '../page.ts'
import { UnixMs } from '../unix-ms.ts'

const Permissions = Type.Array(Type.String({ minLength: 1, maxLength: 512 }), {
  maxItems: 1000,
  description:
    'Permissions of the root key, as `<resource>.<id or *>.<action>`. `*` allows everything in its workspace.',
})
const Name = Type.String({ minLength: 1, maxLength: 256, description: 'Display name of the root key.' })
const Expires = UnixMs({
  description: 'When the root key expires, Unix milliseconds.',
})
const RootKeyId = Type.String({
  minLength: 1,
  maxLength: 256,
  description: 'Id of the root key, from rootKeys.createRootKey or rootKeys.listRootKeys.',
})

export const AskServersBody = Type.Object({ rootKeyId: RootKeyId })

export const CreateRootKeyBody = Type.Object({
  name: Type.Optional(Name),
  permissions: Permissions,
  expires: Type.Optional(
    UnixMs({
      description:
        'When the root key expires, Unix milliseconds. It cannot expire later than the root key that creates it, whose expiry is the default.',
    }),
  ),
  workspaceId: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 256,
      description:
        'Create the root key in another workspace, for example one that lost its root keys. Operator root keys only.',
    }),
  ),
})
export type CreateRootKeyBody = Static<typeof CreateRootKeyBody>
export const CreateRootKeyReply = Type.Object({
  rootKeyId: Type.String({ description: 'Id of the root key for later calls. Not secret.' }),
  rootKey: Type.String({ description: 'The root key itself, returned only here. Only its hash is stored.' }),
  expires: Type.Optional(
    Type.Integer({ description: 'When the root key expires, Unix milliseconds; absent = never.' }),
  ),
})
export type CreateRootKeyReply = Static<typeof CreateRootKeyReply>

export const WhoamiRootKeyReply = Type.Object({
  rootKeyId: Type.String({ description: 'Id of the root key.' }),
  name: Type.Optional(Type.String({ description: 'Display name.' })),
  workspaceId: Type.String({ description: 'Id of the workspace that it acts in.' }),
  workspaceName: Type.String({ description: 'Name of that workspace.' }),
  permissions: Type.Array(Type.String(), { description: 'Permissions of the root key.' }),
  isOperator: Type.Boolean({ description: 'True = it may create and change workspaces.' }),
  expires: Type.Optional(
    Type.Integer({ description: 'When the root key expires, Unix milliseconds; absent = never.' }),
  ),
})
export type WhoamiRootKeyReply = Static<typeof WhoamiRootKeyReply>

export const ListRootKeysQuery = Type.Object({
  ...PageQuery,
  grantedBy: Type.Optional(
    Type.String({ minLength: 1, maxLength: 256, description: 'Only root keys that this root key created.' }),
  ),
  lastUsed: Type.Optional(
    Type.Boolean({
      default: false,
      description: 'True also returns when each root key last called, as `lastUsed`. Default false.',
    }),
  ),
})
export type ListRootKeysQuery = Static<typeof ListRootKeysQuery>
export const ListRootKeysReply = Type.Object({
  rootKeys: Type.Array(
    Type.Object({
      id: Type.String({ description: 'Id of the root key.' }),
      name: Type.Optional(Type.String({ description: 'Display name.' })),
      start: Type.String({ description: 'The first characters of the root key, to recognise it by.' }),
      permissions: Type.Array(Type.String(), { description: 'Permissions of the root key.' }),
      enabled: Type.Boolean({ description: 'False = the root key is refused.' }),
      expires: Type.Optional(
        Type.Integer({ description: 'When the root key expires, Unix milliseconds; absent = never.' }),
      ),
      createdAt: Type.Integer({ description: 'When it was created, Unix milliseconds.' }),
      lastUsed: Type.Optional(
        Type.Integer({
          description:
            'Start of the hour of its last call, whatever the answer, Unix milliseconds; of the day, where hours are no longer kept. Only with `lastUsed`; absent = no call as far as usage is kept. Sessions of the dashboard count.',
        }),
      ),
    }),
    { description: 'One page of the list, oldest first.' },
  ),
  ...PageReply,
})
export type ListRootKeysReply = Static<typeof ListRootKeysReply>

export const UpdateRootKeyBody = Type.Object({
  rootKeyId: RootKeyId,
  name: Type.Optional(Nullable(Name, 'Display name of the root key; null clears it.')),
  permissions: Type.Optional(Permissions),
  enabled: Type.Optional(Type.Boolean({ description: 'False refuses the root key; true accepts it again.' })),
  expires: Type.Optional(
    Nullable(
      Expires,
      'When the root key expires, Unix milliseconds; null = never. An earlier expiry also applies to every root key that descends from this one in the same workspace.',
    ),
  ),
  granted: Type.Optional(
    Type.Boolean({
      default: false,
      description:
        'With `enabled: false`: also disable every root key that descends from this one, its successors from rootKeys.rerollRootKey included. Default false.',
    }),
  ),
})
export type UpdateRootKeyBody = Static<typeof UpdateRootKeyBody>

export const RerollRootKeyBody = Type.Object({ rootKeyId: RootKeyId, overlap: Overlap })
export type RerollRootKeyBody = Static<typeof RerollRootKeyBody>
export const RerollRootKeyReply = Type.Object({
  rootKeyId: Type.String({ description: 'Id of the new root key for later calls. Not secret.' }),
  rootKey: Type.String({
    description: 'The new root key itself, returned only here. Only its hash is stored.',
  }),
  expires: Type.Optional(
    Type.Integer({
      description: 'When the new root key expires, Unix milliseconds: as the old one did; absent = never.',
    }),
  ),
  oldRootKeyExpires: Type.Integer({ description: 'When the old root key expires, Unix milliseconds.' }),
})
export type RerollRootKeyReply = Static<typeof RerollRootKeyReply>

export const DeleteRootKeyBody = Type.Object({
  rootKeyId: RootKeyId,
  granted: Type.Optional(
    Type.Boolean({
      default: false,
      description:
        'Also delete every root key that descends from this one: those it created, those that they created, and the successors of all of them from rootKeys.rerollRootKey, its own included. Default false.',
    }),
  ),
})
export type DeleteRootKeyBody = Static<typeof DeleteRootKeyBody>
