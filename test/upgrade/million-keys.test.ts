import { expect, setDefaultTimeout, test } from 'bun:test'
import type { Sql } from '../../src/db/connect.ts'
import { migrate } from '../../src/db/migrate.ts'
import { TEST_DATABASE_URL } from '../support/database.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { nextRelease, openBoth } from './both.ts'
import { Load } from './load.ts'

setDefaultTimeout(240_000) // many rows, and real servers

/** A million takes longer than CI has. */
const KEYS = IS_NIGHTLY ? 1_000_000 : 100_000
/** Of those, a backfill changes so many. */
const BACKFILLED = 3_000
/** A call may wait for one try of a lock, a second, and for a slow machine. */
const PATIENCE_MS = 5_000

/** Without the triggers, and with the indexes on all rows made afterwards: in the usual way it would take half a minute. */
async function fill(sql: Sql): Promise<void> {
  await sql.begin(async (tx) => {
    const indexes = await tx<{ name: string; definition: string }[]>`
      select indexrelid::regclass::text as name, pg_get_indexdef(indexrelid) as definition from pg_index
       where indrelid = 'keys'::regclass and not indisunique and indpred is null`
    for (const { name } of indexes) await tx`drop index ${tx(name)}`
    await tx`set local session_replication_role = 'replica'`
    await tx`set local synchronous_commit = off`
    await tx`
      insert into keys (id, workspace_id, keyspace_id, hash, start, created_at)
      select 'key_many' || lpad(i::text, 8, '0'), 'ws_many', 'ks_many', 'hash_many' || lpad(i::text, 8, '0'), 'many', 0
        from generate_series(1, ${KEYS}::integer) as i`
    for (const { definition } of indexes) await tx.unsafe(definition)
  })
  await sql`analyze keys`
}

test.skipIf(TEST_DATABASE_URL === null)(
  `with ${KEYS} keys, migrations take seconds, and no call fails or waits for one of them`,
  async () => {
    await using both = await openBoth()
    const { balancer, start, sql } = both
    await start.old('a')
    const fillingAt = performance.now()
    await fill(sql)
    const filledMs = performance.now() - fillingAt
    const load = await Load.start(balancer)
    await balancer.settle()
    balancer.slowestMs = 0

    const beganAt = performance.now()
    await start.new('b')
    await balancer.settle()
    using next = nextRelease({
      '9003_backfill.sql': `-- oldest server: 0.1
-- transaction: batches
update keys set added_later = 'x'
 where id in (select id from keys where id between 'key_many' and ('key_many' || lpad('${BACKFILLED}', 8, '0'))
                                    and added_later is null order by id limit 500);`,
    })
    await migrate(both.anotherPool(), { folder: next.folder, version: '0.2.0' })
    const tookMs = performance.now() - beganAt
    await balancer.settle()

    expect([balancer.broken, load.wrong]).toEqual([[], []])
    expect(balancer.slowestMs).toBeLessThan(PATIENCE_MS)
    // A migration that walks all keys in batches, or rewrites the table with its indexes, takes several times as long.
    expect(tookMs).toBeLessThan(15_000 + 2 * filledMs)
    expect(await sql`select count(*)::integer as done from keys where added_later = 'x'`).toMatchObject([
      { done: BACKFILLED },
    ])
    expect(
      await sql`select indisvalid from pg_index where indexrelid = 'keys_by_later'::regclass`,
    ).toMatchObject([{ indisvalid: true }])
    await load.stop()
    await Promise.all(balancer.inRotation.map((member) => balancer.stop(member)))
    expect([balancer.broken, await load.audit(sql)]).toEqual([[], []])
  },
)
