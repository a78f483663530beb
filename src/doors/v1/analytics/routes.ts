import { getOverview } from '../../../api/analytics/get-overview.ts'
import { getRatelimits, getRatelimitsByNamespace } from '../../../api/analytics/get-ratelimits.ts'
import { getVerifications } from '../../../api/analytics/get-verifications.ts'
import { anyOf, authenticate } from '../../../api/root-keys/authorize.ts'
import { badRequest } from '../../../errors.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { get } from '../endpoint.ts'
import { orderOf, readRange, splitAtCommas, timeGroupOf } from './query.ts'
import {
  GetOverviewQuery,
  GetOverviewReply,
  GetRatelimitsQuery,
  GetRatelimitsReply,
  GetVerificationsQuery,
  GetVerificationsReply,
} from './schema.ts'

/** Schemas and rights of the analytics endpoints. `api/analytics/` computes the answers. */
export const analyticsRoutes: Endpoint[] = [
  get(
    '/v1/analytics.getVerifications',
    {
      input: GetVerificationsQuery,
      reply: GetVerificationsReply,
      summary: 'Count verifications of an API’s keys',
      introduced: '2025-01-01',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    async (services, call, query) => {
      const range = readRange(query, services.clock())
      const names = splitAtCommas(query.groupBy)
      if (names.includes('tag') && names.includes('tags'))
        throw badRequest('groupBy: tag and tags cannot be combined')
      const time = timeGroupOf(names)
      const order = orderOf(query, time)
      // As the specification says: the right on all APIs, not on one.
      const actor = await authenticate(services, call, anyOf('*', 'api.*.read_api'))
      const { apiId, externalId = '', tag: tags = [], limit } = query
      return await getVerifications(services, actor, {
        apiId,
        externalId: externalId === '' ? null : externalId,
        keyIds: splitAtCommas(query.keyId),
        tags,
        range,
        groups: {
          time,
          key: names.includes('key'),
          identity: names.includes('identity'),
          tags: names.includes('tags') ? 'set' : names.includes('tag') ? 'each' : null,
        },
        order,
        limit,
      })
    },
  ),
  get(
    '/v1/analytics.getOverview',
    {
      input: GetOverviewQuery,
      reply: GetOverviewReply,
      summary: 'Count verifications of all APIs',
    },
    async (services, call, query) => {
      const range = readRange(query, services.clock())
      const actor = await authenticate(services, call, anyOf('*', 'api.*.read_api'))
      return await getOverview(services, actor, { range, top: query.top ?? 0 })
    },
  ),
  get(
    '/v1/analytics.getRatelimits',
    {
      input: GetRatelimitsQuery,
      reply: GetRatelimitsReply,
      summary: 'Count rate limit decisions of a namespace',
      errors: ['NOT_FOUND'],
    },
    async (services, call, query) => {
      const { namespaceId, namespaceName, identifier: identifiers = [], limit } = query
      const by =
        namespaceId !== undefined ? { namespaceId } : namespaceName !== undefined ? { namespaceName } : null
      const names = splitAtCommas(query.groupBy)
      const byNamespace = names.includes('namespace')
      if (by === null && !byNamespace)
        throw badRequest('namespaceId: Either namespaceId or namespaceName is required')
      if (byNamespace && (by !== null || names.includes('identifier') || identifiers.length > 0))
        throw badRequest('groupBy: namespace counts all namespaces, without identifiers')
      const range = readRange(query, services.clock())
      const time = timeGroupOf(names)
      const order = orderOf(query, time)
      const actor = await authenticate(services, call)
      if (by === null) return await getRatelimitsByNamespace(services, actor, { range, time, order, limit })
      const byIdentifier = names.includes('identifier')
      return await getRatelimits(services, actor, {
        by,
        range,
        identifiers,
        time,
        byIdentifier,
        order,
        limit,
      })
    },
  ),
]
