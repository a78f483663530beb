import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { countVerifications, type VerificationGroups } from '../../../src/api/analytics/store.ts'
import { DAY_MS, HOUR_MS } from '../../../src/lib/clock.ts'
import type { WorkspaceId } from '../../../src/lib/ids.ts'
import { makeMonth } from '../../../src/usage/rollup.ts'
import { openTestSql, type TestSql } from '../../support/database.ts'
import { explaining } from '../../support/plan.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const MONTHS = [Date.UTC(2026, 9), Date.UTC(2026, 10)]
/** Tag sets of another API of the workspace in each month: one for each request, as a tag with a request id makes them. */
const FOREIGN_SETS = 20_000

const filter = {
  workspaceId: 'ws_1' as WorkspaceId, // only the statement is tested, without an actor
  keyspaceIds: ['ks_asked'],
  identityId: null,
  keyIds: [],
  tags: [],
  from: MONTHS[0] ?? 0,
  to: Date.UTC(2026, 11),
  made: { days: { before: 0, adding: null }, months: { before: 0, adding: null } },
}
const groups: VerificationGroups = { time: null, key: false, identity: false, tags: 'set' }

let database: TestSql
beforeAll(async () => {
  database = await openTestSql()
  const { sql } = database
  for (const month of MONTHS) {
    await makeMonth(sql, month)
    await sql`
      insert into usage_tag_sets (month, workspace_id, id, tags)
      select ${month}::bigint, 'ws_1', sha256(number::text::bytea), array[number::text]
        from generate_series(1, ${FOREIGN_SETS}) as number`
    await sql`
      insert into usage_tag_sets (month, workspace_id, id, tags)
      select ${month}::bigint, 'ws_1', sha256(tags::text::bytea), tags
        from (values (array['a', 'b']), (array['b'])) as used (tags)`
    // Ten days with both sets, and as many hours without tags.
    await sql`
      insert into usage_verifications
             (hour, valid, rate_limited, expired, disabled, forbidden, usage_exceeded, insufficient_permissions,
              workspace_id, keyspace_id, key_id, identity_id, tag_set)
      select ${month}::bigint + day * ${DAY_MS}::bigint + ${HOUR_MS}::bigint, 1, 0, 0, 0, 0, 0, 0,
             'ws_1', 'ks_asked', 'key_1', '', tag_set
        from generate_series(0, 9) as day,
             unnest(array[''::bytea, sha256('{a,b}'::bytea), sha256('{b}'::bytea)]) as tag_set`
  }
  await sql`analyze`
})
afterAll(() => database[Symbol.asyncDispose]())

/** Bug: usage by tags timed out when another API of the workspace had tags that are used once. */
test('only the tags of counted events are read, however many others the workspace has', async () => {
  for (const tags of ['set', 'each'] as const) {
    for (const time of [null, 'hour', 'month'] as const) {
      const { sql, rowsRead } = explaining(database.sql)
      await countVerifications(sql, filter, { ...groups, tags, time }, null, 1000)
      expect(rowsRead('usage_tag_sets')).toBeWithin(1, 10)
    }
  }
})

test('tags are found whichever month first used them, and untagged events are a group of their own', async () => {
  const count = async (changes: Partial<VerificationGroups>) => {
    const rows = await countVerifications(database.sql, filter, { ...groups, ...changes }, null, 1000)
    return rows.map(({ time, tags, tag, valid }) => [time, changes.tags === 'each' ? tag : tags, valid])
  }
  expect(await count({})).toEqual([
    [0, [], 20],
    [0, ['a', 'b'], 20],
    [0, ['b'], 20],
  ])
  expect(await count({ time: 'month', tags: 'each' })).toEqual(
    MONTHS.flatMap((month) => [
      [month, 'a', 10],
      [month, 'b', 20],
    ]),
  )
})

test('months of a range of centuries are counted as those of a short one', async () => {
  const of = async (range: { from: number; to: number }) => {
    const rows = await countVerifications(
      database.sql,
      { ...filter, ...range },
      { ...groups, tags: null, key: true, time: 'month' },
      null,
      1000,
    )
    return rows.map(({ time, valid }) => [time, valid])
  }
  const expected = MONTHS.map((month) => [month, 30])
  expect(await of(filter)).toEqual(expected)
  expect(await of({ from: 0, to: Date.UTC(2027, 0) })).toEqual(expected)
  expect(await of({ from: 0, to: Date.UTC(9000, 0) })).toEqual(expected)
})
