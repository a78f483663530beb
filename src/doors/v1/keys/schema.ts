import { type Static, type TSchema, Type } from '@sinclair/typebox'
import { COUNT_MAX, DURATION_MS_MAX, TIME_MS_MAX } from '../../../lib/bounds.ts'
import { Nullable } from '../page.ts'
import { UnixMs } from '../unix-ms.ts'

export const Meta = Type.Record(Type.String(), Type.Unknown(), {
  description: 'Free-form JSON object, at most 64 000 characters as JSON; shown by every verification.',
})

/** Names of roles or slugs of permissions. Duplicates are ignored. */
const Names = (what: string) =>
  Type.Array(Type.String({ minLength: 1, maxLength: 512 }), { maxItems: 1000, description: what })

export const Refill = Type.Object(
  {
    interval: Type.Union([Type.Literal('daily'), Type.Literal('monthly')], {
      description: 'At each UTC midnight, or at the one that begins `refillDay`.',
    }),
    amount: Type.Integer({
      minimum: 1,
      maximum: COUNT_MAX,
      description: 'Uses added to `remaining` by each refill.',
    }),
    refillDay: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: 31,
        default: 1,
        description: 'Monthly only, default 1. Months that are shorter refill on their last day.',
      }),
    ),
  },
  { description: 'Adds to `remaining` again and again.' },
)

/** A key's own limit. Updates allow windows of less than a second. */
const KeyRatelimit = ({ durationMin }: { durationMin: number }) =>
  Type.Object(
    {
      limit: Type.Integer({
        minimum: 1,
        maximum: COUNT_MAX,
        description: 'Verifications allowed in a window.',
      }),
      duration: Type.Optional(
        Type.Integer({
          minimum: durationMin,
          maximum: DURATION_MS_MAX,
          description: 'Length of the window in milliseconds; without it `refillInterval` counts.',
        }),
      ),
      type: Type.Optional(
        Type.Union([Type.Literal('fast'), Type.Literal('consistent')], {
          deprecated: true,
          description: 'Deprecated, no effect.',
        }),
      ),
      async: Type.Optional(
        Type.Boolean({ default: false, description: 'No effect: limits of keys are always exact.' }),
      ),
      refillRate: Type.Optional(
        Type.Integer({
          minimum: 1,
          maximum: COUNT_MAX,
          deprecated: true,
          description: 'Deprecated, no effect.',
        }),
      ),
      refillInterval: Type.Optional(
        Type.Integer({
          minimum: 1,
          maximum: DURATION_MS_MAX,
          deprecated: true,
          description: 'Deprecated: `duration` in milliseconds.',
        }),
      ),
    },
    { description: 'A limit that counts on every verification of the key.' },
  )
export const NewKeyRatelimit = KeyRatelimit({ durationMin: 1000 })
export const UpdatedKeyRatelimit = KeyRatelimit({ durationMin: 1 })

export const Expires = UnixMs({
  minimum: -TIME_MS_MAX,
  description: 'Unix milliseconds from which the key is refused. 0 = never.',
})
/** An empty text counts as absent, as in v1. */
export const ExternalId = Type.String({
  maxLength: 256,
  description:
    'Your id of the user or organisation; their identity is found or made, and the key connected to it. Empty = not given.',
})

/** Fields that createKey and the imports share. */
export const NewKeyFields = {
  name: Type.Optional(Type.String({ maxLength: 256, description: 'For people.' })),
  ownerId: Type.Optional(
    Type.String({ maxLength: 256, deprecated: true, description: 'Deprecated: use `externalId`.' }),
  ),
  externalId: Type.Optional(ExternalId),
  meta: Type.Optional(Meta),
  roles: Type.Optional(Names('Names of existing roles.')),
  permissions: Type.Optional(Names('Slugs of existing permissions.')),
  expires: Type.Optional(Expires),
  remaining: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: COUNT_MAX,
      description: 'Uses the key has; without it they are not counted.',
    }),
  ),
  refill: Type.Optional(Refill),
  enabled: Type.Optional(
    Type.Boolean({ default: true, description: 'False: the key is refused. Default true.' }),
  ),
  environment: Type.Optional(
    Type.String({
      maxLength: 256,
      description: 'Divides your keys, as in live and test; returned, never compared.',
    }),
  ),
}

/** Prefix of keys created here. Visible ASCII only: keys are sent in headers, shown on pages and quoted in shells. */
export const keyPrefix = ({ minLength, description }: { minLength: 0 | 1; description: string }) =>
  Type.String({
    minLength,
    maxLength: 16,
    pattern: '^[!#-&(-;=?-_a-~]*$',
    errorMessage: 'Only visible ASCII characters are allowed, without blanks, quotes, < and >',
    description,
  })

export const CreateKeyBody = Type.Object({
  apiId: Type.String({ maxLength: 256, description: 'The API the key belongs to.' }),
  prefix: Type.Optional(
    keyPrefix({
      minLength: 0,
      description: 'The key then reads `<prefix>_<random>`. Visible ASCII without quotes, < and >.',
    }),
  ),
  byteLength: Type.Optional(
    Type.Integer({
      minimum: 16,
      maximum: 255,
      default: 16,
      description: 'Random bytes in the key; default 16.',
    }),
  ),
  ...NewKeyFields,
  ratelimit: Type.Optional(NewKeyRatelimit),
  recoverable: Type.Optional(
    Type.Boolean({
      default: false,
      description: 'Also keep the key encrypted, so that it can be read back. Default false.',
    }),
  ),
})
export type CreateKeyBody = Static<typeof CreateKeyBody>

export const CreateKeyReply = Type.Object({
  keyId: Type.String({ description: 'Names the key in later calls; not secret.' }),
  key: Type.String({ description: 'The key itself. It is not stored: pass it on now.' }),
})
export type CreateKeyReply = Static<typeof CreateKeyReply>

const KeyId = Type.String({ minLength: 1, maxLength: 256, description: 'From createKey or listKeys.' })
/** `decrypt` of getKey and listKeys. */
export const Decrypt = Type.Boolean({
  default: false,
  description: 'Also return `plaintext` of recoverable keys; needs a permission of its own.',
})

const IdentityFields = {
  id: Type.String({ description: 'Id of the identity.' }),
  externalId: Type.String({ description: 'Your id of the user or organisation.' }),
}
const ofTheKey = { description: 'The identity the key is connected to.' }
const IdentityName = Type.Object(IdentityFields, ofTheKey)
const Identity = Type.Object({ ...IdentityFields, meta: Meta }, ofTheKey)

export const KeyObject = Type.Object({
  id: Type.String({ description: 'Id of the key; not secret.' }),
  start: Type.String({ description: 'The visible beginning of the key.' }),
  apiId: Type.String({ description: 'The API the key belongs to.' }),
  workspaceId: Type.String({ description: 'The workspace that owns it.' }),
  name: Type.Optional(Type.String({ description: 'For people.' })),
  ownerId: Type.Optional(Type.String({ deprecated: true, description: 'Deprecated: see `identity`.' })),
  meta: Type.Optional(Meta),
  createdAt: Type.Integer({ description: 'Unix milliseconds.' }),
  updatedAt: Type.Optional(Type.Integer({ description: 'Unix milliseconds of the last change.' })),
  expires: Type.Optional(Type.Integer({ description: 'Unix milliseconds.' })),
  remaining: Type.Optional(Type.Integer({ description: 'Credits left, where they are counted.' })),
  refill: Type.Optional(
    Type.Object(
      {
        interval: Type.Union([Type.Literal('daily'), Type.Literal('monthly')], {
          description: 'How often uses are added.',
        }),
        amount: Type.Integer({ description: 'Uses added each time.' }),
        refillDay: Nullable(Type.Integer(), 'Day of the month; null = daily.'),
        lastRefillAt: Type.Optional(
          Type.Integer({ description: 'Unix milliseconds of the last refill; absent = none yet.' }),
        ),
      },
      { description: 'How uses are added again and again.' },
    ),
  ),
  ratelimit: Type.Optional(
    Type.Object(
      {
        async: Type.Boolean({ description: 'Always false.' }),
        limit: Type.Integer({ description: 'Verifications allowed in a window.' }),
        duration: Type.Integer({ description: 'Length of the window in milliseconds.' }),
        refillRate: Type.Integer({ deprecated: true, description: 'Deprecated: `limit`.' }),
        refillInterval: Type.Integer({ deprecated: true, description: 'Deprecated: `duration`.' }),
      },
      { description: 'The limit that counts on every verification.' },
    ),
  ),
  roles: Type.Array(Type.String(), { description: 'Names.' }),
  permissions: Type.Array(Type.String(), { description: 'Slugs held directly and through roles.' }),
  enabled: Type.Boolean({ description: 'False: the key is refused.' }),
  environment: Type.Optional(Type.String({ description: 'As given when it was made.' })),
  identity: Type.Optional(Identity),
  plaintext: Type.Optional(Type.String({ description: 'The whole key, when asked for and recoverable.' })),
})
export type KeyObject = Static<typeof KeyObject>

export const GetKeyQuery = Type.Object({ keyId: KeyId, decrypt: Type.Optional(Decrypt) })
export type GetKeyQuery = Static<typeof GetKeyQuery>

export const WhoamiBody = Type.Object({
  key: Type.String({ minLength: 1, maxLength: 4096, description: 'The whole key.' }),
})
export type WhoamiBody = Static<typeof WhoamiBody>
export const WhoamiReply = Type.Object({
  id: Type.String({ description: 'Id of the key; not secret.' }),
  name: Type.Optional(Type.String({ description: 'For people.' })),
  remaining: Type.Optional(Type.Integer({ description: 'Credits left, where they are counted.' })),
  identity: Type.Optional(IdentityName),
  meta: Type.Optional(Meta),
  createdAt: Type.Integer({ description: 'Unix milliseconds.' }),
  enabled: Type.Boolean({ description: 'False: the key is refused.' }),
  environment: Type.Optional(Type.String({ description: 'As given when it was made.' })),
})
export type WhoamiReply = Static<typeof WhoamiReply>

const LinkedId = (what: string) =>
  Type.Optional(
    Type.String({ minLength: 3, maxLength: 256, description: `Id of the ${what}; wins over its name.` }),
  )
const LinkedText = (description: string) =>
  Type.Optional(Type.String({ minLength: 1, maxLength: 256, description }))
const Create = (what: string) =>
  Type.Optional(
    Type.Boolean({
      default: false,
      description: `Make the ${what} when there is none of that name. Default false.`,
    }),
  )
const PermissionReference = {
  id: LinkedId('permission'),
  slug: LinkedText('Slug of the permission.'),
  name: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 256,
      deprecated: true,
      description: 'Deprecated: the slug.',
    }),
  ),
}
const RoleReference = { id: LinkedId('role'), name: LinkedText('Name of the role.') }

/** A permission to attach. One of `id`, `slug` and `name` is required. */
export const PermissionToAttach = Type.Object({ ...PermissionReference, create: Create('permission') })
/** A role to attach. `id` or `name` is required. */
export const RoleToAttach = Type.Object({ ...RoleReference, create: Create('role') })

export const UpdateKeyBody = Type.Object({
  keyId: KeyId,
  name: Type.Optional(Nullable(Type.String({ maxLength: 256 }), 'Null clears it.')),
  meta: Type.Optional(
    Nullable(Meta, 'Replaces the whole object, at most 64 000 characters as JSON; null clears it.'),
  ),
  externalId: Type.Optional(
    Nullable(Type.String({ minLength: 1, maxLength: 256 }), 'Null disconnects the identity.'),
  ),
  ownerId: Type.Optional(
    Nullable(Type.String({ maxLength: 256, deprecated: true }), 'Deprecated: use `externalId`, which wins.'),
  ),
  expires: Type.Optional(Nullable(Expires, 'Unix milliseconds; null = never.')),
  remaining: Type.Optional(
    Nullable(Type.Integer({ minimum: 0, maximum: COUNT_MAX }), 'Credits left; null = not counted any more.'),
  ),
  ratelimit: Type.Optional(Nullable(UpdatedKeyRatelimit, 'Null removes the key’s limit `default`.')),
  refill: Type.Optional(Nullable(Refill, 'Null ends refilling.')),
  enabled: Type.Optional(Type.Boolean({ description: 'False refuses the key.' })),
  roles: Type.Optional(
    Type.Array(RoleToAttach, { maxItems: 1000, description: 'Exactly these from now on; [] = none.' }),
  ),
  permissions: Type.Optional(
    Type.Array(PermissionToAttach, { maxItems: 1000, description: 'Exactly these from now on; [] = none.' }),
  ),
})
export type UpdateKeyBody = Static<typeof UpdateKeyBody>

export const DeleteKeyBody = Type.Object({
  keyId: KeyId,
  permanent: Type.Optional(
    Type.Boolean({
      default: false,
      description: 'Remove the record too, so that its hash may be imported again. Default false.',
    }),
  ),
})
export type DeleteKeyBody = Static<typeof DeleteKeyBody>

export const EraseKeyBody = Type.Object({ keyId: KeyId })
export type EraseKeyBody = Static<typeof EraseKeyBody>

export const UpdateRemainingBody = Type.Object({
  keyId: KeyId,
  op: Type.Union([Type.Literal('increment'), Type.Literal('decrement'), Type.Literal('set')], {
    description: 'Add `value`, take it away, or replace what is left by it.',
  }),
  value: Nullable(
    Type.Integer({ minimum: -COUNT_MAX, maximum: COUNT_MAX }),
    'Less than 0 becomes 0; more than 9007199254740991 is refused and changes nothing. Null only with `set`: uses are not counted any more.',
  ),
})
export type UpdateRemainingBody = Static<typeof UpdateRemainingBody>
export const UpdateRemainingReply = Type.Object({
  remaining: Nullable(Type.Integer(), 'Credits left after the change; null = not counted.'),
})
export type UpdateRemainingReply = Static<typeof UpdateRemainingReply>

const Instant = (description: string) => Type.Optional(UnixMs({ description }))
export const KeyVerificationsQuery = Type.Object({
  keyId: Type.Optional(
    Type.String({ maxLength: 256, description: 'This or `ownerId`; the key counts if both.' }),
  ),
  ownerId: Type.Optional(Type.String({ maxLength: 256, description: 'All keys of this owner, summed.' })),
  start: Instant('Unix milliseconds; default (and 0): 24 hours ago.'),
  end: Instant('Unix milliseconds; default (and 0): now.'),
  granularity: Type.Optional(
    Type.Union([Type.Literal('day')], { default: 'day', description: 'Always by UTC day.' }),
  ),
})
export type KeyVerificationsQuery = Static<typeof KeyVerificationsQuery>
export const KeyVerificationsReply = Type.Object({
  verifications: Type.Array(
    Type.Object({
      time: Type.Integer({ description: 'Start of the UTC day, Unix milliseconds.' }),
      success: Type.Integer({ description: 'Verifications that succeeded.' }),
      rateLimited: Type.Integer({ description: 'Refused by a rate limit.' }),
      usageExceeded: Type.Integer({ description: 'Refused because no credits were left.' }),
    }),
    { description: 'Days with at least one verification, oldest first.' },
  ),
})
export type KeyVerificationsReply = Static<typeof KeyVerificationsReply>

const Cost = (description: string, options: { deprecated?: boolean } = {}) =>
  Type.Integer({ minimum: 0, maximum: COUNT_MAX, default: 1, description, ...options })

export const VerifyKeyBody = Type.Object({
  key: Type.String({ minLength: 1, maxLength: 4096, description: 'The whole key as its holder sent it.' }),
  apiId: Type.Optional(Type.String({ maxLength: 256, description: 'Keys of other APIs are then refused.' })),
  tags: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: 128 }), {
      maxItems: 10,
      description:
        'Marks this verification in analytics; no influence on the answer. An hour keeps the 1000 sets with the most verifications; others count as `(other)`.',
    }),
  ),
  authorization: Type.Optional(
    Type.Object(
      {
        permissions: Type.Optional(
          Type.Unknown({
            description: 'A permission, or {"and": […]} or {"or": […]} of them, nested at will.',
          }),
        ),
      },
      { description: 'What the key must be allowed to do.' },
    ),
  ),
  remaining: Type.Optional(
    Type.Object(
      {
        cost: Type.Optional(Cost('Uses to take, default 1. More than are left: refused, none taken.')),
      },
      { description: 'What this verification takes of the key’s uses.' },
    ),
  ),
  ratelimits: Type.Optional(
    Type.Array(
      Type.Object({
        name: Type.String({
          minLength: 1,
          maxLength: 256,
          description: 'A limit of the key or its identity; with `limit` and `duration` any name.',
        }),
        cost: Type.Optional(Cost('Tokens to take, default 1.')),
        limit: Type.Optional(
          Type.Integer({ minimum: 0, maximum: COUNT_MAX, description: 'With `duration`: used as given.' }),
        ),
        duration: Type.Optional(
          Type.Integer({ minimum: 1, maximum: DURATION_MS_MAX, description: 'Window in milliseconds.' }),
        ),
      }),
      { maxItems: 100, description: 'Limits to count, besides those that count on every verification.' },
    ),
  ),
  ratelimit: Type.Optional(
    Type.Object(
      {
        cost: Type.Optional(
          Cost('Cost of the limit `default`, unless `ratelimits` names it.', { deprecated: true }),
        ),
      },
      { deprecated: true, description: 'Deprecated: use `ratelimits`.' },
    ),
  ),
})
export type VerifyKeyBody = Static<typeof VerifyKeyBody>

export const VerifyKeyReply = Type.Object({
  valid: Type.Boolean({ description: 'Whether the request may go on.' }),
  code: Type.Union(
    [
      Type.Literal('VALID'),
      Type.Literal('NOT_FOUND'),
      Type.Literal('FORBIDDEN'),
      Type.Literal('USAGE_EXCEEDED'),
      Type.Literal('RATE_LIMITED'),
      Type.Literal('UNAUTHORIZED'),
      Type.Literal('DISABLED'),
      Type.Literal('INSUFFICIENT_PERMISSIONS'),
      Type.Literal('EXPIRED'),
    ],
    { description: 'Why the key is valid or not.' },
  ),
  requestId: Type.String({ description: 'Names this request in logs.' }),
  keyId: Type.Optional(Type.String({ description: 'Id of the key; absent when it is not found.' })),
  name: Type.Optional(Type.String({ description: 'Of the key, for people.' })),
  ownerId: Type.Optional(Type.String({ description: 'The identity’s externalId, else the key’s own.' })),
  meta: Type.Optional(Meta),
  environment: Type.Optional(Type.String({ description: 'As given when it was made.' })),
  expires: Type.Optional(
    Type.Integer({ description: 'Unix milliseconds from which it is refused; absent = never.' }),
  ),
  enabled: Type.Optional(Type.Boolean({ description: 'False: the key is refused.' })),
  permissions: Type.Optional(
    Type.Array(Type.String(), { description: 'Slugs held directly and through roles.' }),
  ),
  roles: Type.Optional(Type.Array(Type.String(), { description: 'Names.' })),
  identity: Type.Optional(Identity),
  ratelimit: Type.Optional(
    Type.Object(
      {
        limit: Type.Integer({ description: 'Tokens allowed in a window.' }),
        remaining: Type.Integer({ description: 'Tokens left in this window.' }),
        reset: Type.Integer({ description: 'When the window ends, Unix milliseconds.' }),
      },
      { description: 'The limit that refused, else the first one counted.' },
    ),
  ),
  remaining: Type.Optional(Type.Integer({ description: 'Credits left.' })),
})
export type VerifyKeyReply = Static<typeof VerifyKeyReply>

const Links = <T extends TSchema>(element: T, description: string) =>
  Type.Array(element, { minItems: 1, maxItems: 1000, description })

export const AttachPermissionsBody = Type.Object({
  keyId: KeyId,
  permissions: Links(PermissionToAttach, 'The permissions; of `id`, `slug` and `name` one is required.'),
})
export type AttachPermissionsBody = Static<typeof AttachPermissionsBody>
export const RemovePermissionsBody = Type.Object({
  keyId: KeyId,
  permissions: Links(
    Type.Object(PermissionReference),
    'The permissions; one of `id`, `slug`, `name` is required.',
  ),
})
export type RemovePermissionsBody = Static<typeof RemovePermissionsBody>
export const AttachRolesBody = Type.Object({
  keyId: KeyId,
  roles: Links(RoleToAttach, 'The roles; `id` or `name` is required.'),
})
export type AttachRolesBody = Static<typeof AttachRolesBody>
export const RemoveRolesBody = Type.Object({
  keyId: KeyId,
  roles: Links(Type.Object(RoleReference), 'The roles; `id` or `name` is required.'),
})
export type RemoveRolesBody = Static<typeof RemoveRolesBody>

export const LinkedReply = Type.Array(
  Type.Object({
    id: Type.String({ description: 'Id of the permission or role.' }),
    name: Type.String({ description: 'Its name.' }),
  }),
)
export type LinkedReply = Static<typeof LinkedReply>
