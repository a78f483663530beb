import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { makeApi } from '../support/fixtures.ts'
import { createLinger, LESS_THAN_LINGERING_MS } from '../support/linger.ts'
import { startTestServer, type TestServer } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer({ env: { TOLLGATE_DB_TIMEOUT_MS: LESS_THAN_LINGERING_MS } })
  const { sql } = server.server.deps
  await createLinger(sql)
  await sql`create trigger linger before update on apis for each row execute function linger()`
})
afterAll(async () => await server[Symbol.asyncDispose]())

test('a write that takes longer than the time limit fails, and nothing is written', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  expect((await server.post('apis.updateApi', { apiId, name: 'late' }, workspace.rootKey)).status).toBe(500)
  expect((await workspace.get('apis.getApi', { apiId })).name).toBe('test api')
})
