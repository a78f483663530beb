import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { dailyCountsOfKeys } from '../../../src/api/analytics/store.ts'
import type { AnySql } from '../../../src/db/connect.ts'
import { bucketOf } from '../../../src/lib/buckets.ts'
import type { Outcome } from '../../../src/usage/recorder.ts'
import { readMade } from '../../../src/usage/sums.ts'
import { IS_NIGHTLY } from '../../support/nightly.ts'
import { randomNumbers } from '../../support/random.ts'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import { asText, COUNTS, type Event, expectedRows, OUTCOMES, type Question } from '../../usage/oracle.ts'

setDefaultTimeout(SLOW_MS)

/**
 * A generator makes verifications with random outcomes, tags, keys, identities and times, and this file counts them in the
 * simplest way. The server must give the same numbers for every grouping, filter and order, from rows of hours, of days and of
 * months, also while an hour and a day are being added to these. Half of the events arrive after that.
 */

const HOUR = 3_600_000
const DAY = 24 * HOUR
const NOW = Date.UTC(2026, 10, 21, 13, 37, 12, 345)
const TODAY = NOW - (NOW % DAY)
const FIRST_DAY = TODAY - 80 * DAY
const SEED = 20_261_121

const TAGS = ['a', 'b', 'c', 'path=/v1/x,y', 'ünï', 'Z"\\']
/** The last one is deleted before the questions. */
const IDENTITIES = ['user_1', 'user_2', 'user_3', 'user_gone']

let server: TestServer
let workspace: TestWorkspace
let rootKey: string
let apiId: string
const identityIds = new Map<string, string>()
const externalIds = new Map<string, string>()
const events: Event[] = []

beforeAll(async () => {
  server = await startTestServer({ clock: () => NOW })
  workspace = await server.workspace()
  rootKey = await workspace.rootKeyWith('api.*.read_api')
  apiId = (await workspace.post('apis.createApi', { name: 'counted' })).apiId
  const { sql, usage } = server.server.deps
  for (const externalId of IDENTITIES) {
    const id = `id_oracle_${externalId}`
    identityIds.set(externalId, id)
    if (externalId === 'user_gone') continue
    externalIds.set(id, externalId)
    await sql`insert into identities (id, workspace_id, external_id, created_at)
              values (${id}, ${workspace.workspaceId}, ${externalId}, ${NOW})`
  }
  const [api] = await sql<
    { keyspaceId: string }[]
  >`select keyspace_id as "keyspaceId" from apis where id = ${apiId}`
  const random = randomNumbers(SEED)
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T // never empty
  const outcomes = Object.keys(OUTCOMES) as Outcome[] // the keys are outcomes
  // The server must not go on where this test is.
  for (const [name, parameters] of [
    ['days', 'p_before bigint, p_rows integer'],
    ['months', 'p_rows integer'],
  ]) {
    await sql.unsafe(`alter function make_usage_${name} rename to test_usage_${name}`)
    await sql.unsafe(
      `create function make_usage_${name}(${parameters}) returns boolean language sql as 'select false'`,
    )
  }
  await read('hours')
  for (let i = 0; i < 6000; i++) {
    // Most within two days, some months back, a few beyond the end of the wanted ranges.
    const back = random() < 0.8 ? random() * 2 * DAY : random() * 70 * DAY
    const event: Event = {
      keyId: `key_${Math.floor(random() ** 2 * 12)}`,
      identityId: random() < 0.3 ? null : (identityIds.get(pick(IDENTITIES)) ?? null),
      outcome: pick(outcomes),
      tags: Array.from({ length: Math.floor(random() * 4) }, () => pick(TAGS)),
      atMs: Math.floor(NOW + 2 * HOUR - back),
    }
    events.push(event)
    usage.recordVerification({
      ...event,
      workspaceId: workspace.workspaceId,
      keyspaceId: api?.keyspaceId ?? '',
      tags: event.tags.length === 0 && random() < 0.5 ? null : event.tags,
    })
    // Events that must not count: of another keyspace, and of another workspace with the same names.
    usage.recordVerification({
      ...event,
      workspaceId: workspace.workspaceId,
      keyspaceId: 'ks_other',
      keyId: `o${event.keyId}`,
    })
    if (i % 1500 === 1499) await usage.flush()
    if (i === 2999) await sumUp(sql, { hoursTo: ADDED_HOUR, daysTo: ADDED_DAY })
  }
  await usage.flush()
  await sql`analyze` // as in a database that runs
}, 60_000)

/** They are in the wanted range, and half of their rows are in those of their day and month. */
const ADDED_HOUR = TODAY - 8 * HOUR
const ADDED_DAY = TODAY - 2 * DAY

type State = { before: number; upTo: number; keyspace: string; key: string }
/** How far rows of days and months are made when the questions are asked. */
let reached: { days: State; months: State }

/** In small slices, until this hour and this day are begun and have some rows. */
async function sumUp(sql: AnySql, { hoursTo, daysTo }: { hoursTo: number; daysTo: number }): Promise<void> {
  const days = (before: number, slices: number) => sql<{ goesOn: boolean }[]>`
    select test_usage_days(${before}, 7) as "goesOn" from generate_series(1, ${slices})`
  while ((await days(hoursTo, 100)).at(-1)?.goesOn === true);
  while ((await stateOf(sql, 'usage_days_made')).key < 'key_1') await days(hoursTo + HOUR, 1)
  const isBegun = ({ before, key }: State) => before === daysTo && key >= 'key_1'
  while (!isBegun(await stateOf(sql, 'usage_months_made'))) await sql`select test_usage_months(7)`
  reached = { days: await stateOf(sql, 'usage_days_made'), months: await stateOf(sql, 'usage_months_made') }
  expect([reached.days.before, reached.months.before]).toEqual([hoursTo, daysTo])
}

async function stateOf(sql: AnySql, table: 'usage_days_made' | 'usage_months_made'): Promise<State> {
  const [row] = await sql<State[]>`
    select made_before as before, open_from as "upTo", keyspace_id as keyspace, key_id as key from ${sql(table)}`
  if (row === undefined) throw new Error('no state')
  return row
}

/** Makes the server read hourly rows alone, or those of days too, or of months. */
async function read(rows: 'hours' | 'days' | 'months'): Promise<void> {
  const { sql } = server.server.deps
  const none = { before: FIRST_DAY, upTo: FIRST_DAY, keyspace: '', key: '' }
  const write = (table: string, { before, upTo, keyspace, key }: State) => sql`
    update ${sql(table)} set made_before = ${before}, open_from = ${upTo}, keyspace_id = ${keyspace}, key_id = ${key}`
  await write('usage_days_made', rows === 'hours' ? none : reached.days)
  await write('usage_months_made', rows === 'months' ? reached.months : none)
}

afterAll(() => server[Symbol.asyncDispose]())

const ask = (query: Record<string, unknown>) =>
  server.get('analytics.getVerifications', { apiId, ...query }, rootKey)

const RANGE = { start: NOW - 62 * DAY, end: NOW - 20 * HOUR }
const TIMES = [[], ['hour'], ['day'], ['month'], ['hour', 'month', 'day']]
const TAGGINGS = [[], ['tags'], ['tag']]
const FILTERS: Question['filter'][] = [
  {},
  { tag: ['a', 'path=/v1/x,y'] },
  { keyId: ['key_1', 'key_2,key_3'], tag: 'ünï' },
  { externalId: 'user_2', keyId: 'key_0,key_1', tag: ['b', 'c'] },
  { tag: 'never used' },
]

const rowsFor = (time: readonly string[]) => {
  if (time.includes('hour')) return ['months'] as const
  return time.includes('day') ? (['hours', 'days'] as const) : (['hours', 'days', 'months'] as const)
}

/** At night alone, as others contain them: a single tag, key or identity. */
const SINGLE: Question['filter'][] = [{ tag: 'a' }, { keyId: 'key_1' }, { externalId: 'user_2' }]

/** By day each grouping is asked without a filter and with one of them, at night with every one. */
const isAsked = (filter: number, grouping: number) =>
  IS_NIGHTLY || filter === 0 || grouping % (FILTERS.length - 1) === filter - 1

for (const [number, filter] of (IS_NIGHTLY ? [...FILTERS, ...SINGLE] : FILTERS).entries()) {
  test(`groupings count exactly with the filter ${JSON.stringify(filter)}`, async () => {
    let grouping = 0
    for (const time of TIMES) {
      for (const tagging of TAGGINGS) {
        for (const others of [[], ['key'], ['identity'], ['key', 'identity']]) {
          if (!isAsked(number, grouping++)) continue
          const groupBy = [...others, ...time, ...tagging]
          const rows = expectedRows(events, { filter, groupBy, range: RANGE, externalIds }).map(asText).sort()
          for (const from of rowsFor(time)) {
            await read(from)
            const { status, body } = await ask({
              ...RANGE,
              ...filter,
              ...(groupBy.length > 0 && { groupBy }),
            })
            expect({ groupBy, from, status }).toEqual({ groupBy, from, status: 200 })
            expect({ groupBy, from, rows: body.map(asText).sort() }).toEqual({ groupBy, from, rows })
          }
        }
      }
    }
  }, 60_000)
}

test('every order sorts, and a limit cuts the same series', async () => {
  await read('months')
  for (const orderBy of ['time', ...(IS_NIGHTLY ? COUNTS : COUNTS.slice(0, 3))]) {
    for (const order of ['asc', 'desc']) {
      for (const groupBy of [['day'], ['hour', 'key'], ['identity'], ['tag', 'key'], ['month', 'tags']]) {
        if (orderBy === 'time' && !groupBy.some((group) => ['hour', 'day', 'month'].includes(group))) continue
        const { body: whole } = await ask({ ...RANGE, groupBy, orderBy, order })
        const values: number[] = whole.map((row: Json) => row[orderBy])
        const sorted = values.toSorted((a, b) => (order === 'asc' ? a - b : b - a))
        expect({ orderBy, order, groupBy, values }).toEqual({ orderBy, order, groupBy, values: sorted })
        for (const limit of [1, 7, 40]) {
          const { body: cut } = await ask({ ...RANGE, groupBy, orderBy, order, limit })
          expect({ orderBy, order, groupBy, limit, cut }).toEqual({
            orderBy,
            order,
            groupBy,
            limit,
            cut: whole.slice(0, limit),
          })
        }
      }
    }
  }
}, 60_000)

test('the daily counts of keys add up the same events', async () => {
  const workspaceId = workspace.workspaceId as Parameters<typeof dailyCountsOfKeys>[1]['workspaceId'] // a test may cast one
  const keyIds = ['key_1', 'key_5', 'key_none']
  const [from, to] = [NOW - 10 * DAY, NOW]
  const { sql } = server.server.deps
  const daysOf = () =>
    readMade(sql, (made) => dailyCountsOfKeys(sql, { workspaceId, keyIds, from, to, made }), {
      isEmpty: (days) => days.length === 0,
    })
  const byDay = new Map<
    number,
    { time: number; success: number; rateLimited: number; usageExceeded: number }
  >()
  for (const { atMs, keyId, outcome } of events) {
    if (!keyIds.includes(keyId) || atMs < from - (from % HOUR) || atMs >= to - (to % HOUR) + HOUR) continue
    const time = bucketOf(atMs, 'day')
    const day = byDay.get(time) ?? { time, success: 0, rateLimited: 0, usageExceeded: 0 }
    byDay.set(time, day)
    if (outcome === 'VALID') day.success++
    if (outcome === 'RATE_LIMITED') day.rateLimited++
    if (outcome === 'USAGE_EXCEEDED') day.usageExceeded++
  }
  const expected = [...byDay.values()].sort((a, b) => a.time - b.time)
  for (const rows of ['hours', 'days'] as const) {
    await read(rows)
    expect([...(await daysOf())]).toEqual(expected)
  }
})
