import { type Static, type TSchema, Type } from '@sinclair/typebox'
import { ROWS_MAX } from '../../../api/analytics/series.ts'
import { IDENTIFIERS_KEPT_MAX } from '../../../usage/rollup.ts'
import { UnixMs } from '../unix-ms.ts'

const nullable = <S extends TSchema>(schema: S, description: string) =>
  Type.Optional(Type.Union([schema, Type.Null()], { description }))

const time = () => UnixMs()

/** Several values of one enum, as repeated parameters or joined by commas (as the official client sends lists). */
function choices(values: readonly string[], description: string) {
  const one = values.join('|')
  return Type.Optional(
    Type.Array(
      Type.String({
        maxLength: 256,
        pattern: `^(${one})(,(${one}))*$`,
        errorMessage: `Invalid enum value. Expected ${values.map((value) => `'${value}'`).join(' | ')}`,
      }),
      { maxItems: 16, description: `${description} Values: ${values.join(', ')}.` },
    ),
  )
}

const range = {
  start: nullable(
    time(),
    'Unix milliseconds, cut to the start of its hour (UTC). Default: 24 hours before `end`. Must be before `end`.',
  ),
  end: nullable(
    time(),
    'Unix milliseconds, cut to the start of its hour (UTC); that hour is included. Default: now.',
  ),
}

const cut = {
  order: Type.Optional(
    Type.Union([Type.Literal('asc'), Type.Literal('desc')], {
      default: 'asc',
      description: 'Used with orderBy. Default asc.',
    }),
  ),
  limit: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: Number.MAX_SAFE_INTEGER,
      description: `Datapoints at most, cut after sorting. Without it, more than ${ROWS_MAX} are refused.`,
    }),
  ),
}

export const GetVerificationsQuery = Type.Object({
  apiId: Type.String({ maxLength: 256, description: 'Only keys of this API, deleted ones included.' }),
  externalId: Type.Optional(
    Type.String({
      maxLength: 256,
      description: 'Only keys that were connected to this identity at the time.',
    }),
  ),
  keyId: Type.Optional(
    Type.Array(Type.String({ maxLength: 32_768 }), {
      maxItems: 1000,
      description: 'Only these keys, added up unless grouped by key. Repeat it, or join with commas.',
    }),
  ),
  tag: Type.Optional(
    Type.Array(Type.String({ maxLength: 256 }), {
      maxItems: 100,
      description: 'Only verifications that carried all of these tags. Repeat it for several.',
    }),
  ),
  ...range,
  groupBy: choices(
    ['key', 'identity', 'tags', 'tag', 'month', 'day', 'hour'],
    'A datapoint for each combination; without it, one for everything. Not tag together with tags. Of several lengths of time the longest counts. Days and months are UTC.',
  ),
  orderBy: Type.Optional(
    Type.Union(
      [
        Type.Literal('time'),
        Type.Literal('valid'),
        Type.Literal('notFound'),
        Type.Literal('forbidden'),
        Type.Literal('usageExceeded'),
        Type.Literal('rateLimited'),
        Type.Literal('unauthorized'),
        Type.Literal('disabled'),
        Type.Literal('insufficientPermissions'),
        Type.Literal('expired'),
        Type.Literal('total'),
      ],
      {
        description:
          '`time` only when grouped by a length of time. Default: ascending time where there is one.',
      },
    ),
  ),
  ...cut,
})
export type GetVerificationsQuery = Static<typeof GetVerificationsQuery>

const count = (description: string) => Type.Integer({ minimum: 0, description })
const bucketStart = Type.Optional(
  Type.Integer({
    description: 'Start of the time slice, Unix milliseconds; when grouped by a length of time.',
  }),
)

export const VerificationDatapoint = Type.Object({
  time: bucketStart,
  valid: count('Verifications that succeeded.'),
  notFound: count('Always 0: a key that does not exist is not recorded.'),
  forbidden: count('Refused for the API asked for or the caller’s address.'),
  usageExceeded: count('Refused because no credits were left.'),
  rateLimited: count('Refused by a rate limit.'),
  unauthorized: count('Always 0: not recorded.'),
  disabled: count('Refused because the key was disabled.'),
  insufficientPermissions: count('Refused because the key lacked a permission asked for.'),
  expired: count('Refused because the key had expired.'),
  total: count('All of them.'),
  tag: Type.Optional(Type.String({ description: 'When grouped by tag; empty in a slice without data.' })),
  tags: Type.Optional(
    Type.Array(Type.String(), {
      description: 'When grouped by tags: the whole set, sorted; empty = untagged.',
    }),
  ),
  keyId: Type.Optional(Type.String({ description: 'When grouped by key; empty in a slice without data.' })),
  identity: Type.Optional(
    Type.Object(
      {
        id: Type.String({ description: 'Id of the identity.' }),
        externalId: Type.Optional(Type.String({ description: 'Absent once the identity is deleted.' })),
      },
      { description: 'When grouped by identity; absent in a slice without data.' },
    ),
  ),
})
export type VerificationDatapoint = Static<typeof VerificationDatapoint>
export const GetVerificationsReply = Type.Array(VerificationDatapoint)

export const GetRatelimitsQuery = Type.Object({
  namespaceId: Type.Optional(
    Type.String({
      maxLength: 256,
      description: 'This or `namespaceName` is required; the id counts if both.',
    }),
  ),
  namespaceName: Type.Optional(
    Type.String({ maxLength: 512, description: 'The namespace as named in ratelimits.limit.' }),
  ),
  identifier: Type.Optional(
    Type.Array(Type.String({ maxLength: 1024 }), {
      maxItems: 1000,
      description: 'Only these identifiers, added up unless grouped by identifier. Repeat it for several.',
    }),
  ),
  ...range,
  groupBy: choices(
    ['hour', 'day', 'month', 'identifier'],
    'A datapoint for each combination; without it, one for everything. Of several lengths of time the longest counts. Days and months are UTC.',
  ),
  orderBy: Type.Optional(
    Type.Union(
      [Type.Literal('time'), Type.Literal('passed'), Type.Literal('denied'), Type.Literal('total')],
      {
        description:
          '`time` only when grouped by a length of time. Default: ascending time where there is one.',
      },
    ),
  ),
  ...cut,
})
export type GetRatelimitsQuery = Static<typeof GetRatelimitsQuery>

export const RatelimitDatapoint = Type.Object({
  time: bucketStart,
  identifier: Type.Optional(
    Type.String({
      description: `When grouped by identifier. Absent in a slice without data, and on the datapoint that adds up all identifiers not kept by name: of an hour that is over, the ${IDENTIFIERS_KEPT_MAX} with the most calls are kept.`,
    }),
  ),
  passed: count('Calls that were let through.'),
  denied: count('Calls that were refused.'),
  total: count('Both.'),
})
export type RatelimitDatapoint = Static<typeof RatelimitDatapoint>
export const GetRatelimitsReply = Type.Array(RatelimitDatapoint)
