import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { StatefulSet } from 'kubernetes-models/apps/v1'
import { Service } from 'kubernetes-models/v1'
import { ForwardQuery } from '../../src/auth/schema.ts'
import { readConfig } from '../../src/config.ts'
import { endpoints } from '../../src/http/app.ts'
import { makeApi, makeKey } from '../support/fixtures.ts'
import { NGINX, startNginx } from '../support/nginx.ts'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { ALL_BLOCKS, type Block, blocksOf, blockWith, PATIENT, ROOT } from './blocks.ts'

/** What README and the guides show of other programs’ configuration: run where the program is, else read closely. */
setDefaultTimeout(SLOW_MS)

/** Each of these is tried below; `test/auth/nginx.test.ts` runs the one for nginx in README. */
const TRIED: [string, string, string][] = [
  ['README', 'nginx', 'auth_request /tollgate'],
  ['README', 'caddyfile', 'forward_auth'],
  ['README', 'yaml', 'forwardAuth'],
  ['nginx', 'nginx', 'upstream tollgate'],
  ['nginx', 'nginx', 'deny all'],
  ['nginx', 'nginx', 'auth_request /_key'],
  ['kubernetes', 'yaml', 'StatefulSet'],
  ['sidecar', 'ini', '[Service]'],
  ['backups', 'ini', 'EnvironmentFile='],
]

test('every block of configuration is tried, and no block is in a language that nothing tries', () => {
  const nameOf = ({ doc, line }: Block) => `${doc}:${line}`
  const others = ALL_BLOCKS.filter(({ language }) => language !== 'sh' && language !== 'ts')
  expect(TRIED.map((each) => nameOf(blockWith(...each))).sort()).toEqual(others.map(nameOf).sort())
})

describe.skipIf(NGINX === null || Bun.which('openssl') === null)('the guide’s nginx, a real one', () => {
  const seen: (string | null)[] = []
  const closing = new AsyncDisposableStack()
  let server: TestServer
  let workspace: TestWorkspace
  let apiId: string
  let url: string
  beforeAll(async () => {
    server = closing.use(
      await startTestServer({ env: { ...PATIENT, TOLLGATE_TRUSTED_PROXIES: '127.0.0.1' } }),
    )
    workspace = await server.workspace()
    apiId = await makeApi(workspace)
    const application = Bun.serve({
      hostname: '127.0.0.1',
      port: 0,
      fetch: ({ headers }) => {
        seen.push(headers.get('x-tollgate-key-id'))
        return new Response('a document')
      },
    })
    closing.defer(() => application.stop(true))
    const [front, restricted, asking] = blocksOf('nginx').filter(({ language }) => language === 'nginx')
    if (front === undefined || restricted === undefined || asking === undefined)
      throw new Error('three blocks')
    const port = await startNginx(({ port: listenPort, folder }) => {
      makeCertificate(folder)
      const locations = [restricted.text, asking.text].join('\n')
      return front.text
        .replace(/\}\s*$/, `${locations}\n}`)
        .replaceAll('127.0.0.1:3000', new URL(server.url).host)
        .replaceAll('127.0.0.1:8080', application.url.host)
        .replaceAll('api_…', apiId)
        .replace('listen 443 ssl', `listen 127.0.0.1:${listenPort} ssl`)
        .replaceAll('/etc/nginx/keys.example.com', `${folder}/keys.example.com`)
        .replace('allow 10.0.0.0/8', 'allow 127.0.0.2') // where the test's own calls do not come from
    }, closing)
    url = `https://127.0.0.1:${port}`
  })
  afterAll(() => closing.disposeAsync())

  const call = (path: string, init: RequestInit = {}) =>
    fetch(`${url}${path}`, { ...init, tls: { rejectUnauthorized: false } })
  /** By curl, which can come from another address of this machine than the proxy has. */
  const limitFrom = (address: string, forwarded: string) => {
    const body = { identifier: 'x', limit: 9, duration: 3_600_000, resources: [{ type: 'a', id: 'b' }] }
    const headers = [`Authorization: Bearer ${workspace.rootKey}`, 'Content-Type: application/json']
    const fields = [...headers, `X-Forwarded-For: ${forwarded}`].flatMap((header) => ['-H', header])
    const command = ['curl', '-sSk', '--interface', address, `${url}/v1/ratelimits.limit`]
    // Not the waiting kind of spawn: the server is in this process.
    return new Response(Bun.spawn([...command, ...fields, '-d', JSON.stringify(body)]).stdout).text()
  }

  test('calls go through it, over TLS, and keep their client’s address; nobody can pretend another', async () => {
    expect(await limitFrom('127.0.0.2', '203.0.113.7')).toContain('"success":true')
    const { events } = await workspace.get('audit.listEvents', { event: 'ratelimit.success' })
    expect(events[0].location).toBe('127.0.0.2')
  })

  test('metrics are not for the world, and verifying only for those who are let in', async () => {
    expect((await call('/metrics')).status).toBe(404)
    expect((await fetch(`${server.url}/metrics`)).status).toBe(200)
    const verify = { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"key":"x"}' }
    expect((await call('/v1/keys.verifyKey', verify)).status).toBe(403)
  })

  test('a request with a key reaches what is behind, saying whose it is; others do not', async () => {
    const { key, keyId } = await makeKey(workspace, apiId, { ratelimit: { limit: 2, duration: 3_600_000 } })
    const documents = (headers: Record<string, string> = {}) => call('/documents/1', { headers })
    seen.length = 0
    expect((await documents()).status).toBe(401)
    expect((await documents({ 'x-api-key': 'wrong' })).status).toBe(401)
    const statuses = []
    for (let request = 0; request < 3; request++)
      statuses.push((await documents({ 'x-api-key': key })).status)
    expect(statuses).toEqual([200, 200, 429])
    const foreign = await makeKey(workspace, await makeApi(workspace))
    expect((await documents({ 'x-api-key': foreign.key })).status).toBe(403)
    expect(seen).toEqual([keyId, keyId])
  })
})

function makeCertificate(folder: string): void {
  const made = Bun.spawnSync(
    `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=keys.example.com -keyout ${folder}/keys.example.com.key -out ${folder}/keys.example.com.crt`.split(
      ' ',
    ),
  )
  if (made.exitCode !== 0) throw new Error(made.stderr.toString())
}

/** Neither runs here; that they ask the right thing in the right place can be checked all the same. */
describe('what Caddy and Traefik are told', () => {
  const forward = endpoints.find(({ path }) => path === '/v1/auth.forward')
  const expectAsked = (address: string, headers: readonly string[]) => {
    const { pathname, searchParams } = new URL(address, 'http://127.0.0.1:3000')
    expect(pathname).toBe(forward?.path ?? '')
    for (const name of searchParams.keys()) expect(Object.keys(ForwardQuery.properties)).toContain(name)
    expect(headers.length).toBeGreaterThan(0)
    for (const header of headers) expect(Object.keys(forward?.answerHeaders ?? {})).toContain(header)
  }

  test('Caddy', () => {
    const { text } = blockWith('README', 'caddyfile', 'forward_auth')
    const [, uri = ''] = /^\s+uri (\S+)$/m.exec(text) ?? []
    const [, headers = ''] = /^\s+copy_headers (.+)$/m.exec(text) ?? []
    expectAsked(uri, headers.split(' '))
    expect(text.split('{').length).toBe(text.split('}').length)
    // What a client wrote there itself is taken away before it is asked about.
    expect(text.indexOf('request_header -X-Tollgate-*')).toBeWithin(0, text.indexOf('forward_auth'))
    expect(text.trimEnd().split('\n').length).toBeLessThanOrEqual(20)
  })

  test('Traefik', () => {
    const { text } = blockWith('README', 'yaml', 'forwardAuth')
    const { http }: Json = Bun.YAML.parse(text)
    const { address, authResponseHeaders } = http.middlewares.tollgate.forwardAuth
    expectAsked(address, authResponseHeaders)
    for (const router of Object.values<Json>(http.routers)) {
      for (const middleware of router.middlewares) expect(Object.keys(http.middlewares)).toContain(middleware)
      expect(Object.keys(http.services)).toContain(router.service)
    }
    expect(text.trimEnd().split('\n').length).toBeLessThanOrEqual(20)
  })
})

describe('the manifest for Kubernetes', () => {
  const [service, set]: Json[] = Object(Bun.YAML.parse(blockWith('kubernetes', 'yaml', 'StatefulSet').text))
  const { spec } = set.spec.template
  const [container] = spec.containers
  const env: Record<string, string> = Object.fromEntries(
    container.env.map(({ name, value }: { name: string; value: string }) => [name, value]),
  )

  test('is valid', () => {
    new Service(service).validate()
    new StatefulSet(set).validate()
    expect([service.apiVersion, service.kind, set.apiVersion, set.kind]).toEqual([
      'v1',
      'Service',
      'apps/v1',
      'StatefulSet',
    ])
  })

  test('a server starts with these variables, and listens where service, probes and scraper look', async () => {
    const dockerfile = await Bun.file(join(ROOT, 'Dockerfile')).text()
    const [, variables = ''] = /^ENV (.+)$/m.exec(dockerfile) ?? []
    const image = Object.fromEntries(variables.split(' ').map((each) => each.split('=')))
    const config = readConfig({ ...image, ...env })
    const portOf = (name: string) =>
      container.ports.find((port: { name: string }) => port.name === name)?.containerPort
    expect(config.listen).toMatchObject({ host: '0.0.0.0', port: portOf('http') })
    expect(config.metricsPort).toBe(portOf('metrics'))
    expect(set.spec.template.metadata.annotations['prometheus.io/port']).toBe(String(config.metricsPort))
    expect(service.spec.ports[0].targetPort).toBe('http')
    for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe'])
      expect(container[probe].httpGet).toEqual({ path: '/v1/liveness', port: 'http' })
    expect(endpoints.some(({ path }) => path === '/v1/liveness')).toBe(true)
    const [mount] = container.volumeMounts
    expect([mount.mountPath, mount.name]).toEqual([
      config.dataDir,
      set.spec.volumeClaimTemplates[0].metadata.name,
    ])
  })

  test('its parts name each other, and a stop has the time it may take', () => {
    const { labels } = set.spec.template.metadata
    expect([set.spec.selector.matchLabels, service.spec.selector]).toEqual([labels, labels])
    expect(set.spec.serviceName).toBe(service.metadata.name)
    expect(spec.terminationGracePeriodSeconds).toBeGreaterThan(10)
    expect(spec.securityContext.runAsNonRoot).toBe(true)
    const { text } = blockWith('kubernetes', 'sh', 'kubectl create secret')
    expect(text).toContain(`create secret generic ${container.envFrom[0].secretRef.name} `)
  })
})

describe('the unit for systemd', () => {
  const { text } = blockWith('sidecar', 'ini', '[Service]')

  test('names variables that a server starts with, and leaves a stop its time', () => {
    const variables = /^Environment=(.+)$/m.exec(text)?.[1]?.split(' ') ?? []
    const config = readConfig(Object.fromEntries(variables.map((each) => each.split('='))))
    expect(config.listen).toMatchObject({ port: null, socketPath: '/run/tollgate/http.sock' })
    // The folders that systemd makes are those that are used.
    expect(text).toContain('RuntimeDirectory=tollgate')
    expect([config.dataDir, /^StateDirectory=(.+)$/m.exec(text)?.[1]]).toEqual([
      '/var/lib/tollgate',
      'tollgate',
    ])
    expect(Number(/^TimeoutStopSec=(\d+)$/m.exec(text)?.[1])).toBeGreaterThan(10)
  })

  test('reads the file of variables that the guide to backups writes, in the folder it runs in', () => {
    const [, path] =
      /^EnvironmentFile=-(.+)$/m.exec(blockWith('backups', 'ini', 'EnvironmentFile=').text) ?? []
    const [, name] = />> (\S+)\)$/m.exec(blockWith('backups', 'sh', 'TOLLGATE_VAULT_KEY=').text) ?? []
    expect(path).toBe(`${/^WorkingDirectory=(.+)$/m.exec(text)?.[1]}/${name}`)
  })

  const ANALYZE = Bun.which('systemd-analyze')
  test.skipIf(ANALYZE === null)('systemd finds nothing wrong with it', () => {
    const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-unit-'))
    try {
      const path = join(folder, 'tollgate.service')
      // The program need not be where it is on the reader's machine, nor the user.
      writeFileSync(
        path,
        text.replace('/usr/local/bin/bun', process.execPath).replace('User=tollgate', 'User=root'),
      )
      const checked = Bun.spawnSync([ANALYZE ?? '', 'verify', '--man=no', path])
      const problems = checked.stderr
        .toString()
        .split('\n')
        .filter((line) => line.includes('tollgate.service'))
      expect(problems).toEqual([])
    } finally {
      rmSync(folder, { recursive: true })
    }
  })
})
