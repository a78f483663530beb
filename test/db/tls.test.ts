import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readConfig } from '../../src/config.ts'
import { connect } from '../../src/db/connect.ts'
import { explain } from '../../src/db/explain.ts'
import { readDatabaseUrl } from '../../src/lib/database-url.ts'
import { type Authority, makeAuthority, OPENSSL } from '../support/certificates.ts'
import { type Cluster, POSTGRES_BIN, startCluster } from '../support/cluster.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { outcomeOf } from '../support/outcome.ts'
import { spawnServer } from '../support/process.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

/** What a client gets: an encrypted connection, a plain one, or none. */
type Outcome = 'tls' | 'plain' | 'refused'
const MODES = ['disable', 'allow', 'prefer', 'require', 'verify-ca', 'verify-full'] as const

if (POSTGRES_BIN === null || OPENSSL === null)
  console.warn('no Postgres or no openssl is installed: TLS is not tested')

/** Each case is also asked of psql, which is libpq: DATABASE_URL must mean the same to both. */
describe.if(POSTGRES_BIN !== null && OPENSSL !== null)('TLS to Postgres', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-libpq-'))
  let cluster: Cluster
  let authority: Authority
  let other: Authority
  let client: { certificate: string; key: string }
  let stranger: { certificate: string; key: string }
  beforeAll(async () => {
    authority = makeAuthority(folder, 'authority')
    other = makeAuthority(folder, 'another')
    const names = ['DNS:localhost']
    const servers = {
      right: authority.issue('right', { subject: 'localhost', names }),
      elsewhere: authority.issue('elsewhere', { subject: 'db.example', names: ['DNS:db.example'] }),
      expired: authority.issue('expired', { subject: 'localhost', names, isExpired: true }),
      foreign: other.issue('foreign', { subject: 'localhost', names }),
    }
    client = authority.issue('client', { subject: 'tollgate' })
    stranger = other.issue('stranger', { subject: 'tollgate' })
    const files: Record<string, string> = { 'clients.pem': authority.path }
    for (const [name, { certificate, key }] of Object.entries(servers)) {
      files[`${name}.pem`] = certificate
      files[`${name}.key`] = key
    }
    cluster = await startCluster({ settings: { ssl_ca_file: 'clients.pem' }, files })
  })
  afterAll(async () => {
    await cluster[Symbol.asyncDispose]()
    rmSync(folder, { recursive: true })
  })

  async function serverHas(
    certificate: 'right' | 'elsewhere' | 'expired' | 'foreign' | null,
    ...rules: string[]
  ) {
    if (certificate !== null) {
      await cluster.query(`alter system set ssl_cert_file = '${certificate}.pem'`, 'postgres')
      await cluster.query(`alter system set ssl_key_file = '${certificate}.key'`, 'postgres')
    }
    await cluster.query(`alter system set ssl = ${certificate === null ? 'off' : 'on'}`, 'postgres')
    await cluster.hostRules(...(rules.length === 0 ? ['host all all all trust'] : rules))
  }

  const urlOf = (query: string, host = 'localhost') =>
    `postgres://tollgate@${host}:${cluster.port}/tollgate?connect_timeout=5&${query}`

  async function ours(query: string, host?: string): Promise<{ outcome: Outcome; line: string }> {
    const url = urlOf(query, host)
    const sql = connect({ kind: 'url', url }, { connectionsMax: 2 })
    try {
      // Two connections at once, as a pool opens them.
      const [one] = await Promise.all([
        sql<{ ssl: boolean }[]>`select ssl from pg_stat_ssl where pid = pg_backend_pid()`,
        sql`select 1`,
      ])
      return { outcome: one[0]?.ssl === true ? 'tls' : 'plain', line: '' }
    } catch (cause) {
      const line = explain(cause, readDatabaseUrl(url))
      expect(line).not.toContain('\n')
      return { outcome: 'refused', line }
    } finally {
      await sql.end({ timeout: 1 })
    }
  }

  /** The same question to libpq. It looks for certificates in the home directory too, which has none here. */
  async function libpq(query: string, host?: string): Promise<Outcome> {
    const statement = 'select ssl from pg_stat_ssl where pid = pg_backend_pid()'
    const child = Bun.spawn([join(POSTGRES_BIN ?? '', 'psql'), '-XAtc', statement, urlOf(query, host)], {
      env: { PATH: process.env.PATH ?? '', HOME: folder, LC_ALL: 'C' },
      stdout: 'pipe',
      stderr: 'pipe',
    })
    const { out, code } = await outcomeOf(child)
    return code !== 0 ? 'refused' : out.trim() === 't' ? 'tls' : 'plain'
  }

  const everyMode = async (more = '', host?: string) => {
    const found: Partial<Record<(typeof MODES)[number], Outcome>> = {}
    for (const mode of MODES) {
      const root = more === '' && mode.startsWith('verify') ? `&sslrootcert=${authority.path}` : more
      const query = `sslmode=${mode}${root}`
      const [mine, theirs] = await Promise.all([ours(query, host), libpq(query, host)])
      expect([mode, more, mine.outcome]).toEqual([mode, more, theirs])
      found[mode] = mine.outcome
    }
    return MODES.map((mode) => found[mode]).join(' ')
  }

  test('a server with the right certificate is reached in every mode', async () => {
    await serverHas('right')
    expect(await everyMode()).toBe('plain plain tls tls tls tls')
    expect(await everyMode(`&sslrootcert=${authority.path}`)).toBe('plain plain tls tls tls tls')
    // The certificate is for localhost, and the client asked for an address.
    expect(await everyMode('', '127.0.0.1')).toBe('plain plain tls tls tls refused')
  })

  test('another host name is refused by verify-full, and the line says what to do', async () => {
    await serverHas('elsewhere')
    expect(await everyMode()).toBe('plain plain tls tls tls refused')
    expect((await ours(`sslmode=verify-full&sslrootcert=${authority.path}`)).line).toContain(
      'is for another host name',
    )
  })

  test('another authority is refused by both verifying modes, and by require with a root certificate', async () => {
    await serverHas('foreign')
    expect(await everyMode()).toBe('plain plain tls tls refused refused')
    // With a root certificate every connection by TLS is verified. `prefer` falls back, as in libpq.
    expect(await everyMode(`&sslrootcert=${authority.path}`)).toBe(
      'plain plain plain refused refused refused',
    )
    expect((await ours(`sslrootcert=${authority.path}`)).line).toContain('cannot be verified')
  })

  test('an expired certificate is refused by both verifying modes', async () => {
    await serverHas('expired')
    expect(await everyMode()).toBe('plain plain tls tls refused refused')
    expect((await ours(`sslmode=verify-full&sslrootcert=${authority.path}`)).line).toContain('has expired')
  })

  test('a server without TLS is refused by require and above', async () => {
    await serverHas(null)
    expect(await everyMode()).toBe('plain plain plain refused refused refused')
    expect((await ours('sslmode=require')).line).toContain('requires TLS, but')
  })

  test.if(IS_NIGHTLY)(
    'where the server lets in with TLS only, or without only, allow and prefer find the way',
    async () => {
      await serverHas('right', 'hostssl all all all trust')
      expect(await everyMode()).toBe('refused tls tls tls tls tls')
      await serverHas('right', 'hostnossl all all all trust')
      expect(await everyMode()).toBe('plain plain plain refused refused refused')
      await serverHas('right', 'hostssl all nobody all trust')
      expect(await everyMode()).toBe('refused refused refused refused refused refused')
    },
  )

  test('a client certificate lets in where the server asks for one, and another does not', async () => {
    await serverHas('right', 'hostssl all all all cert')
    const certificate = ({ certificate, key }: typeof client) => `&sslcert=${certificate}&sslkey=${key}`
    for (const [more, outcome] of [
      ['', 'refused'],
      [certificate(client), 'tls'],
      [certificate(stranger), 'refused'],
    ] as const) {
      const query = `sslmode=verify-full&sslrootcert=${authority.path}${more}`
      const mine = await ours(query)
      expect([more, mine.outcome, await libpq(query)]).toEqual([more, outcome, outcome])
      if (outcome === 'refused') expect(mine.line).toContain('sslcert')
    }
  })

  test('sslrootcert=system trusts the authorities of the system', async () => {
    await serverHas('right')
    expect((await ours('sslrootcert=system')).line).toContain('?sslrootcert=')
    const script = `
      import { connect } from ${JSON.stringify(join(import.meta.dir, '../../src/db/connect.ts'))}
      const sql = connect({ kind: 'url', url: ${JSON.stringify(urlOf('sslrootcert=system'))} }, { connectionsMax: 1 })
      console.log((await sql\`select ssl from pg_stat_ssl where pid = pg_backend_pid()\`)[0].ssl)
      await sql.end()`
    const child = Bun.spawn([process.execPath, '-e', script], {
      // How a distribution or a person adds an authority to those of the system.
      env: { PATH: process.env.PATH ?? '', SSL_CERT_FILE: authority.path },
      stdout: 'pipe',
      stderr: 'pipe',
    })
    expect(await outcomeOf(child)).toMatchObject({ out: 'true\n', code: 0 })
  })

  test('a server that verifies has no connection without TLS, and one that cannot verify does not start', async () => {
    await serverHas('right')
    const env = (root: string) => ({
      DATABASE_URL: urlOf(''),
      PGSSLMODE: 'verify-full',
      PGSSLROOTCERT: root,
      TOLLGATE_DATA_DIR: join(folder, 'data'),
    })
    const refused = await spawnServer(env(other.path)).then(
      () => 'it started',
      (cause: Error) => cause.message,
    )
    expect(refused.trim().split('\n')).toHaveLength(1)
    expect(refused).toContain('the database cannot be used: the certificate of localhost')
    await using server = await spawnServer(env(authority.path))
    const connections = await cluster.query(
      `select distinct ssl from pg_stat_ssl join pg_stat_activity using (pid) where usename = 'tollgate'`,
    )
    expect([...connections]).toEqual([{ ssl: true }])
    // Everyone who connects is among them: requests, shards, usage, and who listens for changes.
    const listening = await cluster.query(
      `select count(*) from pg_stat_activity where query ilike 'listen %'`,
    )
    expect(Number(listening[0]?.count)).toBeGreaterThan(0)
    expect(server.output()).not.toContain('"level":"error"')
  })

  describe('the configuration', () => {
    const url = 'postgres://u:SECRET@localhost/db'
    const read = (env: Record<string, string>) => readConfig({ DATABASE_URL: url, ...env }).databaseUrl
    const problem = (env: Record<string, string>) => {
      try {
        read(env)
      } catch (cause) {
        const line = cause instanceof Error ? cause.message : ''
        expect(line).not.toContain('SECRET')
        expect(line).not.toContain('\n')
        return line
      }
      throw new Error('it was taken')
    }

    test('takes PGSSLMODE and its like where the URL does not have them', () => {
      expect(read({ PGSSLMODE: 'require' })).toBe(`${url}?sslmode=require`)
      const full = { PGSSLMODE: 'verify-full', PGSSLROOTCERT: authority.path }
      expect(read(full)).toBe(`${url}?sslmode=verify-full&sslrootcert=${encodeURIComponent(authority.path)}`)
      expect(read({ ...full, DATABASE_URL: `${url}?sslmode=disable` })).toContain(
        '?sslmode=disable&sslrootcert=',
      )
      expect(read({ PGSSLMODE: 'verify-full', DATABASE_URL: `${url}?ssl=false` })).toBe(`${url}?ssl=false`)
      expect(readConfig({ PGSSLMODE: 'nonsense' }).databaseUrl).toBeNull()
      expect(problem({ PGSSLMODE: 'nonsense' })).toContain(
        'DATABASE_URL with PGSSLMODE has sslmode=nonsense; it must be disable, allow, prefer',
      )
    })

    test('names a file that cannot be used, and its parameter', () => {
      const withQuery = (query: string) => problem({ DATABASE_URL: `${url}?sslmode=verify-full&${query}` })
      expect(withQuery('sslrootcert=/no/such')).toBe(
        'DATABASE_URL has sslrootcert=/no/such, which cannot be read: the file or its folder does not exist',
      )
      expect(withQuery(`sslrootcert=${folder}`)).toContain('it is a folder')
      expect(withQuery(`sslrootcert=${client.key}`)).toContain('contains no certificate in PEM form')
      expect(withQuery(`sslcert=${client.certificate}&sslkey=${stranger.key}`)).toContain(
        'is not the key of the certificate',
      )
      expect(withQuery(`sslcert=${client.certificate}&sslkey=${client.certificate}`)).toContain(
        'contains no private key',
      )
      expect(problem({ PGSSLCERT: client.certificate })).toContain('sslcert without sslkey')
      expect(read({ PGSSLCERT: client.certificate, PGSSLKEY: client.key })).toContain('sslkey=')
    })

    test('asks for the password of an encrypted key, and takes the right one', () => {
      const encrypted = join(folder, 'encrypted.key')
      const args = ['pkcs8', '-topk8', '-in', client.key, '-out', encrypted, '-passout', 'pass:rightpass']
      Bun.spawnSync([OPENSSL ?? '', ...args])
      const query = `sslmode=require&sslcert=${client.certificate}&sslkey=${encrypted}`
      expect(problem({ DATABASE_URL: `${url}?${query}` })).toContain('is encrypted: add sslpassword')
      expect(problem({ DATABASE_URL: `${url}?${query}&sslpassword=SECRET` })).toContain(
        'sslpassword does not decrypt',
      )
      expect(read({ DATABASE_URL: `${url}?${query}&sslpassword=rightpass` })).toContain('sslkey=')
    })
  })
})
