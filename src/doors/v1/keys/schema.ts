import { type Static, type TSchema, Type } from '@sinclair/typebox'
import { KEY_STATES, KEY_USES } from '../../../api/keys/search/store.ts'
import { COUNT_MAX, DURATION_MS_MAX, TIME_MS_MAX } from '../../../lib/bounds.ts'
import { Overlap } from '../overlap.ts'
import { Nullable, PageQuery, PageReply } from '../page.ts'
import { UnixMs } from '../unix-ms.ts'

export const Meta = Type.Record(Type.String(), Type.Unknown(), {
  description: 'Free-form JSON object, returned by every verification. At most 64 000 characters of JSON.',
})

/** Names of roles or slugs of permissions. Duplicates are ignored. */
const Names = (what: string) =>
  Type.Array(Type.String({ minLength: 1, maxLength: 512 }), { maxItems: 1000, description: what })

export const Refill = Type.Object(
  {
    interval: Type.Union([Type.Literal('daily'), Type.Literal('monthly')], {
      description: '`daily`: at each UTC midnight. `monthly`: at the UTC midnight that begins `refillDay`.',
    }),
    amount: Type.Integer({
      minimum: 1,
      maximum: COUNT_MAX,
      description: 'Credits added to `remaining` at each refill.',
    }),
    refillDay: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: 31,
        default: 1,
        description:
          'Day of the month, for `monthly` only; default 1. Shorter months refill on their last day.',
      }),
    ),
  },
  { description: 'Adds credits to `remaining` each day or each month.' },
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
          description: 'Length of the window in milliseconds. Required unless `refillInterval` is given.',
        }),
      ),
      type: Type.Optional(
        Type.Union([Type.Literal('fast'), Type.Literal('consistent')], {
          deprecated: true,
          description: 'Deprecated, no effect.',
        }),
      ),
      async: Type.Optional(
        Type.Boolean({ default: false, description: 'No effect: rate limits of keys are always exact.' }),
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
          description: 'Deprecated: use `duration`. Milliseconds.',
        }),
      ),
    },
    { description: 'Rate limit that every verification of the key counts against.' },
  )
export const NewKeyRatelimit = KeyRatelimit({ durationMin: 1000 })
export const UpdatedKeyRatelimit = Type.Object(
  {
    name: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 256,
        description:
          'Name of the limit to change, default `default`. One of another name must exist already: v2 creates it.',
      }),
    ),
    ...KeyRatelimit({ durationMin: 1 }).properties,
  },
  { description: 'One rate limit of the key. Its other limits stay.' },
)

export const Expires = UnixMs({
  minimum: -TIME_MS_MAX,
  description: 'When the key expires, Unix milliseconds. 0 = never.',
})
/** An empty text counts as absent, as in v1. */
export const ExternalId = Type.String({
  maxLength: 256,
  description:
    'Your id of the user or organisation. The key is connected to the identity with this id, which is created if it does not exist. An empty text counts as absent.',
})

/** Fields that createKey and the imports share. */
export const NewKeyFields = {
  name: Type.Optional(Type.String({ maxLength: 256, description: 'Display name of the key.' })),
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
      description: 'Credits: how often the key may be used. Without it, credits are unlimited.',
    }),
  ),
  refill: Type.Optional(Refill),
  enabled: Type.Optional(
    Type.Boolean({ default: true, description: 'False refuses the key. Default true.' }),
  ),
  environment: Type.Optional(
    Type.String({
      maxLength: 256,
      description: 'Free label such as live or test. Tollgate returns it and does not check it.',
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
  apiId: Type.String({ maxLength: 256, description: 'Id of the API that the key belongs to.' }),
  prefix: Type.Optional(
    keyPrefix({
      minLength: 0,
      description: 'Makes the key look like `<prefix>_<random>`. Visible ASCII without quotes, < and >.',
    }),
  ),
  byteLength: Type.Optional(
    Type.Integer({
      minimum: 16,
      maximum: 255,
      default: 16,
      description: 'Number of random bytes in the key; default 16.',
    }),
  ),
  ...NewKeyFields,
  ratelimit: Type.Optional(NewKeyRatelimit),
  recoverable: Type.Optional(
    Type.Boolean({
      default: false,
      description: 'Also store the key encrypted, so that it can be shown again. Default false.',
    }),
  ),
})
export type CreateKeyBody = Static<typeof CreateKeyBody>

export const CreateKeyReply = Type.Object({
  keyId: Type.String({ description: 'Id of the key for later calls. Not secret.' }),
  key: Type.String({
    description: 'The key itself, returned only here. Pass it to its user now: only its hash is stored.',
  }),
})
export type CreateKeyReply = Static<typeof CreateKeyReply>

const KeyId = Type.String({
  minLength: 1,
  maxLength: 256,
  description: 'Id of the key, from keys.createKey or apis.listKeys.',
})
/** `decrypt` of getKey and listKeys. */
export const Decrypt = Type.Boolean({
  default: false,
  description:
    'True also returns `plaintext` of recoverable keys; the root key needs `decrypt_key`. Default false.',
})

const IdentityFields = {
  id: Type.String({ description: 'Id of the identity.' }),
  externalId: Type.String({ description: 'Your id of the user or organisation.' }),
}
const ofTheKey = { description: 'The identity that the key belongs to.' }
const IdentityName = Type.Object(IdentityFields, ofTheKey)
const Identity = Type.Object({ ...IdentityFields, meta: Meta }, ofTheKey)

export const KeyObject = Type.Object({
  id: Type.String({ description: 'Id of the key. Not secret.' }),
  start: Type.String({ description: 'The first characters of the key, to recognise it by.' }),
  apiId: Type.String({ description: 'Id of the API that the key belongs to.' }),
  workspaceId: Type.String({ description: 'Id of the workspace that owns the key.' }),
  name: Type.Optional(Type.String({ description: 'Display name of the key.' })),
  ownerId: Type.Optional(Type.String({ deprecated: true, description: 'Deprecated: use `identity`.' })),
  meta: Type.Optional(Meta),
  createdAt: Type.Integer({ description: 'When the key was created, Unix milliseconds.' }),
  updatedAt: Type.Optional(Type.Integer({ description: 'When the key last changed, Unix milliseconds.' })),
  expires: Type.Optional(
    Type.Integer({ description: 'When the key expires, Unix milliseconds; absent = never.' }),
  ),
  remaining: Type.Optional(Type.Integer({ description: 'Credits left; absent = unlimited.' })),
  refill: Type.Optional(
    Type.Object(
      {
        interval: Type.Union([Type.Literal('daily'), Type.Literal('monthly')], {
          description: 'How often credits are added.',
        }),
        amount: Type.Integer({ description: 'Credits added at each refill.' }),
        refillDay: Nullable(Type.Integer(), 'Day of the month of a monthly refill; null = daily.'),
        lastRefillAt: Type.Optional(
          Type.Integer({ description: 'When credits were last added, Unix milliseconds; absent = not yet.' }),
        ),
      },
      { description: 'Credits added each day or each month.' },
    ),
  ),
  ratelimit: Type.Optional(
    Type.Object(
      {
        async: Type.Boolean({ description: 'Always false.' }),
        limit: Type.Integer({ description: 'Verifications allowed in a window.' }),
        duration: Type.Integer({ description: 'Length of the window in milliseconds.' }),
        refillRate: Type.Integer({ deprecated: true, description: 'Deprecated: same as `limit`.' }),
        refillInterval: Type.Integer({ deprecated: true, description: 'Deprecated: same as `duration`.' }),
      },
      { description: 'Rate limit that every verification of the key counts against.' },
    ),
  ),
  roles: Type.Array(Type.String(), { description: 'Names of the key’s roles.' }),
  permissions: Type.Array(Type.String(), {
    description: 'Slugs of the permissions that the key has, directly or through a role.',
  }),
  enabled: Type.Boolean({ description: 'False = the key is refused.' }),
  environment: Type.Optional(
    Type.String({ description: 'Environment label given when the key was created.' }),
  ),
  identity: Type.Optional(Identity),
  plaintext: Type.Optional(
    Type.String({ description: 'The key itself. Only with `decrypt`, and only if the key is recoverable.' }),
  ),
})
export type KeyObject = Static<typeof KeyObject>

export const GetKeyQuery = Type.Object({ keyId: KeyId, decrypt: Type.Optional(Decrypt) })
export type GetKeyQuery = Static<typeof GetKeyQuery>

export const ListKeysOfAllApisQuery = Type.Object({
  ...PageQuery,
  identityId: Type.Optional(
    Type.String({ minLength: 1, maxLength: 256, description: 'Only keys of this identity.' }),
  ),
  roleId: Type.Optional(
    Type.String({ minLength: 1, maxLength: 256, description: 'Only keys that have this role.' }),
  ),
  permissionId: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 256,
      description: 'Only keys that have this permission of their own, not through a role.',
    }),
  ),
})
export type ListKeysOfAllApisQuery = Static<typeof ListKeysOfAllApisQuery>
export const ListKeysOfAllApisReply = Type.Object({
  keys: Type.Array(
    Type.Object({
      id: Type.String({ description: 'Id of the key. Not secret.' }),
      start: Type.String({ description: 'The first characters of the key, to recognise it by.' }),
      apiId: Type.String({ description: 'Id of the API that the key belongs to.' }),
      name: Type.Optional(Type.String({ description: 'Display name of the key.' })),
      enabled: Type.Boolean({ description: 'False = the key is refused.' }),
      expires: Type.Optional(
        Type.Integer({ description: 'When the key expires, Unix milliseconds; absent = never.' }),
      ),
      createdAt: Type.Integer({ description: 'When the key was created, Unix milliseconds.' }),
    }),
    {
      description:
        'One page of the list, oldest first; keys of an identity by API. It may hold fewer than `limit` where many keys were deleted.',
    },
  ),
  total: Type.Integer({ description: 'Number of keys on all pages together; counts to 1000.' }),
  cursor: Type.Optional(
    Type.String({ description: 'Send this as `cursor` to get the next page. Absent on the last page.' }),
  ),
})
export type ListKeysOfAllApisReply = Static<typeof ListKeysOfAllApisReply>

export const WhoamiBody = Type.Object({
  key: Type.String({ minLength: 1, maxLength: 4096, description: 'The key itself, not its id.' }),
})
export type WhoamiBody = Static<typeof WhoamiBody>
export const WhoamiReply = Type.Object({
  id: Type.String({ description: 'Id of the key. Not secret.' }),
  name: Type.Optional(Type.String({ description: 'Display name of the key.' })),
  remaining: Type.Optional(Type.Integer({ description: 'Credits left; absent = unlimited.' })),
  identity: Type.Optional(IdentityName),
  meta: Type.Optional(Meta),
  createdAt: Type.Integer({ description: 'When the key was created, Unix milliseconds.' }),
  enabled: Type.Boolean({ description: 'False = the key is refused.' }),
  environment: Type.Optional(
    Type.String({ description: 'Environment label given when the key was created.' }),
  ),
})
export type WhoamiReply = Static<typeof WhoamiReply>

const LinkedId = (what: string) =>
  Type.Optional(
    Type.String({
      minLength: 3,
      maxLength: 256,
      description: `Id of the ${what}; if given, the name is ignored.`,
    }),
  )
const LinkedText = (description: string) =>
  Type.Optional(Type.String({ minLength: 1, maxLength: 256, description }))
const Create = (what: string) =>
  Type.Optional(
    Type.Boolean({
      default: false,
      description: `Create the ${what} if it does not exist. Default false.`,
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
      description: 'Deprecated: use `slug`.',
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
  name: Type.Optional(Nullable(Type.String({ maxLength: 256 }), 'Display name of the key; null clears it.')),
  meta: Type.Optional(
    Nullable(Meta, 'Replaces the whole object; null clears it. At most 64 000 characters of JSON.'),
  ),
  externalId: Type.Optional(
    Nullable(
      Type.String({ minLength: 1, maxLength: 256 }),
      'Your id of the user or organisation; null disconnects the key from its identity.',
    ),
  ),
  ownerId: Type.Optional(
    Nullable(
      Type.String({ maxLength: 256, deprecated: true }),
      'Deprecated: use `externalId`. Ignored if `externalId` is given.',
    ),
  ),
  expires: Type.Optional(Nullable(Expires, 'When the key expires, Unix milliseconds; null = never.')),
  remaining: Type.Optional(
    Nullable(Type.Integer({ minimum: 0, maximum: COUNT_MAX }), 'Credits left; null = unlimited.'),
  ),
  ratelimit: Type.Optional(
    Nullable(
      UpdatedKeyRatelimit,
      'One rate limit of the key; its other limits stay. Null removes `default`, against which every verification counts.',
    ),
  ),
  refill: Type.Optional(Nullable(Refill, 'Adds credits each day or each month; null stops refills.')),
  enabled: Type.Optional(Type.Boolean({ description: 'False refuses the key; true accepts it again.' })),
  roles: Type.Optional(
    Type.Array(RoleToAttach, { maxItems: 1000, description: 'Replaces the key’s roles; [] removes all.' }),
  ),
  permissions: Type.Optional(
    Type.Array(PermissionToAttach, {
      maxItems: 1000,
      description: 'Replaces the key’s direct permissions; [] removes all.',
    }),
  ),
})
export type UpdateKeyBody = Static<typeof UpdateKeyBody>

export const DeleteKeyBody = Type.Object({
  keyId: KeyId,
  permanent: Type.Optional(
    Type.Boolean({
      default: false,
      description:
        'True also removes the key’s record, so that the same key can be imported again. Default false.',
    }),
  ),
})
export type DeleteKeyBody = Static<typeof DeleteKeyBody>

export const EraseKeyBody = Type.Object({ keyId: KeyId })
export type EraseKeyBody = Static<typeof EraseKeyBody>

export const RerollKeyBody = Type.Object({ keyId: KeyId, overlap: Overlap })
export type RerollKeyBody = Static<typeof RerollKeyBody>
export const RerollKeyReply = Type.Object({
  keyId: Type.String({ description: 'Id of the new key for later calls. Not secret.' }),
  key: Type.String({
    description: 'The new key itself, returned only here. Pass it to its user now: only its hash is stored.',
  }),
  oldKeyExpires: Type.Integer({ description: 'When the old key expires, Unix milliseconds.' }),
})
export type RerollKeyReply = Static<typeof RerollKeyReply>

export const UpdateRemainingBody = Type.Object({
  keyId: KeyId,
  op: Type.Union([Type.Literal('increment'), Type.Literal('decrement'), Type.Literal('set')], {
    description: '`increment` adds `value` to the credits, `decrement` subtracts it, `set` replaces them.',
  }),
  value: Nullable(
    Type.Integer({ minimum: -COUNT_MAX, maximum: COUNT_MAX }),
    'Number of credits. A result below 0 becomes 0; a result above 9007199254740991 is refused. Null, only with `set`, makes credits unlimited.',
  ),
})
export type UpdateRemainingBody = Static<typeof UpdateRemainingBody>
export const UpdateRemainingReply = Type.Object({
  remaining: Nullable(Type.Integer(), 'Credits left after the change; null = unlimited.'),
})
export type UpdateRemainingReply = Static<typeof UpdateRemainingReply>

const Instant = (description: string) => Type.Optional(UnixMs({ description }))
export const KeyVerificationsQuery = Type.Object({
  keyId: Type.Optional(
    Type.String({
      maxLength: 256,
      description: 'Only this key. `keyId` or `ownerId` is required; with both, `ownerId` is ignored.',
    }),
  ),
  ownerId: Type.Optional(Type.String({ maxLength: 256, description: 'All keys of this owner, added up.' })),
  start: Instant('Start of the range, Unix milliseconds. Default, also for 0: 24 hours ago.'),
  end: Instant('End of the range, Unix milliseconds. Default, also for 0: now.'),
  granularity: Type.Optional(
    Type.Union([Type.Literal('day')], { default: 'day', description: 'Only `day`: one entry per UTC day.' }),
  ),
})
export type KeyVerificationsQuery = Static<typeof KeyVerificationsQuery>
export const KeyVerificationsReply = Type.Object({
  verifications: Type.Array(
    Type.Object({
      time: Type.Integer({ description: 'Start of the UTC day, Unix milliseconds.' }),
      success: Type.Integer({ description: 'Verifications that ended with `VALID`.' }),
      rateLimited: Type.Integer({ description: 'Verifications refused by a rate limit.' }),
      usageExceeded: Type.Integer({ description: 'Verifications refused because no credits were left.' }),
    }),
    { description: 'Days with at least one verification, oldest first.' },
  ),
})
export type KeyVerificationsReply = Static<typeof KeyVerificationsReply>

const Tags = (description: string) =>
  Type.Optional(Type.Array(Type.String({ minLength: 1, maxLength: 128 }), { maxItems: 10, description }))

const Cost = (description: string, options: { deprecated?: boolean } = {}) =>
  Type.Integer({ minimum: 0, maximum: COUNT_MAX, default: 1, description, ...options })

export const VerifyKeyBody = Type.Object({
  key: Type.String({ minLength: 1, maxLength: 4096, description: 'The key itself, as your user sent it.' }),
  apiId: Type.Optional(
    Type.String({
      maxLength: 256,
      description: 'If given, keys of other APIs are refused with `FORBIDDEN`.',
    }),
  ),
  tags: Tags(
    'Labels of this verification, to split usage by. Tags do not change the result. Per hour, the 1000 tag sets with the most verifications are kept (bound `tagSets`); the rest count as `(other)`.',
  ),
  authorization: Type.Optional(
    Type.Object(
      {
        permissions: Type.Optional(
          Type.Unknown({
            description:
              'A permission slug, or {"and": […]} or {"or": […]} with slugs and nested conditions.',
          }),
        ),
      },
      { description: 'Permissions that the key must have.' },
    ),
  ),
  remaining: Type.Optional(
    Type.Object(
      {
        cost: Type.Optional(
          Cost('Credits to take, default 1. If fewer are left, the key is refused and no credits are taken.'),
        ),
      },
      { description: 'Credits that this verification takes.' },
    ),
  ),
  ratelimits: Type.Optional(
    Type.Array(
      Type.Object({
        name: Type.String({
          minLength: 1,
          maxLength: 256,
          description: 'Name of a limit of the key or its identity. With `limit` and `duration`, any name.',
        }),
        cost: Type.Optional(Cost('Cost: tokens to take from the limit, default 1.')),
        limit: Type.Optional(
          Type.Integer({
            minimum: 0,
            maximum: COUNT_MAX,
            description:
              'Tokens allowed in a window. Given together with `duration`, it replaces a configured limit of that name.',
          }),
        ),
        duration: Type.Optional(
          Type.Integer({
            minimum: 1,
            maximum: DURATION_MS_MAX,
            description: 'Length of the window in milliseconds.',
          }),
        ),
      }),
      {
        maxItems: 100,
        description: 'Rate limits to check, in addition to the key’s own limit, which is always checked.',
      },
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
  valid: Type.Boolean({ description: 'True if the key may be used for this request.' }),
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
    { description: 'Outcome of the verification: `VALID`, or why the key was refused.' },
  ),
  requestId: Type.String({ description: 'Id of this request, for logs and support.' }),
  keyId: Type.Optional(Type.String({ description: 'Id of the key; absent with `NOT_FOUND`.' })),
  name: Type.Optional(Type.String({ description: 'Display name of the key.' })),
  ownerId: Type.Optional(
    Type.String({ description: '`externalId` of the identity, else the `ownerId` stored with the key.' }),
  ),
  meta: Type.Optional(Meta),
  environment: Type.Optional(
    Type.String({ description: 'Environment label given when the key was created.' }),
  ),
  expires: Type.Optional(
    Type.Integer({ description: 'When the key expires, Unix milliseconds; absent = never.' }),
  ),
  enabled: Type.Optional(Type.Boolean({ description: 'False = the key is refused.' })),
  permissions: Type.Optional(
    Type.Array(Type.String(), {
      description: 'Slugs of the permissions that the key has, directly or through a role.',
    }),
  ),
  roles: Type.Optional(Type.Array(Type.String(), { description: 'Names of the key’s roles.' })),
  identity: Type.Optional(Identity),
  ratelimit: Type.Optional(
    Type.Object(
      {
        limit: Type.Integer({ description: 'Tokens allowed in a window.' }),
        remaining: Type.Integer({ description: 'Tokens left in the current window.' }),
        reset: Type.Integer({ description: 'When the window ends, Unix milliseconds.' }),
      },
      { description: 'The rate limit that refused, else the first one that was checked.' },
    ),
  ),
  remaining: Type.Optional(Type.Integer({ description: 'Credits left; absent = unlimited.' })),
})
export type VerifyKeyReply = Static<typeof VerifyKeyReply>

const Links = <T extends TSchema>(element: T, description: string) =>
  Type.Array(element, { minItems: 1, maxItems: 1000, description })

export const AttachPermissionsBody = Type.Object({
  keyId: KeyId,
  permissions: Links(PermissionToAttach, 'Permissions; each needs `id`, `slug` or `name`.'),
})
export type AttachPermissionsBody = Static<typeof AttachPermissionsBody>
export const RemovePermissionsBody = Type.Object({
  keyId: KeyId,
  permissions: Links(Type.Object(PermissionReference), 'Permissions; each needs `id`, `slug` or `name`.'),
})
export type RemovePermissionsBody = Static<typeof RemovePermissionsBody>
export const AttachRolesBody = Type.Object({
  keyId: KeyId,
  roles: Links(RoleToAttach, 'Roles; each needs `id` or `name`.'),
})
export type AttachRolesBody = Static<typeof AttachRolesBody>
export const RemoveRolesBody = Type.Object({
  keyId: KeyId,
  roles: Links(Type.Object(RoleReference), 'Roles; each needs `id` or `name`.'),
})
export type RemoveRolesBody = Static<typeof RemoveRolesBody>

export const LinkedReply = Type.Array(
  Type.Object({
    id: Type.String({ description: 'Id of the permission or role.' }),
    name: Type.String({ description: 'Name of the permission or role.' }),
  }),
)
export type LinkedReply = Static<typeof LinkedReply>

export const SearchKeysQuery = Type.Object({
  apiId: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 256,
      description: 'Only keys of this API. Default: of all APIs.',
    }),
  ),
  search: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 256,
      description:
        'Only keys whose `start`, name, id or external id begins with this text. The name is compared without regard to case.',
    }),
  ),
  state: Type.Optional(
    Type.Union(
      KEY_STATES.map((state) => Type.Literal(state)),
      {
        description:
          'Only keys in this state. `active`: enabled and not expired. `expiresSoon`: within 7 days. `lowCredits`: 10 credits left or fewer.',
      },
    ),
  ),
  used: Type.Optional(
    Type.Union(
      KEY_USES.map((used) => Type.Literal(used)),
      {
        description:
          'Only keys last verified at that time, whatever the outcome, or `never`, as far as usage is kept. Usage is known to the hour: the hour in which the time begins counts whole.',
      },
    ),
  ),
  ...PageQuery,
})
export type SearchKeysQuery = Static<typeof SearchKeysQuery>
export const SearchKeysReply = Type.Object({
  keys: Type.Array(KeyObject, {
    description:
      'One page of the keys found, newest first. With a filter a page may hold fewer than `limit`, or none, and still have a `cursor`.',
  }),
  total: Type.Integer({
    description: 'Number of keys found on all pages together. See `isTotalExact`.',
  }),
  isTotalExact: Type.Boolean({
    description: 'False: there are `total` keys at least. With a filter counting ends at 1000.',
  }),
  cursor: PageReply.cursor,
})
export type SearchKeysReply = Static<typeof SearchKeysReply>

export const GetLastUsedQuery = Type.Object({
  keyId: Type.Array(Type.String({ minLength: 1, maxLength: 256 }), {
    minItems: 1,
    maxItems: 100,
    description: 'Ids of keys. Repeat the parameter for several.',
  }),
})
export type GetLastUsedQuery = Static<typeof GetLastUsedQuery>
export const GetLastUsedReply = Type.Object({
  keys: Type.Array(
    Type.Object({
      keyId: Type.String({ description: 'Id of the key.' }),
      lastUsed: Type.Optional(
        Type.Integer({
          description:
            'Start of the hour of the last verification, whatever its outcome, Unix milliseconds; of the day, where hours are no longer kept. Absent = not verified as far as usage is kept.',
        }),
      ),
    }),
    { description: 'The keys that exist, in the order of the request.' },
  ),
})
export type GetLastUsedReply = Static<typeof GetLastUsedReply>

export const AskServersBody = Type.Object({ keyId: KeyId })
export type AskServersBody = Static<typeof AskServersBody>

export const ExplainKeyBody = Type.Object({
  keyId: KeyId,
  apiId: Type.Optional(
    Type.String({ minLength: 1, maxLength: 256, description: 'The API that the verification asks for.' }),
  ),
  ipAddress: Type.Optional(
    Type.String({ minLength: 1, maxLength: 64, description: 'The client’s IP address.' }),
  ),
  authorization: VerifyKeyBody.properties.authorization,
  tags: Tags(
    'Labels that the verification would have. They are refused where a verification refuses them, and do not change the result.',
  ),
})
export type ExplainKeyBody = Static<typeof ExplainKeyBody>
export const ExplainKeyReply = Type.Object({
  valid: Type.Boolean({
    description:
      'True if a verification of cost 1 would pass now, as far as it does not depend on the request.',
  }),
  code: VerifyKeyReply.properties.code,
  checks: Type.Array(
    Type.Object({
      check: Type.Union(
        (
          ['workspace', 'enabled', 'api', 'expiry', 'address', 'permissions', 'ratelimit', 'credits'] as const
        ).map((check) => Type.Literal(check)),
        {
          description: 'What is checked. `ratelimit` occurs once for each limit of the key and its identity.',
        },
      ),
      verdict: Type.Union([Type.Literal('passes'), Type.Literal('refuses'), Type.Literal('depends')], {
        description: '`depends`: on what a request sends, which this call does not say.',
      }),
      code: Type.Optional(
        Type.String({
          description: 'The outcome of a verification that this check refuses. Absent otherwise.',
        }),
      ),
      fact: Type.String({ description: 'What the check found, as a sentence.' }),
      limit: Type.Optional(
        Type.Object(
          {
            name: Type.String({ description: 'Name of the limit.' }),
            owner: Type.Union([Type.Literal('key'), Type.Literal('identity')], {
              description: 'Whose limit it is.',
            }),
            limit: Type.Integer({ description: 'Tokens allowed in a window.' }),
            duration: Type.Integer({ description: 'Length of the window in milliseconds.' }),
            remaining: Type.Integer({ description: 'Tokens left in the current window.' }),
            reset: Type.Integer({ description: 'When the window ends, Unix milliseconds.' }),
          },
          { description: 'Only of `ratelimit`.' },
        ),
      ),
      credits: Type.Optional(
        Type.Object(
          {
            remaining: Type.Integer({ description: 'Credits left.' }),
            refill: Type.Optional(
              Type.Object(
                {
                  amount: Type.Integer({ description: 'Credits of the next refill.' }),
                  dueAt: Type.Integer({
                    description:
                      'When it is due, Unix milliseconds; not later than now: the next verification adds it.',
                  }),
                },
                { description: 'The next refill.' },
              ),
            ),
          },
          { description: 'Only of `credits`, when they are counted.' },
        ),
      ),
    }),
    { description: 'Every check of a verification, in its order.' },
  ),
})
export type ExplainKeyReply = Static<typeof ExplainKeyReply>
