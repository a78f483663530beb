import { expect, setDefaultTimeout, test } from 'bun:test'
import { type AnySql, connect } from '../../src/db/connect.ts'
import { findKeysByHash } from '../../src/verify/store.ts'
import { openTestSql } from '../support/database.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

/** Bug: with few limits it read those of all keys, and in a database without statistics it continued to. */
test('the limits of a key and of its identity are found without reading those of other keys', async () => {
  await using database = await openTestSql()
  const sql = connect(database.address, { connectionsMax: 1 })
  await makeKeysWithLimits(sql, 100)
  const row = await sql.begin(async (tx) => {
    for (let i = 0; i < 10; i++) {
      const { found } = await findKeysByHash(tx, ['hash 100'])
      expect(found.get('hash 100')?.limits).toMatchObject([
        { name: 'of the key', ownerId: 'key_100' },
        { name: 'of the identity', ownerId: 'id_100' },
      ])
    }
    // What the transaction did so far. Postgres 14 cannot be asked to add it to the other statistics at once.
    const [counts] = await tx<{ read: number }[]>`
      select seq_tup_read as read from pg_stat_xact_user_tables where relname = 'ratelimits'`
    return counts
  })
  expect(row).toEqual({ read: 0 })
  await sql.end({ timeout: 1 })
})

test('a limit of the key hides its identity’s of the same name from counting, not from the identity’s list', async () => {
  await using database = await openTestSql()
  const sql = connect(database.address, { connectionsMax: 1 })
  await makeKeysWithLimits(sql, 2)
  await sql`
    insert into ratelimits (id, workspace_id, name, identity_id, "limit", duration_ms, auto_apply, created_at)
    values ('rl_3', 'ws_1', 'of the key', 'id_100', 5, 2000, true, 0)`
  const { found } = await findKeysByHash(sql, ['hash 100', 'hash 101'])
  const ofKey = { id: 'rl_1_100', name: 'of the key', limit: 1, durationMs: 1000, autoApply: false }
  const ofIdentity = { ...ofKey, id: 'rl_2_100', name: 'of the identity', ownerId: 'id_100' }
  const hidden = {
    ...ofIdentity,
    id: 'rl_3',
    name: 'of the key',
    limit: 5,
    durationMs: 2000,
    autoApply: true,
  }
  const record = found.get('hash 100')
  expect(record?.limits).toEqual([{ ...ofKey, ownerId: 'key_100' }, ofIdentity])
  expect(record?.identityLimits).toEqual([ofIdentity, hidden])
  expect(found.get('hash 101')?.identityLimits).toMatchObject([{ id: 'rl_2_101', ownerId: 'id_101' }])
  await sql.end({ timeout: 1 })
})

/** Keys with an identity each, which has a limit too. */
async function makeKeysWithLimits(sql: AnySql, count: number): Promise<void> {
  await sql`insert into workspaces (id, name, created_at) values ('ws_1', 'one', 0)`
  await sql`insert into keyspaces (id, workspace_id, created_at) values ('ks_1', 'ws_1', 0)`
  await sql`insert into apis (id, workspace_id, name, keyspace_id, created_at) values ('api_1', 'ws_1', 'one', 'ks_1', 0)`
  await sql`
    insert into identities (id, workspace_id, external_id, created_at)
    select 'id_' || number, 'ws_1', 'customer ' || number, 0 from generate_series(100, 99 + ${count}::integer) as number`
  await sql`
    insert into keys (id, workspace_id, keyspace_id, hash, start, identity_id, created_at)
    select 'key_' || number, 'ws_1', 'ks_1', 'hash ' || number, '', 'id_' || number, 0
      from generate_series(100, 99 + ${count}::integer) as number`
  await sql`
    insert into ratelimits (id, workspace_id, name, key_id, identity_id, "limit", duration_ms, created_at)
    select 'rl_1_' || number, 'ws_1', 'of the key', 'key_' || number, null::text, 1, 1000, 0
      from generate_series(100, 99 + ${count}::integer) as number
     union all
    select 'rl_2_' || number, 'ws_1', 'of the identity', null, 'id_' || number, 1, 1000, 0
      from generate_series(100, 99 + ${count}::integer) as number`
}
