import { Type } from '@sinclair/typebox'
import { PageFields, SearchField } from '../page.ts'
import { Closed, ExternalId, Meta, RatelimitRequest } from '../schema.ts'

const Ratelimits = Type.Array(RatelimitRequest, {
  maxItems: 50,
  description: 'Rate limits shared by all keys of the identity; their names are distinct.',
})

/** Longer than any id or external id: a text that nobody has is not found. */
const IdentityName = Type.String({
  minLength: 1,
  maxLength: 1024,
  description: 'Id or external id of the identity. The id wins where a text is both.',
})

/** Open, unlike the others: unknown fields are dropped. */
export const CreateIdentityBody = Type.Object({
  externalId: ExternalId,
  meta: Type.Optional(
    Meta('Your own data, returned by every verification. At most 64 000 characters of JSON.'),
  ),
  ratelimits: Type.Optional(Ratelimits),
})
export const CreateIdentityData = Type.Object({
  identityId: Type.String({ description: 'Id of the new identity.' }),
})

export const IdentityBody = Closed({ identity: IdentityName })

export const ListIdentitiesBody = Closed({ ...PageFields, ...SearchField })

export const UpdateIdentityBody = Closed({
  identity: IdentityName,
  meta: Type.Optional(
    Meta('Replaces the whole object; an empty one clears it. At most 64 000 characters of JSON.'),
  ),
  ratelimits: Type.Optional({
    ...Ratelimits,
    description:
      'Replaces all limits: one with a name that is there keeps its id, others go. An empty list removes all.',
  }),
})
