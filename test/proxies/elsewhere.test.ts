import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { blockWith, PATIENT } from '../docs/blocks.ts'
import { NGINX, startNginx } from '../support/nginx.ts'
import { CADDY, HAPROXY, startCaddy, startHaproxy } from '../support/proxies.ts'
import { sendRaw } from '../support/raw.ts'
import { startTestServer, type TestServer, type TestWorkspace } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

/** Configurations that no guide shows but that people use: however a proxy rewrites a request, its meaning stays. */
setDefaultTimeout(SLOW_MS)

const closing = new AsyncDisposableStack()
let server: TestServer
let workspace: TestWorkspace
let host: string
let socket: string
beforeAll(async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-elsewhere-'))
  closing.defer(() => rmSync(folder, { recursive: true, force: true }))
  chmodSync(folder, 0o755)
  socket = join(folder, 'http.sock')
  server = closing.use(await startTestServer({ env: { ...PATIENT, TOLLGATE_SOCKET: socket } }))
  chmodSync(socket, 0o666) // instead of putting the proxy's user into its group
  host = new URL(server.url).host
  workspace = await server.workspace()
})
afterAll(() => closing.disposeAsync())

const BODY = () =>
  JSON.stringify({ namespace: 'n', identifier: crypto.randomUUID(), limit: 9, duration: 3_600_000 })

/** Calls with a body, with a length and in chunks, and one without; with the Host that a client might send. */
async function expectWorking(url: string, prefix = ''): Promise<void> {
  const results: Record<string, unknown> = {}
  for (const client of ['localhost', 'api', 'd', 'a:1', 'keys.example.com:8443', '[::1]', 'a_b.c']) {
    const head = (line: string, ...more: string[]) =>
      [`${line} HTTP/1.1`, `Host: ${client}`, 'Connection: close', ...more, '', ''].join('\r\n')
    const sent = [`Authorization: Bearer ${workspace.rootKey}`, 'Content-Type: application/json']
    const limit = `POST ${prefix}/v1/ratelimits.limit`
    const body = BODY()
    const chunks = `${[...BODY()].map((letter) => `1\r\n${letter}\r\n`).join('')}0\r\n\r\n`
    const answers = [
      await sendRaw(url, head(`GET ${prefix}/v1/liveness`)),
      await sendRaw(url, head(limit, ...sent, `Content-Length: ${body.length}`) + body),
      await sendRaw(url, head(limit, ...sent, 'Transfer-Encoding: chunked') + chunks),
      await sendRaw(
        url,
        head(limit, ...sent, 'Expect: 100-continue', `Content-Length: ${body.length}`) + body,
      ),
      await sendRaw(url, head(`GET ${prefix}/v1/apis.listApis?limit=1`, ...sent)),
      await sendRaw(url, head(`GET ${prefix}/metrics/`)),
    ]
    const isOk = (text: string) => /"success":true|"status"|"apis":/.test(text)
    results[client] = answers.map(({ text }) =>
      isOk(text) ? 'ok' : (/^HTTP\/1\.\d (\d{3})(?! Continue)/m.exec(text)?.[1] ?? text),
    )
  }
  const expected = ['ok', 'ok', 'ok', 'ok', 'ok', '404']
  expect(results).toEqual(Object.fromEntries(Object.keys(results).map((client) => [client, expected])))
}

describe.skipIf(NGINX === null)('nginx', () => {
  const behind = async (locations: string, before = ''): Promise<string> => {
    const port = await startNginx(
      (place) => `${before}\nserver { listen 127.0.0.1:${place.port}; ${locations} }`,
      closing,
    )
    return `http://127.0.0.1:${port}`
  }

  test('with defaults: HTTP/1.0 to Tollgate, one connection for each request', async () => {
    await expectWorking(await behind(`location / { proxy_pass http://${host}; }`))
  })

  test('with a short name of the upstream, which becomes the Host', async () => {
    for (const name of ['d', 'api', 'tollgate_1'])
      await expectWorking(
        await behind(
          `location / { proxy_pass http://${name}; proxy_http_version 1.1; proxy_set_header Connection ""; }`,
          `upstream ${name} { server ${host}; keepalive 4; }`,
        ),
      )
  })

  test('with the client’s own Host, and bodies passed on while they arrive', async () => {
    await expectWorking(
      await behind(
        `location / { proxy_pass http://${host}; proxy_http_version 1.1; proxy_set_header Host $http_host; proxy_request_buffering off; proxy_buffering off; }`,
      ),
    )
  })

  test('with a Unix socket, by HTTP/1.0 and 1.1', async () => {
    await expectWorking(
      await behind(`location / { proxy_pass http://unix:${socket}; proxy_set_header Host $http_host; }`),
    )
    await expectWorking(
      await behind(`location / { proxy_pass http://unix:${socket}:/; proxy_http_version 1.1; }`),
    )
  })

  test('with a prefix that is removed, and with one that is added', async () => {
    await expectWorking(await behind(`location /keys/ { proxy_pass http://${host}/; }`), '/keys')
    await expectWorking(await behind(`location /keys/ { proxy_pass http://${host}//; }`), '/keys')
  })

  test('with the usual lines for WebSockets', async () => {
    await expectWorking(
      await behind(
        `location / { proxy_pass http://${host}; proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection "upgrade"; proxy_set_header Host $host; }`,
      ),
    )
  })

  /** Tollgate's own bound is 1 MiB: a larger body must end with Tollgate's answer, not with a broken connection. */
  test('a body over 1 MiB is refused with a message, buffered or not', async () => {
    for (const buffering of ['on', 'off']) {
      const url = await behind(
        `client_max_body_size 0; location / { proxy_pass http://${host}; proxy_http_version 1.1; proxy_request_buffering ${buffering}; }`,
      )
      const answer = await fetch(`${url}/v1/ratelimits.limit`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${workspace.rootKey}` },
        body: `{"namespace":"${'x'.repeat(1_200_000)}"}`,
      })
      const { error } = (await answer.json()) as { error: { code: string } } // the shape of every error
      expect([buffering, answer.status < 500, error.code]).toEqual([buffering, true, expect.any(String)])
    }
  })
})

describe.skipIf(HAPROXY === null)('HAProxy', () => {
  const behind = async (backend: string) => {
    const { port, stats } = await startHaproxy(
      (place) =>
        `defaults\n  mode http\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n  timeout check 10s\nfrontend f\n  bind 127.0.0.1:${place.port}\n  default_backend b\nbackend b\n${backend}\n`,
      closing,
    )
    return { url: `http://127.0.0.1:${port}`, stats }
  }

  test('with defaults, over TCP and a Unix socket, with and without keep-alive', async () => {
    await expectWorking((await behind(`  server one ${host}`)).url)
    await expectWorking((await behind(`  server one unix@${socket}`)).url)
    await expectWorking((await behind(`  option http-server-close\n  server one ${host}`)).url)
    await expectWorking((await behind(`  http-reuse always\n  server one ${host}`)).url)
    await expectWorking((await behind(`  option forwardfor\n  option httpclose\n  server one ${host}`)).url)
  })

  test('a health check finds Tollgate up, also by HTTP/1.0 without a Host', async () => {
    const lines = blockWith('haproxy', 'haproxy', 'server two').text.split('\n')
    const asInTheGuide = lines.filter((line) => /http-?ch(k|eck)/.test(line))
    expect(asInTheGuide).toHaveLength(3)
    for (const check of [
      '  option httpchk GET /v1/liveness',
      '  option httpchk HEAD /v1/liveness',
      asInTheGuide.join('\n'),
    ]) {
      const { stats } = await behind(`${check}\n  server one ${host} check inter 50ms`)
      expect([check, await healthOf(stats)]).toEqual([check, 'L7OK'])
    }
  })
})

describe.skipIf(CADDY === null)('Caddy', () => {
  test('with defaults, over TCP and a Unix socket', async () => {
    for (const upstream of [host, `unix/${socket}`]) {
      const port = await startCaddy(
        (place) => `http://:${place.port} {\n  bind 127.0.0.1\n  reverse_proxy ${upstream}\n}\n`,
        closing,
      )
      await expectWorking(`http://127.0.0.1:${port}`)
    }
  })
})

/** The result of HAProxy’s first health check. */
async function healthOf(stats: string): Promise<string> {
  for (let attempt = 0; attempt < 400; attempt++) {
    const lines = (await askHaproxy(stats, 'show stat')).split('\n').map((line) => line.split(','))
    const column = lines[0]?.indexOf('check_status') ?? -1
    const status = lines.find(([proxy, name]) => proxy === 'b' && name === 'one')?.[column] ?? ''
    if (status !== '' && status !== 'INI' && !status.startsWith('*')) return status
    await Bun.sleep(25)
  }
  throw new Error('HAProxy checks nothing')
}

function askHaproxy(stats: string, command: string): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>()
  let text = ''
  const socket = connect(stats, () => socket.write(`${command}\n`))
  socket.on('data', (chunk) => {
    text += chunk.toString()
  })
  socket.on('error', reject)
  socket.on('close', () => resolve(text))
  return promise
}
