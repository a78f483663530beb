import { type Static, Type } from '@sinclair/typebox'
import { Closed, Count } from '../schema.ts'

const Namespace = Type.String({ minLength: 1, maxLength: 512, description: 'Name or id of the namespace.' })
const Identifier = Type.String({
  minLength: 1,
  maxLength: 512,
  description: 'Who or what is limited: a user id, an IP address or any other text.',
})

const THIRTY_DAYS_MS = 2_592_000_000
const limitFields = {
  namespace: Type.String({
    minLength: 1,
    maxLength: 512,
    description:
      'Name or id of the namespace. A new name is created on first use if the root key may create namespaces.',
  }),
  identifier: Identifier,
  limit: Count({
    minimum: 1,
    description: 'Tokens allowed in a window, unless an override of the namespace sets another limit.',
  }),
  duration: Type.Integer({
    minimum: 1000,
    maximum: THIRTY_DAYS_MS,
    description:
      'Length of the window in milliseconds. Windows are fixed: they begin at multiples of this length since the Unix epoch.',
  }),
  cost: Type.Optional(
    Count({
      minimum: 0,
      default: 1,
      description: 'Tokens to take, default 1. If fewer are left, none is taken. 0 only looks.',
    }),
  ),
}

export const LimitBody = Closed(limitFields)
export type LimitBody = Static<typeof LimitBody>

const Limit = Type.Integer({ description: 'The limit that applied: that of an override, if there is one.' })
const Remaining = Type.Integer({
  minimum: 0,
  description: 'Tokens left in the window, without a refused cost.',
})
const Reset = Type.Integer({ description: 'When the window ends, Unix milliseconds.' })
const OverrideId = Type.Optional(
  Type.String({ description: 'Id of the override that applied. Absent when none did.' }),
)

export const LimitData = Type.Object({
  success: Type.Boolean({ description: 'Whether the tokens were taken.' }),
  limit: Limit,
  remaining: Remaining,
  reset: Reset,
  overrideId: OverrideId,
})
export type LimitData = Static<typeof LimitData>

export const MultiLimitBody = Type.Array(Closed(limitFields), {
  minItems: 1,
  maxItems: 100,
  description: 'Limits to check together: all are charged, or none.',
})
export type MultiLimitBody = Static<typeof MultiLimitBody>

export const MultiLimitData = Type.Object({
  passed: Type.Boolean({ description: 'Whether all passed. Otherwise nothing was taken from any of them.' }),
  limits: Type.Array(
    Type.Object({
      namespace: Type.String({ description: 'As in the request.' }),
      identifier: Type.String({ description: 'As in the request.' }),
      limit: Limit,
      remaining: Remaining,
      reset: Reset,
      passed: Type.Boolean({ description: 'Whether this one passes by itself.' }),
      overrideId: OverrideId,
    }),
    { description: 'One for each limit of the request, in its order.' },
  ),
})
export type MultiLimitData = Static<typeof MultiLimitData>

const OverrideIdentifier = Type.String({
  minLength: 1,
  maxLength: 512,
  description: 'Identifier of the override; `*` stands for any text.',
})

export const SetOverrideBody = Closed({
  namespace: Namespace,
  identifier: OverrideIdentifier,
  limit: Count({ minimum: 0, description: 'Tokens allowed in a window. 0 refuses all calls.' }),
  duration: Count({ minimum: 1000, description: 'Length of the window in milliseconds.' }),
})
export const SetOverrideData = Type.Object({
  overrideId: Type.String({ description: 'Id of the override; the same when it existed before.' }),
})

export const GetOverrideBody = Closed({ namespace: Namespace, identifier: Identifier })
export const DeleteOverrideBody = Closed({ namespace: Namespace, identifier: OverrideIdentifier })

export const OverrideData = Type.Object({
  overrideId: Type.String({ description: 'Id of the override.' }),
  identifier: Type.String({ description: 'Identifier of the override, which may be a pattern.' }),
  limit: Type.Integer({ minimum: 0, description: 'Tokens allowed in a window.' }),
  duration: Type.Integer({ description: 'Length of the window in milliseconds.' }),
})

export const OVERRIDES_DEFAULT = 50
export const ListOverridesBody = Closed({
  namespace: Namespace,
  limit: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: 100,
      default: OVERRIDES_DEFAULT,
      description: `Items per page; default ${OVERRIDES_DEFAULT}.`,
    }),
  ),
  cursor: Type.Optional(
    Type.String({ maxLength: 1024, description: '`pagination.cursor` of the previous page.' }),
  ),
})
