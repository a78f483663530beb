import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import { NGINX, startNginx } from '../../support/nginx.ts'
import { startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

/** The block of the documentation page, word for word except for addresses and the id. */
function exampleOf({ tollgate, application, apiId }: Record<'tollgate' | 'application' | 'apiId', string>) {
  const readme = readFileSync(join(import.meta.dir, '../../../docs/how-to/forward-auth.md'), 'utf8')
  const example = /```nginx\n(.*?)```/s.exec(readme)?.[1] ?? ''
  expect(example.trimEnd().split('\n').length).toBeLessThanOrEqual(20)
  const parts: [string, string][] = [
    ['127.0.0.1:3000', tollgate],
    ['127.0.0.1:8080', application],
    ['api_…', apiId],
  ]
  return parts.reduce((text, [from, to]) => {
    expect(text).toContain(from)
    return text.replaceAll(from, to)
  }, example)
}

/** A request as the application behind nginx received it. */
type Seen = { method: string; url: string; headers: Headers; bytes: number }

describe.skipIf(NGINX === null)('behind a real nginx, configured as in the docs', () => {
  const seen: Seen[] = []
  let server: TestServer
  let workspace: TestWorkspace
  let apiId: string
  let url: string
  const closing = new AsyncDisposableStack()
  beforeAll(async () => {
    server = await startTestServer({ env: { TOLLGATE_TRUSTED_PROXIES: '127.0.0.1' } })
    closing.use(server)
    workspace = await server.workspace()
    apiId = await makeApi(workspace)
    const application = Bun.serve({
      hostname: '127.0.0.1',
      port: 0,
      fetch: async (request) => {
        const { method, headers } = request
        const bytes = (await request.arrayBuffer()).byteLength
        seen.push({ method, url: new URL(request.url).pathname, headers, bytes })
        return new Response('the application')
      },
    })
    closing.defer(() => application.stop(true))
    const example = exampleOf({
      tollgate: new URL(server.url).host,
      application: application.url.host,
      apiId,
    })
    const port = await startNginx(({ port }) => `server {\n  listen 127.0.0.1:${port};\n${example}}`, closing)
    url = `http://127.0.0.1:${port}`
  })
  afterAll(() => closing.disposeAsync())

  const call = (path: string, headers: Record<string, string> = {}, init: RequestInit = {}) =>
    fetch(`${url}${path}`, { ...init, headers })

  test('a request with a key passes with its owner’s name, whatever the client put into that header', async () => {
    const owned = await makeKey(workspace, apiId, { externalId: 'user_123' })
    const free = await makeKey(workspace, apiId)
    const spoofed = { 'x-tollgate-key-id': 'key_spoofed', 'x-tollgate-external-id': 'admin' }
    seen.length = 0
    const body = 'x'.repeat(100_000)
    const answers = [
      await call('/some/page?a=1', { authorization: `Bearer ${owned.key}`, ...spoofed }),
      await call('/', { 'x-api-key': free.key, ...spoofed }),
      await call('/upload', { 'x-api-key': owned.key }, { method: 'POST', body }),
      await call('/chunked', { 'x-api-key': owned.key }, { method: 'PUT', body: new Blob([body]).stream() }),
    ]
    for (const answer of answers)
      expect([answer.status, await answer.text()]).toEqual([200, 'the application'])
    const told = seen.map(({ method, url, bytes, headers }) => [
      `${method} ${url} ${bytes}`,
      headers.get('x-tollgate-key-id'),
      headers.get('x-tollgate-external-id'),
    ])
    expect(told).toEqual([
      ['GET /some/page 0', owned.keyId, 'user_123'],
      ['GET / 0', free.keyId, null],
      ['POST /upload 100000', owned.keyId, 'user_123'],
      ['PUT /chunked 100000', owned.keyId, 'user_123'],
    ])
  })

  test('every other request is refused before the application', async () => {
    const disabled = await makeKey(workspace, apiId, { enabled: false })
    const foreign = await makeKey(workspace, await makeApi(workspace))
    seen.length = 0
    const nobody = await call('/')
    expect([nobody.status, nobody.headers.get('www-authenticate')]).toEqual([401, 'Bearer'])
    expect((await call('/', { 'x-api-key': 'unknown' })).status).toBe(401)
    expect((await call('/', { 'x-api-key': disabled.key })).status).toBe(403)
    expect((await call('/', { 'x-api-key': foreign.key })).status).toBe(403)
    expect((await call(`/?apiId=`, { 'x-api-key': foreign.key })).status).toBe(403)
    expect((await call('/tollgate', { 'x-api-key': foreign.key })).status).toBe(404)
    expect(seen).toEqual([])
  })

  /** nginx accepts only 401 and 403 as refusals, and turns other statuses into 500. */
  test('a used-up limit is 429 with the seconds to wait, and before that the headers count down', async () => {
    const ratelimit = { limit: 2, duration: 3_600_000 }
    const { key } = await makeKey(workspace, apiId, { ratelimit })
    seen.length = 0
    const answers = []
    for (let request = 0; request < 3; request++) answers.push(await call('/', { 'x-api-key': key }))
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 429])
    const left = answers.map(({ headers }) => /r=\d+/.exec(headers.get('ratelimit') ?? '')?.[0])
    expect(left).toEqual(['r=1', 'r=0', 'r=0'])
    expect(answers[0]?.headers.has('retry-after')).toBe(false)
    expect(Number(answers[2]?.headers.get('retry-after'))).toBeWithin(1, 3601)
    expect(seen).toHaveLength(2)
  })

  test('an allow list is checked against the client, who cannot claim another address', async () => {
    const here = await makeApi(workspace, { ipWhitelist: ['127.0.0.1'] })
    const elsewhere = await makeApi(workspace, { ipWhitelist: ['203.0.113.7'] })
    const statusOf = async (api: string) => {
      const { key } = await makeKey(workspace, api)
      await workspace.post('apis.updateApi', { apiId: api })
      const query = { apiId: api }
      const direct = await server.get('auth.forward', query, key, { 'x-forwarded-for': '203.0.113.7' })
      return direct.status
    }
    expect([await statusOf(here), await statusOf(elsewhere)]).toEqual([403, 200])

    await workspace.post('apis.updateApi', { apiId, ipWhitelist: ['203.0.113.7'] })
    const { key } = await makeKey(workspace, apiId)
    const spoofed = { 'x-api-key': key, 'x-forwarded-for': '203.0.113.7' }
    expect((await call('/', spoofed)).status).toBe(403)
    await workspace.post('apis.updateApi', { apiId, ipWhitelist: ['127.0.0.1'] })
    expect((await call('/', spoofed)).status).toBe(200)
    await workspace.post('apis.updateApi', { apiId, ipWhitelist: null })
  })

  test('without Tollgate no request passes', async () => {
    const { key } = await makeKey(workspace, apiId)
    await server.server.stop()
    seen.length = 0
    expect((await call('/', { 'x-api-key': key })).status).toBe(500)
    expect(seen).toEqual([])
  })
})
