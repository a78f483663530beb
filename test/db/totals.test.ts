import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { cpSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { totalOf } from '../../src/db/lists.ts'
import { migrate } from '../../src/db/migrate.ts'
import { openTestSql, type TestSql } from '../support/database.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const SQL = join(import.meta.dir, '../../sql')
const scratch = mkdtempSync(join(tmpdir(), 'tollgate-totals-'))
let database: TestSql
beforeAll(async () => {
  database = await openTestSql()
  const { sql } = database
  await sql`insert into workspaces (id, name, created_at) values ('ws_1', 'one', 0)`
})
afterAll(async () => {
  await database[Symbol.asyncDispose]()
  rmSync(scratch, { recursive: true })
})

let made = 0
/** @returns the id of a new keyspace. */
async function newKeyspace() {
  const id = `ks_${++made}`
  await database.sql`insert into keyspaces (id, workspace_id, created_at) values (${id}, 'ws_1', 0)`
  return id
}
const insertKeys = (keyspaceIds: readonly string[], rows: number, sql = database.sql) => {
  made += rows
  return sql`
    insert into keys (id, workspace_id, keyspace_id, hash, start, created_at)
    select 'key_' || n || k, 'ws_1', k, 'hash ' || n || k, '', 0
      from generate_series(${made - rows}::integer, ${made - 1}::integer) as n, unnest(${keyspaceIds as string[]}::text[]) as k`
}
const keysOf = (keyspaceId: string) => totalOf(database.sql, 'ws_1', `keys/${keyspaceId}`)

/** Statements of this release and of the one before: whatever makes or deletes a key, the total follows at once. */
test('the keys of a keyspace are counted, whichever statement makes or deletes them', async () => {
  const { sql } = database
  const [one, other] = [await newKeyspace(), await newKeyspace()]
  const totals = async () => [await keysOf(one), await keysOf(other)]
  await insertKeys([one, other], 100)
  expect(await totals()).toEqual([100, 100])
  await sql`update keys set remaining = 5, name = 'renamed' where keyspace_id = ${one}`
  expect(await totals()).toEqual([100, 100])
  await sql`update keys set deleted_at = 1 where id = (select min(id) from keys where keyspace_id = ${one})`
  expect(await totals()).toEqual([99, 100])
  await sql`update keys set deleted_at = 2 where keyspace_id = ${one} and deleted_at is not null` // again: it is gone already
  expect(await totals()).toEqual([99, 100])
  // Rows of both, in turn.
  await sql`
    update keys set deleted_at = 1
     where id in (select id from keys where keyspace_id in (${one}, ${other}) and deleted_at is null order by id limit 60)`
  const left = await totals()
  expect(left.reduce((sum, total) => sum + total)).toBe(139)
  expect(left).toEqual(await Promise.all([one, other].map((id) => countLive(id))))
  await sql`delete from keys where keyspace_id = ${other}`
  expect(await totals()).toEqual([left[0] ?? 0, 0])
  await sql`update keys set deleted_at = null where keyspace_id = ${one}`
  expect(await totals()).toEqual([100, 0])
})
const countLive = async (keyspaceId: string) => {
  const rows = await database.sql`select 1 from keys where keyspace_id = ${keyspaceId} and deleted_at is null`
  return rows.length
}

test('what was rolled back does not count', async () => {
  const { sql } = database
  const keyspaceId = await newKeyspace()
  await insertKeys([keyspaceId], 10)
  await sql
    .begin(async (tx) => {
      await insertKeys([keyspaceId], 5, tx as never) // runs statements as the pool does
      await tx`update keys set deleted_at = 1 where keyspace_id = ${keyspaceId}`
      throw new Error('given up')
    })
    .catch(() => {})
  await sql.begin(async (tx) => {
    await tx
      .savepoint(async (inner) => {
        await inner`update keys set deleted_at = 1 where keyspace_id = ${keyspaceId}`
        throw new Error('given up')
      })
      .catch(() => {})
    await tx`
      update keys set deleted_at = 1 where id = (select min(id) from keys where keyspace_id = ${keyspaceId})`
  })
  expect(await keysOf(keyspaceId)).toBe(9)
})

test('root keys count in no keyspace', async () => {
  const { sql } = database
  await sql`
    insert into keys (id, workspace_id, keyspace_id, hash, start, for_workspace_id, created_at)
    values ('root_1', 'ws_root', 'ks_root', 'root hash', '', 'ws_1', 0)`
  await sql`update keys set deleted_at = 1 where id = 'root_1'`
  expect(await sql`select 1 from workspace_counts where name = 'keys/ks_root'`).toHaveLength(0)
})

/** A total adds up what deletions left behind: it would cost the more the more were deleted one by one. */
test('a thousand single deletions leave few rows behind', async () => {
  const { sql } = database
  const keyspaceId = await newKeyspace()
  await insertKeys([keyspaceId], 1_000)
  const rows = await sql<{ id: string }[]>`select id from keys where keyspace_id = ${keyspaceId}`
  for (const { id } of rows) await sql`update keys set deleted_at = 1 where id = ${id}`
  expect(await keysOf(keyspaceId)).toBe(0)
  const left = await sql`select 1 from workspace_returns where name = ${`keys/${keyspaceId}`}`
  expect(left.length).toBeLessThan(900) // a thousand with a chance of one in a million
})

/** Each connection adds to a part of its own, and deletions merge each other's rows. */
test('connections that create and delete keys of one keyspace at once lose none', async () => {
  const keyspaceId = await newKeyspace()
  const pools = Array.from({ length: 4 }, () => database.anotherPool())
  await Promise.all(
    pools.flatMap((sql, pool) =>
      [0, 1].map(async (half) => {
        for (let at = 0; at < 60; at++) {
          const id = `key_${pool}_${half}_${at}`
          await sql`
            insert into keys (id, workspace_id, keyspace_id, hash, start, created_at) values (${id}, 'ws_1', ${keyspaceId}, ${id}, '', 0)`
          if (at % 3 > 0) await sql`update keys set deleted_at = 1 where id = ${id}`
        }
      }),
    ),
  )
  expect(await keysOf(keyspaceId)).toBe(160)
  expect(await countLive(keyspaceId)).toBe(160)
})

test('the overrides of a namespace are counted, deleted and restored', async () => {
  const { sql } = database
  await sql`insert into ratelimit_namespaces (id, workspace_id, name, created_at) values ('rlns_1', 'ws_1', 'one', 0)`
  const total = () => totalOf(sql, 'ws_1', 'overrides/rlns_1')
  await sql`
    insert into ratelimit_overrides (id, workspace_id, namespace_id, identifier, "limit", duration_ms, created_at)
    select 'rlor_' || n, 'ws_1', 'rlns_1', 'visitor ' || n, 1, 1000, 0 from generate_series(1, 10) as n`
  expect(await total()).toBe(10)
  await sql`update ratelimit_overrides set deleted_at = 1 where id <= 'rlor_3'`
  expect(await total()).toBe(10 - 4) // 1, 10, 2, 3
  await sql`update ratelimit_overrides set deleted_at = null, "limit" = 2 where id = 'rlor_1'`
  expect(await total()).toBe(7)
  await sql`delete from ratelimit_overrides where id = 'rlor_1'`
  expect(await total()).toBe(6)
})

test('what is removed for good leaves no count behind', async () => {
  const { sql } = database
  const keyspaceId = await newKeyspace()
  await insertKeys([keyspaceId], 3)
  await sql`delete from keys where keyspace_id = ${keyspaceId}`
  await sql`delete from keyspaces where id = ${keyspaceId}`
  const name = `keys/${keyspaceId}`
  expect(
    await sql`select 1 from workspace_counts where name = ${name} union all select 1 from workspace_returns where name = ${name}`,
  ).toHaveLength(0)
})

/** Servers of the release before go on while the files are applied one after the other. */
test('rows from before the upgrade count, also those that change while it is under way', async () => {
  const { sql } = database
  await sql`drop schema public cascade`
  await sql`create schema public`
  const copyUpTo = (last: string) => {
    for (const file of readdirSync(SQL)) if (file <= last) cpSync(join(SQL, file), join(scratch, file))
  }
  copyUpTo('0020')
  await migrate(sql, { folder: scratch })
  await sql`insert into workspaces (id, name, created_at) values ('ws_1', 'one', 0)`
  const [one, other] = [await newKeyspace(), await newKeyspace()]
  await insertKeys([one, other], 10)
  await sql`update keys set deleted_at = 1 where id in (select id from keys where keyspace_id = ${one} limit 2)`
  copyUpTo('0022')
  await migrate(sql, { folder: scratch })
  await insertKeys([one], 5)
  await sql`update keys set deleted_at = 1 where keyspace_id = ${other}`
  await migrate(sql)
  expect([await keysOf(one), await keysOf(other)]).toEqual([13, 0])
  await insertKeys([one, other], 1)
  expect([await keysOf(one), await keysOf(other)]).toEqual([14, 1])
})
