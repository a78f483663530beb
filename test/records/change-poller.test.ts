import { expect, setDefaultTimeout, test } from 'bun:test'
import { connect } from '../../src/db/connect.ts'
import { databaseIdOnce } from '../../src/db/settings.ts'
import type { Timers } from '../../src/lib/timers.ts'
import { ChangePoller, deleteOldNotices } from '../../src/records/change-poller.ts'
import { Invalidations } from '../../src/records/invalidations.ts'
import { openTestSql, TEST_DATABASE_URL } from '../support/database.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

/** A poller that polls only when the test says so. */
async function openPolling() {
  await using opening = new AsyncDisposableStack()
  const database = opening.use(await openTestSql())
  let nowMs = 0
  const timers: Timers = {
    now: () => nowMs,
    after: () => () => {},
    every: () => () => {},
    soon: (run) => void setImmediate(run),
  }
  const drops: string[] = []
  const here = new Invalidations({ processId: 'here', confirmTimeoutMs: 1_000, timers })
  here.onChange((touched) => drops.push(...(touched ?? ['everything'])))
  const there = new Invalidations({ processId: 'there', confirmTimeoutMs: 1_000, timers })
  const databaseId = await databaseIdOnce(database.sql)
  const poller = new ChangePoller(here, { ...database.address, databaseId }, { timers })
  opening.defer(() => poller.stop())
  const opened = opening.move()
  return {
    sql: database.sql,
    address: database.address,
    poller,
    drops,
    here,
    there,
    pass: (ms: number) => {
      nowMs += ms
    },
    /** Everything dropped since the last call. */
    taken: () => drops.splice(0),
    /** Polls until writes from before the poller's registration are over, whatever else runs on this Postgres. */
    settled: async () => {
      do {
        drops.length = 0
        await poller.poll()
      } while (drops.length > 0)
    },
    [Symbol.asyncDispose]: () => opened.disposeAsync(),
  }
}

test.skipIf(TEST_DATABASE_URL === null)(
  'a change of another server is heard once, by the next poll, and an own confirmed change is not',
  async () => {
    await using polling = await openPolling()
    const { poller, taken, there, here, sql } = polling
    await poller.start()
    expect(taken()).toEqual(['everything'])
    await polling.settled()
    await sql.begin((tx) => there.notify(tx, ['key_1', 'key_2'], 1))
    await poller.poll()
    expect(taken()).toEqual(['key_1', 'key_2'])
    await poller.poll()
    expect(taken()).toEqual([])
    await sql.begin((tx) => here.notify(tx, ['key_3'], 2))
    await here.broadcastAndWait(['key_3'], 2)
    await poller.poll()
    expect(taken()).toEqual(['key_3'])
  },
)

/** A row gets its number when it is inserted, and is visible when it commits: a lower number may appear later. */
test.skipIf(TEST_DATABASE_URL === null)(
  'a change that commits after a later one is heard, and one that is rolled back is not',
  async () => {
    await using polling = await openPolling()
    const { poller, taken, there, sql, address } = polling
    await poller.start()
    await polling.settled()
    const slow = connect(address, { connectionsMax: 1 })
    await slow.unsafe('begin')
    await there.notify(slow, ['slow'], 1)
    await sql.begin((tx) => there.notify(tx, ['quick'], 2))
    await poller.poll()
    await poller.poll()
    expect(taken()).toEqual(['quick'])
    await slow.unsafe('commit')
    await sql
      .begin((tx) => there.notify(tx, ['undone'], 3).then(() => Promise.reject(new Error('no'))))
      .catch(() => {})
    await poller.poll()
    await poller.poll()
    expect(taken()).toEqual(['slow'])
    await slow.end()
  },
)

test.skipIf(TEST_DATABASE_URL === null)(
  'while writes from before the poller’s registration run, everything counts as changed',
  async () => {
    await using polling = await openPolling()
    const { poller, taken, there, sql, address } = polling
    const early = connect(address, { connectionsMax: 1 })
    await early.unsafe('begin')
    await early`insert into settings (name, value) values ('early', 'write')`
    await there.notify(early, ['early'], 1)
    expect(await sql`select payload from change_notices`).toHaveLength(0) // without pollers no row is inserted
    await poller.start()
    taken()
    await poller.poll()
    expect(taken()).toEqual(['everything'])
    await early.unsafe('commit')
    await poller.poll()
    expect(taken()).toEqual(['everything'])
    await early.end()
  },
)

test.skipIf(TEST_DATABASE_URL === null)(
  'notices are deleted when all servers have read them; after a long silence everything counts as changed',
  async () => {
    await using polling = await openPolling()
    const { poller, taken, there, sql } = polling
    await poller.start()
    await polling.settled()
    await sql.begin((tx) => there.notify(tx, ['key_1'], 1))
    await sql`update change_notices set at = at - 700000`
    await poller.poll()
    expect(taken()).toEqual(['key_1'])
    polling.pass(61_000)
    await poller.poll()
    expect(await sql`select payload from change_notices`).toHaveLength(0)
    expect(taken()).toEqual([])
    polling.pass(301_000)
    await poller.poll()
    expect(taken()).toEqual(['everything'])
    // No poller has registered for long.
    await sql`update change_polling set polled_at = polled_at - 700000`
    await sql.begin((tx) => there.notify(tx, ['key_2'], 2))
    expect(await sql`select payload from change_notices`).toHaveLength(0)
  },
)

test.skipIf(TEST_DATABASE_URL === null)('another database at the same address drops nothing', async () => {
  await using polling = await openPolling()
  const { poller, taken, sql } = polling
  await poller.start()
  await polling.settled()
  await sql`update settings set value = 'another' where name = 'database_id'`
  expect(await poller.poll().catch((cause: Error) => cause.message)).toContain('another database answers')
  expect(taken()).toEqual([])
})

/** The last polling server may be gone, and it was the one to delete them. */
test.skipIf(TEST_DATABASE_URL === null)(
  'a start deletes notices that no server reads any more, and no others',
  async () => {
    await using polling = await openPolling()
    const { sql } = polling
    await sql`
    insert into change_notices (at, payload)
    select floor(extract(epoch from clock_timestamp()) * 1000) - ago, name from (values (700000, 'old'), (1000, 'new')) v (ago, name)`
    await deleteOldNotices(sql)
    expect(await sql`select payload from change_notices`).toMatchObject([{ payload: 'new' }])
  },
)
