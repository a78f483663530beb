import { afterAll, beforeAll, beforeEach, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Sql } from '../../src/db/connect.ts'
import { migrate } from '../../src/db/migrate.ts'
import { StartError } from '../../src/errors.ts'
import { openTestSql, TEST_DATABASE_URL, type TestSql } from '../support/database.ts'

setDefaultTimeout(60_000) // real threads, processes and databases

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

const TWO = {
  '0001_first.sql': 'create table first (id int); insert into first values (1);',
  '0002_second.sql': 'create table second (id int);',
}

test('files run once, in order, and never again', async () => {
  const folder = folderOf(TWO)
  expect(await migrate(sql, { folder })).toEqual({ applied: ['0001_first.sql', '0002_second.sql'] })
  expect(await migrate(sql, { folder })).toEqual({ applied: [] })
  writeFileSync(join(folder, '0003_third.sql'), 'insert into first values (2)')
  expect(await migrate(sql, { folder })).toEqual({ applied: ['0003_third.sql'] })
  expect(await sql`select id from first order by id`).toMatchObject([{ id: 1 }, { id: 2 }])
})

test('the files of this version apply to an empty database once, and a second run applies none', async () => {
  expect((await migrate(sql)).applied.length).toBeGreaterThan(0)
  expect((await migrate(sql)).applied).toEqual([])
})

/** Bug: a batch of usage locked one table and waited for the other, and the migration the other way round. The embedded database runs one transaction at a time. */
test.skipIf(TEST_DATABASE_URL === null)(
  'a migration lets a batch of usage end before it locks a table',
  async () => {
    const files = { '0001_tables.sql': 'create table first (id int); create table second (id int);' }
    await migrate(sql, { folder: folderOf(files) })
    const changed = {
      ...files,
      '0002_indexes.sql': 'create index on second (id); create index on first (id);',
    }
    const { migrated } = await database.anotherPool().begin(async (tx) => {
      await tx`select pg_advisory_xact_lock_shared(8317504812)`
      await tx`insert into first values (1)`
      const migrated = migrate(sql, { folder: folderOf(changed) })
      for (let isWaiting = false; !isWaiting; await Bun.sleep(5)) {
        await tx`select pg_stat_clear_snapshot()`
        const rows =
          await tx`select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
        isWaiting = rows.length > 0
      }
      await tx`insert into second values (1)`
      return { migrated } // wrapped, so that it is not awaited here: it ends only after this transaction
    })
    expect(await migrated).toEqual({ applied: ['0002_indexes.sql'] })
  },
)

/** During a rolling deployment several servers start on one database. */
test('two concurrent runs on two pools share the work, and each file is applied by one of them', async () => {
  const files = Object.fromEntries(
    Array.from({ length: 9 }, (_, i) => [`000${i + 1}_table.sql`, `create table table_${i} (id int)`]),
  )
  const folder = folderOf(files)
  const starters = [sql, database.anotherPool(), database.anotherPool()]
  const results = await Promise.all(starters.map((pool) => migrate(pool, { folder })))
  expect(results.flatMap((result) => result.applied).sort()).toEqual(Object.keys(files))
})

/** With half a migration neither the old version works nor the new one starts. */
test('a failing file is an error that names it, and none of its changes stay', async () => {
  const folder = folderOf({ ...TWO, '0003_bad.sql': 'create table third (id int); select no_such_column;' })
  const failing = migrate(sql, { folder })
  expect(failing).rejects.toBeInstanceOf(StartError)
  expect(failing).rejects.toThrow(
    'migration 0003_bad.sql failed and was rolled back: column "no_such_column"',
  )
  await failing.catch(() => {})
  expect((await sql`select to_regclass('third') as third`)[0]?.third).toBeNull()
  expect(await sql`select number from tollgate_migrations order by number`).toMatchObject([
    { number: 1 },
    { number: 2 },
  ])

  writeFileSync(join(folder, '0003_bad.sql'), 'create table third (id int)')
  expect(await migrate(sql, { folder })).toEqual({ applied: ['0003_bad.sql'] })
})

test('an applied file that was edited is an error that names it', async () => {
  const folder = folderOf(TWO)
  await migrate(sql, { folder })
  writeFileSync(join(folder, '0001_first.sql'), 'create table first (id bigint)')
  expect(migrate(sql, { folder })).rejects.toThrow(
    'migration 0001_first.sql differs from the migration that was applied',
  )
})

/** Builds beside traffic and backfills in parts are for a real Postgres; the embedded database takes the same files. */
test('an index is built outside a transaction, and a batch is repeated until it changes nothing', async () => {
  const folder = folderOf({
    '0001_rows.sql': 'create table rows (id int, twice int); insert into rows select generate_series(1, 25);',
    '0002_rows_by_id.sql': `-- oldest server: 0.1
-- transaction: none
-- Found by id.
create index concurrently rows_by_id on rows (id);`,
    '0003_twice.sql': `-- oldest server: 0.1
-- transaction: batches
update rows set twice = 2 * id where id in (select id from rows where twice is null order by id limit 10);`,
  })
  const applied = ['0001_rows.sql', '0002_rows_by_id.sql', '0003_twice.sql']
  expect(await migrate(sql, { folder })).toEqual({ applied })
  expect(await sql`select indisvalid from pg_index where indexrelid = 'rows_by_id'::regclass`).toMatchObject([
    { indisvalid: true },
  ])
  expect(
    await sql`select sum(twice)::integer as sum, count(twice)::integer as count from rows`,
  ).toMatchObject([{ sum: 650, count: 25 }])
  expect(await migrate(sql, { folder })).toEqual({ applied: [] })
})

test('a first line that means nothing, and files that cannot run as they say, are refused by name', async () => {
  for (const [text, problem] of [
    [
      '-- oldest server: soon',
      '0001_first.sql begins with a line that means nothing: -- oldest server: soon',
    ],
    ['-- phase: contrakt', '0001_first.sql begins with a line that means nothing: -- phase: contrakt'],
    [
      '-- transaction: none\nselect 1',
      '0001_first.sql without a transaction is not one create index concurrently',
    ],
    ['-- transaction: batches\nselect 1; select 2', '0001_first.sql in batches is not one statement'],
  ] as const)
    expect(migrate(sql, { folder: folderOf({ '0001_first.sql': text }) })).rejects.toThrow(problem)
})

test('two files with one number are an error that names one of them', async () => {
  const folder = folderOf({ '0001_first.sql': '', '0001_second.sql': '' })
  expect(migrate(sql, { folder })).rejects.toThrow('0001_second.sql needs a unique number')
})
