import { Type } from '@sinclair/typebox'
import { authenticate, type Right, requireOnAny } from '../../../api/root-keys/authorize.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { post } from '../endpoint.ts'
import { V2Error } from '../errors.ts'

const QueryBody = Type.Object({
  query: Type.String({ minLength: 1, maxLength: 16_384, description: 'One SELECT. It is not run.' }),
})

/** Usage is asked by fields here, not in SQL. These answer as a server without an analytics database does. */
export const analyticsRoutes: Endpoint[] = [
  notConfigured('analytics.getVerifications', { resource: 'api', action: 'read_analytics' }),
  notConfigured('analytics.getRatelimits', { resource: 'ratelimit', action: 'read_analytics' }),
]

function notConfigured(name: 'analytics.getVerifications' | 'analytics.getRatelimits', right: Right) {
  return post(
    `/v2/${name}`,
    {
      input: QueryBody,
      reply: Type.Array(Type.Record(Type.String(), Type.Unknown())),
      summary: 'Ask for usage in SQL (not supported)',
      errors: ['PRECONDITION_FAILED'],
    },
    async (services, call) => {
      requireOnAny(await authenticate(services, call), right)
      throw new V2Error(
        'unkey/data/analytics_not_configured',
        'PRECONDITION_FAILED',
        `queries in SQL are not supported; ask GET /v1/${name}, which takes the same question as parameters`,
      )
    },
  )
}
