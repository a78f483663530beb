import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { toLink } from '../../../src/lib/link.ts'
import { startTestServer, type TestServer } from '../../support/server.ts'
import { listStatements } from '../../support/statements.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(() => server[Symbol.asyncDispose]())

const HEALTHY = { ratelimit: 'shards', usagelimit: 'postgres', database: 'ok' }

/** An orchestrator's probes come from many places and must not cause load. */
test('a hundred concurrent probes make at most one statement, and none right after a request', async () => {
  await Bun.sleep(1100) // until the answer to the start's statements is no longer recent
  const ask = async () => {
    const answers = await Promise.all(Array.from({ length: 100 }, () => server.get('liveness')))
    for (const { status, body } of answers) {
      expect(status).toBe(200)
      expect(body.services).toMatchObject(HEALTHY)
    }
  }
  expect((await listStatements(server, ask)).length).toBeLessThanOrEqual(1)
  await server.workspace()
  expect(await listStatements(server, ask)).toEqual([])
})

test('a dead shard is named, and without any shard liveness fails until they are restarted', async () => {
  const seen = new Set<string>()
  const look = async () => {
    const { status, body } = await server.get('liveness')
    seen.add(`${status} ${body.services?.ratelimit ?? body.error.code}`)
  }
  for (const broken of [[0], [0, 1]]) {
    const { shards, control } = server.server.shards.connect()
    const links = shards.map(toLink)
    for (const shard of broken) links[shard]?.post(null) // a message that breaks the thread like a bug
    const expected = broken.length === 1 ? '200 degraded' : '500 INTERNAL_SERVER_ERROR'
    while (!seen.has(expected)) await look()
    seen.clear()
    while (!seen.has('200 shards')) await look()
    for (const link of [...links, control]) link.close()
  }
})
