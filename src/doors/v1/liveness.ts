import { Type } from '@sinclair/typebox'
import { ApiError } from '../../errors.ts'
import { VERSION } from '../../lib/version.ts'
import type { DoorServices, Endpoint, HttpCall } from '../http/endpoint.ts'
import { get } from './endpoint.ts'

const State = Type.Union(
  [Type.Literal('starting'), Type.Literal('ready'), Type.Literal('draining'), Type.Literal('stopping')],
  {
    description:
      '`draining`: the server was told to stop and still answers. Load balancers should ask /v1/readiness.',
  },
)
const ReadinessReply = Type.Object({ state: Type.Literal('ready', { description: 'Always `ready`.' }) })

const LivenessReply = Type.Object({
  status: Type.String({ description: 'Always `serving`.' }),
  version: Type.String({ description: 'Version of the server.' }),
  state: State,
  clientAddress: Type.Optional(
    Type.String({
      description:
        'Address that the server takes for that of whoever asks. Absent when it knows none. `tollgate doctor` sees by it whether your proxies are trusted.',
    }),
  ),
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
      fleet: Type.Optional(
        Type.String({
          description:
            'Where limits are counted together with other servers; absent where they are not. `ok`. `learning`: the engine has forgotten and gives nothing for a moment. `away`: TOLLGATE_FLEET_OUTAGE decides.',
        }),
      ),
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
  get(
    '/v1/readiness',
    {
      input: Type.Object({}),
      reply: ReadinessReply,
      summary: 'Check whether a load balancer should send requests to the server',
      access: 'public',
      errors: ['NOT_READY'],
    },
    readiness,
  ),
]

/**
 * 503 while the server starts or stops. The database counts only if TOLLGATE_READY_NEEDS_DATABASE says so: without it known
 * keys and limits go on, and if all servers were taken out at once, nothing would.
 * @throws ApiError NOT_READY
 */
async function readiness({
  life: { state },
  config,
  databaseCondition,
}: Pick<DoorServices, 'life' | 'config' | 'databaseCondition'>) {
  if (state !== 'ready') throw new ApiError('NOT_READY', `the server is ${state}`)
  if (config.readyNeedsDatabase) {
    const database = await databaseCondition()
    if (database !== 'ok') throw new ApiError('NOT_READY', `the database is ${database}`)
  }
  return { state }
}

/**
 * 200 as long as limits can be decided; degraded parts are named in the body. Cheap enough for frequent probes: asks the
 * database at most once a second, and not at all while other requests do.
 * @throws ApiError INTERNAL_SERVER_ERROR when no shard runs.
 */
async function liveness(
  {
    databaseCondition,
    fleetCondition,
    limiter,
    life: { state },
  }: Pick<DoorServices, 'databaseCondition' | 'fleetCondition' | 'limiter' | 'life'>,
  call: Pick<HttpCall, 'clientAddress'>,
) {
  const { running, all } = limiter.shards
  if (running === 0)
    throw new ApiError('INTERNAL_SERVER_ERROR', 'no limiter shard is running: rate limits cannot be decided')
  const database = await databaseCondition()
  const clientAddress = call.clientAddress()
  const fleet = fleetCondition()
  return {
    status: 'serving',
    version: VERSION,
    state,
    ...(clientAddress === null ? {} : { clientAddress }),
    services: {
      metrics: 'memory',
      logger: 'stdout',
      ratelimit: running === all ? 'shards' : 'degraded',
      usagelimit: database === 'ok' ? 'postgres' : 'away',
      database,
      ...(fleet === null ? {} : { fleet }),
    },
  }
}
