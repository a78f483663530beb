import { type Static, Type } from '@sinclair/typebox'
import { Decrypt, KeyObject, keyPrefix } from '../keys/schema.ts'
import { Nullable, PageQuery, PageReply } from '../page.ts'

const Name = Type.String({ minLength: 3, maxLength: 256, description: 'For people; need not be unique.' })
const ApiId = Type.String({ minLength: 1, maxLength: 256, description: 'From createApi or listApis.' })

export const CreateApiBody = Type.Object({ name: Name })
export type CreateApiBody = Static<typeof CreateApiBody>
export const CreateApiReply = Type.Object({
  apiId: Type.String({ description: 'Names the API in every other call.' }),
  name: Type.String({ description: 'As given.' }),
})
export type CreateApiReply = Static<typeof CreateApiReply>

export const GetApiQuery = Type.Object({ apiId: ApiId })
export type GetApiQuery = Static<typeof GetApiQuery>
export const GetApiReply = Type.Object({
  id: Type.String({ description: 'Id of the API.' }),
  workspaceId: Type.String({ description: 'The workspace that owns it.' }),
  name: Type.String({ description: 'For people.' }),
})
export type GetApiReply = Static<typeof GetApiReply>

export const DeleteApiBody = Type.Object({ apiId: ApiId })
export type DeleteApiBody = Static<typeof DeleteApiBody>

export const UpdateApiBody = Type.Object({
  apiId: ApiId,
  name: Type.Optional(Name),
  deleteProtection: Type.Optional(
    Type.Boolean({ default: false, description: 'While true, deleteApi is refused. Default false.' }),
  ),
  ipWhitelist: Type.Optional(
    Nullable(
      Type.Array(Type.String({ minLength: 1, maxLength: 64 }), { minItems: 1, maxItems: 1000 }),
      'Addresses and CIDR ranges whose holders may use keys of this API; null = any.',
    ),
  ),
  storeEncryptedKeys: Type.Optional(
    Type.Boolean({
      default: true,
      description: 'Whether keys of this API may be made recoverable. Default true.',
    }),
  ),
  defaultPrefix: Type.Optional(
    Nullable(
      keyPrefix({ minLength: 1, description: 'Visible ASCII without quotes, < and >.' }),
      'Of new keys that name none; null = none. Visible ASCII without quotes, < and >.',
    ),
  ),
  defaultBytes: Type.Optional(
    Type.Integer({
      minimum: 16,
      maximum: 255,
      default: 16,
      description: 'Random bytes of new keys that do not say; default 16.',
    }),
  ),
})
export type UpdateApiBody = Static<typeof UpdateApiBody>

export const ListApisQuery = Type.Object(PageQuery)
export type ListApisQuery = Static<typeof ListApisQuery>
export const ListApisReply = Type.Object({
  apis: Type.Array(
    Type.Object({
      id: Type.String({ description: 'Id of the API.' }),
      name: Type.String({ description: 'For people.' }),
    }),
    { description: 'One page, oldest first.' },
  ),
  ...PageReply,
})
export type ListApisReply = Static<typeof ListApisReply>

export const ListKeysQuery = Type.Object({
  apiId: ApiId,
  ...PageQuery,
  externalId: Type.Optional(
    Type.String({ minLength: 1, maxLength: 256, description: 'Only keys connected to this identity.' }),
  ),
  ownerId: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 256,
      deprecated: true,
      description: 'Deprecated: only keys with this stored owner. Ignored beside `externalId`.',
    }),
  ),
  decrypt: Type.Optional(Decrypt),
  revalidateKeysCache: Type.Optional(
    Type.Boolean({ default: false, description: 'No effect: what is listed is always current.' }),
  ),
})
export type ListKeysQuery = Static<typeof ListKeysQuery>
export const ListKeysReply = Type.Object({
  keys: Type.Array(KeyObject, { description: 'One page, oldest first.' }),
  ...PageReply,
})
export type ListKeysReply = Static<typeof ListKeysReply>

export const DeleteKeysBody = Type.Object({
  apiId: ApiId,
  permanent: Type.Optional(
    Type.Boolean({
      default: false,
      description: 'Remove all records of keys, those deleted before included. Default false.',
    }),
  ),
})
export type DeleteKeysBody = Static<typeof DeleteKeysBody>
export const DeleteKeysReply = Type.Object({
  deletedKeys: Type.Integer({ description: 'Keys that were deleted by this call.' }),
})
export type DeleteKeysReply = Static<typeof DeleteKeysReply>
