import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Ingress } from 'kubernetes-models/networking.k8s.io/v1'
import { readConfig } from '../../src/config.ts'
import { ForwardQuery } from '../../src/doors/forward-auth/schema.ts'
import { endpoints } from '../../src/server/app.ts'
import { baseObjects, ofKind } from '../deploy/manifests.ts'
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
  ['kubernetes', 'yaml', 'kind: Kustomization'],
  ['kubernetes', 'yaml', 'kind: Ingress'],
  ['sidecar', 'ini', '[Service]'],
  ['backups', 'ini', 'EnvironmentFile='],
  ['backups', 'ini', 'archive_command'],
  ['monitoring', 'yaml', 'scrape_configs'],
  ['monitoring', 'yaml', 'rule_files'],
]
/** Run by the tests in `test/proxies/`, and by `test/start/rolling.test.ts`. */
const RUN: readonly Block[] = [
  ...[...IN_FRONT, OVER_A_SOCKET, WITH_A_SECOND, ...ASKING].flatMap(({ blocks }) => blocks),
  blockWith('haproxy', 'haproxy', 'server two'),
]

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
  const service = ofKind(baseObjects(), 'Service')

  test('is valid, and leads to the service of the manifests', () => {
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

/** The unit itself: test/deploy/systemd.test.ts. */
describe('additions to the unit for systemd', () => {
  const unit = readFileSync(join(ROOT, 'deploy/systemd/tollgate.service'), 'utf8')
  const { text } = blockWith('sidecar', 'ini', '[Service]')

  test('of a sidecar make a server that listens at a socket alone, in a folder that systemd makes', () => {
    const variables = [...`${unit}${text}`.matchAll(/^Environment=(.+)$/gm)].flatMap(([, list = '']) =>
      list.split(' ').map((each) => each.split('=')),
    )
    const config = readConfig(Object.fromEntries(variables))
    expect(config.listen).toMatchObject({ port: null, socketPath: '/run/tollgate/http.sock' })
    expect(text).toContain('\nRuntimeDirectory=tollgate\n')
    expect(DOCS.sidecar).toContain('`/etc/systemd/system/tollgate.service.d/sidecar.conf`')
  })

  test('of the guide to backups read the file that it writes', () => {
    const [, path] =
      /^EnvironmentFile=-(.+)$/m.exec(blockWith('backups', 'ini', 'EnvironmentFile=').text) ?? []
    const [, name] = />> (\S+)\)$/m.exec(blockWith('backups', 'sh', 'TOLLGATE_VAULT_KEY=').text) ?? []
    expect(path).toBe(`/opt/tollgate/${name}`)
  })
})
