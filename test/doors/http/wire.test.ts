import { afterAll, beforeAll, describe, expect, setDefaultTimeout, spyOn, test } from 'bun:test'
import { RawClient } from '../../support/raw-client.ts'
import { OPERATOR_KEY, startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

/** RFC 9110 and 9112, byte by byte: what is accepted, what is refused and how, and how paths are read. */

setDefaultTimeout(SLOW_MS)

let server: TestServer
let port: number
beforeAll(async () => {
  server = await startTestServer()
  port = Number(new URL(server.url).port)
})
afterAll(() => server[Symbol.asyncDispose]())

const AUTHORIZED = `Authorization: Bearer ${OPERATOR_KEY}\r\nContent-Type: application/json\r\n`
const LIVENESS = 'GET /v1/liveness HTTP/1.1\r\nHost: localhost\r\n\r\n'
const limitBody = (identifier: string) =>
  JSON.stringify({ namespace: 'wire', identifier, limit: 100, duration: 3_600_000 })
const limit = (headers: string, body: string) =>
  `POST /v1/ratelimits.limit HTTP/1.1\r\nHost: localhost\r\n${AUTHORIZED}${headers}\r\n${body}`
const measured = (body: string) => limit(`Content-Length: ${Buffer.byteLength(body)}\r\n`, body)
const chunk = (text: string, extension = '') =>
  `${Buffer.byteLength(text).toString(16)}${extension}\r\n${text}\r\n`

/** All answers to these bytes, or those before the connection closed. */
async function answersTo(bytes: string | Uint8Array, count: number) {
  using client = new RawClient(port)
  await client.send(bytes)
  const answers = []
  for (let i = 0; i < count; i++) answers.push(await client.answer())
  return answers.map((answer) => ({ ...answer, json: jsonOf(answer?.body ?? '') }))
}
const statusesOf = async (bytes: string | Uint8Array, count: number) =>
  (await answersTo(bytes, count)).map(({ status }) => status)

// biome-ignore lint/suspicious/noExplicitAny: read field by field
const jsonOf = (text: string): any => (text.startsWith('{') ? JSON.parse(text) : null) // see above

/** The answer, after which the connection closed: nothing after it was read as a request. */
async function refusalOf(bytes: string | Uint8Array) {
  using client = new RawClient(port)
  await client.send(bytes)
  const answers = await client.answers()
  expect(answers.length).toBe(1)
  expect(answers[0]?.headers.connection).toBe('close')
  const { error } = jsonOf(answers[0]?.body ?? '')
  expect(error.requestId).toMatch(/^req_\w+$/)
  expect(error.message).not.toBe('')
  expect(answers[0]?.headers['unkey-request-id']).toBe(error.requestId)
  return [answers[0]?.status, error.code]
}

describe('bodies', () => {
  test('chunks of any size and form are one body, and extensions and trailers are parsed and dropped', async () => {
    const body = limitBody('chunks')
    const chunked = 'Transfer-Encoding: chunked\r\n'
    const forms = [
      limit(chunked, `${chunk(body)}0\r\n\r\n`),
      limit(chunked, `${[...body].map((text) => chunk(text)).join('')}0\r\n\r\n`),
      limit('transfer-encoding:CHUNKED\r\n', `${chunk(body, ';a=b;c="d e"')}000\r\n\r\n`),
      limit(`Trailer: X\r\n${chunked}`, `${chunk(body)}0;x\r\nX: y\r\nHost: other\r\n\r\n`),
    ]
    const answers = await answersTo(forms.join('') + LIVENESS, forms.length + 1)
    expect(answers.map(({ status, json }) => [status, json.remaining])).toEqual([
      ...forms.map((_, index) => [200, 99 - index]),
      [200, undefined],
    ])
  })

  test('a chunked body cut at every byte is one body', async () => {
    const body = limitBody('cut')
    const bytes = Buffer.from(
      limit(
        'Transfer-Encoding: chunked\r\n',
        `${chunk(body.slice(0, 9), ';x')}${chunk(body.slice(9))}0\r\nA: b\r\n\r\n`,
      ),
    )
    const headBytes = bytes.indexOf('\r\n\r\n')
    using client = new RawClient(port)
    for (let cut = headBytes; cut < bytes.length; cut++) {
      await client.send(bytes.subarray(0, cut))
      await new Promise<void>((resolve) => setImmediate(resolve))
      await client.send(bytes.subarray(cut))
      expect((await client.answer())?.status).toBe(200)
    }
  })

  const malformed: [string, string][] = [
    ['no length', '\r\n\r\n'],
    ['a length in 0x', '0x5\r\n12345\r\n0\r\n\r\n'],
    ['a signed length', '+5\r\n12345\r\n0\r\n\r\n'],
    ['a blank before the length', ' 5\r\n12345\r\n0\r\n\r\n'],
    ['a blank after the length', '5 \r\n12345\r\n0\r\n\r\n'],
    ['a length that ends in a bare line feed', '5\n12345\r\n0\r\n\r\n'],
    ['a length that ends in a bare carriage return', '5\r12345\r\n0\r\n\r\n'],
    ['a line feed in an extension', '5;a\nb\r\n12345\r\n0\r\n\r\n'],
    ['a NUL in an extension', '5;\0\r\n12345\r\n0\r\n\r\n'],
    ['data longer than its length', '5\r\n123456\r\n0\r\n\r\n'],
    ['data that ends in a bare line feed', '5\r\n12345\n0\r\n\r\n'],
    ['a trailer without a name', '0\r\n: b\r\n\r\n'],
    ['a blank before a trailer’s colon', '0\r\nA : b\r\n\r\n'],
    ['a folded trailer', '0\r\nA: b\r\n c\r\n\r\n'],
    ['a bare line feed in a trailer', '0\r\nA: b\n\r\n\r\n'],
    ['a bare carriage return at the end', '0\r\n\rX'],
    ['seventeen digits', '00000000000000005\r\n12345\r\n0\r\n\r\n'],
  ]
  test.each(malformed)('%s is refused, and bytes after it are not read as a request', async (_, body) => {
    expect(await refusalOf(limit('Transfer-Encoding: chunked\r\n', body) + LIVENESS)).toEqual([
      400,
      'BAD_REQUEST',
    ])
  })

  test('extensions and trailers are bounded', async () => {
    const chunked = (body: string) => limit('Transfer-Encoding: chunked\r\n', body)
    for (const body of [
      `5;${'a'.repeat(17_000)}`,
      `0\r\nA: ${'a'.repeat(17_000)}`,
      `0\r\n${'A: b\r\n'.repeat(4_000)}`,
    ])
      expect(await refusalOf(chunked(body))).toEqual([431, 'HEADERS_TOO_LARGE'])
  })

  /** Bug: a chunked request with trailers was refused after the key had been created. */
  test('a key made by a chunked request with a trailer is answered', async () => {
    const workspace = await server.workspace()
    const { apiId } = await workspace.post('apis.createApi', { name: 'trailers' })
    const body = JSON.stringify({ apiId, name: 'one' })
    const [answer] = await answersTo(
      `POST /v1/keys.createKey HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${workspace.rootKey}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nTrailer: Digest\r\n\r\n${chunk(body)}0\r\nDigest: x\r\n\r\n`,
      1,
    )
    expect(answer?.status).toBe(200)
    const { keys } = await workspace.get('apis.listKeys', { apiId })
    expect(keys.map(({ id }: { id: string }) => id)).toEqual([answer?.json.keyId])
  })

  test('the body of a GET is read and dropped, and the next request is answered', async () => {
    const get = (headers: string, body: string) =>
      `GET /v1/liveness HTTP/1.1\r\nHost: localhost\r\n${headers}\r\n${body}`
    const bytes =
      get('Content-Length: 5\r\n', '12345') +
      get('Transfer-Encoding: chunked\r\n', `${chunk('12345')}0\r\n\r\n`) +
      measured(limitBody('behind'))
    expect(await statusesOf(bytes, 3)).toEqual([200, 200, 200])
  })

  test('a body that is too large is answered although the client continues to send it', async () => {
    for (const [headers, first] of [
      ['Content-Length: 99999999999\r\n', ''],
      ['Transfer-Encoding: chunked\r\n', '1000000\r\n'],
      ['Transfer-Encoding: chunked\r\n', chunk('x'.repeat(1_048_576)) + chunk('y')],
    ] as const) {
      using client = new RawClient(port)
      await client.send(limit(headers, first))
      for (let i = 0; i < 20; i++) await client.send('x'.repeat(100_000))
      const [answer, ...others] = await client.answers()
      expect(others).toEqual([])
      expect(answer?.headers.connection).toBe('close')
      expect([answer?.status, jsonOf(answer?.body ?? '').error.message]).toEqual([
        400,
        'the body is larger than 1048576 bytes',
      ])
      expect(client.errorCode).toBeNull()
    }
  })

  test('JSON after a byte order mark is read', async () => {
    expect(await statusesOf(measured(`\ufeff${limitBody('bom')}`), 1)).toEqual([200])
  })

  test('a compressed body is a 415 before anything is done; one declared as not compressed is read', async () => {
    const body = Buffer.from(limitBody('gzip'))
    const head = (coding: string, length: number) =>
      limit(`Content-Encoding: ${coding}\r\nContent-Length: ${length}\r\n`, '')
    for (const coding of ['gzip', 'br', 'identity, gzip', 'identityidentity', 'x']) {
      const zipped = Bun.gzipSync(body)
      const [answer] = await answersTo(Buffer.concat([Buffer.from(head(coding, zipped.length)), zipped]), 1)
      expect([answer?.status, answer?.json.error.code]).toEqual([415, 'UNSUPPORTED_MEDIA_TYPE'])
      expect(answer?.json.error.message).toContain('Content-Encoding')
    }
    for (const [index, coding] of ['Identity', 'identity, identity', 'identity ,, Identity,'].entries()) {
      const [answer] = await answersTo(head(coding, body.length) + body, 1)
      expect(answer?.json.remaining).toBe(99 - index)
    }
  })
})

describe('Expect', () => {
  test.each(['100-continue', '100-Continue', '100-CONTINUE', '100-continue, 100-continue,'])(
    '%s is answered before the body is sent',
    async (value) => {
      const body = limitBody(value)
      for (const headers of [`Content-Length: ${body.length}\r\n`, 'Transfer-Encoding: chunked\r\n']) {
        using client = new RawClient(port)
        await client.send(limit(`Expect: ${value}\r\n${headers}`, ''))
        expect((await client.answer())?.status).toBe(100)
        await client.send(headers.startsWith('C') ? body : `${chunk(body)}0\r\n\r\n`)
        expect((await client.answer())?.status).toBe(200)
      }
    },
  )

  test('no 100 is sent to a client that already sends the body, will be refused, or uses HTTP/1.0', async () => {
    const body = limitBody('on')
    const expecting = 'Expect: 100-continue\r\n'
    const whole = limit(`${expecting}Content-Length: ${body.length}\r\n`, body)
    expect(await statusesOf(whole, 1)).toEqual([200])
    expect(await statusesOf(limit(`${expecting}Content-Length: 2000000\r\n`, ''), 1)).toEqual([400])
    using client = new RawClient(port)
    await client.send(limit(`${expecting}Content-Length: ${body.length}\r\n`, '').replace('1.1', '1.0'))
    await client.send(body)
    expect((await client.answer())?.status).toBe(200)
  })

  test('any other expectation is 417', async () => {
    for (const value of ['200-ok', '100-continue, x', 'x=100-continue'])
      expect(await refusalOf(limit(`Expect: ${value}\r\nContent-Length: 5\r\n`, ''))).toEqual([
        417,
        'EXPECTATION_FAILED',
      ])
  })
})

describe('versions, methods and heads', () => {
  test('HTTP/1.0 is answered, with and without Host, and the connection is closed', async () => {
    const body = limitBody('old')
    for (const request of [
      'GET /v1/liveness HTTP/1.0\r\n\r\n',
      'GET /v1/liveness HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n',
      measured(body).replace('HTTP/1.1', 'HTTP/1.0'),
    ]) {
      using client = new RawClient(port)
      await client.send(request + LIVENESS)
      const answers = await client.answers()
      expect(answers.map(({ status, headers }) => [status, headers.connection])).toEqual([[200, 'close']])
    }
    expect(
      await refusalOf('POST /v1/liveness HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'),
    ).toEqual([400, 'BAD_REQUEST'])
  })

  test.each(['HTTP/2.0', 'HTTP/1.2', 'HTTP/0.9', 'HTTP/3.0'])('version %s is 505', async (version) => {
    expect(await refusalOf(`GET /v1/liveness ${version}\r\nHost: localhost\r\n\r\n`)).toEqual([
      505,
      'HTTP_VERSION_NOT_SUPPORTED',
    ])
  })

  test('a method that a path does not have is 405 with Allow, an unknown path is 404, and the connection stays open', async () => {
    for (const method of ['PUT', 'FOO', 'DELETE', 'TRACE', 'get', 'HEAD']) {
      using client = new RawClient(port)
      client.answersHead = method === 'HEAD'
      await client.send(
        `${method} /v1/keys.verifyKey HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}`,
      )
      const answer = await client.answer()
      expect([answer?.status, answer?.headers.allow]).toEqual([405, 'POST, OPTIONS'])
      client.answersHead = false
      await client.send(LIVENESS)
      expect((await client.answer())?.status).toBe(200)
    }
    const of = async (method: string, path: string) =>
      (await answersTo(`${method} ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`, 1))[0]
    expect((await of('POST', '/v1/liveness'))?.headers?.allow).toBe('GET, HEAD, OPTIONS')
    expect((await of('POST', '/docs'))?.headers?.allow).toBe('GET, HEAD, OPTIONS')
    expect((await of('DELETE', '/v1/auth.forward'))?.headers?.allow).toBe('GET, HEAD, POST, OPTIONS')
    expect((await of('FOO', '/v1/nothing'))?.status).toBe(404)
    expect((await of('OPTIONS', '/nothing'))?.status).toBe(404)
    expect((await of('OPTIONS', '*'))?.status).toBe(204)
  })

  test('HEAD is answered like GET, without the content', async () => {
    for (const path of ['/v1/liveness', '/docs', '/metrics', '/v1/nothing']) {
      using client = new RawClient(port)
      client.answersHead = true
      await client.send(`HEAD ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`)
      const head = await client.answer()
      client.answersHead = false
      await client.send(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`)
      const get = await client.answer()
      expect(head?.status).toBe(get?.status ?? 0)
      if (path !== '/metrics') expect(head?.headers['content-length']).toBe(get?.headers['content-length'])
      expect(head?.headers['content-type']).toBe(get?.headers['content-type'])
    }
  })

  test('a refused HEAD gets no content either', async () => {
    const head = 'HEAD /docs HTTP/1.1\r\nHost: localhost\r\n'
    for (const request of [
      'HEAD /docs HTTP/1.1\r\nHost: a/b\r\n\r\n',
      `${head}Expect: x\r\n\r\n`,
      `${head}X: ${'x'.repeat(17_000)}\r\n\r\n`,
      `${head}Transfer-Encoding: chunked\r\n\r\nx`,
    ]) {
      using client = new RawClient(port)
      client.answersHead = true
      await client.send(request)
      const answers = await client.answers()
      expect(answers).toHaveLength(1)
      expect(answers[0]?.status).toBeGreaterThanOrEqual(400)
      expect(Number(answers[0]?.headers['content-length'])).toBeGreaterThan(100)
      expect(client.rest).toBe('')
    }
  })

  test('unimplemented methods and codings are 501', async () => {
    for (const request of [
      'CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n',
      `${'A'.repeat(100)} / HTTP/1.1\r\nHost: localhost\r\n\r\n`,
      limit('Transfer-Encoding: gzip, chunked\r\n', ''),
    ])
      expect(await refusalOf(request)).toEqual([501, 'NOT_IMPLEMENTED'])
  })

  const malformed: [string, string | Uint8Array][] = [
    ['a TLS greeting', Uint8Array.of(0x16, 3, 1, 2, 0, 1)],
    ['lines that end in bare line feeds', 'GET / HTTP/1.1\nHost: localhost\n\n'],
    ['two blanks before the target', 'GET  / HTTP/1.1\r\nHost: localhost\r\n\r\n'],
    ['a blank after the version', 'GET / HTTP/1.1 \r\nHost: localhost\r\n\r\n'],
    ['a version in lower case', 'GET / http/1.1\r\nHost: localhost\r\n\r\n'],
    ['no version', 'GET /\r\nHost: localhost\r\n\r\n'],
    ['a method that is no token', 'GE(T / HTTP/1.1\r\nHost: localhost\r\n\r\n'],
    ['a tab in the target', 'GET /a\tb HTTP/1.1\r\nHost: localhost\r\n\r\n'],
    ['a fragment', 'GET /v1/liveness#a HTTP/1.1\r\nHost: localhost\r\n\r\n'],
    ['a target beyond ASCII', 'GET /é HTTP/1.1\r\nHost: localhost\r\n\r\n'],
    ['a relative target', 'GET v1/liveness HTTP/1.1\r\nHost: localhost\r\n\r\n'],
    ['an asterisk that is not of OPTIONS', 'GET * HTTP/1.1\r\nHost: localhost\r\n\r\n'],
    ['a URL of another scheme', 'GET ftp://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n'],
    ['a URL with a user', 'GET http://a@localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n'],
    ['a URL without a host', 'GET http:///v1/liveness HTTP/1.1\r\nHost: localhost\r\n\r\n'],
    ['a DELETE character in a value', 'GET / HTTP/1.1\r\nHost: localhost\r\nX: \x7f\r\n\r\n'],
    ['a header line without a colon', 'GET / HTTP/1.1\r\nHost: localhost\r\nX\r\n\r\n'],
  ]
  test.each(malformed)('%s is a 400', async (_, bytes) => {
    expect(await refusalOf(bytes)).toEqual([400, 'BAD_REQUEST'])
  })

  test('a request line or a head without an end is refused at its bound', async () => {
    expect(await refusalOf(`GET /${'a'.repeat(20_000)}`)).toEqual([414, 'URI_TOO_LONG'])
    expect(await refusalOf(`GET /?${'a'.repeat(20_000)} HTTP/1.1\r\nHost: localhost\r\n\r\n`)).toEqual([
      414,
      'URI_TOO_LONG',
    ])
    expect(await refusalOf(`GET / HTTP/1.1\r\nX: ${'a'.repeat(20_000)}\r\n\r\n`)).toEqual([
      431,
      'HEADERS_TOO_LARGE',
    ])
  })

  test('one empty line before a request is skipped, and bytes beyond ASCII in a value are accepted', async () => {
    expect(await statusesOf(`\r\n${LIVENESS}\r\n${LIVENESS}`, 2)).toEqual([200, 200])
    expect(
      await statusesOf(
        'GET /v1/liveness HTTP/1.1\r\nHost: localhost\r\nX: \u00fc\r\nTE: trailers\r\n\r\n',
        1,
      ),
    ).toEqual([200])
  })

  test('requests to switch protocols are ignored', async () => {
    const [answer] = await answersTo(
      'GET /v1/liveness HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n',
      1,
    )
    expect(answer?.status).toBe(200)
  })

  test('Connection: close is recognised anywhere in its list', async () => {
    using client = new RawClient(port)
    await client.send(LIVENESS.replace('\r\n\r\n', '\r\nConnection: x, Close\r\n\r\n') + LIVENESS)
    expect((await client.answers()).length).toBe(1)
  })
})

describe('paths', () => {
  const get = (target: string, host = 'localhost') => `GET ${target} HTTP/1.1\r\nHost: ${host}\r\n\r\n`

  test.each([
    'api',
    'tg',
    'd',
    'a:1',
    'metrics',
    '[::1]:3000',
    '127.0.0.1',
    'a_b.example.',
    'x.y:',
    '%2Frun%2Fa.sock',
  ])('with Host %s every path is read unchanged', async (host) => {
    const [liveness, metrics, unknown] = await answersTo(
      get('/v1/liveness', host) + get('/metrics', host) + get('/v1/metrics', host),
      3,
    )
    expect(liveness?.json.status).toBe('serving')
    expect(metrics?.body).toContain('tollgate_build_info')
    expect(unknown?.status).toBe(404)
  })

  test.each([
    'localhost/metrics?',
    'a:99999',
    'a:x',
    'a b',
    'a@b',
    'a/b',
    'a?b',
    'a#b',
    'a\\b',
    '[::1',
    '::1',
    ':80',
    '',
    'a,b',
    '[1.2.3.4]',
    '%zz',
  ])('Host %p is a 400', async (host) => {
    expect(await refusalOf(get('/v1/liveness', host))).toEqual([400, 'BAD_REQUEST'])
  })

  test('HTTP/1.1 without Host, or with two, is a 400', async () => {
    expect(await refusalOf('GET /v1/liveness HTTP/1.1\r\n\r\n')).toEqual([400, 'BAD_REQUEST'])
    for (const version of ['1.0', '1.1'])
      expect(
        await refusalOf(`GET /v1/liveness HTTP/${version}\r\nHost: localhost\r\nHost: localhost\r\n\r\n`),
      ).toEqual([400, 'BAD_REQUEST'])
  })

  const aliases = (path: string) => [
    `${path}/`,
    `/${path}`,
    `//${path}`,
    `/.${path}`,
    `/x/..${path}`,
    `/x/%2e%2e${path}`,
    `/v1/..\\${path.slice(1)}`,
    `\\${path.slice(1)}`.replace('\\', '/\\'),
    `/%${path.charCodeAt(1).toString(16)}${path.slice(2)}`,
    path.toUpperCase(),
    `${path}%20`,
    `${path};a`,
    `${path}%3f`,
    `${path}/.`,
    path.replace(/(.)$/, '%00$1'),
  ]
  test.each(['/metrics', '/docs', '/docs/nginx', '/openapi.json', '/errors/NOT_FOUND'])(
    '%s has one spelling',
    async (path) => {
      expect(await statusesOf(get(path) + get(`${path}?a=/../b`), 2)).toEqual([200, 200])
      const spellings = aliases(path).filter((alias) => alias !== path)
      const answers = await answersTo(spellings.map((alias) => get(alias)).join(''), spellings.length)
      expect(answers.map(({ status }, index) => `${status} ${spellings[index]}`)).toEqual(
        spellings.map((alias) => `404 ${alias}`),
      )
    },
  )

  test('an endpoint has one spelling, plus the doubled slash of a base URL that ends in a slash', async () => {
    const post = (path: string) =>
      `POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{"key":"x"}`
    const path = '/v1/keys.verifyKey'
    expect(await statusesOf(post(path) + post(`/${path}`) + post(`${path}?x`), 3)).toEqual([200, 200, 200])
    const spellings = [
      ...aliases(path),
      '/v1//keys.verifyKey',
      '/V1/keys.verifyKey',
      '///v1/keys.verifyKey',
      '//x/v1/keys.verifyKey',
      '//localhost/v1/keys.verifyKey',
      '/v1/keys%2everifyKey',
    ].filter((alias) => alias !== `/${path}`)
    const answers = await answersTo(spellings.map(post).join(''), spellings.length)
    expect(answers.map(({ status }, index) => `${status} ${spellings[index]}`)).toEqual(
      spellings.map((alias) => `404 ${alias}`),
    )
  })

  /** RFC 9112 3.2.2: a server must accept it. Its path is compared like any other. */
  test('of an absolute URL the path is used, whatever its host', async () => {
    const targets = [
      'http://localhost/v1/liveness',
      'HTTP://other:81/v1/liveness?a',
      'https://[::1]//v1/liveness',
    ]
    expect(await statusesOf(targets.map((target) => get(target)).join(''), 3)).toEqual([200, 200, 200])
    const odd = [
      'http://localhost',
      'http://localhost?/v1/liveness',
      'http://localhost/x/../metrics',
      'http://localhost/metrics/',
    ]
    expect(await statusesOf(odd.map((target) => get(target)).join(''), 4)).toEqual([404, 404, 404, 404])
  })

  /** Bug: with `//v1/…` there was no client address, so an allow list refused and the audit log had none. */
  test('a request with a doubled slash is treated like the same request without it', async () => {
    const workspace = await server.workspace()
    const { apiId } = await workspace.post('apis.createApi', { name: 'doubled' })
    await workspace.post('apis.updateApi', { apiId, ipWhitelist: ['127.0.0.1'] })
    const { key } = await workspace.post('keys.createKey', { apiId })
    const post = (path: string, body: string) =>
      `POST ${path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${workspace.rootKey}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`
    const [verified, made] = await answersTo(
      post('//v1/keys.verifyKey', JSON.stringify({ key })) +
        post('//v1/apis.createApi', '{"name":"audited"}'),
      2,
    )
    expect(verified?.json.code).toBe('VALID')
    expect(made?.status).toBe(200)
    const { events } = await workspace.get('audit.listEvents', { limit: 1 })
    expect(JSON.stringify(events[0])).toContain('127.0.0.1')
    const metrics = await (await fetch(`${server.url}/metrics`)).text()
    expect(metrics).toContain('route="/v1/apis.createApi",status="200"')
  })
})

describe('behaviour of the client', () => {
  test('a client that sends its request and its FIN gets the answer, then the connection is closed', async () => {
    const body = limitBody('fin')
    for (const request of [measured(body), LIVENESS, measured(body).repeat(3)]) {
      using client = new RawClient(port)
      await client.send(request)
      client.end()
      const answers = await client.answers()
      expect(answers.map(({ status }) => status)).toEqual(
        request === LIVENESS ? [200] : answers.map(() => 200),
      )
      expect(answers.length).toBe(request.split('HTTP/1.1').length - 1)
    }
  })

  test('a client that disconnects in the middle is not an error and is not logged', async () => {
    const written = spyOn(process.stderr, 'write')
    const before = await failures()
    for (const part of [
      'GET /v1/live',
      limit('Content-Length: 500\r\n', '{"a'),
      limit('Transfer-Encoding: chunked\r\n', '5\r\n{"a'),
      limit('Expect: 100-continue\r\nContent-Length: 500\r\n', ''),
    ])
      for (const way of ['fin', 'gone'] as const) {
        const client = new RawClient(port)
        await client.send(part)
        await Bun.sleep(10) // until it has arrived
        if (way === 'fin') {
          client.end()
          await client.closed()
        }
        client[Symbol.dispose]()
      }
    await Bun.sleep(50)
    expect(await failures()).toBe(before)
    expect(written.mock.calls).toEqual([])
    written.mockRestore()
  })

  /** Bug: a target without Host was a 500, with a stack and the query in the log. */
  test('no request is a 500, or a log line with the request’s content', async () => {
    const [out, err] = [spyOn(process.stdout, 'write'), spyOn(process.stderr, 'write')]
    const before = await failures()
    const SECRET = 'secret-of-the-query'
    for (const request of [
      `GET /nope?token=${SECRET} HTTP/1.0\r\n\r\n`,
      `GET /nope?token=${SECRET} HTTP/1.1\r\nHost: a:99999\r\n\r\n`,
      `GET //?${SECRET} HTTP/1.1\r\nHost: a\r\n\r\n`,
      `GET /v1/liveness?${SECRET}%zz&%00 HTTP/1.1\r\nHost: a\r\n\r\n`,
      `GET /v1/keys.getKey?keyId=%ff${SECRET} HTTP/1.1\r\nHost: a\r\n\r\n`,
      `GET /docs/${SECRET}?x HTTP/1.1\r\nHost: a\r\n\r\n`,
      `GET /errors/%${SECRET} HTTP/1.1\r\nHost: a\r\n\r\n`,
      `FOO /${SECRET} HTTP/1.1\r\nHost: a\r\ntraceparent: ${SECRET}\r\ntracestate: \u00fc\r\nOrigin: ${SECRET}\r\n\r\n`,
      `GET http://${SECRET}:99999/ HTTP/1.1\r\nHost: a\r\n\r\n`,
    ]) {
      const [answer] = await answersTo(request, 1)
      expect(answer?.status).toBeLessThan(500)
      expect(answer?.headers?.['unkey-request-id']).toMatch(/^req_/)
    }
    expect(await failures()).toBe(before)
    const lines = JSON.stringify([...out.mock.calls, ...err.mock.calls])
    expect(lines).not.toContain(SECRET)
    expect(err.mock.calls).toEqual([])
    out.mockRestore()
    err.mockRestore()
  })

  const failures = async () => {
    const metrics = await (await fetch(`${server.url}/metrics`)).text()
    return metrics
      .split('\n')
      .filter((line) => /^tollgate_http_requests_total.*status="5.* [1-9]\d*$/.test(line))
      .join('\n')
  }

  test('the scheme of Authorization is case-insensitive', async () => {
    const body = limitBody('scheme')
    for (const scheme of ['Bearer', 'bearer', 'BEARER', 'bEARER'])
      expect(await statusesOf(measured(body).replace('Bearer', scheme), 1)).toEqual([200])
    expect(await statusesOf(measured(body).replace('Bearer', 'Basic'), 1)).toEqual([403])
  })
})

describe('headers for browsers', () => {
  test('pages of other origins may read the API and nothing else', async () => {
    for (const path of ['/v1/liveness', '/v1/nothing', '/v1/keys.verifyKey'])
      for (const method of ['GET', 'OPTIONS']) {
        const { headers } = await fetch(server.url + path, {
          method,
          headers: { origin: 'https://a.example' },
        })
        expect(headers.get('access-control-allow-origin')).toBe('*')
      }
    for (const path of [
      '/metrics',
      '/docs',
      '/docs/nginx',
      '/errors/NOT_FOUND',
      '/openapi.json',
      '/nothing',
      '/',
    ])
      for (const method of ['GET', 'OPTIONS']) {
        const { headers } = await fetch(server.url + path, {
          method,
          headers: { origin: 'https://a.example' },
        })
        expect([...headers.keys()].filter((name) => name.startsWith('access-control'))).toEqual([])
      }
  })

  test('pages and metrics have their security headers', async () => {
    for (const path of [
      '/metrics',
      '/docs',
      '/docs/nginx',
      '/errors/NOT_FOUND',
      '/openapi.json',
      '/nothing',
    ]) {
      const { headers } = await fetch(server.url + path)
      expect(headers.get('x-content-type-options')).toBe('nosniff')
      expect(headers.get('referrer-policy')).toBe('no-referrer')
      expect(headers.get('content-security-policy')).toContain("default-src 'none'")
      expect(headers.get('content-security-policy')).toContain("frame-ancestors 'none'")
    }
    const page = await fetch(`${server.url}/docs`)
    const [, inPage] = /http-equiv="Content-Security-Policy" content="([^"]+)"/.exec(await page.text()) ?? []
    expect(page.headers.get('content-security-policy')).toBe(`${inPage}; frame-ancestors 'none'`)
  })

  test('the port of the metrics serves nothing else, parses as strictly, and never fails', async () => {
    await using apart = await startTestServer({ env: { TOLLGATE_METRICS_PORT: '0' } })
    const metricsPort = Number(new URL(apart.server.metricsUrl).port)
    const ask = async (bytes: string) => {
      using client = new RawClient(metricsPort)
      await client.send(bytes)
      return await client.answer()
    }
    const answer = await ask('GET /metrics HTTP/1.0\r\n\r\n')
    expect(answer?.body).toContain('tollgate_build_info')
    expect(answer?.headers['x-content-type-options']).toBe('nosniff')
    expect((await ask('GET /metrics/ HTTP/1.1\r\nHost: a\r\n\r\n'))?.status).toBe(404)
    expect((await ask('GET /v1/liveness HTTP/1.1\r\nHost: a\r\n\r\n'))?.status).toBe(404)
    expect((await ask('PUT /metrics HTTP/1.1\r\nHost: a\r\n\r\n'))?.status).toBe(405)
    expect((await ask('GET /metrics HTTP/1.1\r\nHost: a/b\r\n\r\n'))?.status).toBe(400)
    expect((await ask('OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n'))?.status).toBe(204)
    // The API is not here, so pages of other origins may not read any answer.
    for (const bytes of [
      'GET /v1/liveness HTTP/1.1\r\nHost: a\r\nOrigin: https://a.example\r\n\r\n',
      'OPTIONS /v1/liveness HTTP/1.1\r\nHost: a\r\nOrigin: https://a.example\r\n\r\n',
      'GET /metrics HTTP/1.1\r\nHost: a/b\r\n\r\n',
    ]) {
      const headers = (await ask(bytes))?.headers ?? {}
      expect(headers['x-content-type-options']).toBe('nosniff')
      expect(Object.keys(headers).filter((name) => name.startsWith('access-control'))).toEqual([])
    }
    expect((await fetch(`${apart.url}/metrics`)).status).toBe(404)
  })
})
