import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { readConfig } from '../../../src/config.ts'
import { ratelimitHeaders } from '../../../src/lib/ratelimit-headers.ts'
import { startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const NOW = Date.UTC(2030, 0, 1, 12, 0, 15)
let server: TestServer
beforeAll(async () => {
  server = await startTestServer({ env: { TOLLGATE_RATELIMIT_HEADERS: '1' }, clock: () => NOW })
})
afterAll(() => server[Symbol.asyncDispose]())

const fieldsOf = ({ headers }: { headers: Headers }) => [
  headers.get('ratelimit-policy'),
  headers.get('ratelimit'),
]

test('ratelimits.limit sends quota, window, remaining tokens and the seconds until the reset', async () => {
  const { rootKey } = await server.workspace()
  const body = { namespace: 'email', identifier: 'user_1', limit: 2, duration: 60_000 }
  const limit = () => server.post('ratelimits.limit', body, rootKey)
  expect(fieldsOf(await limit())).toEqual(['"email";q=2;w=60', '"email";r=1;t=45'])
  await limit()
  const refused = await limit()
  expect(refused.body.success).toBe(false)
  expect(fieldsOf(refused)).toEqual(['"email";q=2;w=60', '"email";r=0;t=45'])
})

test('keys.verifyKey sends them for the limit in its answer, and none for a key without a limit', async () => {
  const workspace = await server.workspace()
  const { apiId } = await workspace.post('apis.createApi', { name: 'limited' })
  const ratelimit = { limit: 3, duration: 60_000 }
  const limited = await workspace.post('keys.createKey', { apiId, ratelimit })
  const answer = await server.post('keys.verifyKey', { key: limited.key })
  expect(fieldsOf(answer)).toEqual(['"default";q=3;w=60', '"default";r=2;t=45'])
  const free = await workspace.post('keys.createKey', { apiId })
  expect(fieldsOf(await server.post('keys.verifyKey', { key: free.key }))).toEqual([null, null])
})

test('without the variable there are no such headers, and a wrong value ends the start', async () => {
  await using plain = await startTestServer()
  const { rootKey } = await plain.workspace()
  const body = { identifier: 'user_1', limit: 2, duration: 60_000 }
  expect(fieldsOf(await plain.post('ratelimits.limit', body, rootKey))).toEqual([null, null])
  expect(() => readConfig({ TOLLGATE_RATELIMIT_HEADERS: 'yes' })).toThrow(
    'TOLLGATE_RATELIMIT_HEADERS is "yes"; it must be 1 or 0',
  )
})

/** Structured fields hold integers of at most 15 digits (RFC 9651, 3.3.1): a reader drops a field with a longer one. */
test('a larger remainder is cut to 15 digits, and a policy with a larger quota is left out', async () => {
  const { rootKey } = await server.workspace()
  const fieldsFor = async (limit: number) => {
    const body = { namespace: 'tokens', identifier: 'user_1', limit, duration: 60_000 }
    const answer = await server.post('ratelimits.limit', body, rootKey)
    expect(answer.body).toMatchObject({ limit, remaining: limit - 1 })
    return fieldsOf(answer)
  }
  expect(await fieldsFor(999_999_999_999_999)).toEqual([
    '"tokens";q=999999999999999;w=60',
    '"tokens";r=999999999999998;t=45',
  ])
  expect(await fieldsFor(1_000_000_000_000_001)).toEqual([null, '"tokens";r=999999999999999;t=45'])
})

/** A header is one line of ASCII. A name from a caller must neither break it nor be sent altered. */
test('names are quoted, and a name that no header can hold is sent as "default"', () => {
  const state = { limit: 1, remaining: 1, resetAtMs: 1500, durationMs: 1500 }
  const policyOf = (name: string) => ratelimitHeaders({ ...state, name }, 0)['RateLimit-Policy']
  expect(policyOf('a "b" \\ c')).toBe('"a \\"b\\" \\\\ c";q=1;w=2')
  expect(policyOf('line\nbreak')).toBe('"default";q=1;w=2')
  expect(policyOf('größe')).toBe('"default";q=1;w=2')
})
