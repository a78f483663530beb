import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { StatefulSet } from 'kubernetes-models/apps/v1'
import { Ingress } from 'kubernetes-models/networking.k8s.io/v1'
import { Service } from 'kubernetes-models/v1'
import { readConfig } from '../../src/config.ts'
import { ForwardQuery } from '../../src/doors/forward-auth/schema.ts'
import { endpoints } from '../../src/server/app.ts'
import { ALERTS, PROMETHEUS } from '../observe/rules.ts'
import { ASKING, IN_FRONT, OVER_A_SOCKET, WITH_A_SECOND } from '../proxies/configurations.ts'
import type { Json } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { ALL_BLOCKS, type Block, blockWith, DOCS, ROOT } from './blocks.ts'

/**
 * Configuration of other programs in README and the docs. Run when the program is installed, otherwise only parsed and
 * checked.
 */
setDefaultTimeout(SLOW_MS)

/** Checked below without running, because their programs are not installed. */
const READ: [string, string, string][] = [
  ['forward-auth', 'yaml', 'forwardAuth'],
  ['kubernetes', 'yaml', 'StatefulSet'],
  ['kubernetes', 'yaml', 'kind: Ingress'],
  ['sidecar', 'ini', '[Service]'],
  ['backups', 'ini', 'EnvironmentFile='],
  ['monitoring', 'yaml', 'scrape_configs'],
  ['monitoring', 'yaml', 'rule_files'],
]
/** Run by the tests in `test/proxies/`. */
const RUN: readonly Block[] = [...IN_FRONT, OVER_A_SOCKET, WITH_A_SECOND, ...ASKING].flatMap(
  ({ blocks }) => blocks,
)

test('every block of configuration is tested, and no block is in a language without tests', () => {
  const nameOf = ({ doc, line }: Block) => `${doc}:${line}`
  const others = ALL_BLOCKS.filter(({ language }) => language !== 'sh' && language !== 'ts')
  const tried = new Set([...READ.map((each) => blockWith(...each)), ...RUN].map(nameOf))
  expect([...tried].sort()).toEqual(others.map(nameOf).sort())
})

/** Traefik is not run here; the requests that it would make can be checked. */
describe('the Traefik configuration', () => {
  const { text } = blockWith('forward-auth', 'yaml', 'forwardAuth')
  const { http }: Json = Bun.YAML.parse(text)
  const { forwardAuth } = http.middlewares.tollgate
  const forward = endpoints.find(({ path }) => path === '/v1/auth.forward')

  test('asks Tollgate, and passes on the key but no cookies', () => {
    const { pathname, searchParams } = new URL(forwardAuth.address)
    expect(pathname).toBe(forward?.path ?? '')
    for (const name of searchParams.keys()) expect(Object.keys(ForwardQuery.properties)).toContain(name)
    expect([forwardAuth.authRequestHeaders, forwardAuth.trustForwardHeader]).toEqual([
      ['Authorization', 'X-API-Key'],
      false,
    ])
    expect(Object.keys(forwardAuth).sort()).toEqual([
      'address',
      'authRequestHeaders',
      'authResponseHeadersRegex',
      'trustForwardHeader',
    ])
  })

  /** Traefik removes all client headers that match this, before it adds those of the answer. */
  test('removes every header that an application could take for Tollgate’s, and adds the real ones', () => {
    // In Go's syntax.
    const [, pattern = ''] = /^\(\?i\)(.+)$/.exec(forwardAuth.authResponseHeadersRegex) ?? []
    const taken = new RegExp(pattern, 'i')
    const told = Object.keys(forward?.answerHeaders ?? {}).filter((name) => /tollgate/i.test(name))
    expect(told).toHaveLength(2)
    for (const name of told)
      for (const spelling of [name, name.toLowerCase(), name.replaceAll('-', '_'), name.replaceAll('-', '.')])
        expect([spelling, taken.test(spelling)]).toEqual([spelling, true])
    for (const name of ['Authorization', 'X-Api-Key', 'My-X-Tollgate']) expect(taken.test(name)).toBe(false)
  })

  test('has parts that refer to each other by name', () => {
    for (const router of Object.values<Json>(http.routers)) {
      for (const middleware of router.middlewares) expect(Object.keys(http.middlewares)).toContain(middleware)
      expect(Object.keys(http.services)).toContain(router.service)
    }
  })
})

test('each short example of asking has at most 20 lines', () => {
  for (const each of [
    blockWith('forward-auth', 'nginx', 'auth_request /tollgate'),
    blockWith('forward-auth', 'caddyfile', 'forward_auth'),
    blockWith('forward-auth', 'yaml', 'forwardAuth'),
  ])
    expect(each.text.trimEnd().split('\n').length).toBeLessThanOrEqual(20)
})

/** The rules themselves are tested in test/observe/rules.test.ts. */
test('the Prometheus configuration scrapes the port that the page gives the metrics, as the job that the rules watch', () => {
  const { scrape_configs }: Json = Bun.YAML.parse(blockWith('monitoring', 'yaml', 'scrape_configs').text)
  const port = /TOLLGATE_METRICS_PORT=(\d+)/.exec(DOCS.monitoring ?? '')?.[1]
  expect(scrape_configs[0].static_configs[0].targets).toEqual([`127.0.0.1:${port}`])
  for (const { expr } of ALERTS)
    for (const [, job] of expr.matchAll(/job="(\w+)"/g)) expect(job).toBe(scrape_configs[0].job_name)
  const { rule_files }: Json = Bun.YAML.parse(blockWith('monitoring', 'yaml', 'rule_files').text)
  for (const file of rule_files) expect(existsSync(join(PROMETHEUS, file))).toBe(true)
})

describe('the Ingress for Kubernetes', () => {
  const ingress: Json = Bun.YAML.parse(blockWith('kubernetes', 'yaml', 'kind: Ingress').text)
  const [service]: Json[] = Object(Bun.YAML.parse(blockWith('kubernetes', 'yaml', 'StatefulSet').text))

  test('is valid, and leads to the service of the manifest', () => {
    new Ingress(ingress).validate()
    expect([ingress.apiVersion, ingress.kind]).toEqual(['networking.k8s.io/v1', 'Ingress'])
    const [rule] = ingress.spec.rules
    for (const { backend } of rule.http.paths) {
      expect(backend.service.name).toBe(service.metadata.name)
      expect(service.spec.ports.map(({ name }: { name: string }) => name)).toContain(
        backend.service.port.name,
      )
    }
    expect(ingress.spec.tls[0].hosts).toEqual([rule.host])
  })

  test('opens the same paths as the guides for other proxies, and no others', () => {
    const paths: [string, string][] = ingress.spec.rules[0].http.paths.map(
      ({ path, pathType }: { path: string; pathType: string }) => [path, pathType],
    )
    expect(paths).toEqual([
      ['/v1', 'Prefix'],
      ['/v2', 'Prefix'],
      ['/docs', 'Prefix'],
      ['/errors', 'Prefix'],
      ['/openapi.json', 'Exact'],
    ])
    expect(ingress.spec.defaultBackend).toBeUndefined()
    for (const { path } of endpoints) expect(path.startsWith('/v1/')).toBe(true)
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

  test('starts a server with its variables, which listens where service, probes and scraper expect it', async () => {
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
    for (const [probe, path] of Object.entries({
      startupProbe: '/v1/liveness',
      livenessProbe: '/v1/liveness',
      readinessProbe: '/v1/readiness',
    })) {
      expect(container[probe].httpGet).toEqual({ path, port: 'http' })
      expect(endpoints.some((endpoint) => endpoint.path === path)).toBe(true)
    }
    // A stop takes ten seconds at most, after the drain.
    expect(spec.terminationGracePeriodSeconds * 1000).toBeGreaterThan(config.drainMs + 10_000)
    expect(config.drainMs).toBeGreaterThan(2000 * container.readinessProbe.periodSeconds)
    const [mount] = container.volumeMounts
    expect([mount.mountPath, mount.name]).toEqual([
      config.dataDir,
      set.spec.volumeClaimTemplates[0].metadata.name,
    ])
  })

  test('has parts that refer to each other by name, and allows a stop its time', () => {
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

  test('has variables that a server starts with, and allows a stop its time', () => {
    const variables = /^Environment=(.+)$/m.exec(text)?.[1]?.split(' ') ?? []
    const config = readConfig(Object.fromEntries(variables.map((each) => each.split('='))))
    expect(config.listen).toMatchObject({ port: null, socketPath: '/run/tollgate/http.sock' })
    // systemd creates exactly the folders that are used.
    expect(text).toContain('RuntimeDirectory=tollgate')
    expect([config.dataDir, /^StateDirectory=(.+)$/m.exec(text)?.[1]]).toEqual([
      '/var/lib/tollgate',
      'tollgate',
    ])
    expect(Number(/^TimeoutStopSec=(\d+)$/m.exec(text)?.[1])).toBeGreaterThan(10)
  })

  test('reads the file of variables that the guide to backups writes, in its working directory', () => {
    const [, path] =
      /^EnvironmentFile=-(.+)$/m.exec(blockWith('backups', 'ini', 'EnvironmentFile=').text) ?? []
    const [, name] = />> (\S+)\)$/m.exec(blockWith('backups', 'sh', 'TOLLGATE_VAULT_KEY=').text) ?? []
    expect(path).toBe(`${/^WorkingDirectory=(.+)$/m.exec(text)?.[1]}/${name}`)
  })

  const ANALYZE = Bun.which('systemd-analyze')
  test.skipIf(ANALYZE === null)('has no errors according to systemd', () => {
    const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-unit-'))
    try {
      const path = join(folder, 'tollgate.service')
      // The program's path and the user need not exist on this machine.
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
