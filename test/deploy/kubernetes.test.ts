import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Deployment, StatefulSet } from 'kubernetes-models/apps/v1'
import { NetworkPolicy } from 'kubernetes-models/networking.k8s.io/v1'
import { PodDisruptionBudget } from 'kubernetes-models/policy/v1'
import { ConfigMap, Service } from 'kubernetes-models/v1'
import packageJson from '../../package.json' with { type: 'json' }
import { readConfig, SECRETS, unknownVariables, VARIABLES } from '../../src/config.ts'
import { endpoints } from '../../src/server/app.ts'
import { blockWith, ROOT } from '../docs/blocks.ts'
import { REDIS_SERVER, startRedis } from '../support/redis.ts'
import type { Json } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { baseObjects, DEPLOY, KUSTOMIZE, ofKind, rendered } from './manifests.ts'

setDefaultTimeout(SLOW_MS)

/* No cluster runs here: what is made is checked against the schemas of Kubernetes and against the program. */

const VALIDATED: Record<string, new (data: Json) => { validate(): void }> = {
  StatefulSet,
  Service,
  ConfigMap,
  NetworkPolicy,
  PodDisruptionBudget,
}
const KINDS = ['NetworkPolicy', 'PodDisruptionBudget', 'Service', 'StatefulSet']

/** The variables of the image, as the Dockerfile sets them. */
const image = Object.fromEntries(
  (/^ENV (.+)$/m.exec(readFileSync(join(ROOT, 'Dockerfile'), 'utf8'))?.[1] ?? '')
    .split(' ')
    .map((each) => each.split('=')),
)
type Named = { name: string; value: string }
const byName = (list: Named[]) => Object.fromEntries(list.map(({ name, value }) => [name, value]))
const containerOf = (objects: Json[]): Json => ofKind(objects, 'StatefulSet').spec.template.spec.containers[0]

describe('the base', () => {
  const objects = baseObjects()
  const set = ofKind(objects, 'StatefulSet')
  const { spec } = set.spec.template
  const container = containerOf(objects)

  test('is valid for Kubernetes', () => {
    expect(objects.map(({ kind }) => kind).sort()).toEqual(KINDS)
    for (const object of objects) new (VALIDATED[object.kind] ?? StatefulSet)(object).validate()
    // The schema refuses something.
    expect(() => new StatefulSet({ ...set, spec: { ...set.spec, replicas: 'one' } }).validate()).toThrow()
  })

  test('runs the version of this folder without any right, with nothing to write but its data directory', () => {
    expect(container.image).toBe(`tollgate:${packageJson.version}`)
    expect(spec.securityContext).toMatchObject({
      runAsNonRoot: true,
      runAsUser: 65_532,
      fsGroup: 65_532,
      seccompProfile: { type: 'RuntimeDefault' },
    })
    expect(container.securityContext).toEqual({
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    })
    expect(spec.automountServiceAccountToken).toBe(false)
    expect(container.volumeMounts).toEqual([
      {
        name: set.spec.volumeClaimTemplates[0].metadata.name,
        mountPath: readConfig(image).dataDir,
      },
    ])
  })

  test('starts a server that listens where service, probes and scraper expect it', () => {
    const config = readConfig({ ...image, ...byName(container.env) })
    const portOf = (name: string) =>
      container.ports.find((port: { name: string }) => port.name === name)?.containerPort
    expect(config.listen).toMatchObject({ host: '0.0.0.0', port: portOf('http') })
    expect(config.metricsPort).toBe(portOf('metrics'))
    expect(set.spec.template.metadata.annotations['prometheus.io/port']).toBe(String(config.metricsPort))
    expect(ofKind(objects, 'Service').spec.ports.map((port: Json) => port.targetPort)).toEqual(['http'])
    for (const [probe, path] of Object.entries({
      startupProbe: '/v1/liveness',
      livenessProbe: '/v1/liveness',
      readinessProbe: '/v1/readiness',
    })) {
      expect(container[probe].httpGet).toEqual({ path, port: 'http' })
      expect(endpoints.some((endpoint) => endpoint.path === path)).toBe(true)
    }
  })

  test('allows a stop its drain and ten seconds, and drains for longer than a probe needs to be seen', () => {
    const { drainMs } = readConfig({ ...image, ...byName(container.env) })
    expect(spec.terminationGracePeriodSeconds * 1000).toBeGreaterThan(drainMs + 10_000)
    expect(drainMs).toBeGreaterThan(2000 * container.readinessProbe.periodSeconds)
  })

  test('has parts that refer to each other by name', () => {
    const { labels } = set.spec.template.metadata
    expect(set.spec.selector.matchLabels).toEqual(labels)
    expect(set.spec.serviceName).toBe(ofKind(objects, 'Service').metadata.name)
    expect(ofKind(objects, 'Service').spec.selector).toEqual(labels)
    expect(ofKind(objects, 'PodDisruptionBudget').spec.selector.matchLabels).toEqual(labels)
    expect(ofKind(objects, 'NetworkPolicy').spec.podSelector.matchLabels).toEqual(labels)
  })

  test('lets the server reach names and a collector, and nothing else', () => {
    const { policyTypes, egress, ingress } = ofKind(objects, 'NetworkPolicy').spec
    expect(policyTypes).toEqual(['Ingress', 'Egress'])
    expect(portsOf(egress)).toEqual(['53/UDP', '53/TCP', '4318/TCP'])
    for (const { to } of egress) expect(to.length).toBeGreaterThan(0)
    // Metrics are for the namespace of the monitoring alone.
    expect(portsOf(ingress.filter(({ from }: Json) => from === undefined))).toEqual(['http/TCP'])
    expect(portsOf(ingress.filter(({ from }: Json) => from !== undefined))).toEqual(['metrics/TCP'])
  })
})

const portsOf = (rules: Json[]): string[] =>
  rules.flatMap(({ ports }) => ports.map(({ port, protocol }: Json) => `${port}/${protocol}`))

/** Without kustomize only the base is checked, file by file. */
const NEEDS = KUSTOMIZE === null ? ' (skipped: neither kustomize nor kubectl 1.21 or newer is installed)' : ''

describe.skipIf(KUSTOMIZE === null)(`what kustomize makes${NEEDS}`, () => {
  const head = 'apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n'
  const made = new Map<string, Json[]>()
  const overlay = (name: string) => {
    const objects = made.get(name) ?? rendered(`${head}  - tollgate/overlays/${name}\n`)
    made.set(name, objects)
    return objects
  }

  test.each(['embedded', 'postgres'])(
    'of the overlay %s is valid and keeps what the base promises',
    (name) => {
      const objects = overlay(name)
      expect(objects.map(({ kind }) => kind).sort()).toEqual(['ConfigMap', ...KINDS])
      for (const object of objects) new (VALIDATED[object.kind] ?? StatefulSet)(object).validate()
      const container = containerOf(objects)
      const { data, metadata } = ofKind(objects, 'ConfigMap')
      expect(container.envFrom).toEqual([{ configMapRef: { name: metadata.name } }])
      expect(unknownVariables({ ...data, ...byName(container.env) })).toEqual([])
      expect(container.securityContext).toEqual(containerOf(baseObjects()).securityContext)
      readConfig({ ...image, ...data, ...withoutFiles(byName(container.env)) })
    },
  )

  test('of the overlay embedded has no secret, and no way to a database', () => {
    const objects = overlay('embedded')
    expect(byName(containerOf(objects).env)).toEqual(byName(containerOf(baseObjects()).env))
    expect(portsOf(ofKind(objects, 'NetworkPolicy').spec.egress)).not.toContain('5432/TCP')
  })

  test('of the overlay postgres reads every secret from a file that only its group can read', () => {
    const objects = overlay('postgres')
    const { spec } = ofKind(objects, 'StatefulSet').spec.template
    const container = containerOf(objects)
    const [{ secret, name }] = spec.volumes
    const mount = container.volumeMounts.find((each: Json) => each.name === name)
    expect(mount.readOnly).toBe(true)
    const env = byName(container.env)
    for (const variable of SECRETS)
      expect([variable, env[variable], env[`${variable}_FILE`]]).toEqual([
        variable,
        undefined,
        `${mount.mountPath}/${variable}`,
      ])
    expect(secret.defaultMode.toString(8)).toBe('440')
    expect(blockWith('kubernetes', 'sh', 'kubectl create secret').text).toContain(
      `create secret generic ${secret.secretName} `,
    )
    expect(portsOf(ofKind(objects, 'NetworkPolicy').spec.egress)).toEqual([
      '53/UDP',
      '53/TCP',
      '4318/TCP',
      '5432/TCP',
    ])
  })

  test('of the overlay fleet is that of Postgres with two servers and one Valkey that they alone reach', () => {
    const objects = overlay('fleet')
    expect(objects.map(({ kind }) => kind).sort()).toEqual(
      ['ConfigMap', ...KINDS, 'Deployment', 'NetworkPolicy', 'Service'].sort(),
    )
    const named = (name: string) =>
      objects.filter(({ metadata }) => metadata.name === name || metadata.name.startsWith(`${name}-6`))
    const [ours, valkeys] = [
      objects.filter(({ metadata }) => metadata.name !== 'tollgate-valkey'),
      named('tollgate-valkey'),
    ]
    for (const object of ours) new (VALIDATED[object.kind] ?? StatefulSet)(object).validate()
    for (const object of valkeys) new (VALIDATED[object.kind] ?? Deployment)(object).validate()
    const set = ofKind(ours, 'StatefulSet')
    expect(set.spec.replicas).toBe(2)
    expect(byName(containerOf(ours).env)).toEqual({
      ...byName(containerOf(overlay('postgres')).env),
      TOLLGATE_FLEET_FILE: '/run/secrets/tollgate/TOLLGATE_FLEET',
    })
    expect(portsOf(ofKind(ours, 'NetworkPolicy').spec.egress)).toContain('6379/TCP')
    const { ingress, egress } = ofKind(valkeys, 'NetworkPolicy').spec
    expect(egress ?? []).toEqual([])
    expect(ingress.map(({ from }: Json) => from)).toEqual([
      [{ podSelector: { matchLabels: set.spec.selector.matchLabels } }],
    ])
    const { spec } = ofKind(valkeys, 'Deployment')
    expect([spec.replicas, spec.strategy]).toEqual([1, { type: 'Recreate' }])
    expect(spec.selector.matchLabels).toEqual(ofKind(valkeys, 'Service').spec.selector)
    const [container] = spec.template.spec.containers
    expect(container.securityContext).toEqual(containerOf(baseObjects()).securityContext)
    const compose = Bun.YAML.parse(readFileSync(join(DEPLOY, 'compose.fleet.yaml'), 'utf8')) as Json // as compose.test.ts
    expect(container.args).toEqual(compose.services.valkey.command.slice(2))
    // The guide's Secret has what the two read.
    const secret = blockWith('kubernetes', 'sh', 'TOLLGATE_FLEET').text
    for (const { key } of spec.template.spec.volumes[0].secret.items) expect(secret).toContain(` ${key}: '`)
    expect(secret).toContain(`@${ofKind(valkeys, 'Service').metadata.name}:6379`)
  })

  test.skipIf(REDIS_SERVER === null)(
    'starts a Valkey with a password that keeps and evicts nothing',
    async () => {
      const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-valkey-'))
      const file = join(folder, 'valkey.conf')
      writeFileSync(file, 'requirepass secret\n')
      const [container] = ofKind(overlay('fleet'), 'Deployment').spec.template.spec.containers
      await using redis = await startRedis({
        config: file,
        flags: container.args,
        address: { password: 'secret' },
      })
      const of = async (name: string) => [await redis.ask('config', 'get', name)].flat()[1]
      expect(await Promise.all(['save', 'appendonly', 'maxmemory-policy', 'requirepass'].map(of))).toEqual([
        '',
        'no',
        'noeviction',
        'secret',
      ])
      rmSync(folder, { recursive: true })
    },
  )

  test('of the guide’s own file names the image, the settings and the monitor', () => {
    const { text } = blockWith('kubernetes', 'yaml', 'kind: Kustomization')
    const objects = rendered(text)
    const container = containerOf(objects)
    const pushed = /docker push (\S+)/.exec(blockWith('kubernetes', 'sh', 'docker build').text)?.[1]
    expect(container.image).toBe(pushed)
    const { data } = ofKind(objects, 'ConfigMap')
    const config = readConfig({ ...image, ...data, ...withoutFiles(byName(container.env)) })
    expect([config.publicUrl, config.trustedProxies, config.threads]).toEqual([
      'https://keys.example.com',
      ['10.0.0.0/8'],
      { http: 2, shards: 1 },
    ])
    expect(new Set(objects.map(({ metadata }) => metadata.namespace)).size).toBe(1)

    const monitor = ofKind(objects, 'PodMonitor')
    expect([monitor.apiVersion, Object.keys(monitor).sort(), Object.keys(monitor.spec).sort()]).toEqual([
      'monitoring.coreos.com/v1',
      ['apiVersion', 'kind', 'metadata', 'spec'],
      ['podMetricsEndpoints', 'selector'],
    ])
    expect(monitor.spec.selector.matchLabels).toEqual(
      ofKind(objects, 'StatefulSet').spec.template.metadata.labels,
    )
    const [endpoint, ...others] = monitor.spec.podMetricsEndpoints
    expect([endpoint, others]).toEqual([{ port: 'metrics', path: '/metrics', interval: '15s' }, []])
    expect(container.ports.map(({ name }: Named) => name)).toContain(endpoint.port)
  })
})

/** The files are not there; a server that has none runs on the embedded database. */
const withoutFiles = (env: Record<string, string>) =>
  Object.fromEntries(Object.entries(env).filter(([name]) => !name.endsWith('_FILE')))

test('every variable of the manifests exists', () => {
  const text = ['base/stateful-set.yaml', 'base/kustomization.yaml', 'overlays/postgres/stateful-set.yaml']
    .map((path) => readFileSync(join(DEPLOY, 'kubernetes', path), 'utf8').replace(/^\s*#.*$/gm, ''))
    .join('\n')
  const names = text.match(/\b(TOLLGATE|DATABASE)_[A-Z_]+/g) ?? []
  expect(names.length).toBeGreaterThan(5)
  for (const name of names) expect(Object.keys(VARIABLES)).toContain(name)
})
