import { Type } from '@sinclair/typebox'
import { ApiError } from '../../errors.ts'
import type { DoorServices, Endpoint } from '../http/endpoint.ts'
import { get } from './endpoint.ts'

const LivenessReply = Type.Object({
  status: Type.String({ description: 'A short word: this server answers.' }),
  services: Type.Object(
    {
      metrics: Type.String({ description: 'Where measurements are kept.' }),
      logger: Type.String({ description: 'Where log lines go.' }),
      ratelimit: Type.String({
        description: 'Where limits are decided: `shards`; `degraded` while one of them is started again.',
      }),
      usagelimit: Type.String({ description: 'Where credits are decided: `postgres`, or `away`.' }),
      database: Type.String({
        description:
          '`ok`; `read-only`, as after a failover: then all goes on but changes and credits; or `away`: then limits and cached keys without credits go on.',
      }),
    },
    { description: 'What stands behind the API, by name.' },
  ),
})

export const livenessRoutes: Endpoint[] = [
  get(
    '/v1/liveness',
    { input: Type.Object({}), reply: LivenessReply, summary: 'Does this server answer?', access: 'public' },
    liveness,
  ),
]

/**
 * 200 as long as limits can be decided; degraded parts are named in the body. Cheap enough for frequent probes: asks the
 * database at most once a second, and not at all while other requests do.
 * @throws ApiError INTERNAL_SERVER_ERROR when no shard runs.
 */
async function liveness({ databaseCondition, limiter }: Pick<DoorServices, 'databaseCondition' | 'limiter'>) {
  const { running, all } = limiter.shards
  if (running === 0)
    throw new ApiError('INTERNAL_SERVER_ERROR', 'no limiter shard is running: rate limits cannot be decided')
  const database = await databaseCondition()
  return {
    status: 'serving',
    services: {
      metrics: 'memory',
      logger: 'stdout',
      ratelimit: running === all ? 'shards' : 'degraded',
      usagelimit: database === 'ok' ? 'postgres' : 'away',
      database,
    },
  }
}
