import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { IDLE_MS, SESSION_MS } from '../../src/dashboard/seal.ts'
import { hashKey } from '../../src/verify/secret.ts'
import { makeApi, makeKey } from '../support/fixtures.ts'
import { OPERATOR_KEY, startTestServer, type TestServer } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { Browser } from './support.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
/** The server's time, set by the tests. */
let now = Date.now()
beforeAll(async () => {
  server = await startTestServer({ clock: () => now })
})
afterAll(async () => await server[Symbol.asyncDispose]())

const REFUSED = { status: 403, body: { error: { code: 'FORBIDDEN' } } }
const SIGNED_OUT = { status: 401, body: { error: { code: 'UNAUTHENTICATED' } } }

async function signedIn(rootKey = OPERATOR_KEY): Promise<Browser> {
  const browser = new Browser(server.url)
  expect(await browser.signIn(rootKey)).toMatchObject({ status: 200 })
  return browser
}

describe('signing in', () => {
  test('a root key gets a cookie that scripts cannot read, and the answer says who signed in', async () => {
    const workspace = await server.workspace()
    const browser = new Browser(server.url)
    const { body, headers } = await browser.signIn(workspace.rootKey)
    const [cookie = '', ...others] = headers.getSetCookie()
    expect(others).toEqual([])
    const { port } = new URL(server.url)
    expect(cookie).toMatch(
      new RegExp(`^tollgate_${port}=1\\.[\\w-]+; Path=/dashboard; Max-Age=43200; HttpOnly; SameSite=Strict$`),
    )
    expect(body.sessions).toEqual([
      {
        rootKeyId: workspace.rootKeyId,
        name: 'first root key',
        workspaceId: workspace.workspaceId,
        workspaceName: expect.stringMatching(/^test /),
        permissions: ['*'],
        isOperator: false,
        endsAt: now + SESSION_MS,
      },
    ])
    expect(JSON.stringify(body)).not.toContain(hashKey(workspace.rootKey))
    expect(await browser.call('apis.listApis')).toMatchObject({ status: 200, body: { apis: [] } })
  })

  test('a text that is no root key is refused, also a customer’s key, and nothing is set', async () => {
    const workspace = await server.workspace()
    const { key } = await makeKey(workspace, await makeApi(workspace))
    for (const text of [crypto.randomUUID(), key, workspace.rootKeyId, hashKey(workspace.rootKey)]) {
      const answer = await new Browser(server.url).signIn(text)
      expect(answer).toMatchObject({ status: 403, body: { error: { code: 'UNAUTHORIZED' } } })
      expect(answer.headers.getSetCookie()).toEqual([])
      expect(JSON.stringify(answer.body)).not.toContain(text)
    }
    for (const body of [{}, { rootKey: 5 }, { rootKey: '' }, { rootKey: 'x'.repeat(513) }, []])
      expect(await new Browser(server.url).call('session.open', body)).toMatchObject({ status: 400 })
    now += 60_000
  })

  test('ten failures a minute close the door for an address, and a minute opens it again', async () => {
    now += 60_000 - (now % 60_000)
    for (let failure = 0; failure < 10; failure++)
      expect(await new Browser(server.url).signIn('wrong')).toMatchObject({ status: 403 })
    const refused = await new Browser(server.url).signIn(OPERATOR_KEY)
    expect(refused).toMatchObject({ status: 429, body: { error: { code: 'RATE_LIMITED' } } })
    now += 60_000
    await signedIn()
  })

  test('one browser signs in to several workspaces, chosen by a header, and out of each alone', async () => {
    const [one, two] = [await server.workspace(), await server.workspace()]
    const browser = await signedIn(one.rootKey)
    await browser.signIn(two.rootKey)
    const api = await makeApi(one, { name: 'of one' })
    const inOne = { 'x-tollgate-workspace': one.workspaceId }
    const inTwo = { 'x-tollgate-workspace': two.workspaceId }
    expect((await browser.call('apis.listApis', {}, inOne)).body.apis).toMatchObject([{ id: api }])
    expect((await browser.call('apis.listApis', {}, inTwo)).body.apis).toEqual([])
    expect(await browser.call('apis.listApis', {}, { 'x-tollgate-workspace': 'ws_other' })).toMatchObject(
      SIGNED_OUT,
    )
    const left = await browser.call('session.close', { workspaceId: one.workspaceId })
    expect(left.body.sessions).toMatchObject([{ workspaceId: two.workspaceId }])
    expect(await browser.call('apis.listApis', {}, inOne)).toMatchObject(SIGNED_OUT)
    expect((await browser.call('session.close')).body.sessions).toEqual([])
    expect(browser.cookie).toBeNull()
  })
})

describe('what a page of another origin can send is refused', () => {
  /** Each row alone, with everything else as the dashboard sends it. */
  const rows: [string, Record<string, string | null>][] = [
    ['no Origin', { origin: null }],
    ['another host', { origin: 'http://evil.example' }],
    ['another port of the host', { origin: 'http://127.0.0.1:1' }],
    ['an opaque origin', { origin: 'null' }],
    ['an origin that is no URL', { origin: 'http://' }],
    ['a cross-site fetch', { 'sec-fetch-site': 'cross-site' }],
    ['a fetch of a sibling', { 'sec-fetch-site': 'same-site' }],
    ['a navigation', { 'sec-fetch-site': 'none' }],
    ['no header of its own', { 'x-tollgate-dashboard': null }],
    ['a form', { 'content-type': 'application/x-www-form-urlencoded' }],
    ['plain text', { 'content-type': 'text/plain' }],
    ['no type', { 'content-type': null }],
  ]
  test.each(rows)('%s', async (_, headers) => {
    const browser = await signedIn()
    for (const [method, body] of [
      ['apis.createApi', { name: 'forged' }],
      ['session.state', {}],
      ['session.close', {}],
      ['session.open', { rootKey: OPERATOR_KEY }],
    ] as const) {
      const answer = await browser.call(method, body, headers)
      expect(answer).toMatchObject(REFUSED)
      expect(answer.headers.getSetCookie()).toEqual([])
    }
    expect(await browser.call('apis.listApis')).toMatchObject({ status: 200 })
  })

  /** Plain http other than localhost sends no Sec-Fetch-Site. */
  test('a browser that sends no Sec-Fetch-Site is not refused for that', async () => {
    const browser = await signedIn()
    expect(await browser.call('apis.listApis', {}, { 'sec-fetch-site': null })).toMatchObject({ status: 200 })
  })

  test('GET, PUT and OPTIONS call nothing, and no answer allows another origin', async () => {
    const browser = await signedIn()
    for (const method of ['GET', 'PUT', 'DELETE', 'OPTIONS', 'HEAD']) {
      const response = await fetch(`${server.url}/dashboard/api/apis.listApis`, {
        method,
        headers: { cookie: browser.cookie ?? '', origin: server.url, 'x-tollgate-dashboard': '1' },
      })
      expect([method, response.status]).toEqual([method, 405])
      expect(response.headers.get('access-control-allow-origin')).toBeNull()
    }
    const { headers } = await browser.call('apis.listApis')
    expect(headers.get('access-control-allow-origin')).toBeNull()
    expect(headers.get('cache-control')).toBe('no-store')
  })

  test('the API reads no cookie', async () => {
    const browser = await signedIn()
    for (const path of ['/v1/apis.listApis', '/v1/rootKeys.whoami', '/v2/liveness', '/v1/vault.reseal']) {
      const method = path === '/v1/vault.reseal' ? 'POST' : 'GET'
      const response = await fetch(server.url + path, { method, headers: { cookie: browser.cookie ?? '' } })
      expect(response.status).toBe(path === '/v2/liveness' ? 200 : 403)
    }
  })
})

describe('a session ends', () => {
  const ENDINGS: Record<string, (rootKeyId: string) => [string, object]> = {
    deleted: (rootKeyId) => ['rootKeys.deleteRootKey', { rootKeyId }],
    disabled: (rootKeyId) => ['rootKeys.updateRootKey', { rootKeyId, enabled: false }],
  }
  test.each(Object.entries(ENDINGS))('with the next request once its root key is %s', async (_, end) => {
    const workspace = await server.workspace()
    const rootKey = await workspace.rootKeyWith('*')
    const browser = await signedIn(rootKey)
    const other = await server.workspace()
    await browser.signIn(other.rootKey)
    const { rootKeys } = await workspace.get('rootKeys.listRootKeys')
    const { id } = rootKeys.find((each: { id: string }) => each.id !== workspace.rootKeyId)
    await workspace.post(...end(id))
    const inside = { 'x-tollgate-workspace': workspace.workspaceId }
    expect(await browser.call('apis.listApis', {}, inside)).toMatchObject(SIGNED_OUT)
    // Also for methods that need no root key, and without touching the other sign-in.
    expect(await browser.call('liveness', {}, inside)).toMatchObject(SIGNED_OUT)
    expect((await browser.call('session.state')).body.sessions).toMatchObject([
      { workspaceId: other.workspaceId },
    ])
  })

  test('when its root key expires', async () => {
    const workspace = await server.workspace()
    const { rootKey } = await workspace.post('rootKeys.createRootKey', {
      permissions: ['*'],
      expires: now + 1000,
    })
    const browser = await signedIn(rootKey)
    now += 1001
    expect(await browser.call('apis.listApis')).toMatchObject(SIGNED_OUT)
  })

  test('when its workspace is disabled', async () => {
    const workspace = await server.workspace()
    const browser = await signedIn(workspace.rootKey)
    const { workspaceId } = workspace
    await server.post('workspaces.updateWorkspace', { workspaceId, enabled: false }, OPERATOR_KEY)
    expect(await browser.call('apis.listApis')).toMatchObject(SIGNED_OUT)
  })

  test('after an hour without use: a page that refreshes itself is none, a click is', async () => {
    const browser = await signedIn()
    now += IDLE_MS - 1
    expect(await browser.call('liveness', {}, { 'x-tollgate-refresh': '1' })).toMatchObject({ status: 200 })
    expect(await browser.call('apis.listApis')).toMatchObject({ status: 200 }) // renews the cookie
    now += IDLE_MS - 1
    expect(await browser.call('liveness', {}, { 'x-tollgate-refresh': '1' })).toMatchObject({ status: 200 })
    now += 1
    expect(await browser.call('apis.listApis')).toMatchObject(SIGNED_OUT)
  })

  test('a cookie that was changed, of another name, or sent twice is none', async () => {
    const browser = await signedIn()
    const { cookie } = browser
    const [name = '', value = ''] = cookie?.split('=') ?? []
    const last = value.at(-1) === 'A' ? 'B' : 'A'
    for (const changed of [
      `${name}=${value.slice(0, -1)}${last}`,
      `tollgate_1=${value}`,
      `${cookie}; ${cookie}`,
      '',
    ])
      expect(await browser.call('apis.listApis', {}, { cookie: changed })).toMatchObject(SIGNED_OUT)
    expect(await browser.call('apis.listApis', {}, { cookie: `other=1; ${cookie}` })).toMatchObject({
      status: 200,
    })
  })
})

describe('calls through a session', () => {
  test('have the rights of the root key and no others, with the API’s own answers', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const browser = await signedIn(await workspace.rootKeyWith('api.*.read_api'))
    expect((await browser.call('apis.getApi', { apiId })).body).toMatchObject({ id: apiId })
    const refused = await browser.call('apis.deleteApi', { apiId })
    expect(refused).toMatchObject({ status: 403, body: { error: { code: 'INSUFFICIENT_PERMISSIONS' } } })
    expect(await browser.call('workspaces.listWorkspaces')).toMatchObject({ status: 403 })
  })

  test('take no limit and no credit of the root key: looking must not use it up', async () => {
    const workspace = await server.workspace()
    const browser = await signedIn(workspace.rootKey)
    const { sql } = server.server.deps
    await sql`update keys set remaining = 1 where id = ${workspace.rootKeyId}`
    server.server.deps.keys.forget(workspace.rootKeyId)
    for (let call = 0; call < 3; call++)
      expect(await browser.call('apis.listApis')).toMatchObject({ status: 200 })
    const [row] = await sql<
      { remaining: number }[]
    >`select remaining from keys where id = ${workspace.rootKeyId}`
    expect(row?.remaining).toBe(1)
    expect(await server.get('apis.listApis', {}, workspace.rootKey)).toMatchObject({ status: 200 })
    expect(await server.get('apis.listApis', {}, workspace.rootKey)).toMatchObject({
      body: { error: { code: 'USAGE_EXCEEDED' } },
    })
  })

  test('are in the audit log with root key, address and browser', async () => {
    const workspace = await server.workspace()
    const browser = await signedIn(workspace.rootKey)
    const { body } = await browser.call('apis.createApi', { name: 'by hand' }, { 'user-agent': 'a browser' })
    const { events } = await workspace.get('audit.listEvents')
    expect(events.at(-1)).toMatchObject({
      event: 'api.create',
      actor: { id: workspace.rootKeyId },
      location: '127.0.0.1',
      userAgent: 'a browser',
      resources: [{ id: body.apiId }],
    })
  })

  test('give lists and numbers to reads as their queries do, and refuse what those refuse', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    await Promise.all([1, 2, 3].map(() => makeKey(workspace, apiId)))
    const browser = await signedIn(workspace.rootKey)
    const { body } = await browser.call('apis.listKeys', { apiId, limit: 2, ownerId: null })
    expect([body.keys.length, body.total]).toEqual([2, 3])
    const usage = { apiId, groupBy: ['hour', 'key'], start: now - 3_600_000 }
    expect(await browser.call('analytics.getVerifications', usage)).toMatchObject({ status: 200 })
    expect(await browser.call('apis.listKeys', { apiId, limit: 'many' })).toMatchObject({ status: 400 })
    expect(await browser.call('apis.listKeys', [])).toMatchObject({ status: 400 })
    expect(await browser.call('apis.listKeys', '{')).toMatchObject({ status: 400 })
    for (const unknown of ['apis.nothing', 'session.nothing', '', '../v1/apis.listApis', 'v2/liveness'])
      expect((await browser.call(unknown)).status).toBeOneOf([404, 405])
  })

  test('a header with another root key changes nothing', async () => {
    const workspace = await server.workspace()
    const browser = await signedIn(workspace.rootKey)
    const { body } = await browser.call('rootKeys.whoami', {}, { authorization: `Bearer ${OPERATOR_KEY}` })
    expect(body.rootKeyId).toBe(workspace.rootKeyId)
  })
})
