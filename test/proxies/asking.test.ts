import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { createServer, request as httpRequest, type IncomingMessage, type Server } from 'node:http'
import { endpoints } from '../../src/server/app.ts'
import { PATIENT } from '../docs/blocks.ts'
import { makeApi, makeKey } from '../support/fixtures.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { sendRaw } from '../support/raw.ts'
import { startTestServer, type TestServer, type TestWorkspace } from '../support/server.ts'
import { batchesOf, hostileRequests } from '../support/spellings.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { ASKING, type Configuration, WITH_AN_OPEN_PLACE } from './configurations.ts'

/** A proxy, configured as in the docs, asks Tollgate about each request: what the application receives. */
setDefaultTimeout(2 * SLOW_MS)

/** A request as received: header names and values in order, including repeated ones. */
type Seen = { method: string; url: string; headers: string[]; bytes: number }

/** The only headers that the application may trust. */
const KEY_ID = 'x-tollgate-key-id'
const EXTERNAL_ID = 'x-tollgate-external-id'

/** Names that some language or framework reads as one of them: `HTTP_X_TOLLGATE_KEY_ID`. */
const FORGED = [
  'X-Tollgate-Key-Id',
  'X-Tollgate-External-Id',
  'x-tollgate-external-id',
  'X-TOLLGATE-EXTERNAL-ID',
  'X_Tollgate_Key_Id',
  'X_Tollgate_External_Id',
  'X_TOLLGATE_EXTERNAL_ID',
  'x_tollgate-external-id',
  'X-Tollgate_External_Id',
  'X-Tollgate-External_Id',
  'X.Tollgate.External.Id',
  'X-Tollgate.External-Id',
]

/** The size of headers is not tested here. */
const LARGE = { maxHeaderSize: 65_536 }

const closing = new AsyncDisposableStack()
const seen: Seen[] = []
const asked: Seen[] = []
let server: TestServer
let workspace: TestWorkspace
let application: string
let recorder: string
beforeAll(async () => {
  server = closing.use(await startTestServer({ env: { ...PATIENT, TOLLGATE_TRUSTED_PROXIES: '127.0.0.1' } }))
  workspace = await server.workspace()
  application = await listening(
    createServer(LARGE, async (request, response) => {
      seen.push(await read(request))
      response.end('the application')
    }),
  )
  // Stands between a proxy and Tollgate, to record what is passed on.
  recorder = await listening(
    createServer(LARGE, async (request, response) => {
      asked.push(await read(request))
      const { port } = new URL(server.url)
      const { method, url: path, headers } = request
      const passed = httpRequest(
        { port, method, path, headers: { ...headers, connection: 'close' } },
        (answer) => {
          response.writeHead(answer.statusCode ?? 500, answer.headers)
          answer.pipe(response)
        },
      )
      passed.end()
    }),
  )
})
afterAll(() => closing.disposeAsync())

async function listening(http: Server): Promise<string> {
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  closing.defer(() => {
    http.closeAllConnections()
    http.close()
  })
  const address = http.address()
  if (address === null || typeof address === 'string') throw new Error('no port')
  return `127.0.0.1:${address.port}`
}

/** Also reads a request that breaks off. */
async function read(request: IncomingMessage): Promise<Seen> {
  let bytes = 0
  try {
    for await (const chunk of request) bytes += chunk.length
  } catch {
    bytes = -1
  }
  return { method: request.method ?? '', url: request.url ?? '', headers: request.rawHeaders, bytes }
}

/** All values of a header, in any spelling of its name. */
function valuesOf({ headers }: Seen, name: RegExp): [name: string, value: string][] {
  const found: [string, string][] = []
  for (let i = 0; i < headers.length; i += 2) {
    const pair: [string, string] = [headers[i] ?? '', headers[i + 1] ?? '']
    if (name.test(pair[0])) found.push(pair)
  }
  return found
}

const TOLLGATE = /tollgate/i
/** The trusted headers that the application received, without empty ones. */
const toldIn = (each: Seen): string[][] =>
  valuesOf(each, TOLLGATE)
    .filter(([, value]) => value !== '')
    .map(([name, value]) => [name.toLowerCase(), value])
    .sort()

test('Tollgate sends an application exactly two headers', () => {
  const forward = endpoints.find(({ path }) => path === '/v1/auth.forward')
  const told = Object.keys(forward?.answerHeaders ?? {}).filter((name) => TOLLGATE.test(name))
  expect(told.map((name) => name.toLowerCase())).toEqual([KEY_ID, EXTERNAL_ID])
})

/** Proxies do not depend on the kind of database, so one suite is enough. */
const where = (isInstalled: boolean) => describe.if(isInstalled)

for (const configuration of ASKING)
  where(configuration.isInstalled)(configuration.name, () => tests(configuration))

function tests(configuration: Configuration): void {
  const hasOpenPlace = WITH_AN_OPEN_PLACE.includes(configuration.name)
  let url: string
  let recorded: string
  let apiId: string
  beforeAll(async () => {
    apiId = await makeApi(workspace)
    const { host } = new URL(server.url)
    url = await configuration.start({ tollgate: host, application, apiId }, closing)
    recorded = await configuration.start({ tollgate: recorder, application, apiId }, closing)
  })

  type Sent = { method?: string; path?: string; headers?: readonly string[]; body?: string; to?: string }
  /** Written by hand, because an HTTP client would correct the bytes. */
  const send = ({ method = 'GET', path = '/documents/1', headers = [], body = '', to = url }: Sent) => {
    const length = body === '' ? [] : [`Content-Length: ${body.length}`]
    const head = [`${method} ${path} HTTP/1.1`, 'Host: localhost', 'Connection: close', ...length, ...headers]
    return sendRaw(to, `${head.join('\r\n')}\r\n\r\n${body}`)
  }

  test('whatever a client writes into them, the application sees the key’s owner or nothing', async () => {
    const owned = await makeKey(workspace, apiId, { externalId: 'user_123' })
    const free = await makeKey(workspace, apiId)
    // nginx removes headers by name only, so it does not remove those that Tollgate may send in the future.
    const later = configuration.name.startsWith('nginx') ? [] : ['X-Tollgate-Later', 'x_tollgate_later']
    const forged = [...FORGED, ...FORGED.slice(0, 2), ...later].map((name) => `${name}: forged`)
    const toldWith = async (key: string, headers: string[]) => {
      seen.length = 0
      const { status, text } = await send({ headers: [`X-API-Key: ${key}`, ...headers] })
      expect([status, text.includes('the application')]).toEqual([200, true])
      return seen.map(toldIn)
    }
    const ofOwned = [
      [EXTERNAL_ID, 'user_123'],
      [KEY_ID, owned.keyId],
    ]
    expect(await toldWith(owned.key, [])).toEqual([ofOwned])
    expect(await toldWith(owned.key, forged)).toEqual([ofOwned])
    expect(await toldWith(free.key, [])).toEqual([[[KEY_ID, free.keyId]]])
    expect(await toldWith(free.key, forged)).toEqual([[[KEY_ID, free.keyId]]])
    for (const name of FORGED)
      expect(await toldWith(free.key, [`${name}: forged`])).toEqual([[[KEY_ID, free.keyId]]])
  })

  test('a header that a client hides inside another is refused or not read as a header', async () => {
    const { key, keyId } = await makeKey(workspace, apiId)
    for (const hidden of [
      'X: y\rX-Tollgate-External-Id: forged',
      'X: y\nX-Tollgate-External-Id: forged',
      'X: y\x00X-Tollgate-External-Id: forged',
      'X: y\r\n X-Tollgate-External-Id: forged',
      'X-Tollgate-External-Id : forged',
      'X-Tollgate-External-Id\t: forged',
      ' X-Tollgate-External-Id: forged',
      'X-Tollgate-External-Id\x00: forged',
      'X: y\r\n\tX-Tollgate-External-Id: forged',
      'Connection: X-Tollgate-Key-Id',
      'Connection: close, X-Tollgate-Key-Id, X-Tollgate-External-Id',
      'Connection: X-Tollgate-External-Id\r\nX-Tollgate-External-Id: forged',
      'Trailer: X-Tollgate-External-Id',
      'X-Api-Key-Id: {rp.header.X-Tollgate-Key-Id}',
    ]) {
      seen.length = 0
      const { status } = await send({ headers: [`X-API-Key: ${key}`, hidden] })
      expect([hidden, status < 500]).toEqual([hidden, true])
      for (const each of seen) expect([hidden, toldIn(each)]).toEqual([hidden, [[KEY_ID, keyId]]])
    }
    seen.length = 0
    const trailer = '4\r\nbody\r\n0\r\nX-Tollgate-External-Id: forged\r\n\r\n'
    const head = ['POST /documents HTTP/1.1', 'Host: localhost', 'Connection: close', `X-API-Key: ${key}`]
    await sendRaw(
      url,
      `${[...head, 'Trailer: X-Tollgate-External-Id', 'Transfer-Encoding: chunked'].join('\r\n')}\r\n\r\n${trailer}`,
    )
    for (const each of seen) expect(toldIn(each)).toEqual([[KEY_ID, keyId]])
  })

  if (hasOpenPlace)
    test('on paths without a check these headers never arrive', async () => {
      seen.length = 0
      const headers = FORGED.map((name) => `${name}: forged`)
      expect((await send({ path: '/health', headers })).status).toBe(200)
      expect((await send({ path: '/health', headers: ['X-API-Key: wrong', ...headers] })).status).toBe(200)
      expect(seen.map(({ url }) => url)).toEqual(['/health', '/health'])
      expect(seen.map(toldIn)).toEqual([[], []])
    })

  test('a request without a valid key is refused, and a limit has the seconds to wait', async () => {
    const disabled = await makeKey(workspace, apiId, { enabled: false })
    const foreign = await makeKey(workspace, await makeApi(workspace))
    const limited = await makeKey(workspace, apiId, { ratelimit: { limit: 1, duration: 3_600_000 } })
    expect((await send({ headers: [`X-API-Key: ${limited.key}`] })).status).toBe(200)
    seen.length = 0
    const statusOf = async (...headers: string[]) => (await send({ headers })).status
    expect(await statusOf()).toBe(401)
    expect(await statusOf('X-API-Key: unknown')).toBe(401)
    expect(await statusOf(`X-API-Key: ${workspace.rootKey}`)).toBe(401)
    expect(await statusOf(`Authorization: Basic ${btoa('a:b')}`)).toBe(401)
    expect(await statusOf(`X-API-Key: ${disabled.key}`)).toBe(403)
    expect(await statusOf(`Authorization: Bearer ${foreign.key}`)).toBe(403)
    const late = await send({ headers: [`X-API-Key: ${limited.key}`] })
    expect(late.status).toBe(429)
    expect(late.text).toMatch(/^retry-after: \d+\r$/im)
    expect(seen).toEqual([])
  })

  /** The question is in the configuration; nothing in the request may change it. */
  test('a client cannot change the question to Tollgate', async () => {
    const foreign = await makeKey(workspace, await makeApi(workspace))
    seen.length = 0
    for (const path of ['/?apiId=', `/?apiId=&permissions=x`, '/a?apiId=%00', '/a%3FapiId='])
      expect([path, (await send({ path, headers: [`X-API-Key: ${foreign.key}`] })).status]).toEqual([
        path,
        403,
      ])
    for (const header of [
      'X-Original-URL: /v1/liveness',
      'X-Rewrite-URL: /v1/liveness',
      'X-Forwarded-Uri: /health',
      'X-Forwarded-Method: OPTIONS',
      'X-HTTP-Method-Override: OPTIONS',
      'Forwarded: for=127.0.0.1;host=localhost',
      'Origin: http://localhost\r\nAccess-Control-Request-Method: GET',
    ])
      for (const method of ['GET', 'OPTIONS', 'HEAD', 'POST'])
        expect([header, method, (await send({ method, headers: [header] })).status]).toEqual([
          header,
          method,
          401,
        ])
    expect(seen).toEqual([])
  })

  test('Tollgate gets the key and the address, no cookies and no body; the application gets everything', async () => {
    const { key } = await makeKey(workspace, apiId)
    const cookies = ['a', 'b', 'c'].map((name) => `Cookie: ${name}=${'x'.repeat(7000)}`)
    const headers = [`Authorization: Bearer ${key}`, ...cookies, 'Referer: http://localhost/r']
    const body = 'x'.repeat(100_000)
    asked.length = 0
    seen.length = 0
    const answers = [
      await send({ to: recorded, method: 'POST', headers, body }),
      await sendRaw(
        recorded,
        `PUT /documents/${'x'.repeat(5000)} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n${headers.join('\r\n')}\r\nTransfer-Encoding: chunked\r\n\r\n186a0\r\n${body}\r\n0\r\n\r\n`,
      ),
      await send({ headers }),
    ]
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200])
    expect(seen.map(({ method, bytes }) => [method, bytes])).toEqual([
      ['POST', 100_000],
      ['PUT', 100_000],
      ['GET', 0],
    ])
    for (const each of seen)
      expect(
        valuesOf(each, /^cookie$/i)
          .map(([, value]) => value)
          .join().length,
      ).toBeGreaterThan(20_000)
    expect(asked.map(({ method, url, bytes }) => [method, url, bytes])).toEqual(
      asked.map(() => ['GET', `/v1/auth.forward?apiId=${apiId}`, 0]),
    )
    expect(asked).toHaveLength(2)
    for (const each of asked) {
      expect(valuesOf(each, /^authorization$/i)).toEqual([[expect.anything(), `Bearer ${key}`]])
      expect(valuesOf(each, /^x-forwarded-for$/i)).toEqual([[expect.anything(), '127.0.0.1']])
      expect(valuesOf(each, /^(cookie|referer|x-forwarded-uri|transfer-encoding|content-length)$/i)).toEqual(
        [],
      )
      expect(each.headers.join().length).toBeLessThan(1000)
    }
  })

  test('the address is the client’s, and the client’s headers do not change it', async () => {
    const spoofed = [
      'X-Forwarded-For: 203.0.113.7',
      'x-forwarded-for: 203.0.113.7, 127.0.0.1',
      'X_Forwarded_For: 203.0.113.7',
      'Forwarded: for=203.0.113.7',
      'True-Client-IP: 203.0.113.7',
      'CF-Connecting-IP: 203.0.113.7',
      'X-Real-IP: 203.0.113.7',
      'X-Client-IP: 203.0.113.7',
      'Connection: X-Forwarded-For',
    ]
    const { key } = await makeKey(workspace, apiId)
    const statuses = async () => {
      const answers = [await send({ headers: [`X-API-Key: ${key}`, ...spoofed] })]
      for (const header of spoofed) answers.push(await send({ headers: [`X-API-Key: ${key}`, header] }))
      return [...new Set(answers.map(({ status }) => status))]
    }
    await workspace.post('apis.updateApi', { apiId, ipWhitelist: ['203.0.113.7'] })
    expect(await statuses()).toEqual([403])
    await workspace.post('apis.updateApi', { apiId, ipWhitelist: ['127.0.0.1'] })
    expect(await statuses()).toEqual([200])
    await workspace.post('apis.updateApi', { apiId, ipWhitelist: null })
  })

  test('no text in place of a key causes a 5xx or passes', async () => {
    seen.length = 0
    for (const key of [
      '',
      ' ',
      'x'.repeat(7000),
      'k\xe9y',
      'k\xc3\xa9y',
      'a\tb',
      'a b',
      '"',
      "' or 1=1 --",
      '{env.PATH}',
      '{http.request.host}',
      '%00',
      '$http_host',
      'a,b',
      '\\',
      'Bearer Bearer x',
    ])
      for (const header of [`X-API-Key: ${key}`, `Authorization: Bearer ${key}`, `Authorization: ${key}`]) {
        const { status } = await send({ headers: [header] })
        expect([header, status >= 400 && status < 500]).toEqual([header, true])
      }
    const long = 'x'.repeat(7900)
    const { status } = await send({ headers: [`X-API-Key: ${long}`, `Authorization: Bearer ${long}`] })
    expect(status).toBeWithin(400, 500)
    for (const [first, second] of [
      ['X-API-Key: a', 'X-API-Key: b'],
      ['Authorization: Bearer a', 'Authorization: Bearer b'],
    ])
      expect((await send({ headers: [first ?? '', second ?? ''] })).status).toBeWithin(400, 500)
    expect(seen).toEqual([])
  })

  test('an external id with any characters arrives as Tollgate wrote it', async () => {
    for (const externalId of [
      '{env.PATH}',
      '{http.request.host}',
      '$remote_addr',
      '%[src]',
      'a\r\nX-Admin: yes',
      '日本',
      '\\1 "x"',
    ]) {
      const { key, keyId } = await makeKey(workspace, apiId, { externalId })
      seen.length = 0
      expect((await send({ headers: [`X-API-Key: ${key}`] })).status).toBe(200)
      const told = Object.fromEntries(seen.flatMap(toldIn))
      expect({ ...told, [EXTERNAL_ID]: decodeURIComponent(told[EXTERNAL_ID]) }).toEqual({
        [KEY_ID]: keyId,
        [EXTERNAL_ID]: externalId,
      })
      expect(seen.flatMap((each) => valuesOf(each, /admin/i))).toEqual([])
    }
  })

  test('without a key only the open path is reached, however a path is written', async () => {
    seen.length = 0
    const rows = hostileRequests({ method: 'GET', path: '/documents/1' }, hasOpenPlace ? '/health' : '/other')
    for (const batch of batchesOf(rows, 25))
      await Promise.all(
        batch.map(async ({ name, bytes, is }) => {
          const { status } = await sendRaw(url, bytes, {
            lingerMs: is === 'hidden' ? 200 : 0,
            patienceMs: 1500,
          })
          if (is !== 'hidden') expect([name, status === 500 || status === 502]).toEqual([name, false])
        }),
      )
    expect([...new Set(seen.map(({ url }) => url.replace(/^http:\/\/localhost|\?.*$/g, '')))]).toEqual(
      hasOpenPlace ? ['/health'] : [],
    )
  })

  test('a request for a WebSocket, or with Expect, is checked like any other', async () => {
    const { key } = await makeKey(workspace, apiId)
    seen.length = 0
    const upgrade = [
      'Upgrade: websocket',
      'Connection: Upgrade',
      'Sec-WebSocket-Version: 13',
      'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
    ].join('\r\n')
    const expectation = 'Expect: 100-continue'
    for (const header of [upgrade, expectation]) {
      const bytes = (more: string) =>
        `POST /documents/1 HTTP/1.1\r\nHost: localhost\r\n${header}\r\n${more}Content-Length: 4\r\n\r\nbody`
      expect((await sendRaw(url, bytes(''))).text).toMatch(/^HTTP\/1\.1 401 /m)
      expect(seen).toEqual([])
      expect((await sendRaw(url, bytes(`X-API-Key: ${key}\r\n`))).text).toMatch(/^HTTP\/1\.1 200 /m)
      expect(seen.map(({ bytes }) => bytes)).toEqual([4])
      seen.length = 0
    }
  })

  /** The short example for Caddy has no time limit. By day one proxy: each waits for its own limit. */
  if (configuration.name === 'nginx' || (IS_NIGHTLY && configuration.name !== 'Caddy, short'))
    test('while Tollgate accepts connections without answering, no request passes, and clients get an answer in time', async () => {
      const frozen = await listening(createServer(() => {}))
      const waiting = await configuration.start({ tollgate: frozen, application, apiId }, closing)
      seen.length = 0
      const { status } = await send({ to: waiting, headers: ['X-API-Key: any'] })
      expect(status).toBeWithin(500, 505)
      expect(seen).toEqual([])
    })

  test('without Tollgate no request passes', async () => {
    const { key } = await makeKey(workspace, apiId)
    const lonely = await configuration.start({ tollgate: '127.0.0.1:1', application, apiId }, closing)
    seen.length = 0
    const { status } = await send({ to: lonely, headers: [`X-API-Key: ${key}`] })
    expect(status).toBeWithin(500, 504)
    expect(seen).toEqual([])
  })
}
