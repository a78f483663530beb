import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { readdirSync, readFileSync } from 'node:fs'
import { openTestDatabase, TEST_DATABASE_URL, type TestDatabase } from '../support/database.ts'
import { type ServerProcess, spawnServer } from '../support/process.ts'
import { OPERATOR_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let database: TestDatabase
let env: Record<string, string>
beforeAll(async () => {
  database = await openTestDatabase()
  env = { TOLLGATE_DATA_DIR: database.dataDir, DATABASE_URL: database.databaseUrl ?? '' }
})
afterAll(() => database[Symbol.asyncDispose]())

/** Linux has `taskset`. */
const pinned = test.if(Bun.which('taskset') !== null)

/** Number of workers without the embedded database's. */
const workersOf = ({ process }: ServerProcess) =>
  readdirSync(`/proc/${process.pid}/task`).filter(
    (id) => readFileSync(`/proc/${process.pid}/task/${id}/comm`, 'utf8').trim() === 'Worker',
  ).length - (TEST_DATABASE_URL === null ? 1 : 0)

pinned(
  'on one core the answering thread decides limits, exactly, and a shard thread can be configured',
  async () => {
    for (const [settings, workers] of [
      [{}, 0],
      [{ TOLLGATE_SHARDS: '1' }, 1],
    ] as const) {
      await using server = await spawnServer({ ...env, ...settings }, { core: 0 })
      expect(workersOf(server)).toBe(workers)
      const body = { namespace: 'core', identifier: `with ${workers}`, limit: 25, duration: 86_400_000 * 365 }
      await server.post('ratelimits.limit', { ...body, cost: 0 }, OPERATOR_KEY) // creates the namespace
      const answers = await Promise.all(
        Array.from({ length: 60 }, () => server.post('ratelimits.limit', body, OPERATOR_KEY)),
      )
      expect(answers.filter(({ body }) => body.success).length).toBe(25)
      const metrics = await (await fetch(`${server.url}/metrics`)).text()
      expect(metrics).toContain('tollgate_thread_up{thread="shard-0"} 1')
      expect(await server.end('SIGTERM')).toBe(0)
    }
  },
)
