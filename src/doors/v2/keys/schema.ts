import { type Static, Type } from '@sinclair/typebox'
import {
  Closed,
  Count,
  Expires,
  ExternalId,
  Id,
  Identity,
  Meta,
  Nullable,
  Ratelimit,
  RatelimitRequest,
  Slug,
} from '../schema.ts'

export const KeyId = Id('Id of the key, such as `key_…`.', { minLength: 3 })

const Name = Type.String({ minLength: 1, maxLength: 255, description: 'Display name of the key.' })
const META = 'Your own data, returned by every verification. At most 64 000 characters of JSON.'
const ENABLED = 'False refuses every verification of the key.'
const Roles = Type.Array(Type.String({ minLength: 1, maxLength: 128 }), {
  maxItems: 100,
  description: 'Names of roles. Roles that do not exist are not found.',
})
const Permissions = Type.Array(Slug, {
  maxItems: 1000,
  description: 'Slugs of permissions. Permissions that do not exist are created.',
})
const Ratelimits = Type.Array(RatelimitRequest, {
  maxItems: 50,
  description: 'Rate limits of the key. Their names are distinct.',
})

const interval = Type.Union([Type.Literal('daily'), Type.Literal('monthly')], {
  description: 'At every midnight UTC, or at that which begins `refillDay`.',
})
const RefillRequest = Closed(
  {
    interval,
    amount: Count({
      minimum: 1,
      description: 'The credits that the key has after a refill. A key that has more keeps them.',
    }),
    refillDay: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: 31,
        description:
          'Day of a monthly refill, required for it; the last day of shorter months. A daily refill has none.',
      }),
    ),
  },
  { description: 'Sets the credits again and again.' },
)

const Remaining = Count({ minimum: 0, description: 'Credits left.' })
export const CreditsRequest = Closed(
  {
    remaining: Nullable(Remaining, 'Credits left; null = no limit.'),
    refill: Type.Optional(RefillRequest),
  },
  { description: 'How often the key may be used. Absent = without limit.' },
)
export type CreditsRequest = Static<typeof CreditsRequest>

export const CreateKeyBody = Closed({
  apiId: Id('Id of the API that the key is for.', { minLength: 3 }),
  prefix: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 16,
      pattern: '^[a-zA-Z0-9_]+$',
      description: 'Text before the key and an underscore. Absent = the API’s default.',
    }),
  ),
  name: Type.Optional(Name),
  byteLength: Type.Optional(
    Type.Integer({
      minimum: 16,
      maximum: 255,
      description: 'Random bytes of the key. Absent = the API’s default.',
    }),
  ),
  externalId: Type.Optional(ExternalId),
  meta: Type.Optional(Meta(META)),
  roles: Type.Optional(Roles),
  permissions: Type.Optional(Permissions),
  expires: Type.Optional(Expires),
  credits: Type.Optional(CreditsRequest),
  ratelimits: Type.Optional(Ratelimits),
  enabled: Type.Optional(Type.Boolean({ default: true, description: ENABLED })),
  recoverable: Type.Optional(
    Type.Boolean({
      default: false,
      description: 'Also store the key encrypted, so that `decrypt` shows it later.',
    }),
  ),
})
export type CreateKeyBody = Static<typeof CreateKeyBody>

export const CreateKeyData = Type.Object({
  keyId: Type.String({ description: 'Id of the key for later calls.' }),
  key: Type.String({ description: 'The key itself. It cannot be shown again, unless it is recoverable.' }),
})
export type CreateKeyData = Static<typeof CreateKeyData>

export const UpdateKeyBody = Closed({
  keyId: KeyId,
  name: Type.Optional(Nullable(Name, 'Display name; null clears it.')),
  externalId: Type.Optional(
    Nullable(ExternalId, 'The identity with this external id, created if missing; null disconnects it.'),
  ),
  meta: Type.Optional(Nullable(Meta(META), 'Replaces the whole object; null clears it.')),
  expires: Type.Optional(Nullable(Expires, 'When the key expires, Unix milliseconds; null = never.')),
  credits: Type.Optional(
    Nullable(
      Closed({
        remaining: Type.Optional(Nullable(Remaining, 'Credits left; null = no limit, and no refill.')),
        refill: Type.Optional(Nullable(RefillRequest, 'Replaces the refill; null removes it.')),
      }),
      'Credits and refill; what is absent stays. Null = no limit, and no refill.',
    ),
  ),
  enabled: Type.Optional(Type.Boolean({ description: ENABLED })),
  ratelimits: Type.Optional(Ratelimits),
  permissions: Type.Optional(Permissions),
  roles: Type.Optional(Roles),
})
export type UpdateKeyBody = Static<typeof UpdateKeyBody>

export const DeleteKeyBody = Closed({
  keyId: KeyId,
  permanent: Type.Optional(
    Type.Boolean({
      default: false,
      description: 'Also remove the record, so that a key with the same hash can be imported again.',
    }),
  ),
})

const Decrypt = Type.Optional(
  Type.Boolean({ default: false, description: 'Also show the key itself, if it is recoverable.' }),
)
export const GetKeyBody = Closed({ keyId: KeyId, decrypt: Decrypt })
export const WhoamiBody = Closed({
  key: Type.String({ minLength: 1, maxLength: 512, description: 'The key itself.' }),
})

export const UpdateCreditsBody = Closed({
  keyId: Type.String({ minLength: 3, maxLength: 255, description: 'Id of the key.' }),
  operation: Type.Union([Type.Literal('set'), Type.Literal('increment'), Type.Literal('decrement')], {
    description: '`set` replaces the credits left. `decrement` stops at 0.',
  }),
  value: Type.Optional(
    Nullable(
      Count({ minimum: 0, description: 'Credits.' }),
      'Credits. `set` with null or without a value: no limit, and no refill.',
    ),
  ),
})
export type UpdateCreditsBody = Static<typeof UpdateCreditsBody>

/** Credits of a key, in an answer. */
export const Credits = Type.Object(
  {
    remaining: Nullable(Type.Integer(), 'Credits left; null = no limit.'),
    refill: Type.Optional(
      Type.Object(
        {
          interval,
          amount: Type.Integer({ description: 'Credits of one refill.' }),
          refillDay: Type.Optional(Type.Integer({ description: 'Day of a monthly refill.' })),
        },
        { description: 'The refill. Absent when there is none.' },
      ),
    ),
  },
  { description: 'How often the key may still be used. Absent = without limit.' },
)
export type Credits = Static<typeof Credits>

/** A key as getKey, whoami and listKeys show it. Fields without a value are absent. */
export const KeyObject = Type.Object({
  keyId: Type.String({ description: 'Id of the key.' }),
  start: Type.String({ description: 'The first characters of the key, to recognise it by.' }),
  enabled: Type.Boolean({ description: 'False: every verification is refused.' }),
  createdAt: Type.Integer({ description: 'Unix milliseconds.' }),
  updatedAt: Type.Optional(
    Type.Integer({ description: 'Last change of the key, spent credits included, Unix milliseconds.' }),
  ),
  name: Type.Optional(Type.String({ description: 'Display name.' })),
  meta: Type.Optional(
    Type.Record(Type.String(), Type.Unknown(), { description: 'Your own data. Absent when empty.' }),
  ),
  expires: Type.Optional(Type.Integer({ description: 'When the key expires, Unix milliseconds.' })),
  permissions: Type.Optional(
    Type.Array(Type.String(), { description: 'Slugs held directly and through roles, sorted.' }),
  ),
  roles: Type.Optional(Type.Array(Type.String(), { description: 'Names of its roles, sorted.' })),
  credits: Type.Optional(Credits),
  identity: Type.Optional(Identity),
  ratelimits: Type.Optional(
    Type.Array(Ratelimit, { description: 'Its own limits, without those of its identity.' }),
  ),
  plaintext: Type.Optional(Type.String({ description: 'The key itself, with `decrypt`.' })),
})
export type KeyObject = Static<typeof KeyObject>
