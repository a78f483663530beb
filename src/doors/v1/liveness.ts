import { Type } from '@sinclair/typebox'
import { ApiError } from '../../errors.ts'
import type { DoorServices, Endpoint } from '../http/endpoint.ts'
import { get } from './endpoint.ts'

const LivenessReply = Type.Object({
  status: Type.String({ description: 'Always `serving`.' }),
  services: Type.Object(
    {
      metrics: Type.String({ description: 'Always `memory`: metrics are kept in memory.' }),
      logger: Type.String({ description: 'Always `stdout`.' }),
      ratelimit: Type.String({
        description: '`shards` while all limiter shards run; `degraded` while a shard restarts.',
      }),
      usagelimit: Type.String({
        description:
          '`postgres` while the database takes writes, else `away`: keys with credits cannot be verified.',
      }),
      database: Type.String({
        description:
          '`ok`. `read-only`: reads, limits and cached keys without credits work; changes and credits do not. `away`: limits and cached keys without credits work; everything else fails.',
      }),
    },
    { description: 'State of the parts behind the API.' },
  ),
})

export const livenessRoutes: Endpoint[] = [
  get(
    '/v1/liveness',
    {
      input: Type.Object({}),
      reply: LivenessReply,
      summary: 'Check whether the server answers',
      access: 'public',
    },
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
