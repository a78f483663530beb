import postgres from 'postgres'
import { countVerifications, dailyCountsOfKeys, type VerificationFilter } from '../src/analytics/store.ts'
import { readConfig } from '../src/config.ts'
import { arrayTypes } from '../src/db/array-types.ts'
import type { Sql } from '../src/db/connect.ts'
import { openSpills } from '../src/db/spill.ts'
import { endpoints } from '../src/http/app.ts'
import { type Handler, handlerOf } from '../src/http/handle.ts'
import { RequestIncoming } from '../src/http/incoming.ts'
import { startOfMonth } from '../src/lib/buckets.ts'
import type { WorkspaceId } from '../src/lib/ids.ts'
import { startServer } from '../src/server.ts'
import { Fold } from '../src/usage/fold.ts'
import { UsageRecorder } from '../src/usage/recorder.ts'
import { makeMonth } from '../src/usage/rollup.ts'
import { openTestDatabase, openTestSql, TEST_DATABASE_URL, type TestSql } from '../test/support/database.ts'
import { randomNumbers } from '../test/support/random.ts'
import { generator, sendLoad } from './support/load.ts'
import { sendPacedLoad } from './support/paced.ts'
import { machine, median } from './support/table.ts'
import { startTarget, type Target } from './support/target.ts'
import { servePostgresApart } from './support/tollgate.ts'

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
    for (const { verifications } of fold.columns()) for (const valid of verifications.valid) counted += valid
    if (counted !== times + 65_536) throw new Error(`${counted} counted of ${times + 65_536}`)
    console.log(`  record, ${name}: ${each.toFixed(0)} ns`)
  }
}

/**
 * What recording costs of a verification. Few keys verified often share their cells; of many keys verified less than once
 * a second each verification is a row to write. The cache of keys holds some 44 000: more would be read anew each time.
 *
 * Three measurements, for a claim of 3 % is finer than two loads over HTTP can be told apart on most machines. Over HTTP,
 * with and without recording in turn: as much as goes, and at a steady rate. Where each verification is a row, Postgres
 * takes so much of the load's core that less is asked of the server; it then answers fewer at a time, which costs more
 * each, recording or not. At a steady rate both are asked the same. And in this process: CPU time with and without, in
 * short slices, each followed by the flush of what it recorded, against what a verification costs over HTTP.
 */
async function share(isTiny: boolean): Promise<void> {
  const sizes = isTiny ? [20, 200] : [100, 40_000]
  const where = TEST_DATABASE_URL === null ? 'embedded database, which counts in' : 'Postgres'
  console.log(`  share of recording in keys.verifyKey, ${where}:`)
  const cpuOverHttp = await shareOverHttp(sizes, isTiny)
  await shareInProcess(sizes, cpuOverHttp, isTiny)
}

/**
 * The same server with and without recording, each on a database of its own, pinned to one core. Where that may be done,
 * its connections to Postgres are served on the core of the load, so that rates tell what recording costs the server.
 * @returns CPU µs without.
 */
async function shareOverHttp(sizes: number[], isTiny: boolean): Promise<number[]> {
  const [rounds, seconds, connections] = isTiny ? [1, 1, 4] : [24, 1, 32]
  await using recorded = await startRecording('with recording', ['src/main.ts', 'serve'])
  await using unrecorded = await startRecording('without', ['bench/baselines/unrecorded.ts'])
  const cpuOff: number[] = []
  for (const keys of sizes) {
    const bodies = await makeKeys([recorded, unrecorded], keys)
    const load = { path: '/v1/keys.verifyKey', headers: JSON_TYPE, bodies, connections }
    const on: Figures = { rate: [], cpu: [] }
    const off: Figures = { rate: [], cpu: [] }
    let answered = 0
    let isApart = false
    // The first round only warms up: the cache of keys, and the code.
    for (let round = 0; round <= rounds; round++) {
      for (const target of round % 2 === 0 ? [recorded, unrecorded] : [unrecorded, recorded]) {
        const cpuBefore = target.cpuMicroseconds()
        isApart = await servePostgresApart(target.databaseUrl)
        const result = await sendLoad({
          ...load,
          url: target.url,
          seconds: round === 0 ? 2 * seconds : seconds,
        })
        if (result.failed > 0) throw new Error(`${target.name}: ${result.failed} verifications failed`)
        if (target === recorded) answered += result.answered
        if (round === 0) continue
        const { rate, cpu } = target === recorded ? on : off
        rate.push(result.requestsPerSecond)
        cpu.push((target.cpuMicroseconds() - cpuBefore) / result.answered)
      }
    }
    const paced = await pacedCosts([recorded, unrecorded], { bodies, connections, isTiny })
    answered += paced.answered
    await checkCounted(recorded, { answered, connections: connections * (rounds + 1) })
    cpuOff.push(median(off.cpu))
    const ratio = median(on.cpu) / median(off.cpu)
    console.log(
      `    over HTTP from ${generator}, ${keys} keys: ${median(on.rate).toFixed(0)} against ${median(off.rate).toFixed(0)} a second, ` +
        `CPU ${median(on.cpu).toFixed(1)} against ${median(off.cpu).toFixed(1)} µs each (medians of ${rounds} rounds; × ${ratio.toFixed(3)})` +
        (isApart ? '; Postgres on the core of the load' : ''),
    )
    console.log(
      `    at ${paced.rate} a second, ${keys} keys: CPU ${median(paced.on).toFixed(2)} against ${median(paced.off).toFixed(2)} µs each ` +
        `(medians of ${paced.on.length} rounds; × ${(median(paced.on) / median(paced.off)).toFixed(3)})`,
    )
  }
  return cpuOff
}

/** CPU µs of a verification at a rate that the server, the load and Postgres can all keep up with, in turn. */
async function pacedCosts(
  [recorded, unrecorded]: [Target, Target],
  { bodies, connections, isTiny }: { bodies: string[]; connections: number; isTiny: boolean },
) {
  const [rounds, seconds, rate] = isTiny ? [1, 1, 200] : [10, 3, 5000]
  const calls = bodies.map((body) => ({ path: '/v1/keys.verifyKey', body, expected: '"valid":true' }))
  const on: number[] = []
  const off: number[] = []
  let counted = 0
  for (let round = 0; round < rounds; round++) {
    for (const target of round % 2 === 0 ? [recorded, unrecorded] : [unrecorded, recorded]) {
      const cpuBefore = target.cpuMicroseconds()
      const load = {
        url: target.url,
        socketPath: null,
        headers: JSON_TYPE,
        calls,
        connections,
        seconds,
        rate,
      }
      const { answered, failed } = await sendPacedLoad(load)
      if (failed > 0) throw new Error(`${target.name}: ${failed} verifications failed at ${rate} a second`)
      const costs = target === recorded ? on : off
      costs.push((target.cpuMicroseconds() - cpuBefore) / answered)
      if (target === recorded) counted += answered
    }
  }
  return { rate, on, off, answered: counted }
}

async function shareInProcess(sizes: number[], cpuOverHttp: number[], isTiny: boolean): Promise<void> {
  const slices = isTiny ? 2 : 40
  const each = isTiny ? 200 : 20_000
  await using opening = new AsyncDisposableStack()
  const database = opening.use(await openTestDatabase())
  const server = opening.use(
    await startServer(
      readConfig({
        PORT: '0',
        DATABASE_URL: database.databaseUrl ?? '',
        TOLLGATE_DATA_DIR: database.dataDir,
        TOLLGATE_ROOT_KEY: ROOT_KEY,
        TOLLGATE_HTTP_THREADS: '1',
        TOLLGATE_SHARDS: '1',
        TOLLGATE_FLUSH_MS: '60000',
        // A crowded machine is slow to read many keys, and this measures no refusals.
        TOLLGATE_DB_TIMEOUT_MS: '60000',
      }),
    ),
  )
  const { deps } = server
  const endpoint = endpoints.find(({ path }) => path === '/v1/keys.verifyKey')
  if (endpoint === undefined) throw new Error('no such endpoint')
  const usage: UsageRecorder = Object.create(deps.usage, { recordVerification: { value: () => {} } })
  const handlers = { on: handlerOf(endpoint, deps), off: handlerOf(endpoint, { ...deps, usage }) }
  for (const [index, keys] of sizes.entries()) {
    const apiIds: string[] = []
    const target = { url: server.url, apiIds }
    const bodies = await makeKeys([target], keys)
    let at = 0
    let recorded = 0
    // A server at work is never idle: whoever waits here collects garbage that would be collected later anyway.
    const slice = async (name: 'on' | 'off') => {
      const handle = handlers[name]
      let verified = 0
      let isFlushed = name === 'off'
      const { user, system } = process.cpuUsage()
      for (; verified < each || !isFlushed; verified += 50) {
        if (verified === each) void deps.usage.flush().then(() => (isFlushed = true))
        for (let i = 0; i < 50; i++) {
          await verify(handle, bodies[at++ % keys] as string) // in range
        }
        await new Promise((resolve) => setImmediate(resolve)) // lets the answers of the database in
      }
      const used = process.cpuUsage({ user, system })
      if (name === 'on') recorded += verified
      return (used.user + used.system) / verified
    }
    // Known keys first, many at once: who asks for one unknown key after the other waits for each.
    for (let from = 0; from < keys; from += 500)
      await Promise.all(bodies.slice(from, from + 500).map((body) => verify(handlers.off, body)))
    for (let i = 0; i < 2 + (2 * keys) / each; i++) await slice(i % 2 === 0 ? 'on' : 'off') // warms up
    const costs: number[] = []
    for (let i = 0; i < slices; i++) {
      const [first, second] = i % 2 === 0 ? (['on', 'off'] as const) : (['off', 'on'] as const)
      const cpu = { [first]: await slice(first), [second]: await slice(second) }
      costs.push((cpu.on ?? 0) - (cpu.off ?? 0))
    }
    await deps.usage.flush()
    await checkCounted(target, { answered: recorded, connections: 0 })
    const cost = median(costs)
    console.log(
      `    in process, ${keys} keys: ${cost.toFixed(2)} µs of CPU each, flush included (median of ${slices} pairs of ${each}), ` +
        `${((100 * cost) / (cpuOverHttp[index] ?? Number.NaN)).toFixed(1)} % of what it costs over HTTP`,
    )
  }
}

async function verify(handle: Handler, body: string): Promise<void> {
  const request = new Request('http://localhost/v1/keys.verifyKey', {
    method: 'POST',
    headers: JSON_TYPE,
    body,
  })
  const { status } = await handle(new RequestIncoming(request, null))
  if (status !== 200) throw new Error(`answered ${status}`)
}

const ROOT_KEY = 'tollgate_bench_operator_key'
/** A server, and the APIs made there so far: the last one is being counted. */
type Counted = { url: string; apiIds: string[] }
const JSON_TYPE = { 'Content-Type': 'application/json' }

/** A server with a database of its own, both gone afterwards. */
async function startRecording(
  name: string,
  script: string[],
): Promise<Target & Counted & { databaseUrl: string | null }> {
  await using opening = new AsyncDisposableStack()
  const database = opening.use(await openTestDatabase())
  const target = opening.use(
    await startTarget(name, script, {
      PORT: '0',
      DATABASE_URL: database.databaseUrl ?? '',
      TOLLGATE_DATA_DIR: database.dataDir,
      TOLLGATE_ROOT_KEY: ROOT_KEY,
      TOLLGATE_HTTP_THREADS: '1',
      TOLLGATE_SHARDS: '1',
      // A crowded machine is slow to read many keys, and this measures no refusals.
      TOLLGATE_DB_TIMEOUT_MS: '60000',
    }),
  )
  const opened = opening.move()
  const { databaseUrl } = database
  return { ...target, apiIds: [], databaseUrl, [Symbol.asyncDispose]: () => opened.disposeAsync() }
}

/** The same keys on both, in an API of their own. @returns a verification of each, in an order of chance. */
async function makeKeys(targets: Counted[], count: number): Promise<string[]> {
  const keys = Array.from({ length: count }, (_, key) => `bench_${count}_${key}`)
  for (const target of targets) {
    const { apiId } = await call(target, 'apis.createApi', { name: `${count} keys` })
    target.apiIds.push(String(apiId))
    for (let from = 0; from < count; from += 1000)
      await Promise.all(
        Array.from({ length: 10 }, (_, part) => keys.slice(from + 100 * part, from + 100 * (part + 1))).map(
          (part) =>
            call(
              target,
              'migrations.createKeys',
              part.map((key) => ({ apiId, hash: { value: sha256(key), variant: 'sha256_base64' } })),
            ),
        ),
      )
  }
  const random = randomNumbers(SEED)
  return keys
    .map((key) => ({ at: random(), body: JSON.stringify({ key }) }))
    .sort((a, b) => a.at - b.at)
    .map(({ body }) => body)
}

const sha256 = (text: string) => new Bun.CryptoHasher('sha256').update(text).digest('base64')

/** Every answer must have been counted, and no more than the connections could have had in flight at each round's end. */
async function checkCounted(
  target: Counted,
  { answered, connections }: { answered: number; connections: number },
): Promise<void> {
  const { rootKey } = await call(target, 'rootKeys.createRootKey', { permissions: ['api.*.read_api'] })
  const apiId = target.apiIds.at(-1)
  let total = 0
  for (let attempt = 0; attempt < 100 && total < answered; attempt++) {
    await Bun.sleep(200) // a flush is due every second
    const headers = { authorization: `Bearer ${rootKey}` }
    const response = await fetch(`${target.url}/v1/analytics.getVerifications?apiId=${apiId}`, { headers })
    const [row] = (await response.json()) as { total: number }[] // without groups: one row
    total = row?.total ?? 0
  }
  if (total < answered || total > answered + connections)
    throw new Error(`${answered} verifications were answered, ${total} counted`)
}

async function call(target: Counted, method: string, body: unknown): Promise<Record<string, unknown>> {
  const headers = { ...JSON_TYPE, authorization: `Bearer ${ROOT_KEY}` }
  const response = await fetch(`${target.url}/v1/${method}`, {
    method: 'POST',
    headers,
    body: JSON.stringify(body),
  })
  if (!response.ok) throw new Error(`${method} answered ${response.status}: ${await response.text()}`)
  return (await response.json()) as Record<string, unknown> // every answer is an object
}

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
    flushEveryMs: 1000,
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

/** Of one side of a comparison, one figure a round. */
type Figures = { rate: number[]; cpu: number[] }
