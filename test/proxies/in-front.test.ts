import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PATIENT } from '../docs/blocks.ts'
import { makeKey } from '../support/fixtures.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { sendRaw } from '../support/raw.ts'
import { OPERATOR_KEY, startTestServer, type TestServer, type TestWorkspace } from '../support/server.ts'
import { batchesOf, type Closed, hostileRequests } from '../support/spellings.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { type Configuration, IN_FRONT, OVER_A_SOCKET, WITH_A_SECOND } from './configurations.ts'

/**
 * A proxy in front of Tollgate, configured as in the guides: which paths are open and closed, and whose address is seen.
 */
setDefaultTimeout(2 * SLOW_MS)

const closing = new AsyncDisposableStack()
let server: TestServer
let workspace: TestWorkspace
let socket: string
beforeAll(async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-front-'))
  closing.defer(() => rmSync(folder, { recursive: true, force: true }))
  socket = join(folder, 'http.sock')
  chmodSync(folder, 0o755)
  const env = { ...PATIENT, TOLLGATE_TRUSTED_PROXIES: '127.0.0.1', TOLLGATE_SOCKET: socket }
  server = closing.use(await startTestServer({ env }))
  chmodSync(socket, 0o666) // instead of putting nginx's user into its group
  workspace = await server.workspace()
})
afterAll(() => closing.disposeAsync())

const METRICS: Closed = { method: 'GET', path: '/metrics' }
const CREATE: Closed = {
  method: 'POST',
  path: '/v1/rootKeys.createRootKey',
  headers: [`Authorization: Bearer ${OPERATOR_KEY}`],
  body: '{"permissions":[]}',
}
const VERIFY: Closed = { method: 'POST', path: '/v1/keys.verifyKey', body: '{"key":"unknown"}' }
const CREATE_IN_V2: Closed = {
  method: 'POST',
  path: '/v2/apis.createApi',
  headers: [`Authorization: Bearer ${OPERATOR_KEY}`],
  body: '{"name":"from outside"}',
}
/** What those that pass few methods on refuse; by day one of each version of the API. */
const CLOSED_TO_FEW = IS_NIGHTLY ? [METRICS, CREATE, VERIFY, CREATE_IN_V2] : [CREATE, CREATE_IN_V2]
/** Texts that only the answer of each path contains. */
const MARKS = new Map([
  [METRICS, '# TYPE tollgate_'],
  [CREATE, '"rootKeyId"'],
  [VERIFY, '"valid":'],
  [CREATE_IN_V2, '"apiId"'],
])

/** Proxies do not depend on the kind of database, so one suite is enough. */
const where = (isInstalled: boolean) => describe.if(isInstalled)

for (const configuration of [...IN_FRONT, OVER_A_SOCKET, WITH_A_SECOND])
  where(configuration.isInstalled)(configuration.name, () => tests(configuration))

function tests(configuration: Configuration): void {
  const isOverSocket = configuration === OVER_A_SOCKET
  const isForFew = configuration.name.endsWith('few methods')
  let url: string
  let places: Parameters<Configuration['start']>[0]
  beforeAll(async () => {
    const { host } = new URL(server.url)
    // Nothing listens at the second one's address.
    places = { tollgate: isOverSocket ? socket : host, second: '127.0.0.1:1', application: '', apiId: '' }
    url = await configuration.start(places, closing)
  })

  const call = (path: string, init: RequestInit = {}) =>
    fetch(`${url}${path}`, { ...init, tls: { rejectUnauthorized: false } })
  const limit = (path: string, headers: Record<string, string> = {}) =>
    call(path, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${workspace.rootKey}`,
        'content-type': 'application/json',
        ...headers,
      },
      body: JSON.stringify({
        namespace: 'n',
        identifier: crypto.randomUUID(),
        limit: 9,
        duration: 3_600_000,
      }),
    })

  test('open paths are answered, also for a base URL that ends in a slash, any host and chunked bodies', async () => {
    const head = (path: string, ...more: string[]) =>
      [
        `POST ${path} HTTP/1.1`,
        'Host: localhost',
        'Connection: close',
        `Authorization: Bearer ${workspace.rootKey}`,
        'Content-Type: application/json',
        ...more,
        '\r\n',
      ].join('\r\n')
    const body = JSON.stringify({ namespace: 'n', identifier: 'raw', limit: 1000, duration: 3_600_000 })
    // Not with `fetch`, which removes the second slash.
    for (const path of ['/v1/ratelimits.limit', '//v1/ratelimits.limit', '//v1/ratelimits.limit?pretty']) {
      const { status, text } = await sendRaw(url, head(path, `Content-Length: ${body.length}`) + body)
      expect([path, status, /"success": ?true/.test(text)]).toEqual([path, 200, true])
    }
    const chunks = [...body].map((letter) => `1\r\n${letter}\r\n`).join('')
    const chunked = await sendRaw(
      url,
      `${head('/v1/ratelimits.limit', 'Transfer-Encoding: chunked')}${chunks}0\r\n\r\n`,
    )
    expect([chunked.status, chunked.text.includes('"success":true')]).toEqual([200, true])
    expect((await call('/v1/liveness')).status).toBe(200)
    for (const path of ['/v2/liveness', '//v2/liveness']) {
      const request = `GET ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`
      expect([path, (await sendRaw(url, request)).status]).toEqual([path, 200])
    }
    expect(await (await call('/v1/liveness')).json()).toHaveProperty('status')
    for (const host of ['api', 'd', 'a:1', 'keys.example.com']) {
      const { status, text } = await sendRaw(
        url,
        `GET /v1/liveness HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`,
      )
      expect([host, status, text.includes('"status"')]).toEqual([host, 200, true])
    }
    if (isForFew) return
    for (const path of ['/docs', '/docs/nginx', '/errors/NOT_FOUND', '/openapi.json'])
      expect([path, (await call(path)).status]).toEqual([path, 200])
  })

  test('a body that is too large and an invalid path are errors of the client', async () => {
    const large = await limit('/v1/ratelimits.limit', { 'x-large': 'x'.repeat(3000) })
    expect(large.status).toBe(200)
    const body = `{"namespace":"${'x'.repeat(1_100_000)}"}`
    const refused = await call('/v1/ratelimits.limit', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
    })
    expect(refused.status).toBeWithin(400, 500)
    for (const path of ['/', '/nothing', '/admin', '/metricsx', '/.env'])
      expect([path, (await call(path)).status]).toEqual([path, 404])
  })

  if (!isOverSocket)
    test('the address in the audit log is the client’s, whatever the client claims', async () => {
      const { apiId } = await workspace.post('apis.createApi', { name: 'listed' })
      await workspace.post('apis.updateApi', { apiId, ipWhitelist: ['203.0.113.7'] })
      const { key } = await makeKey(workspace, apiId)
      const inside = isForFew ? await configuration.start({ ...places, inside: '127.0.0.0/8' }, closing) : url
      const claims = [
        'X-Forwarded-For: 203.0.113.7',
        'Forwarded: for=203.0.113.7',
        'True-Client-IP: 203.0.113.7',
        'Connection: X-Forwarded-For',
      ]
      const body = JSON.stringify({ apiId, key })
      for (const claim of ['X: y', ...claims]) {
        const head = `POST /v1/keys.verifyKey HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n${claim}`
        const { text } = await sendRaw(inside, `${head}\r\n\r\n${body}`)
        expect([claim, text]).toEqual([claim, expect.stringContaining('"code":"FORBIDDEN"')])
      }
      await workspace.post('apis.updateApi', { apiId, ipWhitelist: ['127.0.0.1'] })
      const direct = await fetch(`${inside}/v1/keys.verifyKey`, {
        method: 'POST',
        body,
        headers: { 'content-type': 'application/json' },
        tls: { rejectUnauthorized: false },
      })
      expect(await direct.json()).toMatchObject({ valid: true })
    })

  test('a closed path is never served, however it is written', async () => {
    expect((await fetch(`${server.url}/metrics`)).status).toBe(200)
    const before = await rootKeys()
    for (const closed of isForFew ? CLOSED_TO_FEW : [METRICS]) {
      const mark = MARKS.get(closed) ?? ''
      for (const batch of batchesOf(hostileRequests(closed, '/v1/liveness'), 25))
        await Promise.all(
          batch.map(async ({ name, bytes, is }) => {
            const { status, text } = await sendRaw(url, bytes, {
              lingerMs: is === 'hidden' ? 200 : 0,
              patienceMs: 1500,
            })
            expect({ closed: closed.path, name, isServed: text.includes(mark) }).toEqual({
              closed: closed.path,
              name,
              isServed: false,
            })
            if (is === 'exact' || is === 'slash')
              expect({ name, status, isRefused: [400, 403, 404].includes(status) }).toMatchObject({
                name,
                isRefused: true,
              })
          }),
        )
    }
    expect(await rootKeys()).toBe(before)
  })

  const rootKeys = async () => (await server.get('rootKeys.listRootKeys', {}, OPERATOR_KEY)).body.total

  if (isForFew)
    test('clients from inside may call everything under /v1/ and /v2/, and nothing else', async () => {
      const inside = await configuration.start({ ...places, inside: '127.0.0.0/8' }, closing)
      const { status, text } = await sendRaw(inside, requestFor(VERIFY))
      expect([status, text.includes('"valid":false')]).toEqual([200, true])
      expect((await sendRaw(inside, requestFor(CREATE_IN_V2))).text).toContain('"apiId"')
      expect((await sendRaw(inside, requestFor(METRICS))).status).toBe(404)
    })
}

/** The request as a client writes it. */
const requestFor = (closed: Closed): string =>
  hostileRequests(closed, '/v1/liveness').find(({ is }) => is === 'exact')?.bytes ?? ''
