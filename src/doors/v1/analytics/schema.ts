import { type Static, type TSchema, Type } from '@sinclair/typebox'
import { ROWS_MAX } from '../../../api/analytics/series.ts'
import { IDENTIFIERS_KEPT_MAX } from '../../../usage/close-hours.ts'
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
    'Start of the range, Unix milliseconds, rounded down to the hour. Must be before `end`. Default: 24 hours before `end`.',
  ),
  end: nullable(
    time(),
    'End of the range, Unix milliseconds, rounded down to the hour; that hour is included. Default: now.',
  ),
}

const cut = {
  order: Type.Optional(
    Type.Union([Type.Literal('asc'), Type.Literal('desc')], {
      default: 'asc',
      description: 'Direction of `orderBy`. Default `asc`.',
    }),
  ),
  limit: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: Number.MAX_SAFE_INTEGER,
      description: `Maximum number of datapoints, taken after sorting. Without it, a result of more than ${ROWS_MAX} datapoints is refused.`,
    }),
  ),
}

export const GetVerificationsQuery = Type.Object({
  apiId: Type.String({ maxLength: 256, description: 'Id of the API. Its deleted keys are included.' }),
  externalId: Type.Optional(
    Type.String({
      maxLength: 256,
      description: 'Only verifications of keys that belonged to this identity at the time.',
    }),
  ),
  keyId: Type.Optional(
    Type.Array(Type.String({ maxLength: 32_768 }), {
      maxItems: 1000,
      description:
        'Only these keys, added up unless grouped by key. Repeat the parameter, or separate ids with commas.',
    }),
  ),
  tag: Type.Optional(
    Type.Array(Type.String({ maxLength: 512 }), {
      maxItems: 100,
      description: 'Only verifications that have all of these tags. Repeat the parameter for several tags.',
    }),
  ),
  ...range,
  groupBy: choices(
    ['key', 'identity', 'tags', 'tag', 'month', 'day', 'hour'],
    'One datapoint per combination of these; without it, one datapoint in all. `tag` and `tags` cannot be combined. Of `hour`, `day` and `month`, the longest counts. Days and months are UTC.',
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
        description: 'Field to sort by. `time` needs `groupBy` hour, day or month, and is the default there.',
      },
    ),
  ),
  ...cut,
})
export type GetVerificationsQuery = Static<typeof GetVerificationsQuery>

const count = (description: string) => Type.Integer({ minimum: 0, description })
const bucketStart = Type.Optional(
  Type.Integer({
    description: 'Start of the hour, day or month, Unix milliseconds. Only when grouped by one of them.',
  }),
)

export const VerificationDatapoint = Type.Object({
  time: bucketStart,
  valid: count('Verifications that ended with `VALID`.'),
  notFound: count('Always 0: verifications of unknown keys are not counted.'),
  forbidden: count('Verifications refused because of the API in the call or the client’s IP address.'),
  usageExceeded: count('Verifications refused because no credits were left.'),
  rateLimited: count('Verifications refused by a rate limit.'),
  unauthorized: count('Always 0: no verification ends with this outcome.'),
  disabled: count('Verifications refused because the key was disabled.'),
  insufficientPermissions: count('Verifications refused because the key lacked a permission.'),
  expired: count('Verifications refused because the key had expired.'),
  total: count('All verifications, whatever the outcome.'),
  tag: Type.Optional(Type.String({ description: 'Only when grouped by tag. Empty where there is no data.' })),
  tags: Type.Optional(
    Type.Array(Type.String(), {
      description: 'Only when grouped by tags: the whole tag set, sorted. Empty = no tags.',
    }),
  ),
  keyId: Type.Optional(
    Type.String({ description: 'Only when grouped by key. Empty where there is no data.' }),
  ),
  identity: Type.Optional(
    Type.Object(
      {
        id: Type.String({ description: 'Id of the identity.' }),
        externalId: Type.Optional(
          Type.String({
            description: 'Your id of the user or organisation; absent if the identity was deleted.',
          }),
        ),
      },
      { description: 'Only when grouped by identity. Absent where there is no data.' },
    ),
  ),
})
export type VerificationDatapoint = Static<typeof VerificationDatapoint>
export const GetVerificationsReply = Type.Array(VerificationDatapoint)

const Outcomes = Type.Omit(VerificationDatapoint, ['time', 'tag', 'tags', 'keyId', 'identity'])
const UsedKey = Type.Composite([
  Type.Object({
    keyId: Type.String({ description: 'Id of the key.' }),
    name: Type.Optional(
      Type.String({ description: 'Name of the key; absent if it has none or was deleted.' }),
    ),
    start: Type.Optional(
      Type.String({ description: 'The first characters of the key; absent if it was deleted.' }),
    ),
  }),
  Outcomes,
])
export const GetOverviewQuery = Type.Object({
  ...range,
  top: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: 100,
      default: 0,
      description: 'How many keys and identities to name in each list. Default 0: the lists are empty.',
    }),
  ),
})
export type GetOverviewQuery = Static<typeof GetOverviewQuery>
export const GetOverviewReply = Type.Object({
  hours: Type.Array(
    Type.Composite([
      Type.Object({ time: Type.Integer({ description: 'Start of the hour, Unix milliseconds.' }) }),
      Outcomes,
    ]),
    { description: 'One datapoint an hour, in order.' },
  ),
  mostUsed: Type.Array(UsedKey, { description: 'The keys with the most verifications, most first.' }),
  mostRefused: Type.Array(UsedKey, {
    description: 'The keys with the most refused verifications, most first.',
  }),
  identities: Type.Array(
    Type.Composite([
      Type.Object({
        identity: Type.Object(
          {
            id: Type.String({ description: 'Id of the identity.' }),
            externalId: Type.Optional(
              Type.String({
                description: 'Your id of the user or organisation; absent if the identity was deleted.',
              }),
            ),
          },
          { description: 'The identity.' },
        ),
      }),
      Outcomes,
    ]),
    { description: 'The identities with the most verifications, most first.' },
  ),
})
export type GetOverviewReply = Static<typeof GetOverviewReply>

export const GetRatelimitsQuery = Type.Object({
  namespaceId: Type.Optional(
    Type.String({
      maxLength: 256,
      description:
        'Id of the namespace. `namespaceId` or `namespaceName` is required, unless grouped by namespace; with both, `namespaceName` is ignored.',
    }),
  ),
  namespaceName: Type.Optional(
    Type.String({ maxLength: 512, description: 'Name of the namespace, as in `ratelimits.limit`.' }),
  ),
  identifier: Type.Optional(
    Type.Array(Type.String({ maxLength: 1024 }), {
      maxItems: 1000,
      description:
        'Only these identifiers, added up unless grouped by identifier. Repeat the parameter for several.',
    }),
  ),
  ...range,
  groupBy: choices(
    ['hour', 'day', 'month', 'identifier', 'namespace'],
    'One datapoint per combination of these; without it, one datapoint in all. `namespace` counts all namespaces: it needs no namespace, and no identifier. Of `hour`, `day` and `month`, the longest counts. Days and months are UTC.',
  ),
  orderBy: Type.Optional(
    Type.Union(
      [Type.Literal('time'), Type.Literal('passed'), Type.Literal('denied'), Type.Literal('total')],
      {
        description: 'Field to sort by. `time` needs `groupBy` hour, day or month, and is the default there.',
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
      description: `Only when grouped by identifier. Per finished hour, the ${IDENTIFIERS_KEPT_MAX} identifiers with the most calls are kept; all others are one datapoint without identifier. Also absent where there is no data.`,
    }),
  ),
  namespace: Type.Optional(
    Type.Object(
      {
        id: Type.String({ description: 'Id of the namespace.' }),
        name: Type.Optional(Type.String({ description: 'Name of the namespace; absent if it was deleted.' })),
      },
      { description: 'Only when grouped by namespace. Absent where there is no data.' },
    ),
  ),
  passed: count('Calls that passed.'),
  denied: count('Calls that were refused.'),
  total: count('All calls.'),
})
export type RatelimitDatapoint = Static<typeof RatelimitDatapoint>
export const GetRatelimitsReply = Type.Array(RatelimitDatapoint)
