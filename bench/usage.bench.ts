import { join } from 'node:path'
import postgres from 'postgres'
import { countVerifications, dailyCountsOfKeys, type VerificationFilter } from '../src/api/analytics/store.ts'
import { arrayTypes } from '../src/db/array-types.ts'
import { connect, type Sql } from '../src/db/connect.ts'
import { startOfMonth } from '../src/lib/buckets.ts'
import type { WorkspaceId } from '../src/lib/ids.ts'
import { Fold } from '../src/usage/fold.ts'
import type { UsageRecorder } from '../src/usage/recorder.ts'
import { makeMonth } from '../src/usage/rollup.ts'
import { hashKey } from '../src/verify/secret.ts'
import { openTestDatabase, openTestSql, TEST_DATABASE_URL, type TestSql } from '../test/support/database.ts'
import { randomNumbers } from '../test/support/random.ts'
import type { Span, SpanResult } from './baselines/switched-recording.ts'
import { clearServerCore, generator, sendLoad } from './support/load.ts'
import { recorderInto } from './support/recorder.ts'
import { machine } from './support/table.ts'
import { startTarget, type Target } from './support/target.ts'
import { call, ROOT_KEY } from './support/tollgate.ts'

/**
 * Usage, from the recording thread to the answers. Claims: recording costs at most 3 % of the throughput of
 * verifications; 50 000 verifications a second over 100 000 keys with tags flow into the database without growing a
 * backlog; and (`--full`, real Postgres) with 2 million hourly rows over 13 months, all of one API, its 30 days by hour,
 * its top 10 identities and one key's day answer within 100 ms at p95, and no slower than with half the history.
 *
 * The database is TEST_DATABASE_URL's, else an embedded one. What was written is counted; a difference is an error.
 */
export async function run(options: { tiny?: boolean; full?: boolean } = {}): Promise<void> {
  const isTiny = options.tiny ?? false
  console.log(`usage: ${machine()}, seed ${SEED}`)
  recording(isTiny)
  await share(isTiny)
  await using database = await openTestSql()
  const kind = database.address.kind === 'url' ? 'Postgres' : 'embedded database'
  await flow(database.sql, kind, isTiny)
  if (isTiny || options.full === true) await queries(database, kind, isTiny)
  else console.log('  queries over 13 months: with --full')
}

const SEED = 7
const NOW = Date.UTC(2026, 10, 21, 13, 37)
const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
const WORKSPACE = 'ws_1bench1bench1bench' as WorkspaceId // nobody else's: the database is ours
const KEYSPACE = 'ks_1bench1bench1bench'

/** Nanoseconds a record, cells warm: the keys of this hour have all been seen. */
function recording(isTiny: boolean): void {
  const times = isTiny ? 20_000 : 2_000_000
  const shapes = [
    { name: 'one key, no tags (a root key)', keys: 1, tags: 0 },
    { name: '1 000 keys, no tags', keys: 1_000, tags: 0 },
    { name: '100 000 keys, no tags', keys: 100_000, tags: 0 },
    { name: '1 000 keys, 2 tags', keys: 1_000, tags: 2 },
    { name: '100 000 keys, 2 tags', keys: 100_000, tags: 2 },
  ]
  for (const { name, keys, tags } of shapes) {
    const keyIds = Array.from({ length: keys }, (_, key) => idOf('key', key))
    const fold = new Fold()
    const random = randomNumbers(SEED)
    const picked = Uint32Array.from({ length: 65_536 }, () => Math.floor(random() * keys))
    // Fresh texts, as JSON gives them: their hashes are not known yet.
    const taggings = Array.from(
      { length: 65_536 },
      (_, i) => (tags === 0 ? null : (JSON.parse(`["plan-${i % 5}","region-${i % 7}"]`) as string[])), // written a line above
    )
    const add = (i: number) =>
      fold.addVerification({
        workspaceId: WORKSPACE,
        keyspaceId: KEYSPACE,
        keyId: keyIds[picked[i & 65_535] as number] as string, // both in range
        identityId: null,
        outcome: 'VALID',
        tags: taggings[i & 65_535] as string[] | null, // in range
        atMs: NOW,
      })
    for (let i = 0; i < 65_536; i++) add(i)
    const before = Bun.nanoseconds()
    for (let i = 0; i < times; i++) add(i)
    const each = (Bun.nanoseconds() - before) / times
    let counted = 0
    for (const columns of fold.columns())
      for (const valid of columns?.verifications.valid ?? []) counted += valid
    if (counted !== times + 65_536) throw new Error(`${counted} counted of ${times + 65_536}`)
    console.log(`  record, ${name}: ${each.toFixed(0)} ns`)
  }
}

/**
 * What recording costs of a verification. Few keys verified often share their rows; of many keys verified less than once
 * a second each verification is a row to write, which is the worst there is. The cache of keys holds some 44 000: more
 * would be read anew each time.
 *
 * One server under one steady load records for a second and flushes, then does not for a second, in turn: a claim of 3 %
 * is finer than two servers, or two loads, can be told apart on most machines. Each span with recording is compared with
 * the two beside it. Where that may be done, all of Postgres runs on the core of the load, so that the rates tell what
 * recording costs the server. They still share the caches and the memory of one machine: so in a second
 * row of such spans Postgres writes nothing of what it is sent, and in a third the server records nothing while Postgres
 * writes as much that comes from here.
 */
async function share(isTiny: boolean): Promise<void> {
  const [pairs, spanMs, connections] = isTiny ? [2, 100, 4] : [30, 1000, 64]
  const where = TEST_DATABASE_URL === null ? 'embedded database, which counts in' : 'Postgres'
  console.log(`  share of recording in keys.verifyKey, ${where}, load from ${generator}:`)
  await using server = await startSwitched()
  let sent = 0
  for (const keys of isTiny ? [20, 200] : [100, 1_000, 10_000, 40_000]) {
    const bodies = await makeKeys(server, keys)
    const load = { url: server.url, path: '/v1/keys.verifyKey', headers: JSON_TYPE, bodies, connections }
    // Warms up the cache of keys, and the code, of the recording too.
    const warming = sendLoad({ ...load, seconds: isTiny ? 1 : 8 })
    let recorded = 0
    let isLoaded = true
    void warming.finally(() => (isLoaded = false)).catch(() => {}) // awaited below
    while (isLoaded) recorded += (await server.span({ mode: 'recorded', ms: spanMs })).recorded
    await warming
    await using others = server.databaseUrl === null ? null : await Others.begin(server.databaseUrl, keys)
    using cleared = isTiny ? null : clearServerCore({ ofPostgres: true })

    const modes: Kind[] = others === null ? ['recorded'] : ['recorded', 'sent', 'others']
    const compared: Compared[] = []
    const recordedOf = (field: (span: SpanResult) => number) =>
      mean(compared.filter(({ mode }) => mode === 'recorded').map(({ span }) => field(span)))
    // One mode after the other: a key knows its row with one recorder only, and would need another one in each span.
    for (const mode of modes) {
      const loadMs = pairs * spanMs * 2.5 + 4 * spanMs
      const take = async (): Promise<SpanResult> => {
        if (mode === 'others') {
          const flushMs = recordedOf(({ ms }) => ms) - spanMs
          others?.record(recordedOf((span) => span.recorded))
          const taken = server.span({ mode: 'none', ms: spanMs + flushMs })
          await Bun.sleep(spanMs)
          await others?.flush()
          return await taken
        }
        const span = await server.span({ mode, ms: spanMs })
        if (mode === 'recorded') recorded += span.recorded
        else sent += span.recorded
        return span
      }
      const sending = sendLoad({ ...load, seconds: Math.ceil(loadMs / 1000) })
      let isSent = false
      void sending.finally(() => (isSent = true)).catch(() => {}) // awaited below
      const lastAtMs = performance.now() + loadMs - 4 * spanMs
      await take()
      let before = await server.span({ mode: 'none', ms: spanMs })
      for (let i = 0; i < pairs && performance.now() < lastAtMs; i++) {
        const span = await take()
        const after = await server.span({ mode: 'none', ms: spanMs })
        if (isSent) break // a flush took so long that the load ended meanwhile
        compared.push({ mode, span, before, after })
        before = after
      }
      const { failed } = await sending
      if (failed > 0) throw new Error(`${failed} verifications failed`)
    }
    // What was recorded while the last flush ran is still to be flushed.
    recorded += (await server.span({ mode: 'recorded', ms: 0 })).recorded
    const counted = await countedOf(server)
    if (counted !== recorded) throw new Error(`${recorded} verifications were recorded, ${counted} counted`)
    const { cameUnwritten } = await server.span({ mode: 'sent', ms: 0 })
    if (cameUnwritten !== sent) throw new Error(`${sent} verifications were sent, ${cameUnwritten} came`)
    for (const mode of modes) {
      const spans = compared.filter((each) => each.mode === mode)
      const rates = comparedWith(spans, ({ answered, ms }) => (1000 * answered) / ms)
      const cpu = comparedWith(spans, ({ cpu, answered }) => cpu / answered)
      console.log(
        `    ${keys} keys, ${KINDS[mode]}: ` +
          `${rates.with.toFixed(0)} against ${rates.without.toFixed(0)} a second (${rates.more}), ` +
          `CPU ${cpu.with.toFixed(2)} against ${cpu.without.toFixed(2)} µs each (${cpu.more})`,
      )
    }
    console.log(
      `    ${keys} keys: ${recorded} recorded, all counted${cleared?.isWithoutPostgres ? '; Postgres on the core of the load' : ''}`,
    )
  }
}

type Kind = 'recorded' | 'sent' | 'others'
const KINDS = {
  recorded: 'recorded',
  sent: 'sent but not written',
  others: 'not recorded, but as much written for others',
} as const satisfies Record<Kind, string>

/** Has Postgres count for keys of its own, from this process: what that alone costs the server, which records nothing. */
class Others implements AsyncDisposable {
  readonly #random = randomNumbers(SEED)
  readonly #keyIds: string[]
  private constructor(
    private readonly sql: Sql,
    private readonly recorder: UsageRecorder,
    keys: number,
  ) {
    this.#keyIds = Array.from({ length: keys }, (_, key) => idOf('other', key))
  }

  static async begin(url: string, keys: number): Promise<Others> {
    const sql = connect({ kind: 'url', url }, { connectionsMax: 1 })
    const recorder = recorderInto(sql)
    const others = new Others(sql, recorder, keys)
    for (const keyId of others.#keyIds) others.#recordOne(keyId)
    await others.flush() // their rows are there
    return others
  }

  record(verifications: number): void {
    for (let i = 0; i < verifications; i++)
      this.#recordOne(this.#keyIds[Math.floor(this.#random() * this.#keyIds.length)] as string) // in range
  }

  flush(): Promise<void> {
    return this.recorder.flush()
  }

  #recordOne(keyId: string): void {
    const scope = { workspaceId: WORKSPACE, keyspaceId: KEYSPACE, identityId: null }
    this.recorder.recordVerification({ ...scope, keyId, outcome: 'VALID', tags: null, atMs: Date.now() })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.sql.end({ timeout: 1 })
  }
}

/** A span with recording, and those beside it without. */
type Compared = { mode: Kind; span: SpanResult; before: SpanResult; after: SpanResult }

/** Means, and by how much a span with recording is above those beside it: mean and standard error. */
function comparedWith(spans: Compared[], figure: (span: SpanResult) => number) {
  const without = spans.map(({ before, after }) => (figure(before) + figure(after)) / 2)
  const with_ = spans.map(({ span }) => figure(span))
  const ratios = with_.map((value, i) => value / (without[i] ?? Number.NaN))
  const ratio = mean(ratios)
  const error = Math.sqrt(mean(ratios.map((each) => (each - ratio) ** 2)) / Math.max(1, ratios.length - 1))
  const percent = (share: number) => (100 * share).toFixed(1)
  return {
    with: mean(with_),
    without: mean(without),
    more: `${ratio < 1 ? '−' : '+'} ${percent(Math.abs(ratio - 1))} ± ${percent(error)} %`,
  }
}

const mean = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length

/** A server whose recording is switched, and the API last made there. */
type Switched = Target & {
  databaseUrl: string | null
  apiId: string
  span(span: Span): Promise<SpanResult>
}
const JSON_TYPE = { 'Content-Type': 'application/json' }

/** Pinned to one core, with a database of its own; both are gone afterwards. */
async function startSwitched(): Promise<Switched> {
  await using opening = new AsyncDisposableStack()
  const database = opening.use(await openTestDatabase())
  const unix = join(database.dataDir, 'switch.sock')
  const target = opening.use(
    await startTarget('switched', ['bench/baselines/switched-recording.ts'], {
      PORT: '0',
      DATABASE_URL: database.databaseUrl ?? '',
      TOLLGATE_DATA_DIR: database.dataDir,
      TOLLGATE_ROOT_KEY: ROOT_KEY,
      TOLLGATE_HTTP_THREADS: '1',
      TOLLGATE_SHARDS: '1',
      // A crowded machine is slow to read many keys, and this measures no refusals.
      TOLLGATE_DB_TIMEOUT_MS: '60000',
      BENCH_SWITCH: unix,
    }),
  )
  const span = async (asked: Span) => {
    const answer = await fetch('http://localhost/', { unix, method: 'POST', body: JSON.stringify(asked) })
    if (!answer.ok) throw new Error(`the switch answered ${answer.status}: ${await answer.text()}`)
    return (await answer.json()) as SpanResult // of switched-recording.ts
  }
  const opened = opening.move()
  const { databaseUrl } = database
  return { ...target, apiId: '', databaseUrl, span, [Symbol.asyncDispose]: () => opened.disposeAsync() }
}

/** Keys in an API of their own. @returns a verification of each, in an order of chance. */
async function makeKeys(server: Switched, count: number): Promise<string[]> {
  const keys = Array.from({ length: count }, (_, key) => `bench_${count}_${key}`)
  const { apiId } = await call(server.url, '/v1/apis.createApi', { name: `${count} keys` })
  server.apiId = String(apiId)
  const made = (part: string[]) =>
    part.map((key) => ({ apiId, hash: { value: hashKey(key), variant: 'sha256_base64' } }))
  for (let from = 0; from < count; from += 100)
    await call(server.url, '/v1/migrations.createKeys', made(keys.slice(from, from + 100)))
  const random = randomNumbers(SEED)
  return keys
    .map((key) => ({ at: random(), body: JSON.stringify({ key }) }))
    .sort((a, b) => a.at - b.at)
    .map(({ body }) => body)
}

/** Verifications of the server's last API in its database. */
async function countedOf({ url, apiId }: Switched): Promise<number> {
  const { rootKey } = await call(url, '/v1/rootKeys.createRootKey', { permissions: ['api.*.read_api'] })
  const headers = { Authorization: `Bearer ${rootKey}` }
  const response = await fetch(`${url}/v1/analytics.getVerifications?apiId=${apiId}`, { headers })
  if (!response.ok) throw new Error(`the count was answered ${response.status}: ${await response.text()}`)
  const [row] = (await response.json()) as { total: number }[] // without groups: one row
  return row?.total ?? 0
}

/** Verifications at a steady rate, flushed every second: what is not yet written must not grow. */
async function flow(sql: Sql, kind: string, isTiny: boolean): Promise<void> {
  const seconds = isTiny ? 1 : 15
  const rate = isTiny ? 5_000 : 50_000
  const keys = isTiny ? 1_000 : 100_000
  const keyIds = Array.from({ length: keys }, (_, key) => idOf('key', key))
  const taggings = Array.from({ length: 35 }, (_, i) => [`plan-${i % 5}`, `region-${i % 7}`])
  const random = randomNumbers(SEED)
  const recorder = recorderInto(sql, () => NOW)
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
async function queries({ sql, address }: TestSql, kind: string, isTiny: boolean): Promise<void> {
  const months = isTiny ? 2 : 13
  const rowsPerHour = isTiny ? 2 : 214
  const hours = months * 30 * 24
  const lastHour = NOW - (NOW % HOUR_MS)
  const repeats = isTiny ? 2 : 40
  for (let from = startOfMonth(lastHour - hours * HOUR_MS); from <= lastHour; from = startOfMonth(from, 1))
    await makeMonth(sql, from)
  await sql`delete from usage_verifications where keyspace_id = ${KEYSPACE}`
  await sql`delete from usage_keyspace_hours where keyspace_id = ${KEYSPACE}`
  for (const history of [months / 2, months]) {
    // The second round adds what is older than the first.
    const [newest, oldest] = history === months ? [hours / 2, hours] : [0, hours / 2]
    await load(sql, { lastHour, newest, oldest, rowsPerHour })
    await sql`vacuum analyze usage_verifications, usage_keyspace_hours`
    const [total] = await sql<{ rows: number; verifications: number }[]>`
      select count(*) as rows, sum(valid)::bigint as verifications from usage_verifications`
    console.log(
      `  ${total?.rows} hourly rows, ${total?.verifications} verifications, ${history} months, ${kind}`,
    )
    for (const [name, ask] of questions(sql, lastHour)) {
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
    if (!isTiny && address.kind === 'url') await printPlans(address.url, lastHour, history === months)
  }
}

/**
 * How Postgres answers each question, as it says itself; for that it must be asked by a superuser. The pages it looks at
 * tell what an answer costs on a machine too busy to time it.
 */
async function printPlans(url: string, lastHour: number, isWhole: boolean): Promise<void> {
  const notices: string[] = []
  const sql = postgres(url, {
    max: 1,
    types: { int8: { to: 20, from: [20], serialize: String, parse: Number }, ...arrayTypes },
    fetch_types: false,
    onnotice: ({ message }) => notices.push(message ?? ''),
  }) as Sql // made as connect() makes them, but for the notices
  try {
    await sql.unsafe(`load 'auto_explain'; set auto_explain.log_min_duration = 0; set auto_explain.log_analyze = on;
      set auto_explain.log_buffers = on; set auto_explain.log_timing = off; set client_min_messages = log`)
    for (const [name, ask] of questions(sql, lastHour)) {
      notices.length = 0
      await ask()
      const lines = notices.join('\n').split('\n')
      const pages = lines.find((line) => line.includes('Buffers: shared'))?.trim()
      console.log(`    ${name}: ${pages}`)
      const plan = lines.filter((line) => /->|Cond|Filter|^Sort|^Limit|^Agg|Aggregate/.test(line))
      if (isWhole) console.log(plan.map((line) => `      ${line}`).join('\n'))
    }
  } catch (cause) {
    console.log(`    no plans: ${cause instanceof Error ? cause.message : cause}`)
  } finally {
    await sql.end({ timeout: 1 })
  }
}

function questions(sql: Sql, lastHour: number): [string, () => Promise<number>][] {
  const month: VerificationFilter = {
    workspaceId: WORKSPACE,
    keyspaceId: KEYSPACE,
    identityId: null,
    keyIds: [],
    tags: [],
    from: lastHour - 30 * DAY_MS,
    to: lastHour + HOUR_MS,
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
      async () =>
        (await dailyCountsOfKeys(sql, { workspaceId: WORKSPACE, keyIds, from: month.from, to: lastHour }))
          .length + 1,
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

if (import.meta.main)
  await run({ tiny: process.argv.includes('tiny'), full: process.argv.includes('--full') })
