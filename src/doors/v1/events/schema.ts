import { type Static, Type } from '@sinclair/typebox'
import { RECENT_MAX, REFUSALS_MAX } from '../../../recent/recent.ts'
import { WATCH_EVENTS_MAX, WATCHES_MAX, WORKSPACE_WATCHES_MAX } from '../../../recent/watches.ts'
import { AnsweredBy } from '../page.ts'

export const OUTCOMES = [
  'VALID',
  'PASSED',
  'RATE_LIMITED',
  'USAGE_EXCEEDED',
  'INSUFFICIENT_PERMISSIONS',
  'DISABLED',
  'FORBIDDEN',
  'EXPIRED',
] as const

const Filter = (description: string, maxLength = 256) =>
  Type.Optional(Type.String({ minLength: 1, maxLength, description }))

export const ListRecentQuery = Type.Object({
  outcome: Type.Optional(
    Type.Union(
      [Type.Literal('refused'), Type.Literal('all'), ...OUTCOMES.map((each) => Type.Literal(each))],
      {
        default: 'refused',
        description:
          'Only events with this outcome. Default `refused`: all but `VALID` and `PASSED`. `all`: also those.',
      },
    ),
  ),
  requestId: Filter('Only events of the request with this id. Add `outcome=all` to find one that passed.'),
  keyId: Filter('Only verifications of this key.'),
  identity: Filter('Only verifications of keys of this identity: its id, or your external id.'),
  namespaceId: Filter('Only rate limit decisions of the namespace with this id.'),
  identifier: Filter('Only rate limit decisions for this identifier.', 1024),
  watchId: Filter('Only events that this watch keeps, from events.watch. Add `outcome=all` for all of them.'),
  limit: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 1000, default: 100, description: 'Events per page; default 100.' }),
  ),
  cursor: Type.Optional(Type.String({ maxLength: 256, description: '`cursor` of the previous page.' })),
  top: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: 20,
      default: 0,
      description: 'How many keys and identifiers to name in `refusedMost`. Default 0.',
    }),
  ),
})
export type ListRecentQuery = Static<typeof ListRecentQuery>

const Outcome = Type.Union(
  OUTCOMES.map((each) => Type.Literal(each)),
  {
    description:
      'What the call got. Of a key, as in `keys.verifyKey`; of a rate limit, `PASSED` or `RATE_LIMITED`.',
  },
)
const Key = Type.Object(
  {
    id: Type.String({ description: 'Id of the key.' }),
    name: Type.Optional(Type.String({ description: 'Name of the key.' })),
    apiId: Type.Optional(Type.String({ description: 'Id of its API.' })),
  },
  { description: 'The key; only of verifications.' },
)
const Namespace = Type.Object(
  {
    id: Type.String({ description: 'Id of the namespace.' }),
    name: Type.String({ description: 'Name of the namespace.' }),
  },
  { description: 'The namespace; only of rate limit decisions.' },
)

export const RecentEvent = Type.Object({
  id: Type.String({ description: 'Unique until the server restarts.' }),
  time: Type.Integer({ description: 'When it was decided, Unix milliseconds.' }),
  requestId: Type.String({ description: 'Id of the request, as in its answer.' }),
  outcome: Outcome,
  key: Type.Optional(Key),
  identity: Type.Optional(
    Type.Object(
      {
        id: Type.String({ description: 'Id of the identity.' }),
        externalId: Type.String({ description: 'Your id of the user or organisation.' }),
      },
      { description: 'Identity of the key; absent if it has none.' },
    ),
  ),
  namespace: Type.Optional(Namespace),
  identifier: Type.Optional(Type.String({ description: 'Identifier; only of rate limit decisions.' })),
  ratelimit: Type.Optional(
    Type.Object(
      {
        name: Type.Optional(Type.String({ description: 'Name of the limit; only of verifications.' })),
        limit: Type.Integer({ description: 'Tokens allowed in a window, after overrides.' }),
        duration: Type.Integer({ description: 'Length of the window in milliseconds.' }),
        remaining: Type.Integer({ description: 'Tokens left after the decision.' }),
        reset: Type.Integer({ description: 'When the window ends, Unix milliseconds.' }),
      },
      { description: 'The limit that refused, else the first one. Absent if none was asked.' },
    ),
  ),
  cost: Type.Integer({ description: 'Tokens of a rate limit call; credits of a verification.' }),
  credits: Type.Optional(
    Type.Integer({ description: 'Credits left after a verification; absent if they were not read.' }),
  ),
  tags: Type.Optional(Type.Array(Type.String(), { description: 'Tags of a verification.' })),
  address: Type.Optional(
    Type.String({ description: 'IP address of the client; only of refusals and of watched events.' }),
  ),
})
export type RecentEvent = Static<typeof RecentEvent>

export const ListRecentReply = Type.Object({
  events: Type.Array(RecentEvent, {
    description: `Newest first. From the memory of this server: each HTTP thread keeps the last ${REFUSALS_MAX} refusals and the last ${RECENT_MAX} events of all, over all workspaces, and begins empty after a start. Verifications of unknown keys belong to no workspace and are not in it.`,
  }),
  server: AnsweredBy,
  since: Type.Integer({
    description: 'Everything that was asked for is remembered from this time on, Unix milliseconds.',
  }),
  passed: Type.Integer({ description: 'Calls of the workspace that passed since the server started.' }),
  refused: Type.Integer({
    description: 'Calls of the workspace that were refused since the server started.',
  }),
  refusedMost: Type.Array(
    Type.Object({
      key: Type.Optional(Key),
      namespace: Type.Optional(Namespace),
      identifier: Type.Optional(Type.String({ description: 'Identifier; only of rate limit decisions.' })),
      outcome: Outcome,
      count: Type.Integer({ description: 'Its refusals.' }),
    }),
    {
      description:
        'Keys and identifiers with the most refusals, by outcome, among the remembered refusals of the last minute.',
    },
  ),
  isComplete: Type.Boolean({
    description: 'False = an HTTP thread did not answer, and what it remembers is missing.',
  }),
  cursor: Type.Optional(
    Type.String({ description: 'Send this as `cursor` to get the next page. Absent on the last page.' }),
  ),
})
export type ListRecentReply = Static<typeof ListRecentReply>

export const WatchBody = Type.Object({
  keyId: Type.Optional(Type.String({ minLength: 1, maxLength: 256, description: 'Watch this key.' })),
  identity: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 256,
      description: 'Watch the keys of this identity: its id, or your external id.',
    }),
  ),
  namespaceId: Type.Optional(
    Type.String({ maxLength: 256, description: 'Namespace of `identifier`, by id.' }),
  ),
  namespaceName: Type.Optional(
    Type.String({ maxLength: 512, description: 'Namespace of `identifier`, by name.' }),
  ),
  identifier: Type.Optional(
    Type.String({
      maxLength: 1024,
      description: 'Watch this identifier in `namespaceId` or `namespaceName`.',
    }),
  ),
})
export type WatchBody = Static<typeof WatchBody>

const WatchFields = {
  id: Type.String({ description: 'Id of the watch.' }),
  startedAt: Type.Integer({ description: 'When it began, Unix milliseconds.' }),
  endsAt: Type.Integer({
    description:
      'When it ends, Unix milliseconds: after 15 minutes. Its events can be read for 15 minutes more.',
  }),
  keyId: Type.Optional(Type.String({ description: 'The key that is watched.' })),
  identity: Type.Optional(Type.String({ description: 'The identity whose keys are watched.' })),
  namespace: Type.Optional(Namespace),
  identifier: Type.Optional(Type.String({ description: 'The identifier that is watched.' })),
}
export const WatchReply = Type.Object(WatchFields, {
  description: `The watch; of something that is watched already, the watch that runs. At most ${WATCHES_MAX} watches of a server and ${WORKSPACE_WATCHES_MAX} of a workspace are kept, with ${WATCH_EVENTS_MAX} events for each HTTP thread.`,
})
export type WatchReply = Static<typeof WatchReply>

export const UnwatchBody = Type.Object({
  watchId: Type.String({
    minLength: 1,
    maxLength: 256,
    description: 'Id of the watch. A watch that is gone already is no error.',
  }),
})
export type UnwatchBody = Static<typeof UnwatchBody>

export const ListWatchesQuery = Type.Object({})
export const ListWatchesReply = Type.Object({
  watches: Type.Array(
    Type.Object({
      ...WatchFields,
      kept: Type.Integer({ description: 'Events kept so far.' }),
      missed: Type.Integer({
        description: `Events that came when a thread had kept ${WATCH_EVENTS_MAX}: they are counted only.`,
      }),
    }),
    { description: 'Watches of the workspace, oldest first.' },
  ),
  server: AnsweredBy,
})
export type ListWatchesReply = Static<typeof ListWatchesReply>
