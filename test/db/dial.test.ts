import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from '../../src/db/connect.ts'
import { explain } from '../../src/db/explain.ts'
import { readDatabaseUrl } from '../../src/lib/database-url.ts'
import { type Cluster, POSTGRES_BIN, startCluster } from '../support/cluster.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const OPENSSL = Bun.which('openssl')
if (POSTGRES_BIN === null || OPENSSL === null)
  console.warn('no Postgres or no openssl is installed: TLS and several hosts are not tested')

describe.if(POSTGRES_BIN !== null && OPENSSL !== null)('a connection by DATABASE_URL', () => {
  let cluster: Cluster
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-tls-'))
  const authority = join(folder, 'ca.pem')
  beforeAll(async () => {
    // A certificate authority, and a certificate for `localhost` that is not valid for 127.0.0.1.
    const openssl = (...args: string[]) => Bun.spawnSync([OPENSSL ?? '', ...args], { cwd: folder })
    openssl(
      ...[
        'req',
        '-x509',
        '-newkey',
        'rsa:2048',
        '-nodes',
        '-keyout',
        'ca.key',
        '-out',
        'ca.pem',
        '-days',
        '2',
      ],
      ...['-subj', '/CN=authority of the tests', '-addext', 'basicConstraints=critical,CA:TRUE'],
    )
    openssl(
      ...['req', '-newkey', 'rsa:2048', '-nodes', '-keyout', 'server.key', '-out', 'server.csr'],
      ...['-subj', '/CN=localhost'],
    )
    await Bun.write(join(folder, 'ext'), 'subjectAltName=DNS:localhost\n')
    openssl(
      ...['x509', '-req', '-in', 'server.csr', '-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial'],
      ...['-out', 'server.pem', '-days', '2', '-extfile', 'ext'],
    )
    cluster = await startCluster({
      settings: { listen_addresses: '*' },
      files: { 'server.crt': join(folder, 'server.pem'), 'server.key': join(folder, 'server.key') },
    })
    await cluster.query('alter system set ssl = on', 'postgres')
    await cluster.query('select pg_reload_conf()', 'postgres')
    while ((await cluster.query('show ssl', 'postgres'))[0]?.ssl !== 'on') await Bun.sleep(20)
  })
  afterAll(async () => {
    await cluster[Symbol.asyncDispose]()
    rmSync(folder, { recursive: true })
  })

  /** @returns true when the connection is encrypted, or the error in one line. */
  async function connected(hosts: string, query = ''): Promise<boolean | string> {
    const url = `postgres://tollgate@${hosts}/tollgate${query}`
    const sql = connect({ kind: 'url', url }, { connectionsMax: 1 })
    try {
      const rows = await sql<{ ssl: boolean }[]>`
        select ssl from pg_stat_ssl where pid = pg_backend_pid() and ${1}::int = 1`
      // More than one packet in both directions, and a further statement.
      const text = 'x'.repeat(300_000)
      expect((await sql<{ text: string }[]>`select ${text} as text`)[0]?.text).toBe(text)
      return rows[0]?.ssl ?? false
    } catch (cause) {
      const line = explain(cause, readDatabaseUrl(url))
      expect(line).not.toContain('\n')
      return line
    } finally {
      await sql.end({ timeout: 1 })
    }
  }
  const at = (host: string) => `${host}:${cluster.port}`

  test('sslmode decides whether it is encrypted and which part of the certificate is verified', async () => {
    expect(await connected(at('localhost'))).toBe(false)
    expect(await connected(at('localhost'), '?sslmode=disable')).toBe(false)
    for (const mode of ['prefer', 'require', 'no-verify'])
      expect(await connected(at('127.0.0.1'), `?sslmode=${mode}&channel_binding=require`)).toBe(true)
    for (const mode of ['verify-ca', 'verify-full'])
      expect(await connected(at('localhost'), `?sslmode=${mode}&sslrootcert=${authority}`)).toBe(true)
  })

  test('a certificate that cannot be verified or has another name is refused in one line', async () => {
    expect(await connected(at('localhost'), '?sslmode=verify-full')).toContain('?sslrootcert=')
    expect(await connected(at('localhost'), '?sslmode=verify-ca')).toContain('cannot be verified')
    const other = join(folder, 'server.pem')
    expect(await connected(at('localhost'), `?sslmode=require&sslrootcert=${other}`)).toContain(
      'cannot be verified',
    )
    expect(await connected(at('127.0.0.1'), `?sslmode=verify-full&sslrootcert=${authority}`)).toContain(
      'is for another host name',
    )
    expect(await connected(at('127.0.0.1'), `?sslmode=verify-ca&sslrootcert=${authority}`)).toBe(true)
    expect(await connected(at('localhost'), '?sslmode=verify-ca&sslrootcert=/no/such')).toContain('/no/such')
  })

  test('a server that requires TLS, and one that has none, are reported as such', async () => {
    await cluster.query(`alter role tollgate password 'right one'`)
    await cluster.hostRules('hostssl all all all trust')
    expect(await connected(at('127.0.0.1'))).toContain('?sslmode=require')
    expect(await connected(at('127.0.0.1'), '?sslmode=require')).toBe(true)
    await cluster.hostRules('host all tollgate all scram-sha-256', 'host all all all trust')
    expect(await connected(at('127.0.0.1'))).toContain('the password for role tollgate is wrong')
    const withPassword = async (password: string) => {
      const url = `postgres://tollgate:${password}@${at('127.0.0.1')}/tollgate?sslmode=require`
      const sql = connect({ kind: 'url', url }, { connectionsMax: 1 })
      try {
        await sql`select 1`
        return null
      } catch (cause) {
        return explain(cause, readDatabaseUrl(url))
      } finally {
        await sql.end({ timeout: 1 })
      }
    }
    expect(await withPassword('right%20one')).toBeNull()
    expect(await withPassword('wrong%20one')).not.toContain('wrong one')
    await cluster.hostRules('host all all all trust')
  })

  test('notices arrive over TLS, and again after the connection broke', async () => {
    const url = `postgres://tollgate@127.0.0.1:1,${at('localhost')}/tollgate?sslmode=require`
    const sql = connect({ kind: 'url', url }, { connectionsMax: 2 })
    const heard: string[] = []
    let listens = 0
    await sql.listen(
      'channel',
      (text) => heard.push(text),
      () => void listens++,
    )
    await sql`select pg_notify('channel', 'first')`
    while (heard.length < 1) await Bun.sleep(5)
    await cluster.query(`select pg_terminate_backend(pid) from pg_stat_activity where query ilike 'listen%'`)
    while (listens < 2) await Bun.sleep(5)
    await sql`select pg_notify('channel', 'second')`
    while (heard.length < 2) await Bun.sleep(5)
    expect(heard).toEqual(['first', 'second'])
    await sql.end({ timeout: 1 })
  })

  test('a connection given up before it is open is closed, and none is left behind', async () => {
    const sockets = new Set<Socket>()
    // Accepts connections and never answers.
    const silent = createServer((socket) => {
      sockets.add(socket.resume())
      socket.on('error', () => {})
      socket.on('close', () => sockets.delete(socket))
    })
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve))
    const address = silent.address()
    const port = typeof address === 'object' ? address?.port : 0
    const url = `postgres://tollgate@127.0.0.1:${port}/tollgate?sslmode=require&connect_timeout=600`
    const pool = connect({ kind: 'url', url }, { connectionsMax: 1 })
    const asked = pool`select 1`.then(
      () => null,
      (cause: Error & { code: string }) => cause.code,
    )
    while (sockets.size === 0) await Bun.sleep(5)
    await pool.end({ timeout: 0 })
    expect(await asked).toBe('CONNECTION_DESTROYED')
    while (sockets.size > 0) await Bun.sleep(5)
    silent.close()
  })

  test('an IPv6 host works with and without TLS', async () => {
    expect(await connected(at('[::1]'))).toBe(false)
    expect(await connected(at('[::1]'), '?sslmode=require')).toBe(true)
  })

  test('of several hosts the first that answers is used, and when none does, one line says so at once', async () => {
    expect(await connected(`127.0.0.1:1,no-such-host.invalid,${at('127.0.0.1')}`)).toBe(false)
    expect(await connected(`127.0.0.1:1,${at('localhost')}`, '?sslmode=require')).toBe(true)
    const began = performance.now()
    expect(await connected('127.0.0.1:1,127.0.0.1:2')).toContain(
      'nothing listens at 127.0.0.1:1 and 127.0.0.1:2',
    )
    expect(performance.now() - began).toBeLessThan(5000)
  })

  test('of several hosts a read-only one is skipped, unless it is the only one left', async () => {
    await using standby = await cluster.standby()
    const both = `127.0.0.1:${standby.port},${at('127.0.0.1')}`
    const isStandby = async (query = '') => {
      const url = `postgres://tollgate@${both}/tollgate${query}`
      const sql = connect({ kind: 'url', url }, { connectionsMax: 1 })
      try {
        return (await sql<{ is: boolean }[]>`select pg_is_in_recovery() as is`)[0]?.is
      } finally {
        await sql.end({ timeout: 1 })
      }
    }
    expect(await isStandby()).toBe(false)
    expect(await isStandby('?sslmode=require')).toBe(false)
    expect(await isStandby('?target_session_attrs=any')).toBe(true)
    const pool = connect({ kind: 'url', url: `postgres://tollgate@${both}/tollgate` }, { connectionsMax: 8 })
    const asked = Array.from({ length: 40 }, () => pool`select pg_is_in_recovery() as is`)
    for (const [row] of await Promise.all(asked)) expect(row?.is).toBe(false)
    await pool.end()
    await cluster.stop('immediate')
    expect(await isStandby()).toBe(true)
    await standby.promote()
    expect(await isStandby()).toBe(false)
    await cluster.start()
  })
})
