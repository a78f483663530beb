import { expect, setDefaultTimeout, test } from 'bun:test'
import { vacuumDue } from '../../../src/db/embedded/housekeeping.ts'
import { openTestSql } from '../../support/database.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS) // real threads, processes and databases

/** Nothing else does this for the embedded database: its files would grow without end. */
test('dead rows are vacuumed, tables analyzed, and a long write-ahead log checkpointed', async () => {
  await using database = await openTestSql()
  const { sql } = database
  await vacuumDue(sql, { logBytesMax: 0 })
  await sql`create table busy (id int primary key, hits int not null)`
  await sql`insert into busy select n, 0 from generate_series(1, 1000) n`
  await sql`update busy set hits = hits + 1`
  await sql`select pg_stat_force_next_flush()` // otherwise statistics are written once a second

  const { vacuumed, checkpointed } = await vacuumDue(sql, { logBytesMax: 1000 })
  expect(vacuumed).toContain('public.busy')
  expect(vacuumed).not.toContain('public.workspaces') // nothing has happened there
  expect(checkpointed).toBeTrue()
  const [table] = await sql`select reltuples::int as rows from pg_class where relname = 'busy'`
  expect(table?.rows).toBe(1000)
  const [size] = await sql`select n_dead_tup as dead from pg_stat_all_tables where relname = 'busy'`
  expect(size?.dead).toBe(0)

  expect(await vacuumDue(sql, { logBytesMax: 100_000_000 })).toMatchObject({ checkpointed: false })
})
