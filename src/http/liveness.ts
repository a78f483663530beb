import { Type } from '@sinclair/typebox'
import { ping } from '../db/connect.ts'
import type { Deps } from '../deps.ts'
import { type Endpoint, get } from './endpoint.ts'

const LivenessReply = Type.Object({
  status: Type.String({ description: 'A short word: this server answers.' }),
  services: Type.Object(
    {
      metrics: Type.String({ description: 'Where measurements are kept.' }),
      logger: Type.String({ description: 'Where log lines go.' }),
      ratelimit: Type.String({ description: 'Where limits are decided.' }),
      usagelimit: Type.String({ description: 'Where credits are decided.' }),
      database: Type.String({
        description: '`ok`, or `away`: then limits and cached keys without credits go on.',
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

/** 200 as long as limits can be answered; a database that is away is named, not fatal. */
async function liveness(deps: Deps) {
  const isThere = await isDatabaseThere(deps)
  return {
    status: 'serving',
    services: {
      metrics: 'memory',
      logger: 'stdout',
      ratelimit: 'shards',
      usagelimit: 'postgres',
      database: isThere ? 'ok' : 'away',
    },
  }
}

/** Whether the database answers within {@link DATABASE_WAIT_MS}. */
export const isDatabaseThere = ({ sql }: Pick<Deps, 'sql'>): Promise<boolean> =>
  Promise.race([
    ping(sql).then(
      () => true,
      () => false,
    ),
    Bun.sleep(DATABASE_WAIT_MS).then(() => false),
  ])

const DATABASE_WAIT_MS = 500
