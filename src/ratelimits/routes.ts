import { type Endpoint, post } from '../http/endpoint.ts'
import { limit } from './limit.ts'
import { LimitBody, LimitReply } from './schema.ts'

/** Path, schemas, verb. Nothing is decided here; what a call does is in the file named after it. */
export const ratelimitRoutes: Endpoint[] = [
  post(
    '/v1/ratelimits.limit',
    { input: LimitBody, reply: LimitReply, summary: 'Check and consume a rate limit' },
    limit,
  ),
]
