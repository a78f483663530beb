import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import {
  bucketsWithVerifications,
  countVerifications,
  dailyCountsOfKeys,
  type VerificationFilter,
  type VerificationGroups,
} from '../../../src/api/analytics/store.ts'
import { bucketOf } from '../../../src/lib/buckets.ts'
import { DAY_MS, HOUR_MS } from '../../../src/lib/clock.ts'
import type { WorkspaceId } from '../../../src/lib/ids.ts'
import { makeMonth } from '../../../src/usage/rollup.ts'
import { openTestSql, TEST_DATABASE_URL, type TestSql } from '../../support/database.ts'
import { explaining } from '../../support/plan.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

/** Rows that questions read: 13 months of half a million hourly rows of one API, six a day of a key. */

const DAYS = 400
const MONTHS = 14
const KEYS = 210
const HOURS = 6
const IDENTITIES = 30
const FIRST = Date.UTC(2025, 9, 1)
const LAST = FIRST + DAYS * DAY_MS
const workspaceId = 'ws_1' as WorkspaceId // statements are tested here, without an actor

const all: VerificationFilter = {
  workspaceId,
  keyspaceIds: ['ks_asked'],
  identityId: null,
  keyIds: [],
  tags: [],
  from: FIRST,
  to: LAST,
  made: { days: { before: LAST, adding: null }, months: { before: LAST, adding: null } },
}
const monthsOnly = { months: MONTHS * KEYS, days: 0, hours: 0 }
const total: VerificationGroups = { time: null, key: false, identity: false, tags: null }

/** Plans of the embedded database are those of a smaller machine, and so many rows take it a minute. */
const postgres = TEST_DATABASE_URL !== null

let database: TestSql
beforeAll(async () => {
  if (!postgres) return
  database = await openTestSql()
  const { sql } = database
  for (let month = 0; month <= 14; month++) await makeMonth(sql, Date.UTC(2025, 9 + month))
  await sql`
    insert into usage_verifications
           (hour, valid, rate_limited, expired, disabled, forbidden, usage_exceeded, insufficient_permissions,
            workspace_id, keyspace_id, key_id, identity_id, tag_set)
    select ${FIRST}::bigint + day * ${DAY_MS}::bigint + (hour * 4 + key % 4) * ${HOUR_MS}::bigint, 1, 0, 0, 0, 0, 0, 0,
           'ws_1', 'ks_asked', 'key_' || key, 'id_' || key % ${IDENTITIES}::integer, ''
      from generate_series(0, ${DAYS - 1}) as day, generate_series(0, ${HOURS - 1}) as hour, generate_series(1, ${KEYS}) as key`
  // What make_usage_days and make_usage_months make; test/usage/days.test.ts compares.
  await sql`
    insert into usage_verification_days
           (workspace_id, keyspace_id, day, key_id, identity_id, tag_set,
            valid, rate_limited, expired, disabled, forbidden, usage_exceeded, insufficient_permissions)
    select workspace_id, keyspace_id, hour - hour % ${DAY_MS}::bigint, key_id, identity_id, tag_set,
           sum(valid), 0, 0, 0, 0, 0, 0
      from usage_verifications group by 1, 2, 3, 4, 5, 6`
  await sql`
    insert into usage_verification_months
           (workspace_id, keyspace_id, month, key_id, identity_id, tag_set,
            valid, rate_limited, expired, disabled, forbidden, usage_exceeded, insufficient_permissions)
    select workspace_id, keyspace_id, usage_month_of(day), key_id, identity_id, tag_set, sum(valid), 0, 0, 0, 0, 0, 0
      from usage_verification_days group by 1, 2, 3, 4, 5, 6`
  await sql`update usage_days_made set made_before = ${LAST}, open_from = ${LAST}`
  await sql`update usage_months_made set made_before = ${LAST}, open_from = ${LAST}`
  await sql`analyze`
}, 120_000)
afterAll(() => database?.[Symbol.asyncDispose]())

/** What the statements for a question read. */
async function readFor(
  changes: Partial<VerificationFilter>,
  groups: Partial<VerificationGroups>,
): Promise<{ hours: number; days: number; months: number; pages: number }> {
  const filter = { ...all, ...changes }
  const { sql, rowsRead, pagesRead } = explaining(database.sql)
  const wanted = { ...total, ...groups }
  await countVerifications(sql, filter, wanted, { by: 'total', descending: true }, 10)
  const read = {
    hours: rowsRead('usage_verifications'),
    days: rowsRead('usage_verification_days'),
    months: rowsRead('usage_verification_months'),
    pages: pagesRead(),
  }
  if (wanted.time !== null) {
    await bucketsWithVerifications(sql, filter, { ...wanted, time: wanted.time })
    expect(rowsRead('usage_verifications')).toBeLessThanOrEqual(read.hours)
    expect(rowsRead('usage_verification_days')).toBeLessThanOrEqual(read.days)
  }
  return read
}

const GROUPINGS = [{ key: true }, { identity: true }, { tags: 'set' as const }]

test.skipIf(!postgres)(
  'months and sums over 13 months read a row a month of a key, days a row a day',
  async () => {
    for (const grouping of GROUPINGS) {
      for (const time of [null, 'month'] as const)
        expect(await readFor({}, { ...grouping, time })).toMatchObject(monthsOnly)
      expect(await readFor({}, { ...grouping, time: 'day' })).toMatchObject({
        months: 0,
        days: DAYS * KEYS,
        hours: 0,
      })
    }
  },
)

/** The rows of the current month and day hold what is over of it. */
test.skipIf(!postgres)(
  'what goes on until now reads the last hours besides, whatever the time of day',
  async () => {
    // Hours beyond the last one that is summed up: there are none, but an hour is read.
    expect(await readFor({ to: LAST + DAY_MS }, { key: true })).toMatchObject(monthsOnly)
    expect(await readFor({ to: LAST + DAY_MS }, { key: true, time: 'day' })).toMatchObject({
      months: 0,
      days: DAYS * KEYS,
      hours: 0,
    })
  },
)

test.skipIf(!postgres)(
  'what is before the first whole month and day, and after the last, is read by days and hours',
  async () => {
    // Six hours of the first day, and twelve of the last.
    const read = await readFor({ from: FIRST + 18 * HOUR_MS, to: LAST - 12 * HOUR_MS }, { key: true })
    expect(read.months).toBe((MONTHS - 2) * KEYS)
    // Of a month that is read nearly whole, the planner reads all pages.
    expect(read.days).toBeWithin((30 + 3) * KEYS, (31 + 4) * KEYS + 1)
    expect(read.hours).toBeWithin(1, KEYS * 10)
  },
)

test.skipIf(!postgres)(
  'days that are not summed up yet are read by hours, and their month by days',
  async () => {
    const before = LAST - 2 * DAY_MS
    const days = { before, adding: null }
    await database.sql`update usage_days_made set made_before = ${before}, open_from = ${before}`
    const read = await readFor({ made: { days, months: days } }, { key: true, time: 'month' })
    await database.sql`update usage_days_made set made_before = ${LAST}, open_from = ${LAST}`
    // Its months do not stand at that day: then the statement reads no row.
    expect(read).toMatchObject({ months: 0, days: 0, hours: 0 })
    const overOnly = { before: bucketOf(before, 'month'), adding: null }
    const exact = await readFor({ made: { days, months: overOnly } }, { key: true, time: 'month' })
    expect(exact.months).toBe((MONTHS - 1) * KEYS)
    expect(exact.days).toBeWithin(2 * KEYS, 4 * KEYS + 1)
    expect(exact.hours).toBeWithin(2 * HOURS * KEYS, 4 * HOURS * KEYS + 1)
  },
)

/** Bug: it read all hourly rows of the range. */
test.skipIf(!postgres)('one identity reads its own rows alone, by hours, days and months', async () => {
  const keys = KEYS / IDENTITIES
  const one = { identityId: 'id_7' }
  expect(await readFor(one, {})).toMatchObject({ hours: 0, days: 0, months: MONTHS * keys })
  expect(await readFor(one, { time: 'day' })).toMatchObject({ hours: 0, days: DAYS * keys, months: 0 })
  expect(await readFor(one, { time: 'hour' })).toMatchObject({ hours: DAYS * HOURS * keys, days: 0 })
  const lastDay = await readFor({ ...one, from: LAST - DAY_MS }, { time: 'hour', key: true })
  expect(lastDay).toMatchObject({ hours: HOURS * keys, days: 0 })
  expect(lastDay.pages).toBeLessThan(100)
})

test.skipIf(!postgres)('one key reads its own rows alone', async () => {
  expect(await readFor({ keyIds: ['key_7'] }, { time: 'month' })).toMatchObject({
    hours: 0,
    days: 0,
    months: MONTHS,
  })
  const { sql, rowsRead } = explaining(database.sql)
  await dailyCountsOfKeys(sql, { ...all, keyIds: ['key_7'], to: LAST - 1 })
  expect([rowsRead('usage_verifications'), rowsRead('usage_verification_days')]).toEqual([0, DAYS])
})
