import { type Static, type TSchema, Type } from '@sinclair/typebox'
import { DURATION_MS_MAX, INT32_MAX, TIME_MS_MAX } from '../lib/bounds.ts'
import { Nullable } from '../lib/page.ts'

export const Meta = Type.Record(Type.String(), Type.Unknown(), { description: 'Free-form JSON object.' })

/** Names of roles or slugs of permissions; repeated ones count once. */
const Names = (what: string) =>
  Type.Array(Type.String({ minLength: 1, maxLength: 512 }), { maxItems: 1000, description: what })

export const Refill = Type.Object({
  interval: Type.Union([Type.Literal('daily'), Type.Literal('monthly')], {
    description: 'At each UTC midnight, or at the one that begins `refillDay`.',
  }),
  amount: Type.Integer({
    minimum: 1,
    maximum: INT32_MAX,
    description: 'Uses added to `remaining` by each refill.',
  }),
  refillDay: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: 31,
      description: 'Monthly only, default 1. Months that are shorter refill on their last day.',
    }),
  ),
})

/** A key's own limit. `durationMin` differs: an update has no minimum of a second. */
const KeyRatelimit = ({ durationMin }: { durationMin: number }) =>
  Type.Object({
    limit: Type.Integer({
      minimum: 1,
      maximum: INT32_MAX,
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
        description: 'Deprecated, no effect.',
      }),
    ),
    async: Type.Optional(Type.Boolean({ description: 'No effect: limits of keys are always exact.' })),
    refillRate: Type.Optional(
      Type.Integer({ minimum: 1, maximum: INT32_MAX, description: 'Deprecated, no effect.' }),
    ),
    refillInterval: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: DURATION_MS_MAX,
        description: 'Deprecated: `duration` in milliseconds.',
      }),
    ),
  })
export const NewKeyRatelimit = KeyRatelimit({ durationMin: 1000 })
export const UpdatedKeyRatelimit = KeyRatelimit({ durationMin: 1 })

export const Expires = Type.Integer({
  minimum: -TIME_MS_MAX,
  maximum: TIME_MS_MAX,
  description: 'Unix milliseconds from which the key is refused. 0 = never.',
})
export const ExternalId = Type.String({
  minLength: 1,
  maxLength: 256,
  description:
    'Your id of the user or organisation; their identity is found or made, and the key connected to it.',
})

/** What createKey and the imports have in common. */
export const NewKeyFields = {
  name: Type.Optional(Type.String({ maxLength: 256, description: 'For people.' })),
  ownerId: Type.Optional(Type.String({ maxLength: 256, description: 'Deprecated: use `externalId`.' })),
  externalId: Type.Optional(ExternalId),
  meta: Type.Optional(Meta),
  roles: Type.Optional(Names('Names of existing roles.')),
  permissions: Type.Optional(Names('Slugs of existing permissions.')),
  expires: Type.Optional(Expires),
  remaining: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: INT32_MAX,
      description: 'Uses the key has; without it they are not counted.',
    }),
  ),
  refill: Type.Optional(Refill),
  enabled: Type.Optional(Type.Boolean({ description: 'Default true.' })),
  environment: Type.Optional(
    Type.String({
      maxLength: 256,
      description: 'Divides your keys, as in live and test; returned, never compared.',
    }),
  ),
}

export const CreateKeyBody = Type.Object({
  apiId: Type.String({ maxLength: 256, description: 'The API the key belongs to.' }),
  prefix: Type.Optional(
    Type.String({ maxLength: 16, description: 'The key then reads `<prefix>_<random>`.' }),
  ),
  byteLength: Type.Optional(
    Type.Integer({ minimum: 16, maximum: 255, description: 'Random bytes in the key; default 16.' }),
  ),
  ...NewKeyFields,
  ratelimit: Type.Optional(NewKeyRatelimit),
  recoverable: Type.Optional(
    Type.Boolean({ description: 'Also keep the key encrypted, so that it can be read back. Default false.' }),
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
  description: 'Also return `plaintext` of recoverable keys; needs a permission of its own.',
})

export const KeyObject = Type.Object({
  id: Type.String(),
  start: Type.String({ description: 'The visible beginning of the key.' }),
  apiId: Type.String(),
  workspaceId: Type.String(),
  name: Type.Optional(Type.String()),
  ownerId: Type.Optional(Type.String({ description: 'Deprecated: see `identity`.' })),
  meta: Type.Optional(Meta),
  createdAt: Type.Integer({ description: 'Unix milliseconds.' }),
  updatedAt: Type.Optional(Type.Integer({ description: 'Unix milliseconds of the last change.' })),
  expires: Type.Optional(Type.Integer({ description: 'Unix milliseconds.' })),
  remaining: Type.Optional(Type.Integer({ description: 'Uses left, where they are counted.' })),
  refill: Type.Optional(
    Type.Object({
      interval: Type.Union([Type.Literal('daily'), Type.Literal('monthly')]),
      amount: Type.Integer({ description: 'Uses added each time.' }),
      refillDay: Nullable(Type.Integer(), 'Day of the month; null = daily.'),
      lastRefillAt: Type.Optional(Type.Integer({ description: 'Unix milliseconds.' })),
    }),
  ),
  ratelimit: Type.Optional(
    Type.Object(
      {
        async: Type.Boolean({ description: 'Always false.' }),
        limit: Type.Integer({ description: 'Verifications allowed in a window.' }),
        duration: Type.Integer({ description: 'Length of the window in milliseconds.' }),
        refillRate: Type.Integer({ description: 'Deprecated: `limit`.' }),
        refillInterval: Type.Integer({ description: 'Deprecated: `duration`.' }),
      },
      { description: 'The limit that counts on every verification.' },
    ),
  ),
  roles: Type.Array(Type.String(), { description: 'Names.' }),
  permissions: Type.Array(Type.String(), { description: 'Slugs held directly and through roles.' }),
  enabled: Type.Boolean(),
  environment: Type.Optional(Type.String()),
  identity: Type.Optional(Type.Object({ id: Type.String(), externalId: Type.String(), meta: Meta })),
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
  id: Type.String(),
  name: Type.Optional(Type.String()),
  remaining: Type.Optional(Type.Integer({ description: 'Uses left, where they are counted.' })),
  identity: Type.Optional(Type.Object({ id: Type.String(), externalId: Type.String() })),
  meta: Type.Optional(Meta),
  createdAt: Type.Integer({ description: 'Unix milliseconds.' }),
  enabled: Type.Boolean(),
  environment: Type.Optional(Type.String()),
})
export type WhoamiReply = Static<typeof WhoamiReply>

const LinkedId = (what: string) =>
  Type.Optional(
    Type.String({ minLength: 3, maxLength: 256, description: `Id of the ${what}; wins over its name.` }),
  )
const LinkedText = (description: string) =>
  Type.Optional(Type.String({ minLength: 1, maxLength: 256, description }))
const Create = (what: string) =>
  Type.Optional(Type.Boolean({ description: `Make the ${what} when there is none of that name.` }))
const PermissionReference = {
  id: LinkedId('permission'),
  slug: LinkedText('Slug of the permission.'),
  name: LinkedText('Deprecated: the slug.'),
}
const RoleReference = { id: LinkedId('role'), name: LinkedText('Name of the role.') }

/** A permission in a list to attach; one of `id`, `slug`, `name` is required. */
export const PermissionToAttach = Type.Object({ ...PermissionReference, create: Create('permission') })
/** A role in a list to attach; `id` or `name` is required. */
export const RoleToAttach = Type.Object({ ...RoleReference, create: Create('role') })

export const UpdateKeyBody = Type.Object({
  keyId: KeyId,
  name: Type.Optional(Nullable(Type.String({ maxLength: 256 }), 'Null clears it.')),
  meta: Type.Optional(Nullable(Meta, 'Replaces the whole object; null clears it.')),
  externalId: Type.Optional(Nullable(ExternalId, 'Null disconnects the identity.')),
  ownerId: Type.Optional(
    Nullable(Type.String({ maxLength: 256 }), 'Deprecated: use `externalId`, which wins.'),
  ),
  expires: Type.Optional(Nullable(Expires, 'Unix milliseconds; null = never.')),
  remaining: Type.Optional(
    Nullable(Type.Integer({ minimum: 0, maximum: INT32_MAX }), 'Uses left; null = not counted any more.'),
  ),
  ratelimit: Type.Optional(Nullable(UpdatedKeyRatelimit, 'Null removes the key’s limit `default`.')),
  refill: Type.Optional(Nullable(Refill, 'Null ends refilling.')),
  enabled: Type.Optional(Type.Boolean()),
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
      description: 'Remove the record too, so that its hash may be imported again. Default false.',
    }),
  ),
})
export type DeleteKeyBody = Static<typeof DeleteKeyBody>

export const UpdateRemainingBody = Type.Object({
  keyId: KeyId,
  op: Type.Union([Type.Literal('increment'), Type.Literal('decrement'), Type.Literal('set')]),
  value: Nullable(
    Type.Integer({ minimum: -INT32_MAX, maximum: INT32_MAX }),
    'The result stays between 0 and 2147483647. Null only with `set`: uses are not counted any more.',
  ),
})
export type UpdateRemainingBody = Static<typeof UpdateRemainingBody>
export const UpdateRemainingReply = Type.Object({
  remaining: Nullable(Type.Integer(), 'Uses left after the change; null = not counted.'),
})
export type UpdateRemainingReply = Static<typeof UpdateRemainingReply>

const Instant = (description: string) =>
  Type.Optional(Type.Integer({ minimum: 0, maximum: TIME_MS_MAX, description }))
export const KeyVerificationsQuery = Type.Object({
  keyId: Type.Optional(
    Type.String({ maxLength: 256, description: 'This or `ownerId`; the key counts if both.' }),
  ),
  ownerId: Type.Optional(Type.String({ maxLength: 256, description: 'All keys of this owner, summed.' })),
  start: Instant('Unix milliseconds; default (and 0): 24 hours ago.'),
  end: Instant('Unix milliseconds; default (and 0): now.'),
  granularity: Type.Optional(Type.Union([Type.Literal('day')])),
})
export type KeyVerificationsQuery = Static<typeof KeyVerificationsQuery>
export const KeyVerificationsReply = Type.Object({
  verifications: Type.Array(
    Type.Object({
      time: Type.Integer({ description: 'Start of the UTC day, Unix milliseconds.' }),
      success: Type.Integer(),
      rateLimited: Type.Integer(),
      usageExceeded: Type.Integer(),
    }),
    { description: 'Days with at least one verification, oldest first.' },
  ),
})
export type KeyVerificationsReply = Static<typeof KeyVerificationsReply>

const ImportFields = {
  hash: Type.Optional(
    Type.Object({
      value: Type.String({ minLength: 1, maxLength: 256, description: 'Hash of the whole key.' }),
      variant: Type.Literal('sha256_base64', {
        description: 'SHA-256 of the key’s UTF-8 text, standard base64 with padding.',
      }),
    }),
  ),
  plaintext: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 4096,
      description: 'The key itself instead of its hash: it is then hashed here, and recoverable.',
    }),
  ),
  start: Type.Optional(
    Type.String({ maxLength: 256, description: 'Visible beginning; default: the prefix and 4 characters.' }),
  ),
  prefix: Type.Optional(Type.String({ maxLength: 8, description: 'Only for the default of `start`.' })),
  ...NewKeyFields,
}

export const CreateKeysBody = Type.Array(
  Type.Object({
    apiId: Type.String({ maxLength: 256, description: 'The API the key belongs to.' }),
    ...ImportFields,
    ratelimit: Type.Optional(
      Type.Object({
        limit: Type.Integer({ minimum: 1, maximum: INT32_MAX, description: 'Verifications in a window.' }),
        refillRate: Type.Integer({ minimum: 1, maximum: INT32_MAX, description: 'No effect.' }),
        refillInterval: Type.Integer({
          minimum: 1,
          maximum: DURATION_MS_MAX,
          description: 'Length of the window in milliseconds.',
        }),
        type: Type.Optional(
          Type.Union([Type.Literal('fast'), Type.Literal('consistent')], { description: 'No effect.' }),
        ),
        async: Type.Optional(Type.Boolean({ description: 'No effect: limits of keys are always exact.' })),
      }),
    ),
  }),
  { maxItems: 100 },
)
export type CreateKeysBody = Static<typeof CreateKeysBody>
export const CreateKeysReply = Type.Object({
  keyIds: Type.Array(Type.String(), { description: 'In the order of the request.' }),
})
export type CreateKeysReply = Static<typeof CreateKeysReply>

/** A window must last a second here. */
const QueuedElement = Type.Object({ ...ImportFields, ratelimit: Type.Optional(NewKeyRatelimit) })
export const EnqueueKeysBody = Type.Object({
  migrationId: Type.String({ minLength: 1, maxLength: 256, description: 'Your name of this migration.' }),
  apiId: Type.String({ minLength: 1, maxLength: 256, description: 'The API the keys belong to.' }),
  keys: Type.Array(QueuedElement, { maxItems: 100 }),
})
export type EnqueueKeysBody = Static<typeof EnqueueKeysBody>
/** What both have in common. */
export type ImportElement = Static<typeof QueuedElement>

const Cost = (description: string) => Type.Integer({ minimum: 0, maximum: INT32_MAX, description })

export const VerifyKeyBody = Type.Object({
  key: Type.String({ minLength: 1, maxLength: 4096, description: 'The whole key as its holder sent it.' }),
  apiId: Type.Optional(Type.String({ maxLength: 256, description: 'Keys of other APIs are then refused.' })),
  tags: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: 128 }), {
      maxItems: 10,
      description: 'Marks this verification in analytics; no influence on the answer.',
    }),
  ),
  authorization: Type.Optional(
    Type.Object({
      permissions: Type.Optional(
        Type.Unknown({
          description: 'A permission, or {"and": […]} or {"or": […]} of them, nested at will.',
        }),
      ),
    }),
  ),
  remaining: Type.Optional(
    Type.Object({
      cost: Type.Optional(Cost('Uses to take, default 1. More than are left: refused, none taken.')),
    }),
  ),
  ratelimits: Type.Optional(
    Type.Array(
      Type.Object({
        name: Type.String({ minLength: 1, maxLength: 256 }),
        cost: Type.Optional(Cost('Tokens to take, default 1.')),
        limit: Type.Optional(
          Type.Integer({ minimum: 0, maximum: INT32_MAX, description: 'With `duration`: used as given.' }),
        ),
        duration: Type.Optional(
          Type.Integer({ minimum: 1, maximum: DURATION_MS_MAX, description: 'Window in milliseconds.' }),
        ),
      }),
      { maxItems: 100, description: 'Limits to count, besides those that count on every verification.' },
    ),
  ),
  ratelimit: Type.Optional(
    Type.Object({
      cost: Type.Optional(Cost('Deprecated: cost of the limit `default`, unless `ratelimits` names it.')),
    }),
  ),
})
export type VerifyKeyBody = Static<typeof VerifyKeyBody>

export const VerifyKeyReply = Type.Object({
  valid: Type.Boolean(),
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
  requestId: Type.String(),
  keyId: Type.Optional(Type.String()),
  name: Type.Optional(Type.String()),
  ownerId: Type.Optional(Type.String({ description: 'The identity’s externalId, else the key’s own.' })),
  meta: Type.Optional(Meta),
  environment: Type.Optional(Type.String()),
  expires: Type.Optional(Type.Integer({ description: 'Unix milliseconds.' })),
  enabled: Type.Optional(Type.Boolean()),
  permissions: Type.Optional(Type.Array(Type.String())),
  roles: Type.Optional(Type.Array(Type.String())),
  identity: Type.Optional(Type.Object({ id: Type.String(), externalId: Type.String(), meta: Meta })),
  ratelimit: Type.Optional(
    Type.Object(
      {
        limit: Type.Integer(),
        remaining: Type.Integer(),
        reset: Type.Integer({ description: 'Unix milliseconds.' }),
      },
      { description: 'The limit that refused, else the first one counted.' },
    ),
  ),
  remaining: Type.Optional(Type.Integer({ description: 'Uses left.' })),
})
export type VerifyKeyReply = Static<typeof VerifyKeyReply>

const Links = <T extends TSchema>(element: T) => Type.Array(element, { minItems: 1, maxItems: 1000 })

export const AttachPermissionsBody = Type.Object({ keyId: KeyId, permissions: Links(PermissionToAttach) })
export type AttachPermissionsBody = Static<typeof AttachPermissionsBody>
export const RemovePermissionsBody = Type.Object({
  keyId: KeyId,
  permissions: Links(Type.Object(PermissionReference)),
})
export type RemovePermissionsBody = Static<typeof RemovePermissionsBody>
export const AttachRolesBody = Type.Object({ keyId: KeyId, roles: Links(RoleToAttach) })
export type AttachRolesBody = Static<typeof AttachRolesBody>
export const RemoveRolesBody = Type.Object({ keyId: KeyId, roles: Links(Type.Object(RoleReference)) })
export type RemoveRolesBody = Static<typeof RemoveRolesBody>

export const LinkedReply = Type.Array(Type.Object({ id: Type.String(), name: Type.String() }))
export type LinkedReply = Static<typeof LinkedReply>
