import { type Static, Type } from '@sinclair/typebox'
import { COUNT_MAX, DURATION_MS_MAX } from '../../../lib/bounds.ts'
import { PageQuery, PageReply } from '../page.ts'

const Meta = Type.Record(Type.String(), Type.Unknown(), {
  description: 'Free-form JSON object, returned by every verification. At most 64 000 characters of JSON.',
})

const Ratelimit = Type.Object({
  name: Type.String({
    minLength: 1,
    maxLength: 256,
    description: 'Name of the limit, unique in the identity. Verifications ask for the limit by this name.',
  }),
  limit: Type.Integer({ minimum: 1, maximum: COUNT_MAX, description: 'Tokens allowed in a window.' }),
  duration: Type.Integer({
    minimum: 1000,
    maximum: DURATION_MS_MAX,
    description: 'Length of the window in milliseconds.',
  }),
})
const Ratelimits = Type.Array(Ratelimit, {
  maxItems: 100,
  description:
    'Rate limits shared by all keys of the identity. A verification checks a limit if it names it.',
})
export type Ratelimit = Static<typeof Ratelimit>

const RatelimitsReply = Type.Array(
  Type.Object({
    name: Type.String({ description: 'Name of the limit.' }),
    limit: Type.Integer({ description: 'Tokens allowed in a window.' }),
    duration: Type.Integer({ description: 'Length of the window in milliseconds.' }),
  }),
  { description: 'Rate limits shared by all keys of the identity.' },
)

const IdentityId = Type.String({
  minLength: 1,
  maxLength: 256,
  description: 'Id of the identity; if given, `externalId` is ignored.',
})
const ExternalId = Type.String({
  minLength: 1,
  maxLength: 256,
  description: 'Your id of the user or organisation. `externalId` or `identityId` is required.',
})
const Environment = Type.Optional(
  Type.String({
    maxLength: 256,
    default: 'default',
    description: 'No effect, reserved: external ids are unique in the whole workspace.',
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
  counters: Type.Optional(
    Type.Boolean({
      default: false,
      description:
        'True also returns how far each limit is used up now: `remaining` and `reset`. It takes and counts nothing. Default false.',
    }),
  ),
})
export type GetIdentityQuery = Static<typeof GetIdentityQuery>
export const IdentityReply = Type.Object({
  id: Type.String({ description: 'Id of the identity.' }),
  externalId: Type.String({ description: 'Your id of the user or organisation.' }),
  meta: Meta,
  ratelimits: RatelimitsReply,
})
export type IdentityReply = Static<typeof IdentityReply>
export const GetIdentityReply = Type.Object({
  ...IdentityReply.properties,
  ratelimits: Type.Array(
    Type.Object({
      ...RatelimitsReply.items.properties,
      remaining: Type.Optional(
        Type.Integer({ description: 'Tokens left in the current window. Only with `counters`.' }),
      ),
      reset: Type.Optional(
        Type.Integer({ description: 'When the window ends, Unix milliseconds. Only with `counters`.' }),
      ),
    }),
    { description: 'Rate limits shared by all keys of the identity.' },
  ),
})
export type GetIdentityReply = Static<typeof GetIdentityReply>

export const ListIdentitiesQuery = Type.Object({
  environment: Environment,
  ...PageQuery,
  search: Type.Optional(
    Type.String({
      maxLength: 256,
      description:
        'Only identities whose external id begins with this text, in the order of their external ids; upper and lower case differ. `total` then counts to 1000.',
    }),
  ),
})
export type ListIdentitiesQuery = Static<typeof ListIdentitiesQuery>
export const ListIdentitiesReply = Type.Object({
  identities: Type.Array(
    Type.Object({
      id: Type.String({ description: 'Id of the identity.' }),
      externalId: Type.String({ description: 'Your id of the user or organisation.' }),
      ratelimits: RatelimitsReply,
    }),
    { description: 'One page of the list, oldest first; with `search` by external id.' },
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
      description: 'Replaces the whole object; an empty object clears it. At most 64 000 characters of JSON.',
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
