import { type Static, Type } from '@sinclair/typebox'
import { COUNT_MAX, DURATION_MS_MAX } from '../../../lib/bounds.ts'
import { PageQuery, PageReply } from '../page.ts'

const Meta = Type.Record(Type.String(), Type.Unknown(), {
  description: 'Free-form JSON object, at most 64 000 characters as JSON; shown by every verification.',
})

const Ratelimit = Type.Object({
  name: Type.String({ minLength: 1, maxLength: 256, description: 'What verifications name; unique here.' }),
  limit: Type.Integer({ minimum: 1, maximum: COUNT_MAX, description: 'Tokens allowed in a window.' }),
  duration: Type.Integer({
    minimum: 1000,
    maximum: DURATION_MS_MAX,
    description: 'Length of the window in milliseconds.',
  }),
})
const Ratelimits = Type.Array(Ratelimit, {
  maxItems: 100,
  description: 'Shared by all keys of the identity; they count when a verification names them.',
})
export type Ratelimit = Static<typeof Ratelimit>

const RatelimitsReply = Type.Array(
  Type.Object({
    name: Type.String({ description: 'What verifications name.' }),
    limit: Type.Integer({ description: 'Tokens allowed in a window.' }),
    duration: Type.Integer({ description: 'Length of the window in milliseconds.' }),
  }),
  { description: 'Shared by all keys of the identity.' },
)

const IdentityId = Type.String({ minLength: 1, maxLength: 256, description: 'Wins over `externalId`.' })
const ExternalId = Type.String({
  minLength: 1,
  maxLength: 256,
  description: 'Your id of the user or organisation; this or `identityId` is required.',
})
const Environment = Type.Optional(
  Type.String({
    maxLength: 256,
    default: 'default',
    description: 'Reserved, no effect: external ids are unique in the whole workspace.',
  }),
)

export const CreateIdentityBody = Type.Object({
  externalId: Type.String({
    minLength: 3,
    maxLength: 256,
    description: 'Your id of the user or organisation; unique in the workspace.',
  }),
  meta: Type.Optional(Meta),
  ratelimits: Type.Optional(Ratelimits),
})
export type CreateIdentityBody = Static<typeof CreateIdentityBody>
export const CreateIdentityReply = Type.Object({
  identityId: Type.String({ description: 'Id of the new identity.' }),
})
export type CreateIdentityReply = Static<typeof CreateIdentityReply>

export const GetIdentityQuery = Type.Object({
  identityId: Type.Optional(IdentityId),
  externalId: Type.Optional(ExternalId),
})
export type GetIdentityQuery = Static<typeof GetIdentityQuery>
export const IdentityReply = Type.Object({
  id: Type.String({ description: 'Id of the identity.' }),
  externalId: Type.String({ description: 'Your id of the user or organisation.' }),
  meta: Meta,
  ratelimits: RatelimitsReply,
})
export type IdentityReply = Static<typeof IdentityReply>

export const ListIdentitiesQuery = Type.Object({ environment: Environment, ...PageQuery })
export type ListIdentitiesQuery = Static<typeof ListIdentitiesQuery>
export const ListIdentitiesReply = Type.Object({
  identities: Type.Array(
    Type.Object({
      id: Type.String({ description: 'Id of the identity.' }),
      externalId: Type.String({ description: 'Your id of the user or organisation.' }),
      ratelimits: RatelimitsReply,
    }),
    { description: 'One page, oldest first.' },
  ),
  ...PageReply,
})
export type ListIdentitiesReply = Static<typeof ListIdentitiesReply>

export const UpdateIdentityBody = Type.Object({
  identityId: Type.Optional(IdentityId),
  externalId: Type.Optional(ExternalId),
  environment: Environment,
  meta: Type.Optional(
    Type.Record(Type.String(), Type.Unknown(), {
      description: 'Replaces the whole object; an empty one clears it. At most 64 000 characters as JSON.',
    }),
  ),
  ratelimits: Type.Optional(Ratelimits),
})
export type UpdateIdentityBody = Static<typeof UpdateIdentityBody>

export const EraseIdentityBody = Type.Object({
  identityId: Type.Optional(IdentityId),
  externalId: Type.Optional(ExternalId),
})
export type EraseIdentityBody = Static<typeof EraseIdentityBody>

export const DeleteIdentityBody = Type.Object({
  identityId: Type.String({ minLength: 1, maxLength: 256, description: 'Id of the identity.' }),
})
export type DeleteIdentityBody = Static<typeof DeleteIdentityBody>
