import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { startTestServer, type TestServer, type TestWorkspace } from '../../../support/server.ts'
import { SLOW_MS } from '../../../support/timeout.ts'
import { callV2, refusalOf } from '../common-cases.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
let mine: TestWorkspace
beforeAll(async () => {
  server = await startTestServer()
  mine = await server.workspace()
})
afterAll(async () => await server[Symbol.asyncDispose]())

test.each([
  ['analytics.getVerifications', 'api'],
  ['analytics.getRatelimits', 'ratelimit'],
])('%s answers that SQL is not supported, to whoever may read analytics', async (name, resource) => {
  const ask = (rootKey: string, body: unknown = { query: 'SELECT 1' }) => callV2(server, name, body, rootKey)
  for (const permission of ['*', `${resource}.*.read_analytics`, `${resource}.some_id.read_analytics`]) {
    const answer = await ask(await mine.rootKeyWith(permission))
    expect(await refusalOf(answer)).toEqual([412, 'unkey/data/analytics_not_configured'])
    expect(answer.body.error.detail).toContain(`/v1/${name}`)
  }
  expect((await ask(await mine.rootKeyWith('api.*.read_api'))).status).toBe(403)
  expect(await refusalOf(ask(mine.rootKey, {}))).toEqual([400, 'unkey/application/invalid_input'])
})
