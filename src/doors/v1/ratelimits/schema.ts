import { type Static, Type } from '@sinclair/typebox'
import { COUNT_MAX, DURATION_MS_MAX } from '../../../lib/bounds.ts'
import { LIMITS_SEEN_MAX } from '../../../recent/limits-seen.ts'
import { NEAR_LIMIT_MAX } from '../../../recent/near-limit.ts'
import { AnsweredBy, Nullable, PageQuery, PageReply } from '../page.ts'

export const LimitBody = Type.Object({
  namespace: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 512,
      default: 'default',
      description:
        'Namespace of the limit; default `default`. Created on first use if the root key may create namespaces.',
    }),
  ),
  identifier: Type.String({
    maxLength: 1024,
    description: 'Who or what is limited: a user id, an IP address or any other text.',
  }),
  limit: Type.Integer({
    exclusiveMinimum: 0,
    maximum: COUNT_MAX,
    description: 'Tokens allowed in a window, unless an override of the namespace sets another limit.',
  }),
  duration: Type.Integer({
    minimum: 1000,
    maximum: DURATION_MS_MAX,
    description:
      'Length of the window in milliseconds. Windows are fixed: they begin at multiples of this length since the Unix epoch.',
  }),
  cost: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: COUNT_MAX,
      default: 1,
      description:
        'Cost: tokens to take, default 1. If fewer are left, the call is refused and takes none. 0 reads the limit without taking tokens.',
    }),
  ),
  async: Type.Optional(
    Type.Boolean({
      default: false,
      description:
        'True answers at once from a local estimate and counts afterwards: faster, less exact. Default false.',
    }),
  ),
  meta: Type.Optional(
    Type.Record(Type.String(), Type.Unknown(), { description: 'No effect: accepted and not stored.' }),
  ),
  resources: Type.Optional(
    Type.Array(
      Type.Object({
        type: Type.String({ maxLength: 256, description: 'Kind of resource.' }),
        id: Type.String({ maxLength: 256, description: 'Your id of the resource.' }),
        name: Type.Optional(Type.String({ maxLength: 256, description: 'Display name of the resource.' })),
        meta: Type.Optional(
          Type.Record(Type.String(), Type.Unknown(), { description: 'Free-form JSON object.' }),
        ),
      }),
      {
        maxItems: 100,
        description:
          'Resources that the call is about. If given, the decision is written to the audit log. At most 64 000 characters of JSON.',
      },
    ),
  ),
})
export type LimitBody = Static<typeof LimitBody>

export const LimitReply = Type.Object({
  success: Type.Boolean({
    description: 'True if the request may proceed. A refused call also has status 200.',
  }),
  limit: Type.Integer({ description: 'Tokens allowed in a window, after overrides.' }),
  remaining: Type.Integer({ description: 'Tokens left in the current window, never below 0.' }),
  reset: Type.Integer({ description: 'When the window ends, Unix milliseconds.' }),
})
export type LimitReply = Static<typeof LimitReply>

export const MultiLimitBody = Type.Array(LimitBody, {
  minItems: 1,
  maxItems: 1000,
  description:
    'Up to 100 bodies of `ratelimits.limit`. If one is invalid, the whole call fails and no limit is charged.',
})
export type MultiLimitBody = Static<typeof MultiLimitBody>
export const MultiLimitReply = Type.Array(LimitReply, {
  description: 'One result per body, in the same order.',
})

const NamespaceFields = {
  namespaceId: Type.Optional(
    Type.String({
      maxLength: 256,
      description:
        'Id of the namespace. `namespaceId` or `namespaceName` is required; with both, `namespaceName` is ignored.',
    }),
  ),
  namespaceName: Type.Optional(
    Type.String({ maxLength: 512, description: 'Name of the namespace, as in `ratelimits.limit`.' }),
  ),
}
const Identifier = Type.String({
  maxLength: 1024,
  description: 'Identifier or pattern of the override, exactly as it was set. `*` is not a wildcard here.',
})

export const SetOverrideBody = Type.Object({
  ...NamespaceFields,
  identifier: Type.String({
    maxLength: 1024,
    description:
      'Identifier that the override applies to, or a pattern: `*` matches any characters. An exact identifier wins over patterns, and a longer pattern over a shorter one.',
  }),
  limit: Type.Integer({
    minimum: 0,
    maximum: COUNT_MAX,
    description: 'Tokens allowed in a window, instead of the `limit` in the call. 0 refuses every call.',
  }),
  duration: Type.Integer({
    minimum: 1000,
    maximum: DURATION_MS_MAX,
    description: 'Length of the window in milliseconds, instead of the `duration` in the call.',
  }),
  async: Type.Optional(
    Type.Boolean({ default: false, description: 'No effect: stored and returned. Default false.' }),
  ),
})
export type SetOverrideBody = Static<typeof SetOverrideBody>
export const SetOverrideReply = Type.Object({
  overrideId: Type.String({ description: 'Id of the override.' }),
})
export type SetOverrideReply = Static<typeof SetOverrideReply>

export const GetOverrideQuery = Type.Object({ ...NamespaceFields, identifier: Identifier })
export type GetOverrideQuery = Static<typeof GetOverrideQuery>
const OverrideFields = {
  id: Type.String({ description: 'Id of the override.' }),
  identifier: Type.String({
    description: 'Identifier or pattern that the override applies to; `*` matches any characters.',
  }),
  limit: Type.Integer({ description: 'Tokens allowed in a window.' }),
  duration: Type.Integer({ description: 'Length of the window in milliseconds.' }),
}
export const GetOverrideReply = Type.Object({
  ...OverrideFields,
  async: Nullable(Type.Boolean(), 'Value given to setOverride; null = none.'),
})
export type GetOverrideReply = Static<typeof GetOverrideReply>

export const ListOverridesQuery = Type.Object({ ...NamespaceFields, ...PageQuery })
export type ListOverridesQuery = Static<typeof ListOverridesQuery>
export const ListOverridesReply = Type.Object({
  overrides: Type.Array(
    Type.Object({
      ...OverrideFields,
      async: Type.Optional(Type.Boolean({ description: 'Value given to setOverride; absent = none.' })),
    }),
    { description: 'One page of the list, oldest first.' },
  ),
  ...PageReply,
})
export type ListOverridesReply = Static<typeof ListOverridesReply>

export const DeleteOverrideBody = Type.Object({ ...NamespaceFields, identifier: Identifier })
export type DeleteOverrideBody = Static<typeof DeleteOverrideBody>

const NamespaceId = Type.String({
  minLength: 1,
  maxLength: 256,
  description: 'Id of the namespace, from ratelimits.listNamespaces.',
})
const Scope = Nullable(
  Type.Union([Type.Literal('fleet'), Type.Literal('local')]),
  'Where several servers share their limits: `fleet` = one count for all of them, `local` = each server counts this namespace for itself; null = as the environment says, which is `fleet`. Without `TOLLGATE_FLEET` it is stored, and takes effect when there is one.',
)
const Outage = Nullable(
  Type.Union([Type.Literal('share'), Type.Literal('refuse'), Type.Literal('open')]),
  'What decides shared limits of this namespace while their engine cannot be asked: `share` = each server lets its part of the limit through, `refuse` = such calls fail, `open` = each server counts as if alone; null = `TOLLGATE_FLEET_OUTAGE`. Of no effect while the scope is `local`.',
)

export const CreateNamespaceBody = Type.Object({
  name: Type.String({
    minLength: 1,
    maxLength: 512,
    description: 'Name of the namespace, unique in the workspace.',
  }),
  scope: Type.Optional(Scope),
  outage: Type.Optional(Outage),
})
export type CreateNamespaceBody = Static<typeof CreateNamespaceBody>
export const CreateNamespaceReply = Type.Object({
  namespaceId: Type.String({ description: 'Id of the new namespace.' }),
})
export type CreateNamespaceReply = Static<typeof CreateNamespaceReply>

export const UpdateNamespaceBody = Type.Object({
  namespaceId: NamespaceId,
  scope: Type.Optional(Scope),
  outage: Type.Optional(Outage),
})
export type UpdateNamespaceBody = Static<typeof UpdateNamespaceBody>

export const ListNamespacesQuery = Type.Object(PageQuery)
export type ListNamespacesQuery = Static<typeof ListNamespacesQuery>
export const ListNamespacesReply = Type.Object({
  namespaces: Type.Array(
    Type.Object({
      id: Type.String({ description: 'Id of the namespace.' }),
      name: Type.String({ description: 'Name of the namespace, unique in the workspace.' }),
      scope: Scope,
      outage: Outage,
    }),
    { description: 'One page of the list, oldest first.' },
  ),
  ...PageReply,
})
export type ListNamespacesReply = Static<typeof ListNamespacesReply>

export const DeleteNamespaceBody = Type.Object({ namespaceId: NamespaceId })
export type DeleteNamespaceBody = Static<typeof DeleteNamespaceBody>

const NamespaceOfFields = {
  id: Type.String({ description: 'Id of the namespace.' }),
  name: Type.String({ description: 'Name of the namespace.' }),
}
const NamespaceOf = Type.Object(NamespaceOfFields, { description: 'The namespace.' })
const WindowFields = {
  limit: Type.Integer({ description: 'Tokens allowed in a window, after overrides.' }),
  duration: Type.Integer({ description: 'Length of the window in milliseconds, after overrides.' }),
  used: Type.Integer({ description: 'Tokens used in the current window.' }),
  remaining: Type.Integer({ description: 'Tokens left in the current window, never below 0.' }),
  reset: Type.Integer({ description: 'When the window ends, Unix milliseconds.' }),
}

export const GetWindowsQuery = Type.Object({
  ...NamespaceFields,
  identifier: Type.String({ maxLength: 1024, description: 'The identifier, as in `ratelimits.limit`.' }),
})
export type GetWindowsQuery = Static<typeof GetWindowsQuery>
export const GetWindowsReply = Type.Object({
  namespace: Type.Object(
    { ...NamespaceOfFields, scope: Scope, outage: Outage },
    { description: 'The namespace.' },
  ),
  server: AnsweredBy,
  windows: Type.Array(
    Type.Object({
      ...WindowFields,
      askedLimit: Type.Integer({ description: '`limit` that calls asked for.' }),
      askedDuration: Type.Integer({ description: '`duration` that calls asked for, in milliseconds.' }),
      isShared: Type.Boolean({
        description: 'True = calls with any limit share this window, as in the v2 API.',
      }),
    }),
    {
      description: `One window for each limit and duration that calls of this namespace asked this server for lately, at most ${LIMITS_SEEN_MAX} for each HTTP thread; those in use first. Empty after a start, until the next call. Reading takes and counts nothing.`,
    },
  ),
  override: Type.Optional(
    Type.Object(OverrideFields, {
      description:
        'The override that calls with this identifier get. Absent if none matches, or without the right to read overrides.',
    }),
  ),
})
export type GetWindowsReply = Static<typeof GetWindowsReply>

export const ListNearLimitQuery = Type.Object({
  namespaceId: Type.Optional(
    Type.String({
      maxLength: 256,
      description: 'Only of this namespace. Without `namespaceId` and `namespaceName`: of all.',
    }),
  ),
  namespaceName: Type.Optional(
    Type.String({ maxLength: 512, description: 'Only of the namespace with this name.' }),
  ),
  limit: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 100, default: 20, description: 'Items in the answer; default 20.' }),
  ),
})
export type ListNearLimitQuery = Static<typeof ListNearLimitQuery>
export const ListNearLimitReply = Type.Object({
  server: AnsweredBy,
  identifiers: Type.Array(
    Type.Object({
      namespace: NamespaceOf,
      identifier: Type.String({ description: 'The identifier.' }),
      ...WindowFields,
      refused: Type.Integer({ description: 'Calls refused in the current window.' }),
      time: Type.Integer({ description: 'Time of the last decision, Unix milliseconds.' }),
    }),
    {
      description: `Identifiers whose current window has at most a tenth of its limit left, those refused most first. From the memory of this server: it keeps ${NEAR_LIMIT_MAX} for each HTTP thread, over all workspaces, and begins empty after a start.`,
    },
  ),
})
export type ListNearLimitReply = Static<typeof ListNearLimitReply>
