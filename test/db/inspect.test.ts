import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { connect } from '../../src/db/connect.ts'
import { inspectDatabase, lookAtServer, type ServerFacts } from '../../src/db/inspect.ts'
import { migrate } from '../../src/db/migrate.ts'
import { type Cluster, POSTGRES_BIN, startCluster } from '../support/cluster.ts'
import { PGBOUNCER, startPgBouncer } from '../support/pgbouncer.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

if (POSTGRES_BIN === null) console.warn('no Postgres is installed: what one may be is not tested')

const FACTS: ServerFacts = {
  version: 150_020,
  versionText: '15.20',
  encoding: 'UTF8',
  database: 'd',
  role: 'r',
  isStandby: false,
  isReadOnly: false,
  nowMs: 0,
  clockAheadMs: 0,
  synchronousCommit: 'on',
  replicationRole: 'origin',
  fsync: 'on',
  fullPageWrites: 'on',
  transactionTimeout: null,
  statementTimeout: '0',
  idleTimeout: '0',
  settings: {},
  connectionsMax: 100,
  connectionsUsed: 0,
  roleLimit: -1,
  databaseLimit: -1,
}
const wrongWith = (facts: Partial<ServerFacts>) =>
  lookAtServer({ ...FACTS, ...facts })
    .filter(({ status }) => status !== 'ok')
    .map(({ status, text }) => `${status}: ${text}`)

test('a version before 14 is a problem, and a version newer than the tested ones is not', () => {
  expect(wrongWith({})).toEqual([])
  expect(wrongWith({ version: 130_018, versionText: '13.18', encoding: 'LATIN1' })).toEqual([
    'fail: the server is Postgres 13.18; Tollgate needs 14 or newer: upgrade Postgres',
  ])
  expect(wrongWith({ version: 140_000, versionText: '14.0' })).toEqual([])
  expect(wrongWith({ version: 260_000, versionText: '26beta1' })).toEqual([])
})

test('a clock that differs much from ours is a warning with the difference', () => {
  expect(wrongWith({ clockAheadMs: 1_900 })).toEqual([])
  expect(wrongWith({ clockAheadMs: 7_200_000 }).join()).toContain('7200 s ahead of the clock here')
  expect(wrongWith({ clockAheadMs: -2_500 }).join()).toContain('2.5 s behind the clock here')
})

describe.if(POSTGRES_BIN !== null)('inspecting a database', () => {
  let cluster: Cluster
  beforeAll(async () => {
    cluster = await startCluster()
  })
  afterAll(() => cluster[Symbol.asyncDispose]())

  let made = 0
  /** A new database with its own owner. */
  async function makeDatabase(options: { with?: string } = {}) {
    const name = `d${++made}`
    await cluster.query(`create role ${name} login`, 'postgres')
    await cluster.query(`create database ${name} owner ${name} ${options.with ?? ''}`, 'postgres')
    return { name, url: `postgres://${name}@127.0.0.1:${cluster.port}/${name}` }
  }
  const inspect = (url: string) => inspectDatabase({ kind: 'url', url }, { connections: 14 })
  /** Its problems, or if there are none, its warnings. */
  async function told(url: string): Promise<string[]> {
    const { findings } = await inspect(url)
    for (const { text } of findings) expect(text).not.toContain('\n')
    const of = (status: string) => findings.filter((each) => each.status === status).map(({ text }) => text)
    return of('fail').length > 0 ? of('fail') : of('warn')
  }
  async function migrated(url: string): Promise<void> {
    const sql = connect({ kind: 'url', url }, { connectionsMax: 1 })
    await migrate(sql)
    await sql.end()
  }
  const DURABILITY = 'fsync is off' // of the cluster, which is to be quick

  test('one without problems has no findings', async () => {
    const { url } = await makeDatabase()
    expect(await told(url)).toEqual([expect.stringContaining(DURABILITY)])
    expect((await inspect(url)).address).toEqual({ kind: 'url', url })
    await migrated(url)
    expect(await told(url)).toEqual([expect.stringContaining(DURABILITY)])
  })

  test('a role without rights on schema public, the default since Postgres 15, is told what to grant', async () => {
    const { name } = await makeDatabase()
    await cluster.query('create role guest login', 'postgres')
    const [line = ''] = await told(`postgres://guest@127.0.0.1:${cluster.port}/${name}`)
    expect(line).toStartWith(`role guest may not create tables in schema public of database ${name}`)
    const grant = /run: (grant .+) \(/.exec(line)?.[1] ?? ''
    await cluster.query(grant, name)
    expect(await told(`postgres://guest@127.0.0.1:${cluster.port}/${name}`)).toEqual([
      expect.stringContaining(DURABILITY),
    ])
  })

  test('a schema named in the URL is used, created when allowed, or reported with the statement to run', async () => {
    const { name, url } = await makeDatabase()
    expect((await inspect(`${url}?schema=gate`)).address).toMatchObject({ schema: 'gate' })
    await cluster.query('create role visitor login', 'postgres')
    const visitor = `postgres://visitor@127.0.0.1:${cluster.port}/${name}?schema=gate`
    const [line = ''] = await told(visitor)
    expect(line).toContain('schema gate does not exist')
    await cluster.query(/run: (.+)$/.exec(line)?.[1] ?? '', name)
    expect(await told(visitor)).toEqual([expect.stringContaining(DURABILITY)])
    await cluster.query('create schema theirs', name)
    const [other = ''] = await told(visitor.replace('gate', 'theirs'))
    expect(other).toContain('role visitor may not use schema theirs')
    await cluster.query(/run: (.+)$/.exec(other)?.[1] ?? '', name)
    expect(await told(visitor.replace('gate', 'theirs'))).toEqual([expect.stringContaining(DURABILITY)])
  })

  test('a search path without a schema, or hiding Tollgate’s tables, is reported; one with another schema first is overridden', async () => {
    const { name, url } = await makeDatabase()
    await cluster.query(`alter role ${name} set search_path = ''`, name)
    expect(await told(url)).toEqual([expect.stringContaining('has no schema that exists')])
    await cluster.query(`alter role ${name} reset search_path`, name)
    await migrated(url)
    await cluster.query(`create schema elsewhere authorization ${name}`, name)
    await cluster.query(`alter role ${name} set search_path = elsewhere`, name)
    expect(await told(url)).toEqual([expect.stringContaining('tables are in schema public')])
    expect((await inspect(`${url}?schema=public`)).address).toMatchObject({ schema: 'public' })
    // As after creating a schema named after the role: new tables would go there, while the old ones stay.
    await cluster.query(`alter role ${name} reset search_path`, name)
    await cluster.query(`create schema ${name} authorization ${name}`, name)
    expect((await inspect(url)).address).toMatchObject({ schema: 'public' })
    expect((await told(url)).join()).toContain(`new ones would go to ${name}`)
  })

  test('another application’s tables with the same names are reported and left alone', async () => {
    const { name, url } = await makeDatabase()
    await cluster.query('create table keys (id int)', name)
    await cluster.query('create table roles (id int)', name)
    expect(await told(url)).toEqual([expect.stringContaining('another application (keys, roles)')])
    await cluster.query('create table tollgate_migrations (id int)', name)
    expect(await told(url)).toEqual([expect.stringContaining('another application (tollgate_migrations)')])
  })

  test('tables of another role are reported with what to grant', async () => {
    const { name, url } = await makeDatabase()
    await migrated(url)
    await cluster.query('create role heir login', 'postgres')
    await cluster.query('grant create, usage on schema public to heir', name)
    const heir = `postgres://heir@127.0.0.1:${cluster.port}/${name}`
    const [line = ''] = await told(heir)
    expect(line).toContain(`belong to ${name}`)
    await cluster.query(/run: (.+)$/.exec(line)?.[1] ?? '', name)
    expect(await told(heir)).toEqual([expect.stringContaining(DURABILITY)])
  })

  test('an encoding that cannot store every text is reported', async () => {
    for (const encoding of ['SQL_ASCII', 'LATIN1']) {
      const { url } = await makeDatabase({
        with: `encoding '${encoding}' lc_collate 'C' lc_ctype 'C' template template0`,
      })
      expect(await told(url)).toEqual([expect.stringContaining(`is encoded in ${encoding}`)])
    }
  })

  test('a read-only database and a standby are reported', async () => {
    const { name, url } = await makeDatabase()
    await cluster.query(`alter database ${name} set default_transaction_read_only = on`, 'postgres')
    expect(await told(url)).toEqual([expect.stringContaining('are read only')])
    await using standby = await cluster.standby()
    expect(await told(`postgres://tollgate@127.0.0.1:${standby.port}/tollgate`)).toEqual([
      expect.stringContaining('is a standby'),
    ])
  })

  test('a database whose triggers do not run is reported, as nothing would count against a bound', async () => {
    const { name, url } = await makeDatabase()
    await cluster.query(`alter database ${name} set session_replication_role = replica`, 'postgres')
    expect(await told(url)).toEqual([expect.stringContaining('session_replication_role')])
  })

  test('a statement_timeout too short for the checks is overridden, or reported through a pooler', async () => {
    const { name, url } = await makeDatabase()
    await cluster.query(`alter database ${name} set statement_timeout = '1ms'`, 'postgres')
    for (let attempt = 0; attempt < 3; attempt++) {
      const { findings } = await inspect(url)
      expect(findings.filter(({ status }) => status === 'fail')).toEqual([])
    }
    const sql = connect({ kind: 'url', url }, { connectionsMax: 1 })
    await migrate(sql)
    await sql.end()
    if (PGBOUNCER === null) return
    await using closing = new AsyncDisposableStack()
    const through = await startPgBouncer(url, { pool_mode: 'transaction' }, closing)
    expect((await told(through)).join()).toContain('statement_timeout is')
  })

  test('a correct clock is no warning, even when the database shows few digits of a number', async () => {
    const { name, url } = await makeDatabase()
    await cluster.query(`alter role ${name} set extra_float_digits = -15`, name)
    expect((await told(url)).join()).not.toContain('clock')
  })

  test('settings that lose data in a crash are a warning', async () => {
    const { name, url } = await makeDatabase()
    await cluster.query(`alter role ${name} set synchronous_commit = off`, name)
    expect((await told(url)).join()).toContain('synchronous_commit is off')
  })

  test('too few connections are a warning with the number that a server opens', async () => {
    const { name, url } = await makeDatabase()
    await cluster.query(`alter role ${name} connection limit 8`, name)
    expect((await told(url)).join()).toContain(
      `the limit of role ${name} leaves 8 connections, but Tollgate may open 14`,
    )
    await cluster.query(`alter role ${name} connection limit 1`, name)
    expect((await told(url)).join()).toContain('has no connection left')
  })

  const AWAY: [says: string, url: (port: number) => string][] = [
    ['nothing listens at 127.0.0.1:1', () => 'postgres://u@127.0.0.1:1/db'],
    ['cannot be resolved', () => 'postgres://u@no-such-host.invalid/db'],
    ['the socket /no/such/.s.PGSQL.5432 cannot be used', () => 'postgres:///db?host=/no/such'],
    [
      'role "nobody at all" does not exist',
      (port) => `postgres://nobody%20at%20all@127.0.0.1:${port}/tollgate`,
    ],
    ['database "nowhere" does not exist', (port) => `postgres://tollgate@127.0.0.1:${port}/nowhere`],
    ['requires TLS', (port) => `postgres://tollgate@127.0.0.1:${port}/tollgate?sslmode=require`],
    [
      'unrecognized configuration parameter',
      (port) => `postgres://tollgate@127.0.0.1:${port}/tollgate?options=-cno_such=1`,
    ],
  ]
  for (const [says, url] of AWAY)
    test(`a database that cannot be used is one line: ${says}`, async () => {
      expect(await told(url(cluster.port))).toEqual([expect.stringContaining(says)])
    })

  /** Settings of a role or database that must not be changed for Tollgate's sake. */
  test('connections of a server have the settings that it relies on, whatever role and database are set to', async () => {
    const { name, url } = await makeDatabase()
    const odd = {
      default_transaction_isolation: 'serializable',
      bytea_output: 'escape',
      array_nulls: 'off',
      standard_conforming_strings: 'off',
      statement_timeout: '5s',
      lock_timeout: '1ms',
      idle_in_transaction_session_timeout: '5s',
      idle_session_timeout: '20s',
      TimeZone: 'Asia/Kathmandu',
      DateStyle: 'SQL, DMY',
    }
    for (const [setting, value] of Object.entries(odd))
      await cluster.query(`alter role ${name} set ${setting} = '${value}'`, name)
    expect(await told(url)).toEqual([expect.stringContaining(DURABILITY)])
    const sql = connect({ kind: 'url', url }, { connectionsMax: 1 })
    const [row] = await sql`
      select current_setting('transaction_isolation') as isolation, ${'a\\b'}::text as text, '\\x00ff'::bytea as bytes,
             ${[null, 'b']}::text[] as list, current_setting('statement_timeout') as timeout, current_setting('TimeZone') as zone,
             current_setting('idle_session_timeout') as idle, current_setting('idle_in_transaction_session_timeout') as held`
    expect(row).toEqual({
      isolation: 'read committed',
      text: 'a\\b',
      bytes: Buffer.from([0, 255]),
      list: [null, 'b'],
      timeout: '0',
      zone: 'UTC',
      idle: '0',
      held: '1min',
    })
    await sql.end()
  })

  describe.if(PGBOUNCER !== null)('through PgBouncer', () => {
    const MODES: ['session' | 'transaction', string, Record<string, string>][] = [
      ['transaction', 'transactions share connections', {}],
      ['transaction', 'of which there is one', { default_pool_size: '1' }],
      ['transaction', 'given out in turn', { server_round_robin: '1', min_pool_size: '3' }],
      ['session', 'sessions have their own', {}],
    ]
    for (const [pool_mode, what, settings] of MODES)
      test(`pool_mode=${pool_mode}: ${what}: it is detected`, async () => {
        await using closing = new AsyncDisposableStack()
        const { url } = await makeDatabase()
        const through = await startPgBouncer(url, { pool_mode, ...settings }, closing)
        const { address, findings } = await inspect(through)
        expect(address).toEqual({ kind: 'url', url: through, isPooled: true })
        expect(findings.filter(({ status }) => status === 'fail')).toEqual([])
      })

    test('pool_mode=statement is refused in one line', async () => {
      await using closing = new AsyncDisposableStack()
      const { url } = await makeDatabase()
      expect(await told(await startPgBouncer(url, { pool_mode: 'statement' }, closing))).toEqual([
        expect.stringContaining('pool_mode=statement, which does not support transactions'),
      ])
    })

    test('a role whose settings cannot be overridden there is told which to set', async () => {
      await using closing = new AsyncDisposableStack()
      const { name, url } = await makeDatabase()
      await cluster.query(`alter role ${name} set default_transaction_isolation = 'repeatable read'`, name)
      const through = await startPgBouncer(url, { pool_mode: 'transaction' }, closing)
      const [line = ''] = await told(through)
      expect(line).toContain('default_transaction_isolation is repeatable read')
      expect((await told(`${through}?schema=gate`)).join()).toContain(
        `alter role ${name} set search_path = gate`,
      )
      await cluster.query(/run: (alter role .+), then/.exec(line)?.[1] ?? '', name)
      await cluster.query(
        `select pg_terminate_backend(pid) from pg_stat_activity where usename = '${name}'`,
        name,
      )
      expect(await told(through)).toEqual([expect.stringContaining(DURABILITY)])
    })

    test('a pooler that passes on real process numbers is detected by its sharing', async () => {
      // The cancel key is then no sign; see `findPooler`.
      await using closing = new AsyncDisposableStack()
      const { url } = await makeDatabase()
      const sharing = await startPgBouncer(url, { pool_mode: 'transaction' }, closing)
      const { address } = await inspectDatabase(
        { kind: 'url', url: sharing },
        { connections: 1, trustsKeys: false },
      )
      expect(address).toMatchObject({ isPooled: true })
      const direct = await inspectDatabase({ kind: 'url', url }, { connections: 1, trustsKeys: false })
      expect(direct.address).not.toHaveProperty('isPooled')
    })
  })
})
