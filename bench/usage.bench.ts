import { countVerifications, dailyCountsOfKeys, type VerificationFilter } from '../src/api/analytics/store.ts'
import { openSpills } from '../src/data-dir/spill.ts'
import type { Sql } from '../src/db/connect.ts'
import { bucketOf, startOfMonth } from '../src/lib/buckets.ts'
import type { WorkspaceId } from '../src/lib/ids.ts'
import { UsageRecorder } from '../src/usage/recorder.ts'
import { makeMonth, sumUpUsage } from '../src/usage/rollup.ts'
import { type Made, readMade } from '../src/usage/sums.ts'
import { openTestSql } from '../test/support/database.ts'
import { randomNumbers } from '../test/support/random.ts'
import { machine } from './support/table.ts'

/**
 * Usage, from recording to the answers. Claims: 50 000 verifications a second over 100 000 keys with tags flow into the
 * database without growing a backlog; and (`--full`, real Postgres) with 2 million hourly rows over 13 months, all of one API,
 * its 30 days by hour, its top 10 identities and one key's day answer no slower than with half the history.
 *
 * The database is TEST_DATABASE_URL's, else an embedded one. What was written is counted; a difference is an error.
 * What recording costs a call is part of `http`. Figures and what was refused: docs/decisions/0020.
 */
export async function run(options: { tiny?: boolean; full?: boolean } = {}): Promise<void> {
  const isTiny = options.tiny ?? false
  console.log(`usage: ${machine()}, seed ${SEED}`)
  await using database = await openTestSql()
  const kind = database.address.kind === 'url' ? 'Postgres' : 'embedded database'
  await flow(database.sql, kind, isTiny)
  if (isTiny || options.full === true) await queries(database.sql, kind, isTiny)
  else console.log('  queries over 13 months: with --full')
}

const SEED = 7
const NOW = Date.UTC(2026, 10, 21, 13, 37)
const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
const WORKSPACE = 'ws_1bench1bench1bench' as WorkspaceId // nobody else's: the database is ours
const KEYSPACE = 'ks_1bench1bench1bench'

/** Verifications at a steady rate, flushed every second: what is not yet written must not grow. */
async function flow(sql: Sql, kind: string, isTiny: boolean): Promise<void> {
  const seconds = isTiny ? 1 : 15
  const rate = isTiny ? 5_000 : 50_000
  const keys = isTiny ? 1_000 : 100_000
  const keyIds = Array.from({ length: keys }, (_, key) => idOf('key', key))
  const taggings = Array.from({ length: 35 }, (_, i) => [`plan-${i % 5}`, `region-${i % 7}`])
  const random = randomNumbers(SEED)
  const recorder = new UsageRecorder({
    sql,
    writerId: `bench-${crypto.randomUUID()}`,
    spills: openSpills('/nonexistent'), // nothing is to be spilled here
    flushEveryMs: 3_600_000, // only when told to
    clock: () => NOW,
  })
  await recorder.flush() // makes the months
  const lags: number[] = []
  const flushes: number[] = []
  let sent = 0
  const cpuBefore = process.cpuUsage()
  const begun = performance.now()
  let flushing: Promise<void> | null = null
  let flushedAt = begun
  for (let tick = 1; tick <= seconds * 100; tick++) {
    for (let i = 0; i < rate / 100; i++, sent++) {
      const key = Math.floor(random() * keys)
      recorder.recordVerification({
        workspaceId: WORKSPACE,
        keyspaceId: KEYSPACE,
        keyId: keyIds[key] as string, // in range
        identityId: null,
        outcome: 'VALID',
        tags: taggings[key % taggings.length] as string[], // in range
        atMs: NOW,
      })
    }
    const now = performance.now()
    if (flushing === null && now - flushedAt >= 1000) {
      flushing = recorder.flush().then(() => {
        flushes.push(performance.now() - now)
        flushedAt = performance.now()
        flushing = null
      })
    }
    const dueAt = begun + tick * 10
    await Bun.sleep(Math.max(0, dueAt - now))
    lags.push(performance.now() - Math.max(dueAt, now))
  }
  await flushing
  const cpu = process.cpuUsage(cpuBefore)
  const lastBegun = performance.now()
  await recorder.flush()
  const last = performance.now() - lastBegun
  const [row] = await sql<{ valid: number }[]>`
    select sum(valid)::bigint as valid from usage_verifications where keyspace_id = ${KEYSPACE}`
  if (row?.valid !== sent) throw new Error(`${row?.valid} written of ${sent}`)
  const cpuShare = (cpu.user + cpu.system) / 1000 / (lastBegun - begun)
  console.log(
    `  flow into ${kind}: ${sent} verifications at ${rate}/s over ${keys} keys with 2 tags, all written; a flush takes ` +
      `${quantile(flushes, 0.5).toFixed(0)} ms (p50), ${quantile(flushes, 1).toFixed(0)} ms (max), the last ${last.toFixed(0)} ms; ` +
      `CPU of this process ${(100 * cpuShare).toFixed(0)} %; event loop late by ${quantile(lags, 0.99).toFixed(1)} ms (p99)`,
  )
}

/** The three questions at two lengths of history, all rows of one API. */
async function queries(sql: Sql, kind: string, isTiny: boolean): Promise<void> {
  const months = isTiny ? 2 : 13
  const rowsPerHour = isTiny ? 2 : 214
  const hours = months * 30 * 24
  const lastHour = NOW - (NOW % HOUR_MS)
  const repeats = isTiny ? 2 : 40
  for (let from = startOfMonth(lastHour - hours * HOUR_MS); from <= lastHour; from = startOfMonth(from, 1))
    await makeMonth(sql, from)
  await sql`delete from usage_verifications where keyspace_id = ${KEYSPACE}`
  await sql`delete from usage_keyspace_hours where keyspace_id = ${KEYSPACE}`
  await sql`truncate usage_verification_days, usage_verification_months`
  for (const history of [months / 2, months]) {
    // The second round adds what is older than the first.
    const [newest, oldest] = history === months ? [hours / 2, hours] : [0, hours / 2]
    await load(sql, { lastHour, newest, oldest, rowsPerHour })
    const firstDay = bucketOf(lastHour - oldest * HOUR_MS, 'day')
    for (const table of ['usage_days_made', 'usage_months_made'])
      await sql`update ${sql(table)} set made_before = ${firstDay}, open_from = ${firstDay}`
    await sumUpUsage(sql, NOW)
    await sql`vacuum analyze usage_verifications, usage_verification_days, usage_verification_months, usage_keyspace_hours`
    const made = await readMade(sql, async (is) => is, { isEmpty: () => false })
    const [total] = await sql<{ rows: number; verifications: number }[]>`
      select count(*) as rows, sum(valid)::bigint as verifications from usage_verifications`
    console.log(
      `  ${total?.rows} hourly rows, ${total?.verifications} verifications, ${history} months, ${kind}`,
    )
    for (const [name, ask] of questions(sql, lastHour, made)) {
      const times: number[] = []
      for (let i = 0; i < repeats; i++) {
        const before = performance.now()
        const answers = await ask()
        times.push(performance.now() - before)
        if (answers === 0) throw new Error(`no answer to: ${name}`)
      }
      console.log(
        `    ${name}: p50 ${quantile(times, 0.5).toFixed(1)} ms, p95 ${quantile(times, 0.95).toFixed(1)} ms`,
      )
    }
  }
}

function questions(sql: Sql, lastHour: number, made: Made): [string, () => Promise<number>][] {
  const month: VerificationFilter = {
    workspaceId: WORKSPACE,
    keyspaceIds: [KEYSPACE],
    identityId: null,
    keyIds: [],
    tags: [],
    from: lastHour - 30 * DAY_MS,
    to: lastHour + HOUR_MS,
    made,
  }
  const nothing = { time: null, key: false, identity: false, tags: null } as const
  const keyIds = [idOf('key', 42)]
  return [
    [
      'one API, 30 days by hour',
      async () => (await countVerifications(sql, month, { ...nothing, time: 'hour' }, null, 1000)).length,
    ],
    [
      'top 10 identities of 30 days',
      async () =>
        (
          await countVerifications(
            sql,
            month,
            { ...nothing, identity: true },
            { by: 'total', descending: true },
            10,
          )
        ).length,
    ],
    [
      'one key, one day by hour',
      async () => {
        await countVerifications(
          sql,
          { ...month, keyIds, from: lastHour - DAY_MS },
          { ...nothing, time: 'hour' },
          null,
          1000,
        )
        return 1 // it may have rested that day
      },
    ],
    [
      'one key, 30 days by day',
      async () => (await dailyCountsOfKeys(sql, { ...month, keyIds, to: lastHour })).length + 1,
    ],
  ]
}

/** Rows as flushes would have left them, in the order of their hours; 50 verifications each. */
async function load(
  sql: Sql,
  {
    lastHour,
    newest,
    oldest,
    rowsPerHour,
  }: { lastHour: number; newest: number; oldest: number; rowsPerHour: number },
): Promise<void> {
  await sql`
    insert into usage_verifications (
           hour, valid, rate_limited, expired, disabled, forbidden, usage_exceeded, insufficient_permissions,
           workspace_id, keyspace_id, key_id, identity_id, tag_set)
    select ${lastHour}::bigint - back::bigint * ${HOUR_MS}::bigint, 50, 0, 0, 0, 0, 0, 0, ${WORKSPACE},
           ${KEYSPACE}, 'key_' || lpad(key::text, 16, '0'), 'id_' || lpad((key % 2000)::text, 16, '0'), ''
      from (select back, at, (back::bigint * 7919 + at * 104729) % 100003 as key
              from generate_series(${Math.ceil(oldest) - 1}::integer, ${Math.ceil(newest)}::integer, -1) as back,
                   generate_series(0, ${rowsPerHour - 1}::integer) as at) as rows
        on conflict do nothing`
  await sql`
    insert into usage_keyspace_hours
    select hour, sum(valid), 0, 0, 0, 0, 0, 0, min(workspace_id), keyspace_id
      from usage_verifications
     group by keyspace_id, hour
        on conflict do nothing`
}

const idOf = (prefix: string, number: number) => `${prefix}_${String(number).padStart(16, '0')}`

const quantile = (numbers: readonly number[], q: number): number =>
  numbers.toSorted((a, b) => a - b)[Math.min(numbers.length - 1, Math.floor(numbers.length * q))] ?? 0
