import { type Static, Type } from '@sinclair/typebox'
import { Decrypt, KeyObject, keyPrefix } from '../keys/schema.ts'
import { Nullable, PageQuery, PageReply } from '../page.ts'

const Name = Type.String({ minLength: 3, maxLength: 256, description: 'Display name; need not be unique.' })
const ApiId = Type.String({
  minLength: 1,
  maxLength: 256,
  description: 'Id of the API, from apis.createApi or apis.listApis.',
})

export const CreateApiBody = Type.Object({ name: Name })
export type CreateApiBody = Static<typeof CreateApiBody>
export const CreateApiReply = Type.Object({
  apiId: Type.String({ description: 'Id of the API for later calls.' }),
  name: Type.String({ description: 'Name of the API.' }),
})
export type CreateApiReply = Static<typeof CreateApiReply>

export const GetApiQuery = Type.Object({ apiId: ApiId })
export type GetApiQuery = Static<typeof GetApiQuery>
/** An API with its settings: what apis.updateApi takes, it gives back. */
const ApiFields = {
  id: Type.String({ description: 'Id of the API.' }),
  name: Type.String({ description: 'Display name.' }),
  createdAt: Type.Integer({ description: 'When the API was created, Unix milliseconds.' }),
  keys: Type.Integer({ description: 'Number of its keys, without deleted ones.' }),
  deleteProtection: Type.Boolean({ description: 'True: apis.deleteApi is refused.' }),
  ipWhitelist: Nullable(
    Type.Array(Type.String()),
    'IP allow list: addresses and CIDR ranges from which keys of this API may be used; null = any address.',
  ),
  storeEncryptedKeys: Type.Boolean({ description: 'True: keys of this API may be recoverable.' }),
  defaultPrefix: Nullable(Type.String(), 'Prefix of new keys that do not set one; null = none.'),
  defaultBytes: Type.Integer({
    description: 'Number of random bytes of new keys that do not set `byteLength`.',
  }),
}
const ApiObject = Type.Object(ApiFields)
export type ApiObject = Static<typeof ApiObject>

export const GetApiReply = Type.Object({
  ...ApiFields,
  workspaceId: Type.String({ description: 'Id of the workspace that owns the API.' }),
})
export type GetApiReply = Static<typeof GetApiReply>

export const DeleteApiBody = Type.Object({ apiId: ApiId })
export type DeleteApiBody = Static<typeof DeleteApiBody>

export const UpdateApiBody = Type.Object({
  apiId: ApiId,
  name: Type.Optional(Name),
  deleteProtection: Type.Optional(
    Type.Boolean({
      default: false,
      description: 'Delete protection: while true, apis.deleteApi is refused. Default false.',
    }),
  ),
  ipWhitelist: Type.Optional(
    Nullable(
      Type.Array(Type.String({ minLength: 1, maxLength: 64 }), { minItems: 1, maxItems: 1000 }),
      'IP allow list: addresses and CIDR ranges from which keys of this API may be used; null = any address.',
    ),
  ),
  storeEncryptedKeys: Type.Optional(
    Type.Boolean({
      default: true,
      description: 'True allows recoverable keys in this API. Default true.',
    }),
  ),
  defaultPrefix: Type.Optional(
    Nullable(
      keyPrefix({ minLength: 1, description: 'Visible ASCII without quotes, < and >.' }),
      'Prefix of new keys that do not set one; null = none. Visible ASCII without quotes, < and >.',
    ),
  ),
  defaultBytes: Type.Optional(
    Type.Integer({
      minimum: 16,
      maximum: 255,
      default: 16,
      description: 'Number of random bytes of new keys that do not set `byteLength`; default 16.',
    }),
  ),
})
export type UpdateApiBody = Static<typeof UpdateApiBody>

export const ListApisQuery = Type.Object(PageQuery)
export type ListApisQuery = Static<typeof ListApisQuery>
export const ListApisReply = Type.Object({
  apis: Type.Array(ApiObject, { description: 'One page of the list, oldest first.' }),
  ...PageReply,
})
export type ListApisReply = Static<typeof ListApisReply>

export const ListKeysQuery = Type.Object({
  apiId: ApiId,
  ...PageQuery,
  externalId: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 256,
      description: 'Only keys of the identity with this external id.',
    }),
  ),
  ownerId: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 256,
      deprecated: true,
      description:
        'Deprecated: use `externalId`. Only keys with this `ownerId`; ignored if `externalId` is given.',
    }),
  ),
  decrypt: Type.Optional(Decrypt),
  revalidateKeysCache: Type.Optional(
    Type.Boolean({ default: false, description: 'No effect: the list is always current.' }),
  ),
})
export type ListKeysQuery = Static<typeof ListKeysQuery>
export const ListKeysReply = Type.Object({
  keys: Type.Array(KeyObject, { description: 'One page of the list, oldest first.' }),
  ...PageReply,
})
export type ListKeysReply = Static<typeof ListKeysReply>

export const DeleteKeysBody = Type.Object({
  apiId: ApiId,
  permanent: Type.Optional(
    Type.Boolean({
      default: false,
      description:
        'True also removes the records of all keys, including keys deleted before, so that the same keys can be imported again; the records of very many keys are removed in the background. Default false.',
    }),
  ),
})
export type DeleteKeysBody = Static<typeof DeleteKeysBody>
export const DeleteKeysReply = Type.Object({
  deletedKeys: Type.Integer({ description: 'Number of keys that this call deleted.' }),
})
export type DeleteKeysReply = Static<typeof DeleteKeysReply>
