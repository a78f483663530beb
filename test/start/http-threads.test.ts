import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { startTestServer, type TestServer } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer({ env: { TOLLGATE_HTTP_THREADS: '3', TOLLGATE_SHARDS: '2' } })
})
afterAll(() => server[Symbol.asyncDispose]())

/** Closes each connection: the kernel distributes new ones over the threads, so calls reach all of them. */
const closing = { connection: 'close' }

test('a limit is exact over all HTTP threads', async () => {
  const { rootKey } = await server.workspace()
  const body = { namespace: 'threads', identifier: 'everyone', limit: 100, duration: 86_400_000 }
  const call = () => server.post('ratelimits.limit', body, rootKey, closing)
  const answers = await Promise.all(Array.from({ length: 400 }, call))
  expect(answers.every(({ status }) => status === 200)).toBe(true)
  expect(answers.filter(({ body: { success } }) => success)).toHaveLength(100)
})

/** Each thread has a cache of its own. The write is answered once all have dropped the key. */
test('a root key revoked through one thread is refused by all on their next request', async () => {
  const workspace = await server.workspace()
  for (let round = 0; round < 5; round++) {
    const { rootKeyId, rootKey } = await workspace.post('rootKeys.createRootKey', { permissions: ['*'] })
    const use = () => server.get('rootKeys.listRootKeys', {}, rootKey, closing)
    const warm = await Promise.all(Array.from({ length: 30 }, use))
    expect(warm.every(({ status }) => status === 200)).toBe(true)
    await server.post('rootKeys.deleteRootKey', { rootKeyId }, workspace.rootKey, closing)
    const after = await Promise.all(Array.from({ length: 30 }, use))
    expect(after.map(({ status }) => status)).toEqual(Array(30).fill(403))
  }
})

test('credits of a key are exact over all HTTP threads', async () => {
  const workspace = await server.workspace()
  const { apiId } = await workspace.post('apis.createApi', { name: 'threads' })
  const { key } = await workspace.post('keys.createKey', { apiId, remaining: 50 })
  const verify = () => server.post('keys.verifyKey', { key }, null, closing)
  const answers = await Promise.all(Array.from({ length: 120 }, verify))
  expect(answers.filter(({ body }) => body.valid)).toHaveLength(50)
})
