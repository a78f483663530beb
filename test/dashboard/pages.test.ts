import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { OPERATOR_KEY, startTestServer, type TestServer } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { Browser } from './support.ts'

setDefaultTimeout(SLOW_MS)

/** As operators get it; with the dashboard on a port of its own behind a public address; and without one. */
let server: TestServer
let apart: TestServer
let without: TestServer
beforeAll(async () => {
  ;[server, apart, without] = await Promise.all([
    startTestServer(),
    startTestServer({
      env: {
        TOLLGATE_DASHBOARD_PORT: '0',
        TOLLGATE_PUBLIC_URL: 'https://keys.example.com',
        TOLLGATE_VAULT_KEY: '',
      },
    }),
    startTestServer({ env: { TOLLGATE_DASHBOARD: 'off' } }),
  ])
})
afterAll(async () => {
  await Promise.all([server, apart, without].map((each) => each[Symbol.asyncDispose]()))
})

const HTML = { accept: 'text/html,application/xhtml+xml' }
/** Without following and without decompressing, as bytes on the wire are. */
const get = (url: string, headers: Record<string, string> = {}, method = 'GET') =>
  fetch(url, {
    method,
    headers: { 'accept-encoding': 'identity', ...headers },
    redirect: 'manual',
    decompress: false,
  })
const dashboardOf = ({ server: { dashboardUrl } }: TestServer) =>
  (dashboardUrl ?? '').replace('/dashboard', '')

describe('every path of the dashboard', () => {
  const POLICY = [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "form-action 'none'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; ')

  test('forbids to be framed, to run, load and send anything that is not its own, and to be read by others', async () => {
    const html = await (await get(`${server.url}/dashboard`)).text()
    const assets = [...html.matchAll(/\/dashboard\/assets\/[^"]+/g)].map(([path]) => path)
    expect(assets.length).toBeGreaterThan(2)
    const paths = [
      '/dashboard',
      '/dashboard/',
      '/dashboard/w/ws_1/overview',
      '/dashboard/assets/absent.js',
      '/dashboard/api/session.state',
      ...assets,
      '/favicon.ico',
    ]
    for (const path of paths)
      for (const method of ['GET', 'POST']) {
        const { headers, status } = await get(server.url + path, HTML, method)
        if (path === '/favicon.ico' && method === 'POST') continue
        expect({ path, method, status, ...Object.fromEntries(headers) }).toMatchObject({
          'content-security-policy': POLICY,
          'cross-origin-opener-policy': 'same-origin',
          'cross-origin-resource-policy': 'same-origin',
          'referrer-policy': 'no-referrer',
          'x-content-type-options': 'nosniff',
          'x-frame-options': 'DENY',
        })
        expect(headers.get('access-control-allow-origin')).toBeNull()
      }
  })

  test('the page is never stored, its files for ever, under names that change with them', async () => {
    const page = await get(`${server.url}/dashboard/w/ws_1/overview?range=7d`)
    expect([page.status, page.headers.get('cache-control')]).toEqual([200, 'no-store'])
    const html = await page.text()
    // The policy forbids both.
    expect(html).not.toMatch(/<script(?![^>]* src=)|<style|\son\w+=|style=/)
    for (const [path] of html.matchAll(/\/dashboard\/assets\/[^"]+/g)) {
      const file = await get(server.url + path)
      expect([file.status, file.headers.get('cache-control')]).toEqual([
        200,
        'public, max-age=31536000, immutable',
      ])
      expect(path).toMatch(/-[0-9a-z]{8,16}\.(js|css)$/)
    }
    expect((await get(`${server.url}/dashboard/assets/main-0000000000000000.js`)).status).toBe(404)
  })
})

describe('a browser and a program get what they can read', () => {
  test('`/` leads a browser to the dashboard, to the documentation where there is none, and a program nowhere', async () => {
    for (const [each, to] of [
      [server, '/dashboard'],
      [without, '/docs'],
      [apart, '/docs'],
    ] as const) {
      const { status, headers } = await get(`${each.url}/`, HTML)
      expect([status, headers.get('location')]).toEqual([302, to])
      const program = await get(`${each.url}/`, { accept: '*/*' })
      expect(program.status).toBe(404)
      expect(await program.json()).toMatchObject({ error: { code: 'NOT_FOUND' } })
    }
  })

  test('a path that leads nowhere is a page for a browser and an error for a program; the API has errors for both', async () => {
    for (const path of ['/nothing', '/docs/nothing', '/errors/NOTHING', '/<script>alert(1)</script>']) {
      const { status, headers } = await get(server.url + path, HTML)
      expect([path, status, headers.get('content-type')]).toEqual([path, 404, 'text/html; charset=utf-8'])
      expect((await get(server.url + path)).headers.get('content-type')).toBe('application/json')
    }
    const text = await (await get(`${server.url}/%3Cscript%3Ealert(1)%3C/script%3E`, HTML)).text()
    expect(text).not.toContain('<script>alert')
    for (const path of ['/v1/nothing', '/v2/nothing'])
      expect((await get(server.url + path, HTML)).headers.get('content-type')).toMatch(/json/)
  })

  test('the API page may call this server where it has a dashboard, and no other page may call anything', async () => {
    const policyOf = async (url: string) => (await get(url)).headers.get('content-security-policy')
    expect(await policyOf(`${server.url}/docs/api`)).toContain("connect-src 'self'")
    for (const url of [`${server.url}/docs`, `${server.url}/errors/NOT_FOUND`, `${without.url}/docs/api`])
      expect([url, await policyOf(url)]).not.toEqual([url, expect.stringContaining('connect-src')])
    const callsOf = async (url: string) =>
      [...(await (await get(url)).text()).matchAll(/ data-call="([^"]+)"/g)].map(([, name]) => name)
    expect(await callsOf(`${server.url}/docs/api`)).toContain('keys.createKey')
    for (const { url } of [without, apart]) expect(await callsOf(`${url}/docs/api`)).toEqual([])
  })

  test('there is an icon', async () => {
    for (const path of ['/favicon.ico', '/favicon.svg']) {
      const { status, headers } = await get(server.url + path)
      expect([status, headers.get('content-type')]).toEqual([200, 'image/svg+xml'])
    }
  })
})

describe('pages and the description of the API', () => {
  const PATHS = ['/docs', '/docs/api', '/docs/security', '/errors/NOT_FOUND', '/openapi.json', '/dashboard']

  test.each(PATHS)('%s is compressed for who can read that, and the same text', async (path) => {
    const plain = await get(server.url + path)
    const zipped = await get(server.url + path, { 'accept-encoding': 'br, gzip;q=0.8' })
    expect(zipped.headers.get('content-encoding')).toBe('gzip')
    expect(plain.headers.get('content-encoding')).toBeNull()
    for (const { headers } of [plain, zipped]) expect(headers.get('vary')).toBe('Accept-Encoding')
    const [text, bytes] = [await plain.text(), await zipped.bytes()]
    expect(new TextDecoder().decode(Bun.gunzipSync(new Uint8Array(bytes)))).toBe(text)
    if (text.length > 10_000) expect(bytes.length).toBeLessThan(text.length / 3)
    for (const refused of ['gzip;q=0', 'gzip;q=0.0, br', '*;q=0', 'identity'])
      expect(
        (await get(server.url + path, { 'accept-encoding': refused })).headers.get('content-encoding'),
      ).toBeNull()
  })

  test.each(PATHS)(
    '%s has not changed: 304 without content, also through a proxy that weakens the tag',
    async (path) => {
      for (const coding of ['identity', 'gzip']) {
        const { headers } = await get(server.url + path, { 'accept-encoding': coding })
        const etag = headers.get('etag') ?? ''
        for (const sent of [etag, `W/${etag}`, `"other", ${etag}`, '*']) {
          const again = await get(server.url + path, { 'accept-encoding': coding, 'if-none-match': sent })
          expect([again.status, await again.text(), again.headers.get('etag')]).toEqual([304, '', etag])
          expect(again.headers.get('content-length')).toBeNull()
        }
        const other = await get(server.url + path, { 'accept-encoding': coding, 'if-none-match': '"other"' })
        expect(other.status).toBe(200)
      }
      // The two codings are two contents.
      const [one, two] = await Promise.all(
        ['identity', 'gzip'].map((c) => get(server.url + path, { 'accept-encoding': c })),
      )
      expect(one?.headers.get('etag')).not.toBe(two?.headers.get('etag') ?? null)
    },
  )

  test('cannot be framed', async () => {
    for (const path of PATHS) {
      const { headers } = await get(server.url + path)
      expect(headers.get('x-frame-options')).toBe('DENY')
      expect(headers.get('content-security-policy')).toContain("frame-ancestors 'none'")
    }
  })

  test('guides ask the port that this server has', async () => {
    const { port } = new URL(server.url)
    const tutorial = await (await get(`${server.url}/docs/tutorial`)).text()
    expect(tutorial).toContain(`http://127.0.0.1:${port}`)
    expect(tutorial).not.toContain(':3000')
    // What a proxy asks on its own machine is not the public address.
    const nginx = await (await get(`${apart.url}/docs/nginx`)).text()
    expect(nginx).toContain('server 127.0.0.1:3000;')
    expect(await (await get(`${apart.url}/docs/tutorial`)).text()).toContain('https://keys.example.com')
  })

  test('the filter of the reference knows words of descriptions, codes and guides', async () => {
    const html = await (await get(`${server.url}/docs/api`)).text()
    const found = (word: string, of: RegExp) =>
      [...html.matchAll(of)].filter(([, words = '']) => words.includes(word)).length
    const methods = /<section class="method" id="[^"]+" data-words="([^"]*)"/g
    expect(found('revoke', methods)).toBeGreaterThan(0)
    expect(found('delete_protected', methods)).toBeGreaterThan(0)
    expect(found('rotate', /<a href="\/docs\/[\w-]+" data-words="([^"]*)"/g)).toBeGreaterThan(0)
  })
})

describe('without a dashboard, or with one elsewhere', () => {
  test('TOLLGATE_DASHBOARD=off answers its paths like any other, and calls nothing', async () => {
    expect((await get(`${without.url}/dashboard`, HTML)).status).toBe(404)
    const answer = await new Browser(without.url).signIn(OPERATOR_KEY)
    expect(answer).toMatchObject({ status: 404, body: { error: { code: 'NOT_FOUND' } } })
    expect(without.server.dashboardUrl).toBeNull()
  })

  test('TOLLGATE_DASHBOARD_PORT serves it and its documentation there, not with the API, and no API there', async () => {
    expect((await get(`${apart.url}/dashboard`, HTML)).status).toBe(404)
    expect(await new Browser(apart.url).signIn(OPERATOR_KEY)).toMatchObject({ status: 404 })
    const url = dashboardOf(apart)
    expect(url).not.toBe(apart.url)
    for (const path of ['/dashboard', '/docs', '/docs/api', '/errors/NOT_FOUND', '/openapi.json'])
      expect([path, (await get(url + path, HTML)).status]).toEqual([path, 200])
    for (const path of ['/v1/liveness', '/v2/liveness', '/metrics'])
      expect([path, (await get(url + path)).status]).toEqual([path, 404])
    const browser = new Browser(url)
    expect(await browser.signIn(OPERATOR_KEY)).toMatchObject({ status: 200 })
    expect(await browser.call('apis.listApis')).toMatchObject({ status: 200 })
  })
})

describe('a root key does not cross a network in the clear', () => {
  const open = (url: string, origin: string) => {
    const browser = new Browser(url, origin)
    return browser.signIn(OPERATOR_KEY)
  }

  test('over plain HTTP only a browser on the machine itself, or at the end of a tunnel, signs in', async () => {
    for (const name of ['127.0.0.1', 'localhost', '[::1]'])
      expect(await open(server.url, `http://${name}:8080`)).toMatchObject({ status: 200 })
    for (const origin of ['http://192.0.2.7:3000', 'http://keys.internal', 'http://localhost.example.com']) {
      expect(await open(server.url, origin)).toMatchObject({
        status: 403,
        body: { error: { code: 'FORBIDDEN' } },
      })
      // The page asks before it shows a field.
      const { body } = await new Browser(server.url, origin).call('session.state')
      expect(body).toMatchObject({ sessions: [], maySignIn: false })
    }
  })

  test('over HTTPS the cookie is Secure, and the public address counts when a proxy changes Host', async () => {
    const url = dashboardOf(apart)
    const { status, headers } = await open(url, 'https://keys.example.com')
    expect(status).toBe(200)
    expect(headers.getSetCookie()[0]).toMatch(/^tollgate_443=.*; Secure$/)
    const rewritten = await new Browser(url, 'https://keys.example.com').call(
      'session.open',
      { rootKey: OPERATOR_KEY },
      { host: 'tollgate.internal:3000' },
    )
    expect(rewritten.status).toBe(200)
    const foreign = await new Browser(url, 'https://evil.example').call(
      'session.open',
      { rootKey: OPERATOR_KEY },
      { host: 'keys.example.com' },
    )
    expect(foreign.status).toBe(403)
  })

  test('TOLLGATE_DASHBOARD_INSECURE=1 lifts the rule', async () => {
    await using insecure = await startTestServer({ env: { TOLLGATE_DASHBOARD_INSECURE: '1' } })
    expect(await open(insecure.url, 'http://192.0.2.7:3000')).toMatchObject({ status: 200 })
  })
})

/** Without a vault key the secret is this process's: another process opens nothing of it. */
test('a session of another server is none, unless both have the same vault key', async () => {
  const browser = new Browser(server.url)
  await browser.signIn(OPERATOR_KEY)
  const value = [...browser.cookies.values()][0] ?? ''
  const at = (each: TestServer, url: string) => {
    const other = new Browser(url)
    other.cookies.set(`tollgate_${new URL(url).port}`, value)
    return other.call(each === apart ? 'apis.listApis' : 'liveness')
  }
  expect(await at(apart, dashboardOf(apart))).toMatchObject({ status: 401 })
})
