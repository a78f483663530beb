import { getRatelimits } from '../../../api/analytics/get-ratelimits.ts'
import { getVerifications } from '../../../api/analytics/get-verifications.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { get } from '../endpoint.ts'
import {
  GetRatelimitsQuery,
  GetRatelimitsReply,
  GetVerificationsQuery,
  GetVerificationsReply,
} from './schema.ts'

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
    getVerifications,
  ),
  get(
    '/v1/analytics.getRatelimits',
    {
      input: GetRatelimitsQuery,
      reply: GetRatelimitsReply,
      summary: 'Count rate limit decisions of a namespace',
      errors: ['NOT_FOUND'],
    },
    getRatelimits,
  ),
]
