import { type TObject, type TProperties, type TSchema, Type } from '@sinclair/typebox'
import { COUNT_MAX, DURATION_MS_MAX } from '../../lib/bounds.ts'

/** An object whose unknown fields are refused. Those of a `Type.Object` are dropped. */
export const Closed = <P extends TProperties>(
  properties: P,
  options: { description?: string } = {},
): TObject<P> => Type.Object(properties, { additionalProperties: false, ...options })

/** A value that may be null. */
export const Nullable = <S extends TSchema>(schema: S, description: string) =>
  Type.Union([schema, Type.Null()], { description })

const ID_PATTERN = '^[a-zA-Z0-9_]+$'

/** An id that must look like one. */
export const Id = (description: string, { minLength = 1, maxLength = 255 } = {}) =>
  Type.String({ minLength, maxLength, pattern: ID_PATTERN, description })

export const ExternalId = Type.String({
  minLength: 1,
  maxLength: 255,
  pattern: '^[a-zA-Z0-9_.-]+$',
  description: 'Your own id of the user or organisation.',
})

export const Slug = Type.String({
  minLength: 1,
  maxLength: 128,
  pattern: '^[a-zA-Z0-9_:\\-\\.\\*]+$',
  description: 'The permission as keys are asked for it, such as `documents.read`.',
})

export const Meta = (description: string) =>
  Type.Record(Type.String(), Type.Unknown(), { maxProperties: 100, description })

/** A count: 64 bits in the published API, exact here up to 2^53 - 1. */
export const Count = (options: { minimum: number; description: string; default?: number }) =>
  Type.Integer({ maximum: COUNT_MAX, ...options })

/** The end of the year 2099. */
const EXPIRES_MAX = 4_102_444_800_000
export const Expires = Type.Integer({
  minimum: 0,
  maximum: EXPIRES_MAX,
  description: 'When the key expires, Unix milliseconds.',
})

/** A limit of a key or an identity, in a request. Unknown fields of it are dropped. */
export const RatelimitRequest = Type.Object({
  name: Type.String({
    minLength: 3,
    maxLength: 128,
    description: 'Name of the limit, unique for its owner.',
  }),
  limit: Count({ minimum: 1, description: 'Calls allowed in a window.' }),
  duration: Type.Integer({
    minimum: 1000,
    maximum: DURATION_MS_MAX,
    description: 'Length of a window in milliseconds; at most 100 years.',
  }),
  autoApply: Type.Optional(
    Type.Boolean({
      default: false,
      description: 'True: counts at every verification. False: only where a verification names it.',
    }),
  ),
})

/** A limit of a key or an identity, in an answer. */
export const Ratelimit = Type.Object({
  id: Type.String({ description: 'Id of the limit.' }),
  name: Type.String({ description: 'Name of the limit.' }),
  limit: Type.Integer({ description: 'Calls allowed in a window.' }),
  duration: Type.Integer({ description: 'Length of a window in milliseconds.' }),
  autoApply: Type.Boolean({ description: 'Whether it counts at every verification.' }),
})

export const Identity = Type.Object(
  {
    id: Type.String({ description: 'Id of the identity.' }),
    externalId: Type.String({ description: 'Your own id of the user or organisation.' }),
    meta: Type.Optional(Meta('Your own data about the identity. Absent when empty.')),
    ratelimits: Type.Optional(Type.Array(Ratelimit, { description: 'Its limits. Absent when it has none.' })),
  },
  { description: 'The user or organisation that keys belong to.' },
)

export const Permission = Type.Object({
  id: Type.String({ description: 'Id of the permission.' }),
  name: Type.String({ description: 'Display name.' }),
  slug: Type.String({ description: 'The permission as keys are asked for it.' }),
  description: Type.Optional(Type.String({ description: 'Free text. Absent when empty.' })),
})

/** The reply of changes that return nothing. */
export const EmptyReply = Type.Object({})
