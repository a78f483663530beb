import { listRecent } from '../../../api/events/list-recent.ts'
import { listWatches, startWatch, stopWatch, type Watching } from '../../../api/events/watches.ts'
import { anyOf, authenticate } from '../../../api/root-keys/authorize.ts'
import { badRequest } from '../../../errors.ts'
import type { EventCursor, ListedEvent } from '../../../recent/recent.ts'
import type { Watch } from '../../../recent/watches.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { get, post } from '../endpoint.ts'
import { EmptyReply } from '../page.ts'
import { readNamespaceName } from '../ratelimits/namespace-name.ts'
import {
  ListRecentQuery,
  ListRecentReply,
  ListWatchesQuery,
  ListWatchesReply,
  type RecentEvent,
  UnwatchBody,
  WatchBody,
  WatchReply,
} from './schema.ts'

/** Events name keys and identifiers of all APIs and namespaces. */
const MAY_READ = anyOf('*', { and: ['api.*.read_key', 'ratelimit.*.read_namespace'] })

/** Schemas and rights of the endpoints for recent events. `api/events/` does the work. */
export const eventRoutes: Endpoint[] = [
  get(
    '/v1/events.listRecent',
    {
      input: ListRecentQuery,
      reply: ListRecentReply,
      summary: 'List recent verifications and rate limit decisions',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    async (services, call, query) => {
      const before = query.cursor === undefined ? null : readCursor(query.cursor)
      const actor = await authenticate(services, call, MAY_READ)
      const { outcome = 'refused', limit = 100, top = 0 } = query
      const { events, next, refusedMost, ...facts } = await listRecent(services, actor, {
        outcomes: outcome === 'refused' || outcome === 'all' ? outcome : [outcome],
        requestId: query.requestId ?? null,
        keyId: query.keyId ?? null,
        identity: query.identity ?? null,
        namespaceId: query.namespaceId ?? null,
        identifier: query.identifier ?? null,
        watchId: query.watchId ?? null,
        before,
        limit,
        top,
      })
      return {
        events: events.map(present),
        ...facts,
        server: services.self.nodeId,
        refusedMost: refusedMost.map(({ outcome, count, ...subject }) => ({
          ...subjectOf({ ...subject, apiId: null }),
          outcome,
          count,
        })),
        ...(next !== null && { cursor: `${next.at}.${next.sequence}.${next.thread}` }),
      }
    },
  ),
  post(
    '/v1/events.watch',
    {
      input: WatchBody,
      reply: WatchReply,
      summary: 'Keep every event of a key, an identity or an identifier for 15 minutes',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    async (services, call, body) => {
      const watching = readWatching(body)
      const actor = await authenticate(services, call, MAY_READ)
      return presentWatch(await startWatch(services, actor, watching))
    },
  ),
  post(
    '/v1/events.unwatch',
    {
      input: UnwatchBody,
      reply: EmptyReply,
      summary: 'End a watch and forget its events',
      errors: ['PRECONDITION_FAILED'],
    },
    async (services, call, { watchId }) => {
      await stopWatch(services, await authenticate(services, call, MAY_READ), watchId)
      return {}
    },
  ),
  get(
    '/v1/events.listWatches',
    {
      input: ListWatchesQuery,
      reply: ListWatchesReply,
      summary: 'List watches',
      errors: ['PRECONDITION_FAILED'],
    },
    async (services, call) => {
      const watches = await listWatches(services, await authenticate(services, call, MAY_READ))
      return {
        watches: watches.map((watch) => ({
          ...presentWatch(watch),
          kept: watch.kept,
          missed: watch.missed,
        })),
        server: services.self.nodeId,
      }
    },
  ),
]

/** @throws ApiError BAD_REQUEST */
function readCursor(text: string): EventCursor {
  const [, at, sequence, thread] = /^(\d{1,15})\.(\d{1,15})\.([\w.-]{1,32})$/.exec(text) ?? []
  if (at === undefined || sequence === undefined || thread === undefined)
    throw badRequest('cursor: must be the cursor of a previous page')
  return { at: Number(at), sequence: Number(sequence), thread }
}

/** @throws ApiError BAD_REQUEST unless exactly one thing is named. */
function readWatching({ keyId, identity, identifier, ...namespace }: WatchBody): Watching {
  const named = [keyId, identity, identifier].filter((each) => each !== undefined)
  if (named.length !== 1) throw badRequest('one of keyId, identity and identifier is required')
  if (keyId !== undefined) return { kind: 'key', keyId }
  if (identity !== undefined) return { kind: 'identity', identity }
  return { kind: 'identifier', namespace: readNamespaceName(namespace), identifier: identifier ?? '' }
}

type Subject = Pick<
  ListedEvent,
  'keyId' | 'keyName' | 'apiId' | 'namespaceId' | 'namespaceName' | 'identifier'
>

const subjectOf = ({ keyId, keyName, apiId, namespaceId, namespaceName, identifier }: Subject) => ({
  ...(keyId !== null && {
    key: { id: keyId, ...(keyName !== null && { name: keyName }), ...(apiId !== null && { apiId }) },
  }),
  ...(namespaceId !== null && { namespace: { id: namespaceId, name: namespaceName ?? '' } }),
  ...(identifier !== null && { identifier }),
})

function present(event: ListedEvent): RecentEvent {
  const { identityId, externalId, limitName, limit, durationMs, remaining, resetAtMs } = event
  return {
    id: `${event.thread}.${event.sequence}`,
    time: event.at,
    requestId: event.requestId,
    outcome: event.outcome,
    ...subjectOf(event),
    ...(identityId !== null && { identity: { id: identityId, externalId: externalId ?? '' } }),
    ...(limit !== -1 && {
      ratelimit: {
        ...(limitName !== null && { name: limitName }),
        limit,
        duration: durationMs,
        remaining,
        reset: resetAtMs,
      },
    }),
    cost: event.cost,
    ...(event.credits !== -1 && { credits: event.credits }),
    ...(event.tags !== null && { tags: [...event.tags] }),
    ...(event.address !== null && { address: event.address }),
  }
}

function presentWatch({ id, startedAt, endsAt, watched, namespaceName }: Watch): WatchReply {
  const fields = { id, startedAt, endsAt }
  switch (watched.kind) {
    case 'key':
      return { ...fields, keyId: watched.keyId }
    case 'identity':
      return { ...fields, identity: watched.identity }
    case 'identifier':
      return {
        ...fields,
        namespace: { id: watched.namespaceId, name: namespaceName ?? '' },
        identifier: watched.identifier,
      }
    default:
      return watched satisfies never
  }
}
