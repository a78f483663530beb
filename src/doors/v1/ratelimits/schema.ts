import { type Static, Type } from '@sinclair/typebox'
import { COUNT_MAX, DURATION_MS_MAX } from '../../../lib/bounds.ts'
import { Nullable, PageQuery, PageReply } from '../page.ts'

export const LimitBody = Type.Object({
  namespace: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 512,
      default: 'default',
      description: 'Groups limits; made on first use when the root key may. Default `default`.',
    }),
  ),
  identifier: Type.String({
    maxLength: 1024,
    description: 'Who or what is limited: a user id, an address, anything.',
  }),
  limit: Type.Integer({
    exclusiveMinimum: 0,
    maximum: COUNT_MAX,
    description: 'Tokens allowed in a window. An override of the namespace beats it.',
  }),
  duration: Type.Integer({
    minimum: 1000,
    maximum: DURATION_MS_MAX,
    description:
      'Length of the window in milliseconds. Windows are fixed and begin at multiples of it since the epoch.',
  }),
  cost: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: COUNT_MAX,
      default: 1,
      description: 'Tokens to take, default 1. More than are left: refused, nothing taken. 0 only looks.',
    }),
  ),
  async: Type.Optional(
    Type.Boolean({
      default: false,
      description:
        'Answer at once from what is known here and count afterwards: faster, less exact. Default false.',
    }),
  ),
  meta: Type.Optional(Type.Record(Type.String(), Type.Unknown(), { description: 'Accepted, not stored.' })),
  resources: Type.Optional(
    Type.Array(
      Type.Object({
        type: Type.String({ maxLength: 256, description: 'Kind of resource.' }),
        id: Type.String({ maxLength: 256, description: 'Your id of it.' }),
        name: Type.Optional(Type.String({ maxLength: 256, description: 'For people.' })),
        meta: Type.Optional(
          Type.Record(Type.String(), Type.Unknown(), { description: 'Free-form JSON object.' }),
        ),
      }),
      {
        maxItems: 100,
        description:
          'What is about to be accessed; the decision is then written to the audit log. At most 64 000 characters as JSON.',
      },
    ),
  ),
})
export type LimitBody = Static<typeof LimitBody>

export const LimitReply = Type.Object({
  success: Type.Boolean({
    description: 'Whether the request may go on. A refusal is an answer with status 200.',
  }),
  limit: Type.Integer({ description: 'Tokens allowed in a window, after overrides.' }),
  remaining: Type.Integer({ description: 'Tokens left in this window, never below 0.' }),
  reset: Type.Integer({ description: 'When the window ends, Unix milliseconds.' }),
})
export type LimitReply = Static<typeof LimitReply>

export const MultiLimitBody = Type.Array(LimitBody, {
  minItems: 1,
  maxItems: 1000,
  description:
    'Bodies of `ratelimits.limit`. One that is malformed refuses them all, and nothing is charged.',
})
export type MultiLimitBody = Static<typeof MultiLimitBody>
export const MultiLimitReply = Type.Array(LimitReply, {
  description: 'One answer for each, in the same order.',
})

const NamespaceFields = {
  namespaceId: Type.Optional(
    Type.String({ maxLength: 256, description: 'Wins over `namespaceName`; one of the two is required.' }),
  ),
  namespaceName: Type.Optional(
    Type.String({ maxLength: 512, description: 'The namespace as named in ratelimits.limit.' }),
  ),
}
const Identifier = Type.String({
  maxLength: 1024,
  description: 'Exactly as it was set; `*` stands for itself here.',
})

export const SetOverrideBody = Type.Object({
  ...NamespaceFields,
  identifier: Type.String({
    maxLength: 1024,
    description:
      'Whom it is for: any identifier of ratelimits.limit. `*` matches any run of characters. An exact one beats patterns, a longer pattern a shorter one.',
  }),
  limit: Type.Integer({
    minimum: 0,
    maximum: COUNT_MAX,
    description: 'Tokens allowed in a window, instead of what the caller asks for. 0 blocks.',
  }),
  duration: Type.Integer({
    minimum: 1000,
    maximum: DURATION_MS_MAX,
    description: 'Length of the window in milliseconds, instead of what the caller asks for.',
  }),
  async: Type.Optional(
    Type.Boolean({ default: false, description: 'Stored and returned, no effect. Default false.' }),
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
  identifier: Type.String({ description: 'Whom it is for; `*` matches any run of characters.' }),
  limit: Type.Integer({ description: 'Tokens allowed in a window.' }),
  duration: Type.Integer({ description: 'Length of the window in milliseconds.' }),
}
export const GetOverrideReply = Type.Object({
  ...OverrideFields,
  async: Nullable(Type.Boolean(), 'As it was set; null = not given.'),
})
export type GetOverrideReply = Static<typeof GetOverrideReply>

export const ListOverridesQuery = Type.Object({ ...NamespaceFields, ...PageQuery })
export type ListOverridesQuery = Static<typeof ListOverridesQuery>
export const ListOverridesReply = Type.Object({
  overrides: Type.Array(
    Type.Object({
      ...OverrideFields,
      async: Type.Optional(Type.Boolean({ description: 'As it was set; absent = not given.' })),
    }),
    { description: 'One page, oldest first.' },
  ),
  ...PageReply,
})
export type ListOverridesReply = Static<typeof ListOverridesReply>

export const DeleteOverrideBody = Type.Object({ ...NamespaceFields, identifier: Identifier })
export type DeleteOverrideBody = Static<typeof DeleteOverrideBody>

export const CreateNamespaceBody = Type.Object({
  name: Type.String({ minLength: 1, maxLength: 512, description: 'Unique in the workspace.' }),
})
export type CreateNamespaceBody = Static<typeof CreateNamespaceBody>
export const CreateNamespaceReply = Type.Object({
  namespaceId: Type.String({ description: 'Id of the new namespace.' }),
})
export type CreateNamespaceReply = Static<typeof CreateNamespaceReply>

export const ListNamespacesQuery = Type.Object(PageQuery)
export type ListNamespacesQuery = Static<typeof ListNamespacesQuery>
export const ListNamespacesReply = Type.Object({
  namespaces: Type.Array(
    Type.Object({
      id: Type.String({ description: 'Id of the namespace.' }),
      name: Type.String({ description: 'Unique in the workspace.' }),
    }),
    { description: 'One page, oldest first.' },
  ),
  ...PageReply,
})
export type ListNamespacesReply = Static<typeof ListNamespacesReply>

export const DeleteNamespaceBody = Type.Object({
  namespaceId: Type.String({ minLength: 1, maxLength: 256, description: 'From listNamespaces.' }),
})
export type DeleteNamespaceBody = Static<typeof DeleteNamespaceBody>
