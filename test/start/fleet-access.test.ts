import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Authority, makeAuthority, OPENSSL } from '../support/certificates.ts'
import { openTestDatabase, TEST_DATABASE_URL, type TestDatabase } from '../support/database.ts'
import { pass, startFleetServer, untilEngineIs } from '../support/fleet-servers.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { REDIS_SERVER, startRedis } from '../support/redis.ts'
import { startRedisCluster } from '../support/redis-cluster.ts'
import { startSentinels } from '../support/redis-sentinel.ts'
import { SLOW_MS } from '../support/timeout.ts'

/** How servers get to a Redis: with TLS, users and passwords, and with replicas that must have a count. */
setDefaultTimeout(SLOW_MS)

const CAN_RUN = IS_NIGHTLY && TEST_DATABASE_URL !== null && REDIS_SERVER !== null
const PASSWORD = 'correct horse:@/?#'
const SECRET = encodeURIComponent(PASSWORD)

/** One call that passes and one over the limit, and the password nowhere. */
async function countsOn(env: Record<string, string>): Promise<void> {
  await using database = await openTestDatabase()
  await using server = await startFleetServer(database, env)
  expect(await pass(server, 'x', 1)).toBe(true)
  expect(await pass(server, 'x', 1)).toBe(false)
  expect((await server.get('liveness')).body.services.fleet).toBe('ok')
  expect(server.output()).not.toMatch(/correct.horse|battery.staple/)
}

/** @returns why it does not start, in the last line. */
async function refusalOf(env: Record<string, string>): Promise<string> {
  await using database = await openTestDatabase()
  return await startFleetServer(database, env).then(
    async (server) => {
      await server[Symbol.asyncDispose]()
      return 'it started'
    },
    (cause: Error) => cause.message.trim().split('\n').at(-1) ?? '',
  )
}

describe.skipIf(!CAN_RUN)('a Redis with users', () => {
  test('takes a user with the rights of the guide, and its password', async () => {
    await using redis = await startRedis({
      flags: ['--requirepass', PASSWORD],
      address: { password: PASSWORD },
    })
    // As docs/how-to/several-servers.md has it.
    const rights = '~t:{* +@hash +@connection +eval +evalsha +pexpire +time +info +wait +cluster|slots'
    await redis.ask('acl', 'setuser', 'tollgate', 'on', '>battery staple', ...rights.split(' '))
    await countsOn({ TOLLGATE_FLEET: `redis://tollgate:battery%20staple@127.0.0.1:${redis.port}` })
    await countsOn({ TOLLGATE_FLEET: `redis://:${SECRET}@127.0.0.1:${redis.port}/1` })
    expect(await refusalOf({ TOLLGATE_FLEET: `redis://tollgate:wrong@127.0.0.1:${redis.port}` })).toContain(
      'WRONGPASS',
    )
  })
})

describe.skipIf(!CAN_RUN || OPENSSL === null)('a Redis with TLS', () => {
  let folder: string
  let authority: Authority
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'tollgate-fleet-tls-'))
    authority = makeAuthority(folder, 'authority')
  })
  afterAll(() => {
    if (folder !== undefined) rmSync(folder, { recursive: true })
  })

  const settingsOf = (name: string, names: string[]): [name: string, value: string][] => {
    const { certificate, key } = authority.issue(name, { subject: name, names })
    return [
      ['tls-cert-file', certificate],
      ['tls-key-file', key],
      ['tls-ca-cert-file', authority.path],
      ['tls-auth-clients', 'no'],
      ['tls-replication', 'yes'],
    ]
  }
  const flagsOf = (name: string, names: string[]) =>
    settingsOf(name, names).flatMap(([name, value]) => [`--${name}`, value])
  const start = async (name: string, names: string[]) =>
    await startRedis({ flags: flagsOf(name, names), address: { hasTls: true } })

  test('is used when an authority of NODE_EXTRA_CA_CERTS has signed its name, and otherwise refused', async () => {
    await using redis = await start('redis', ['DNS:localhost', 'IP:127.0.0.1'])
    const NODE_EXTRA_CA_CERTS = authority.path
    await countsOn({ TOLLGATE_FLEET: `rediss://127.0.0.1:${redis.port}`, NODE_EXTRA_CA_CERTS })
    await countsOn({ TOLLGATE_FLEET: `rediss://localhost:${redis.port}/1`, NODE_EXTRA_CA_CERTS })
    const unknown = await refusalOf({ TOLLGATE_FLEET: `rediss://127.0.0.1:${redis.port}` })
    expect(unknown).toMatch(/which cannot be asked: .*certificate/)
    await using other = await start('other', ['DNS:other.example'])
    const wrong = await refusalOf({
      TOLLGATE_FLEET: `rediss://127.0.0.1:${other.port}`,
      NODE_EXTRA_CA_CERTS,
    })
    expect(wrong).toMatch(/which cannot be asked: .*(altnames|certificate|Hostname)/i)
  })

  test('and passwords of its own may be behind Sentinels with other ones', async () => {
    await using sentinels = await startSentinels({
      hasTls: true,
      flags: [...flagsOf('node', ['IP:127.0.0.1']), '--requirepass', PASSWORD, '--masterauth', PASSWORD],
      sentinel: [
        ...settingsOf('sentinel', ['IP:127.0.0.1']).map((setting) => setting.join(' ')),
        `sentinel auth-pass main "${PASSWORD}"`,
        'requirepass "battery staple"',
      ],
      address: { password: PASSWORD },
    })
    await countsOn({
      TOLLGATE_FLEET: `rediss-sentinel://:${SECRET}@127.0.0.1:${sentinels.ports[0]}/main?sentinel_password=battery%20staple`,
      NODE_EXTRA_CA_CERTS: authority.path,
    })
  })

  describe('and a cluster', () => {
    const startCluster = async (name: string, names: string[], hasReplicas = false) =>
      await startRedisCluster({
        masters: 3,
        hasReplicas,
        nodeTimeoutMs: 1_500,
        hasTls: true,
        flags: flagsOf(name, names),
      })
    type Cluster = Awaited<ReturnType<typeof startCluster>>
    const urlOf = (cluster: Cluster, host: string) =>
      `rediss-cluster://${cluster.address.hosts.map(({ port }) => `${host}:${port}`).join()}`
    const nodesOf = ({ masters, replicas }: Cluster) => [...masters, ...replicas]
    const setAll = async (cluster: Cluster, name: string, value: string) => {
      for (const node of nodesOf(cluster)) await node.ask('config', 'set', name, value)
    }

    test('of nodes that announce addresses is used when the certificate has those, and survives a failover', async () => {
      await using cluster = await startCluster('cluster', ['IP:127.0.0.1'], true)
      await using database = await openTestDatabase()
      await using server = await startFleetServer(database, {
        TOLLGATE_FLEET: urlOf(cluster, '127.0.0.1'),
        TOLLGATE_FLEET_OUTAGE: 'refuse',
        TOLLGATE_FLEET_TIMEOUT_MS: '400',
        NODE_EXTRA_CA_CERTS: authority.path,
      })
      const names = Array.from({ length: 24 }, (_, i) => `x ${i}`)
      for (const name of names) expect(await pass(server, name, 3)).toBe(true)
      await cluster.masters[0]?.kill()
      await untilEngineIs(server, 'away')
      await untilEngineIs(server, 'ok')
      for (const name of names) {
        for (let i = 2; i <= 3; i++) expect([name, i, await pass(server, name, 3)]).toEqual([name, i, true])
        expect(await pass(server, name, 3)).toBe(false)
      }
    })

    test('is refused where nodes announce addresses and the certificate has a name, until they announce the name', async () => {
      await using cluster = await startCluster('named', ['DNS:localhost'])
      const env = { TOLLGATE_FLEET: urlOf(cluster, 'localhost'), NODE_EXTRA_CA_CERTS: authority.path }
      expect(await refusalOf(env)).toMatch(/which cannot be asked: .*altnames: IP: 127.0.0.1/)
      await setAll(cluster, 'cluster-preferred-endpoint-type', 'hostname')
      expect(await refusalOf(env)).toMatch(/which cannot be asked: .*altnames: IP: 127.0.0.1/)
      await setAll(cluster, 'cluster-announce-hostname', 'localhost')
      await countsOn(env)
      // Of the next database, which cannot have another number there.
      expect(await refusalOf(env)).toContain('give each database a Redis of its own. If that other database')
      for (const node of cluster.masters) await node.ask('flushall')
      // As where one name leads to all nodes.
      await setAll(cluster, 'cluster-preferred-endpoint-type', 'unknown-endpoint')
      await countsOn(env)
    })
  })
})

describe.skipIf(!CAN_RUN)('TOLLGATE_FLEET_REPLICAS', () => {
  test('counts what a replica has; while it is stopped the outage rule decides', async () => {
    await using database: TestDatabase = await openTestDatabase()
    await using master = await startRedis({ flags: ['--repl-diskless-sync-delay', '0'] })
    await using replica = await startRedis({ flags: ['--replicaof', '127.0.0.1', String(master.port)] })
    while (!String(await replica.ask('info', 'replication')).includes('master_link_status:up'))
      await Bun.sleep(10)
    await using server = await startFleetServer(database, {
      TOLLGATE_FLEET: `redis://127.0.0.1:${master.port}`,
      TOLLGATE_FLEET_REPLICAS: '1',
      TOLLGATE_FLEET_OUTAGE: 'refuse',
      TOLLGATE_FLEET_TIMEOUT_MS: '400',
    })
    for (let i = 0; i < 5; i++) expect(await pass(server, 'x', 10)).toBe(true)
    replica.freeze()
    await untilEngineIs(server, 'away')
    expect(await pass(server, 'new', 10)).toBeNull()
    expect(server.output()).toMatch(/"event":"fleet_away".*(replicas have it, 1 must|no answer within)/)
    replica.thaw()
    await untilEngineIs(server, 'ok')
    let passed = 5
    while (await pass(server, 'x', 10)) passed++
    expect(passed).toBe(10)
    // A replica that takes over knows all that was given.
    await replica.ask('replicaof', 'no', 'one')
    const sums = await Promise.all(
      ((await replica.ask('keys', 't:{*}?*')) as string[]).map((window) => replica.ask('hget', window, 'u')), // a reply of KEYS
    )
    expect(sums).toContain('10')
  })
})
