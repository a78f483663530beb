import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { sendRaw } from '../../support/raw.ts'
import { OPERATOR_KEY, startTestServer, type TestServer } from '../../support/server.ts'
import { batchesOf, type Closed, hostileRequests } from '../../support/spellings.ts'
import { SLOW_MS } from '../../support/timeout.ts'

/**
 * Each path has one spelling, and only the request line selects it, so a path that a proxy closes by name is closed. The
 * same table is used for every proxy of the guides in `test/proxies/`.
 */
setDefaultTimeout(2 * SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(() => server[Symbol.asyncDispose]())

type Marked = Closed & { mark: string }
const METRICS: Marked = { method: 'GET', path: '/metrics', mark: '# TYPE tollgate_' }
const REFERENCE: Marked = { method: 'GET', path: '/openapi.json', mark: '"openapi":' }
const GUIDE: Marked = { method: 'GET', path: '/docs/nginx', mark: '<title>Behind nginx' }
const HOT: Marked = {
  method: 'POST',
  path: '/v1/keys.verifyKey',
  body: '{"key":"unknown"}',
  mark: '"valid":',
}
const COLD: Marked = {
  method: 'POST',
  path: '/v1/rootKeys.createRootKey',
  headers: [`Authorization: Bearer ${OPERATOR_KEY}`],
  body: '{"permissions":[]}',
  mark: '"rootKeyId"',
}

/** `//v1/…` comes from a base URL that ends in a slash. No other doubled slash is accepted. */
const hasSlashAlias = ({ path }: Marked) => path.startsWith('/v1/')

test.each([METRICS, REFERENCE, GUIDE, HOT, COLD].map((each) => [each.path, each] as const))(
  '%s is served under its one spelling and no other',
  async (_, each) => {
    const wrong: string[] = []
    for (const batch of batchesOf(hostileRequests(each, '/v1/liveness'), 25))
      await Promise.all(
        batch.map(async ({ name, bytes, is }) => {
          if (is === 'hidden') return // pipelined requests of a client that may send both
          const { status, text } = await sendRaw(server.url, bytes, { patienceMs: 1500 })
          const isServed = text.includes(each.mark)
          const isDue = is === 'exact' || (is === 'slash' && hasSlashAlias(each))
          const isOurFault = status >= 500 && status !== 501 && status !== 505
          if (isServed !== isDue || isOurFault)
            wrong.push(`${name}: ${status} ${is} ${isServed ? 'served' : ''}`)
        }),
      )
    expect(wrong).toEqual([])
  },
)
