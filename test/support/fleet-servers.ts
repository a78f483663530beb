import { join } from 'node:path'
import type { TestDatabase } from './database.ts'
import { type ServerProcess, spawnServer } from './process.ts'
import { OPERATOR_KEY } from './server.ts'

/** Duration of the windows that these functions use: none ends during a test. */
export const FLEET_DAYS_MS = 20_000 * 86_400_000
let started = 0

/** A server of one shard that shares limits as `env` says, with a data directory of its own. */
export async function startFleetServer(
  database: TestDatabase,
  env: Record<string, string>,
  options: Parameters<typeof spawnServer>[1] = {},
): Promise<ServerProcess> {
  return await spawnServer(
    {
      DATABASE_URL: database.databaseUrl ?? '',
      TOLLGATE_DATA_DIR: join(database.dataDir, `server-${++started}`),
      TOLLGATE_SHARDS: '1',
      TOLLGATE_HTTP_THREADS: '1',
      // Long, because a slow machine is not an outage.
      TOLLGATE_FLEET_TIMEOUT_MS: '1000',
      TOLLGATE_WINDOW_DAYS_MAX: '36525',
      ...env,
    },
    options,
  )
}

/** @returns whether it passed; null = the call failed. */
export async function pass(
  server: ServerProcess,
  identifier: string,
  limit: number,
  namespace = 'fleet',
): Promise<boolean | null> {
  const body = { namespace, identifier, limit, duration: FLEET_DAYS_MS }
  const answer = await server.post('ratelimits.limit', body, OPERATOR_KEY).catch(() => null)
  return answer?.status === 200 ? answer.body.success : null
}

/** What callers have seen. Counts of calls. */
export type Seen = { passed: number; refused: number; failed: number }

/** Calls servers in turn until stopped. @param identifiers One, or several in turn. */
export function load(
  servers: () => readonly ServerProcess[],
  identifiers: string | readonly string[],
  limit: number,
  callers = 6,
  namespace = 'fleet',
): { seen: Seen; by: ReadonlyMap<string, Seen>; stop(): Promise<Seen> } {
  const names = typeof identifiers === 'string' ? [identifiers] : identifiers
  const seen = { passed: 0, refused: 0, failed: 0 }
  const by = new Map(names.map((name) => [name, { passed: 0, refused: 0, failed: 0 }]))
  let isStopping = false
  let calls = 0
  const caller = async (first: number) => {
    for (let i = first; !isStopping; i++) {
      const all = servers()
      const server = all[i % all.length]
      const name = names[calls++ % names.length]
      if (server === undefined || name === undefined) throw new Error('there is no server')
      const passed = await pass(server, name, limit, namespace)
      const what = passed === null ? 'failed' : passed ? 'passed' : 'refused'
      seen[what]++
      const ofName = by.get(name)
      if (ofName !== undefined) ofName[what]++
      await Bun.sleep(2)
    }
  }
  const all = Promise.all(Array.from({ length: callers }, (_, i) => caller(i)))
  return {
    seen,
    by,
    stop: async () => {
      isStopping = true
      await all
      return seen
    },
  }
}

/** What is left of a window, by one caller. */
export async function passAll(server: ServerProcess, identifier: string, limit: number): Promise<number> {
  let passed = 0
  for (let refused = 0; refused < 20; ) {
    if (await pass(server, identifier, limit)) passed++
    else {
      refused++
      await Bun.sleep(50) // what others held comes back within the time of a lease
    }
  }
  return passed
}

/** Resolves when the server says so in `/v1/liveness`. @throws Error after `ms`. */
export async function untilEngineIs(
  server: ServerProcess,
  condition: 'ok' | 'learning' | 'away',
  ms = 30_000,
): Promise<void> {
  const untilMs = performance.now() + ms
  let last: unknown
  while (performance.now() < untilMs) {
    last = (await server.get('liveness').catch(() => null))?.body.services.fleet
    if (last === condition) return
    await Bun.sleep(20)
  }
  throw new Error(`the engine is ${last}, not ${condition}`)
}
