import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readConfig, SECRETS } from '../../src/config.ts'
import type { Json } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { DEPLOY } from './manifests.ts'

setDefaultTimeout(SLOW_MS)

/* No engine runs here. Where `docker compose` is installed it reads the files, for which it needs no engine. */

const FILES = ['compose.yaml', 'compose.embedded.yaml']
const parse = (name: string): Json => Bun.YAML.parse(readFileSync(join(DEPLOY, name), 'utf8'))

describe.each(FILES)('%s', (name) => {
  const compose = parse(name)

  test('builds the clone’s image, publishes it on this machine alone, and allows a stop its time', () => {
    const { tollgate } = compose.services
    expect(existsSync(join(DEPLOY, tollgate.build, 'Dockerfile'))).toBe(true)
    expect(tollgate).toMatchObject({
      ports: ['127.0.0.1:3000:3000'],
      volumes: ['tollgate:/data'],
      stop_grace_period: '12s',
      restart: 'unless-stopped',
    })
    expect(Object.keys(compose.volumes)).toContain('tollgate')
  })

  test('gives no container a right, or a file to write outside its volume', () => {
    for (const [service, settings] of Object.entries<Json>(compose.services))
      expect([
        service,
        settings.read_only,
        settings.cap_drop,
        settings.security_opt,
        settings.privileged,
      ]).toEqual([service, true, ['ALL'], ['no-new-privileges:true'], undefined])
  })

  test('has parts that refer to each other by name', () => {
    for (const { networks = [], secrets = [], volumes = [], depends_on = {} } of Object.values<Json>(
      compose.services,
    )) {
      for (const network of networks) expect(['default', ...Object.keys(compose.networks)]).toContain(network)
      for (const secret of secrets) expect(Object.keys(compose.secrets)).toContain(secret)
      for (const volume of volumes) expect(Object.keys(compose.volumes)).toContain(volume.split(':')[0])
      for (const service of Object.keys(depends_on))
        expect(compose.services[service].healthcheck.test).toEqual(['CMD', 'pg_isready', '-U', 'tollgate'])
    }
  })

  const COMPOSE =
    Bun.which('docker') !== null && Bun.spawnSync(['docker', 'compose', 'version']).exitCode === 0
  test.skipIf(!COMPOSE)(
    `is accepted by docker compose${COMPOSE ? '' : ' (skipped: it is not installed)'}`,
    () => {
      const read = Bun.spawnSync(['docker', 'compose', '--file', join(DEPLOY, name), 'config', '--quiet'])
      expect([read.exitCode, read.stderr.toString()]).toEqual([0, ''])
    },
  )
})

test('the database is reached by Tollgate alone, and reaches nothing', () => {
  const { services, networks } = parse('compose.yaml')
  expect(networks.database).toEqual({ internal: true })
  expect([services.postgres.networks, services.postgres.ports]).toEqual([['database'], undefined])
})

/** Both files together, as `docker compose` merges them: lists are appended. */
test('the fleet’s file adds a server like the first, and a Valkey that these alone reach and that never evicts', () => {
  const [base, fleet] = [parse('compose.yaml'), parse('compose.fleet.yaml')]
  const { tollgate: changed, 'tollgate-2': second, valkey } = fleet.services
  const first = base.services.tollgate
  expect(second).toEqual({
    ...first,
    ports: ['127.0.0.1:3001:3000'],
    volumes: ['tollgate-2:/data'],
    environment: { ...first.environment, ...changed.environment },
    secrets: [...first.secrets, ...changed.secrets],
    networks: [...first.networks, ...changed.networks],
    depends_on: { ...first.depends_on, ...changed.depends_on },
  })
  expect([fleet.networks, valkey.networks, valkey.ports]).toEqual([
    { fleet: { internal: true } },
    ['fleet'],
    undefined,
  ])
  expect([valkey.read_only, valkey.cap_drop, valkey.security_opt]).toEqual([
    true,
    ['ALL'],
    ['no-new-privileges:true'],
  ])
  expect(valkey.command.join(' ')).toEndWith('--maxmemory 192mb --maxmemory-policy noeviction')
  expect(Object.keys(fleet.secrets)).toEqual([...changed.secrets, ...valkey.secrets])
  expect(Object.keys(fleet.volumes)).toEqual(['tollgate-2'])
})

describe('the script of secrets', () => {
  const { services, secrets: ofBase } = parse('compose.yaml')
  const secrets = { ...ofBase, ...parse('compose.fleet.yaml').secrets }
  const run = (work: (folder: string, make: () => number | null) => void) => {
    const deploy = mkdtempSync(join(tmpdir(), 'tollgate-test-compose-'))
    try {
      cpSync(join(DEPLOY, 'compose-secrets.sh'), join(deploy, 'compose-secrets.sh'))
      work(join(deploy, 'secrets'), () => Bun.spawnSync([join(deploy, 'compose-secrets.sh')]).exitCode)
    } finally {
      rmSync(deploy, { recursive: true })
    }
  }

  test('makes every file that the two files name, for the user of its container, and text in no variable', () => {
    run((folder, make) => {
      expect(make()).toBe(0)
      expect(readdirSync(folder).sort()).toEqual(Object.keys(secrets).sort())
      for (const [name, { file }] of Object.entries<Json>(secrets)) expect(file).toBe(`secrets/${name}`)
      expect(statSync(folder).mode & 0o777).toBe(0o700)
      const isRoot = process.getuid?.() === 0
      for (const name of readdirSync(folder)) {
        const { mode, uid } = statSync(join(folder, name))
        if (isRoot)
          expect([name, uid]).toEqual([
            name,
            ['POSTGRES_PASSWORD', 'VALKEY_CONF'].includes(name) ? 999 : 65_532,
          ])
        expect([name, (mode & 0o777).toString(8)]).toEqual([name, isRoot ? '400' : '444'])
      }
      const { environment } = services.tollgate
      expect(environment).toEqual(
        Object.fromEntries(SECRETS.map((name) => [`${name}_FILE`, `/run/secrets/${name}`])),
      )
      expect(services.tollgate.secrets).toEqual([...SECRETS])
      // The server can start with them, and its password is that of the database.
      const config = readConfig(
        Object.fromEntries(SECRETS.map((name) => [`${name}_FILE`, join(folder, name)])),
      )
      const password = readFileSync(join(folder, 'POSTGRES_PASSWORD'), 'utf8').trim()
      const { POSTGRES_USER, POSTGRES_DB, ...others } = services.postgres.environment
      expect(config.databaseUrl).toBe(`postgres://${POSTGRES_USER}:${password}@postgres:5432/${POSTGRES_DB}`)
      expect(others).toEqual({ POSTGRES_PASSWORD_FILE: '/run/secrets/POSTGRES_PASSWORD' })
      expect([config.rootKey?.length, config.vaultKeys?.length]).toEqual([57, 1])
      const shared = readConfig({
        DATABASE_URL: 'postgres://postgres/tollgate',
        TOLLGATE_FLEET_FILE: join(folder, 'TOLLGATE_FLEET'),
      })
      const [, inValkey = ''] = readFileSync(join(folder, 'VALKEY_CONF'), 'utf8').trim().split(' ')
      expect(shared.fleet?.address).toMatchObject({
        hosts: [{ host: 'valkey', port: 6379 }],
        password: inValkey,
      })
      expect(inValkey).toHaveLength(48)
    })
  })

  /** A new vault key would make recoverable keys unreadable. */
  test('leaves what is there as it is', () => {
    run((folder, make) => {
      make()
      const texts = () => readdirSync(folder).map((name) => readFileSync(join(folder, name), 'utf8'))
      const before = texts()
      rmSync(join(folder, 'TOLLGATE_ROOT_KEY'))
      expect(make()).toBe(0)
      const after = texts()
      expect(after).toHaveLength(before.length)
      expect(after.filter((text) => !before.includes(text))).toHaveLength(1)
    })
  })
})

/** Built into the image they would be in every copy of it. */
test('secrets are neither committed nor sent to an engine', () => {
  const root = join(DEPLOY, '..')
  expect(readFileSync(join(root, '.gitignore'), 'utf8').split('\n')).toContain('deploy/secrets/')
  const sent = readFileSync(join(root, '.dockerignore'), 'utf8').trim().split('\n')
  expect([sent[0], sent.filter((line) => line.includes('deploy'))]).toEqual(['*', []])
})
