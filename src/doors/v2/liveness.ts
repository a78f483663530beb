import { Type } from '@sinclair/typebox'
import { ApiError } from '../../errors.ts'
import type { Endpoint } from '../http/endpoint.ts'
import { publicGet } from './endpoint.ts'

/** 200 as long as limits can be decided. `/v1/liveness` also says how the parts are. */
export const livenessRoutes: Endpoint[] = [
  publicGet(
    '/v2/liveness',
    {
      reply: Type.Object({ message: Type.String({ description: 'Always `serving`.' }) }),
      summary: 'Check whether the server answers',
    },
    ({ limiter }) => {
      if (limiter.shards.running === 0)
        throw new ApiError(
          'INTERNAL_SERVER_ERROR',
          'no limiter shard is running: rate limits cannot be decided',
        )
      return { message: 'serving' }
    },
  ),
]
