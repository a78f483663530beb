import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { BODY_BYTES_MAX } from '../../../src/doors/http/body.ts'
import { ALL_ERRORS } from '../../../src/errors.ts'
import { sendRaw } from '../../support/raw.ts'
import { OPERATOR_KEY, startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(() => server[Symbol.asyncDispose]())

const envelope = (code: string) => ({
  error: {
    code,
    docs: `${server.url}/errors/${code}`,
    message: expect.any(String),
    requestId: expect.stringMatching(/^req_[a-zA-Z0-9]+$/),
  },
})

const raw = (path: string, init?: RequestInit) => fetch(`${server.url}${path}`, init)
const json = { 'content-type': 'application/json' }

describe('every error has the same envelope', () => {
  const cases: [string, string, RequestInit, number, string][] = [
    ['an unknown path', '/v1/nothing.here', {}, 404, 'NOT_FOUND'],
    ['another method', '/v1/keys.verifyKey', { method: 'PUT', body: '{}' }, 405, 'METHOD_NOT_ALLOWED'],
    [
      'malformed JSON',
      '/v1/keys.verifyKey',
      { method: 'POST', body: '{"key":', headers: json },
      400,
      'BAD_REQUEST',
    ],
    ['an empty body', '/v1/keys.verifyKey', { method: 'POST', body: '', headers: json }, 400, 'BAD_REQUEST'],
    [
      'a list instead of an object',
      '/v1/keys.verifyKey',
      { method: 'POST', body: '[]', headers: json },
      400,
      'BAD_REQUEST',
    ],
    [
      'no content type',
      '/v1/keys.verifyKey',
      { method: 'POST', body: new Blob(['{"key":"x"}']) },
      400,
      'BAD_REQUEST',
    ],
    [
      'no root key',
      '/v1/apis.createApi',
      { method: 'POST', body: '{"name":"name"}', headers: json },
      403,
      'UNAUTHORIZED',
    ],
  ]
  for (const [what, path, init, status, code] of cases)
    test(`${what} is ${status} ${code}`, async () => {
      const response = await raw(path, init)
      expect(response.status).toBe(status)
      const body = (await response.json()) as { error: { requestId: string } } // compared below
      expect(body).toEqual(envelope(code))
      expect(response.headers.get('unkey-request-id')).toBe(body.error.requestId)
    })

  test('a body over the limit is refused by its declared length, naming the limit', async () => {
    const body = JSON.stringify({ key: 'x'.repeat(BODY_BYTES_MAX) })
    const response = await raw('/v1/keys.verifyKey', { method: 'POST', body, headers: json })
    expect(response.status).toBe(400)
    expect(await response.json()).toMatchObject({
      error: { message: expect.stringContaining(String(BODY_BYTES_MAX)) },
    })
  })

  test('a body over the limit without a declared length is refused as well', async () => {
    const chunk = new TextEncoder().encode('x'.repeat(65_536))
    let sent = 0
    const body = new ReadableStream({
      pull: (controller) => (sent++ < 20 ? controller.enqueue(chunk) : controller.close()),
    })
    const response = await raw('/v1/keys.verifyKey', { method: 'POST', body, headers: json })
    expect(response.status).toBe(400)
    expect(await response.json()).toEqual(envelope('BAD_REQUEST'))
  })

  test('a body of exactly the limit is read', async () => {
    const body = JSON.stringify({ key: 'no such key', meta: '' })
    const padded = body.replace('""', `"${'x'.repeat(BODY_BYTES_MAX - body.length)}"`)
    expect(padded.length).toBe(BODY_BYTES_MAX)
    expect((await raw('/v1/keys.verifyKey', { method: 'POST', body: padded, headers: json })).status).toBe(
      200,
    )
  })
})

/** Invalid bodies are refused before the root key is checked, as in the v1 API. */
test('validation comes before authentication', async () => {
  const answer = await server.post('apis.createApi', { name: 'ab' })
  expect(answer.status).toBe(400)
  expect(answer.body.error.message).toBe('name: String must contain at least 3 character(s)')
})

describe('input that cannot be stored is a 400 that names its place', () => {
  const cases: [string, string, string][] = [
    [
      'NUL inside meta',
      '{"apiId":"api_1","meta":{"a":["b","\\u0000"]}}',
      'meta.a.1: String must not contain NUL characters',
    ],
    [
      'a lone surrogate as a name',
      '{"apiId":"api_1","meta":{"\\ud83d":1}}',
      'meta.\ud83d: String must not contain lone surrogates',
    ],
    [
      '__proto__ as a name',
      '{"apiId":"api_1","meta":{"__proto__":{"x":1}}}',
      'meta.__proto__: This field name is not allowed',
    ],
    [
      '__proto__ in escapes',
      '{"apiId":"api_1","meta":{"\\u005f_proto__":1}}',
      'meta.__proto__: This field name is not allowed',
    ],
  ]
  for (const [what, body, message] of cases)
    test(what, async () => {
      const answer = await server.post('keys.createKey', body, OPERATOR_KEY)
      expect(answer.status).toBe(400)
      expect(answer.body.error.message).toBe(message)
    })

  test('nesting of a hundred thousand levels', async () => {
    const deep = '['.repeat(100_000) + ']'.repeat(100_000)
    const answer = await server.post('keys.createKey', `{"apiId":"api_1","meta":{"a":${deep}}}`, OPERATOR_KEY)
    expect(answer.status).toBe(400)
    expect(answer.body.error.message).toContain('Nested deeper than')
  })
})

test('every answer has request id, latency and version, and pages of any origin may read those of the API only', async () => {
  for (const path of ['/v1/liveness', '/v1/nothing', '/errors/NOT_FOUND']) {
    const { headers } = await raw(path)
    expect(headers.get('unkey-request-id')).toMatch(/^req_[a-zA-Z0-9]+$/)
    expect(headers.get('unkey-latency')).toMatch(/^service=[\d.]+ms$/)
    expect(headers.get('unkey-version')).toMatch(/^tollgate\//)
    expect(headers.get('access-control-allow-origin')).toBe(path.startsWith('/v1/') ? '*' : null)
  }
  const preflight = await raw('/v1/keys.verifyKey', { method: 'OPTIONS' })
  expect(preflight.status).toBe(204)
  expect(preflight.headers.get('access-control-allow-methods')).toContain('POST')
})

test('?pretty indents, also with other parameters', async () => {
  expect(await (await raw('/v1/liveness?pretty')).text()).toContain('{\n  "status"')
  expect(await (await raw('/v1/liveness?a=b&pretty=1')).text()).toContain('{\n  "status"')
  expect(await (await raw('/v1/liveness?prettyx')).text()).not.toContain('\n')
})

/** A base URL that ends in a slash gives `//v1/…`. Sent by hand, as `fetch` removes the second slash. */
test('a doubled slash before v1 is the same path, for GET and POST', async () => {
  const body = '{"key":"unknown"}'
  const head = (line: string) => `${line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n`
  const post = `${head('POST //v1/keys.verifyKey')}Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`
  expect((await sendRaw(server.url, `${head('GET //v1/liveness')}\r\n`)).status).toBe(200)
  expect((await sendRaw(server.url, post)).text).toContain('"code":"NOT_FOUND","requestId"')
})

test('the documentation page has each error code and no other', async () => {
  for (const code of Object.keys(ALL_ERRORS)) {
    const response = await raw(`/errors/${code}`)
    expect(response.status).toBe(200)
    expect(response.headers.get('content-type')).toStartWith('text/html')
    expect(await response.text()).toContain(`<h1 class="code">${code}</h1>`)
  }
  expect((await raw('/errors/NO_SUCH_CODE')).status).toBe(404)
  expect((await raw('/errors/constructor')).status).toBe(404)
})
