import { afterAll, afterEach, beforeAll, beforeEach, expect, setDefaultTimeout, spyOn, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect, type Sql } from '../../src/db/connect.ts'
import { joinServers, migrate, planMigrations } from '../../src/db/migrate.ts'
import { locksOf, statementsOf } from '../../src/db/migration-file.ts'
import { Presence } from '../../src/db/servers.ts'
import { StartError } from '../../src/errors.ts'
import { isOlder } from '../../src/lib/version.ts'
import { openTestSql, TEST_DATABASE_URL, type TestSql } from '../support/database.ts'

setDefaultTimeout(60_000) // real databases

const scratch = mkdtempSync(join(tmpdir(), 'tollgate-migrations-'))
let database: TestSql
let sql: Sql

beforeAll(async () => {
  database = await openTestSql()
  sql = database.sql
})
afterAll(async () => {
  await database[Symbol.asyncDispose]()
  rmSync(scratch, { recursive: true })
})
/** Each test has its own files, on an empty database. */
beforeEach(async () => {
  await sql`drop schema public cascade`
  await sql`create schema public`
})

function folderOf(files: Record<string, string>): string {
  const folder = mkdtempSync(join(scratch, 'files-'))
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text)
  return folder
}

const SERVERS = 'create table servers (node_id text primary key, host text, version text, seen_at bigint);'
const FIRST = { '0001_first.sql': `create table first (id int); ${SERVERS}` }
const headed = (oldest: string, text = '') => `-- oldest server: ${oldest}\n${text}`

test('a server runs on a database of a newer release that lives with it, and says so once', async () => {
  const newer = folderOf({ ...FIRST, '0002_more.sql': headed('0.1'), '0003_more.sql': headed('0.1.2') })
  await migrate(sql, { folder: newer, version: '0.2.0' })
  const warned = spyOn(process.stderr, 'write').mockImplementation(() => true)
  try {
    expect(await migrate(sql, { folder: folderOf(FIRST), version: '0.1.2' })).toEqual({ applied: [] })
    const lines = warned.mock.calls.map(([line]) => JSON.parse(String(line)))
    expect(lines).toMatchObject([
      { level: 'warn', event: 'schema_ahead', migrations: ['0002_more.sql', '0003_more.sql'] },
    ])
  } finally {
    warned.mockRestore()
  }
})

test('a server refuses a database that needs a newer one, and names the version to use', async () => {
  const newer = folderOf({ ...FIRST, '0002_more.sql': headed('0.3'), '0003_more.sql': headed('0.2') })
  await migrate(sql, { folder: newer, version: '0.3.0' })
  const older = { folder: folderOf(FIRST), version: '0.2.9' }
  const refusal =
    'the database is newer than this version of Tollgate (0.2.9): since migration 0002_more.sql it needs version 0.3 or newer; start such a version'
  expect(migrate(sql, older)).rejects.toThrow(refusal)
  expect(planMigrations(sql, older)).rejects.toThrow(refusal)
  expect(joinServers(sql, 'node_1', older)).rejects.toThrow(refusal)
  expect(migrate(sql, older)).rejects.toBeInstanceOf(StartError)
  expect(await sql`select from servers`).toHaveLength(0)
})

/** Databases of before the first release recorded no such version. */
test('a migration that is not known and says nothing is refused', async () => {
  const newer = folderOf({ ...FIRST, '0002_more.sql': '' })
  await migrate(sql, { folder: newer })
  await sql`alter table tollgate_migrations drop column oldest_server`
  expect(migrate(sql, { folder: folderOf(FIRST) })).rejects.toThrow(
    'it has migration 0002_more.sql, which this version does not know; start the newer version',
  )
})

test('a file without a version lives with the release that applied it', async () => {
  await migrate(sql, { folder: folderOf(FIRST), version: '0.1.7' })
  expect(await sql`select oldest_server as oldest from tollgate_migrations`).toMatchObject([
    { oldest: '0.1.7' },
  ])
})

const CONTRACT = `-- oldest server: 0.2\n-- phase: contract\nalter table first drop column id;`
const contracting = () => folderOf({ ...FIRST, '0002_less.sql': CONTRACT, '0003_more.sql': headed('0.1') })

test('what takes something away waits for the operator, but not on a new database', async () => {
  await migrate(sql, { folder: folderOf(FIRST) })
  const folder = contracting()
  expect(await migrate(sql, { folder })).toEqual({ applied: ['0003_more.sql'] })
  expect(await migrate(sql, { folder })).toEqual({ applied: [] })
  expect(await planMigrations(sql, { folder })).toEqual([
    {
      name: '0002_less.sql',
      phase: 'contract',
      transaction: 'one',
      oldestServer: '0.2',
      locks: [{ table: 'first', mode: 'access exclusive' }],
    },
  ])
  expect(await migrate(sql, { folder, isContract: true })).toEqual({ applied: ['0002_less.sql'] })

  await sql`drop schema public cascade`
  await sql`create schema public`
  expect((await migrate(sql, { folder })).applied).toHaveLength(3)
})

test('nothing is taken away while a server that needs it was seen within a minute', async () => {
  await migrate(sql, { folder: folderOf(FIRST) })
  await joinServers(sql, 'node_old', { folder: folderOf(FIRST), version: '0.1.9' })
  await joinServers(sql, 'node_new', { folder: folderOf(FIRST), version: '0.2.0' })
  const folder = contracting()
  const taking = () => migrate(sql, { folder, version: '0.2.0', isContract: true })
  expect(taking()).rejects.toThrow(
    /^migration 0002_less.sql needs servers of version 0\.2 or newer, and older ones were seen within a minute: .+ \(node_old, version 0\.1\.9\); stop or upgrade them first$/,
  )
  await sql`update servers set seen_at = seen_at - 61000 where node_id = 'node_old'`
  expect((await taking()).applied).toEqual(['0002_less.sql', '0003_more.sql'])
  // Its row was old, but it runs: its next start is refused.
  expect(joinServers(sql, 'node_old', { folder: folderOf(FIRST), version: '0.1.9' })).rejects.toThrow(
    'since migration 0002_less.sql it needs version 0.2 or newer',
  )
})

test('a server has one row, which goes with its stop, or two minutes after a kill', async () => {
  await migrate(sql, { folder: folderOf(FIRST) })
  const folder = folderOf(FIRST)
  for (const node of ['node_1', 'node_1', 'node_killed', 'node_quiet'])
    await joinServers(sql, node, { folder })
  await sql`update servers set seen_at = seen_at - 121000 where node_id = 'node_killed'`
  await sql`update servers set seen_at = seen_at - 100000 where node_id <> 'node_killed'`
  const nodes = async () =>
    (await sql<{ node: string }[]>`select node_id as node from servers order by 1`).map(({ node }) => node)
  let beat = () => {}
  const timers = {
    now: () => 0,
    soon: (run: () => void) => run(),
    after: () => () => {},
    every: (_ms: number, run: () => void) => {
      beat = run
      return () => {}
    },
  }
  const presence = new Presence(sql, 'node_1', timers)
  presence.start()
  expect(await nodes()).toEqual(['node_1', 'node_killed', 'node_quiet'])
  beat()
  while ((await nodes()).includes('node_killed')) await Bun.sleep(5)
  expect(await nodes()).toEqual(['node_1', 'node_quiet'])
  await presence.stop()
  expect(await nodes()).toEqual(['node_quiet'])
})

test('the plan of an empty database is everything, and makes nothing', async () => {
  const folder = contracting()
  expect((await planMigrations(sql, { folder })).map(({ name }) => name)).toEqual([
    '0001_first.sql',
    '0002_less.sql',
    '0003_more.sql',
  ])
  expect(await sql`select to_regclass('tollgate_migrations') as made`).toMatchObject([{ made: null }])
})

test('statements are told apart whatever stands in texts, bodies and comments', () => {
  expect(
    statementsOf(`-- a; b
      insert into a values ('it''s;  -- x', "q;");/* ; */ select 1 - 1;
      create function f() as $body$ begin; $$ end; $body$ ; do $$ ;; $$`),
  ).toEqual([
    `insert into a values ('it''s;  -- x', "q;")`,
    'select 1 - 1',
    'create function f() as $body$ begin; $$ end; $body$',
    'do $$ ;; $$',
  ])
})

test('the locks of a file are those on tables of before', () => {
  const text = `create table made (id int references keys); create index on made (id);
    create index keys_by_a on keys (a); create index concurrently apis_by_a on apis (a);
    alter table only roles add column a int; create trigger a after insert on keys execute function f();
    with a as (select 1) update settings set value = 1; delete from sweeps; insert into made values (1)`
  expect(locksOf(text).map(({ table, mode }) => `${table}: ${mode}`)).toEqual([
    'keys: share row exclusive',
    'keys: share',
    'apis: share update exclusive',
    'roles: access exclusive',
    'settings: row exclusive',
    'sweeps: row exclusive',
  ])
})

test('versions are compared by their numbers', () => {
  expect(isOlder('0.9', '0.10')).toBe(true)
  expect(isOlder('0.10', '0.9')).toBe(false)
  expect(isOlder('0.1', '0.1.0')).toBe(false)
  expect(isOlder('0.1.0', '0.1.1')).toBe(true)
  expect(isOlder('1.0.0-rc.1', '1.0')).toBe(false)
})

/** The embedded database runs one transaction at a time: nobody queues there. */
const onPostgres = test.skipIf(TEST_DATABASE_URL === null)

/** A connection of its own, in a transaction. */
async function openTransaction(): Promise<Sql> {
  const alone = connect(database.address, { connectionsMax: 1 })
  alones.push(alone)
  await alone.unsafe('begin')
  return alone
}
const alones: Sql[] = []
afterEach(async () => {
  await Promise.all(alones.splice(0).map((alone) => alone.end({ timeout: 0 })))
})

onPostgres(
  'a migration behind a long transaction lets others pass, and is applied when that ends',
  async () => {
    await migrate(sql, { folder: folderOf(FIRST) })
    const folder = folderOf({
      ...FIRST,
      '0002_more.sql': headed('0.1', 'alter table first add column a int;'),
    })
    const dump = await openTransaction()
    await dump`select from first` // as pg_dump does
    const migrating = migrate(database.anotherPool(), { folder })
    // Each of these waits for one attempt of the migration at most.
    let slowestMs = 0
    for (let call = 0; call < 20; call++) {
      const beganAt = performance.now()
      await sql`insert into first (id) values (${call})`
      slowestMs = Math.max(slowestMs, performance.now() - beganAt)
      await Bun.sleep(100)
    }
    expect(slowestMs).toBeGreaterThan(100) // it did queue behind an attempt
    expect(slowestMs).toBeLessThan(1_500)
    await dump.unsafe('commit')
    expect(await migrating).toEqual({ applied: ['0002_more.sql'] })
  },
)

onPostgres('a migration that gets no lock changes nothing, and names who holds it', async () => {
  await migrate(sql, { folder: folderOf(FIRST) })
  const folder = folderOf({ ...FIRST, '0002_more.sql': headed('0.1', 'alter table first add column a int;') })
  const dump = await openTransaction()
  await dump`select from first`
  const [own] = await dump<{ pid: number }[]>`select pg_backend_pid() as pid`
  expect(migrate(sql, { folder, lockWaitMs: 500 })).rejects.toThrow(
    new RegExp(
      `^migration 0002_more\\.sql found its tables locked .* changed nothing \\(the longest transaction is that of process ${own?.pid}, tollgate, \\d+ s\\); start again when it has ended$`,
    ),
  )
  await migrate(sql, { folder, lockWaitMs: 500 }).catch(() => {})
  await dump.unsafe('rollback')
  expect(await sql`select from tollgate_migrations`).toHaveLength(1)
})

const BUILD = `-- oldest server: 0.1
-- transaction: none
create unique index concurrently first_by_id on first (id);`

onPostgres('an index that a break left half-made is dropped and built again', async () => {
  await migrate(sql, { folder: folderOf(FIRST) })
  await sql`insert into first values (1), (1)`
  const folder = folderOf({ ...FIRST, '0002_first_by_id.sql': BUILD })
  expect(migrate(sql, { folder })).rejects.toThrow('migration 0002_first_by_id.sql failed')
  await migrate(sql, { folder }).catch(() => {})
  const index = () =>
    sql`select indisvalid as valid from pg_index where indexrelid = to_regclass('first_by_id')`
  expect(await index()).toMatchObject([{ valid: false }])
  await sql`delete from first`
  expect(await migrate(sql, { folder })).toEqual({ applied: ['0002_first_by_id.sql'] })
  expect(await index()).toMatchObject([{ valid: true }])
})

onPostgres('of several starts one builds an index, and all end when it is there', async () => {
  await migrate(sql, { folder: folderOf(FIRST) })
  await sql`insert into first select generate_series(1, 200000)`
  const folder = folderOf({ ...FIRST, '0002_first_by_id.sql': BUILD })
  const starters = [sql, database.anotherPool(), database.anotherPool()]
  const results = await Promise.all(starters.map((pool) => migrate(pool, { folder })))
  expect(results.flatMap(({ applied }) => applied)).toEqual(['0002_first_by_id.sql'])
  expect(await sql`show lock_timeout`).toMatchObject([{ lock_timeout: '0' }])
})

onPostgres('a build whose name is another thing is refused instead of tried for ever', async () => {
  await migrate(sql, { folder: folderOf(FIRST) })
  await sql`create table first_by_id (id int)`
  expect(migrate(sql, { folder: folderOf({ ...FIRST, '0002_first_by_id.sql': BUILD }) })).rejects.toThrow(
    'migration 0002_first_by_id.sql cannot build first_by_id: something else has that name',
  )
})

onPostgres('a backfill that was killed goes on where it was', async () => {
  await migrate(sql, { folder: folderOf(FIRST) })
  await sql`insert into first select generate_series(1, 100)`
  const text =
    'update first set id = -id where id in (select id from first where id > 0 order by id limit 10);'
  const folder = folderOf({
    ...FIRST,
    '0002_turn.sql': `-- oldest server: 0.1\n-- transaction: batches\n${text}`,
  })
  // A row that a transaction holds stops it half way.
  const holder = await openTransaction()
  await holder`update first set id = 55 where id = 55`
  expect(migrate(sql, { folder, lockWaitMs: 500 })).rejects.toThrow('0002_turn.sql found its tables locked')
  await migrate(sql, { folder, lockWaitMs: 500 }).catch(() => {})
  expect(await sql`select from first where id < 0`).toHaveLength(50)
  await holder.unsafe('rollback')
  expect(await migrate(sql, { folder })).toEqual({ applied: ['0002_turn.sql'] })
  expect(await sql`select from first where id < 0`).toHaveLength(100)
})
