import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { openSpills } from '../../src/data-dir/spill.ts'
import { connect, type Sql } from '../../src/db/connect.ts'
import { systemTimers, type Timers } from '../../src/lib/timers.ts'
import { BATCH_ROWS_MAX, emptyColumns, type UsageBatch } from '../../src/usage/batch.ts'
import { closeRatelimitHours } from '../../src/usage/close-hours.ts'
import { type CounterRef, SEND_TIMEOUT_MS, UsageRecorder } from '../../src/usage/recorder.ts'
import { countBatch, dropOldPartitions, makeMonth } from '../../src/usage/rollup.ts'
import { openTestSql, type TestSql } from '../support/database.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { openWire } from '../support/wire.ts'
import { AT, HOUR, makeDataDir, ratelimit, validByHour, verification } from './support.ts'

setDefaultTimeout(SLOW_MS)

let database: TestSql
let sql: Sql
beforeAll(async () => {
  database = await openTestSql()
  sql = database.sql
})
afterAll(() => database[Symbol.asyncDispose]())

let made = 0
/** Every test has keys, writers and namespaces of its own in the one database. */
const unique = (prefix: string) => `${prefix}_${++made}`

const makeRecorder = (
  options: {
    sql?: Sql
    dataDir?: string
    now?: () => number
    countsMax?: number
    timers?: Timers
    recovers?: boolean
  } = {},
) =>
  new UsageRecorder({
    sql: options.sql ?? sql,
    writerId: unique('writer'),
    spills: openSpills(options.dataDir ?? '/nonexistent'),
    flushEveryMs: 60_000,
    clock: options.now ?? (() => AT),
    ...(options.countsMax !== undefined && { countsMax: options.countsMax }),
    ...(options.timers !== undefined && { timers: options.timers }),
    recovers: options.recovers ?? false,
  })

/** What the next process does with the spill files that it finds. */
const recover = (dataDir: string, from = sql) => makeRecorder({ sql: from, dataDir, recovers: true }).flush()

const spillsIn = (dataDir: string) => {
  try {
    return readdirSync(join(dataDir, 'spill'))
  } catch {
    return []
  }
}

describe('hours', () => {
  /** A flush may come long after the decision, and a clock may step back: neither moves an event. */
  test('an event counts in the hour of its decision, whenever and in whatever order it is flushed', async () => {
    const keyId = unique('key')
    const recorder = makeRecorder({ now: () => AT + 5 * 3_600_000 })
    const times = [AT, AT - 3_600_000, AT, HOUR, HOUR - 1, AT - 40 * 86_400_000, HOUR + 3_599_999, AT]
    for (const atMs of times) recorder.recordVerification(verification({ keyId, atMs }))
    await recorder.flush()
    recorder.recordVerification(verification({ keyId, atMs: HOUR - 1 }))
    await recorder.flush()
    expect(await validByHour(sql, keyId)).toEqual({
      [HOUR]: 5,
      [HOUR - 3_600_000]: 3,
      [HOUR - 40 * 86_400_000]: 1,
    })
  })

  test('months are made ahead, and on demand for an event of a month that has none', async () => {
    const keyId = unique('key')
    const atMs = Date.UTC(2019, 1, 28, 23, 59)
    const recorder = makeRecorder({ now: () => Date.UTC(2031, 11, 31) })
    recorder.recordVerification(verification({ keyId, atMs, tags: ['old'] }))
    await recorder.flush()
    expect(await validByHour(sql, keyId)).toEqual({ [Date.UTC(2019, 1, 28, 23)]: 1 })
    const [ahead] = await sql`select to_regclass('usage_verifications_203201') is not null as "isMade"`
    expect(ahead?.isMade).toBe(true)
  })

  test('retention drops whole months with their tag sets, and a late event of one makes it again', async () => {
    const keyId = unique('key')
    const old = Date.UTC(2020, 2, 31, 23, 30)
    const kept = Date.UTC(2020, 3, 1)
    const recorder = makeRecorder({ now: () => Date.UTC(2020, 4, 1) })
    for (const atMs of [old, kept]) recorder.recordVerification(verification({ keyId, atMs, tags: ['a'] }))
    await recorder.flush()
    const dropped = await dropOldPartitions(sql, 1, Date.UTC(2020, 4, 31))
    expect(dropped).toContain('usage_verifications_202003')
    expect(dropped).toContain('usage_tag_sets_202003')
    expect(dropped.some((name) => name.endsWith('202004'))).toBe(false)
    expect(await validByHour(sql, keyId)).toEqual({ [kept]: 1 })

    recorder.recordVerification(verification({ keyId, atMs: old }))
    await recorder.flush() // finds the month gone
    await recorder.flush()
    expect(await validByHour(sql, keyId)).toEqual({ [kept]: 1, [Date.UTC(2020, 2, 31, 23)]: 1 })
  })
})

describe('tags and identities', () => {
  test('order and repetition of tags do not make another set, and every other difference does', async () => {
    const keyId = unique('key')
    const recorder = makeRecorder()
    const lists = [
      ['b', 'a'],
      ['a', 'b'],
      ['a', 'b', 'a'],
      ['a'],
      ['a,b'],
      ['a"', '\\'],
      [],
      null,
      ['é', 'z'],
    ]
    for (const tags of lists) recorder.recordVerification(verification({ keyId, tags }))
    await recorder.flush()
    const rows = await sql<{ tags: string[]; valid: number }[]>`
      select coalesce(tags, '{}') as tags, valid
        from usage_verifications v left join usage_tag_sets s on s.id = v.tag_set and s.workspace_id = v.workspace_id
       where v.key_id = ${keyId} and (s.month is null or s.month = ${Date.UTC(2026, 10)})
       order by tags`
    expect(rows.map(({ tags, valid }) => [tags, valid])).toEqual([
      [[], 2],
      [['\\', 'a"'], 1],
      [['a'], 1],
      [['a', 'b'], 3],
      [['a,b'], 1],
      [['z', 'é'], 1],
    ])
  })

  test('a key that changes its identity counts for each as connected at that moment', async () => {
    const keyId = unique('key')
    const recorder = makeRecorder()
    for (const identityId of [null, 'id_1', 'id_2', 'id_1', null, 'id_1'])
      recorder.recordVerification(verification({ keyId, identityId }))
    await recorder.flush()
    const rows =
      await sql`select identity_id, valid from usage_verifications where key_id = ${keyId} order by 1`
    expect(rows.map((row) => [row.identity_id, row.valid])).toEqual([
      ['', 2],
      ['id_1', 3],
      ['id_2', 1],
    ])
  })
})

/** A cached key refers to its row. The reference must not count in another hour, nor in rows that are gone. */
test('a counter reference changes no count, over hours, flushes and a record read again', async () => {
  const keyId = unique('key')
  const recorder = makeRecorder()
  let counterRef: CounterRef = { usageRows: null, usageRow: 0 }
  const record = (times: number, changes: Parameters<typeof verification>[0] = {}) => {
    for (let i = 0; i < times; i++)
      recorder.recordVerification({ ...verification({ keyId, ...changes }), counterRef })
  }
  record(1, { atMs: AT - 3_600_000 })
  record(2)
  record(4, { tags: ['a'] })
  record(8)
  counterRef = { usageRows: null, usageRow: 0 }
  record(16)
  const flushing = recorder.flush()
  record(32)
  await flushing
  record(64)
  recorder.recordVerification(verification({ keyId }))
  await recorder.flush()
  expect(await validByHour(sql, keyId)).toEqual({ [HOUR - 3_600_000]: 1, [HOUR]: 127 })
  const [row] = await sql<{ rows: number }[]>`
    select count(*) as rows from usage_verifications where key_id = ${keyId} and hour = ${HOUR}`
  expect(row?.rows).toBe(2) // with and without tags
})

describe('exactly once', () => {
  test('a batch sent twice counts once, and one of a lower number not at all', async () => {
    const keyId = unique('key')
    await makeMonth(sql, AT)
    const batch = (number: number): UsageBatch => {
      const columns = emptyColumns()
      columns.scopes = { workspaceId: ['ws_1'], keyspaceId: ['ks_1'] }
      columns.verifications = {
        scope: [1],
        set: [0],
        hour: [HOUR],
        keyId: [keyId],
        identityId: [''],
        valid: [7],
        rateLimited: [0],
        expired: [0],
        disabled: [0],
        forbidden: [0],
        usageExceeded: [0],
        insufficientPermissions: [0],
      }
      return { writer: keyId, number, columns }
    }
    expect(await countBatch(sql, batch(2), AT)).toBe(true)
    expect(await countBatch(sql, batch(2), AT)).toBe(false)
    expect(await countBatch(sql, batch(1), AT)).toBe(false)
    expect(await countBatch(sql, batch(3), AT)).toBe(true)
    expect(await validByHour(sql, keyId)).toEqual({ [HOUR]: 14 })
  })

  /** Ids travel as a list of words where they are words: no id may be taken for two, or for none. */
  test('an id with commas, quotes or braces, or an empty one, is counted as one id', async () => {
    await makeMonth(sql, AT)
    for (const keyIds of [
      ['key_1'],
      ['key_1', 'key_2'],
      ['key_1', 'key,2'],
      ['', 'key_1'],
      ['key_1', ''],
      ['{}', '"', 'kéy'],
    ]) {
      const keyspaceId = unique('ks')
      const columns = emptyColumns()
      columns.scopes = { workspaceId: ['ws_1'], keyspaceId: [keyspaceId] }
      columns.verifications = {
        ...columns.verifications,
        scope: [1],
        hour: [HOUR],
        keyId: keyIds,
        valid: keyIds.map(() => 1),
      }
      expect(await countBatch(sql, { writer: keyspaceId, number: 1, columns }, AT)).toBe(true)
      const rows = await sql<{ key_id: string }[]>`
        select key_id from usage_verifications where keyspace_id = ${keyspaceId}`
      expect(rows.map(({ key_id }) => key_id).sort()).toEqual([...keyIds].sort())
    }
  })

  test('ids in one list, as in spill files of earlier versions, are counted', async () => {
    await makeMonth(sql, AT)
    const keyspaceId = unique('ks')
    const columns = emptyColumns()
    columns.scopes = { workspaceId: ['ws_1'], keyspaceId: [keyspaceId] }
    const keyIds = { rows: 2, list: 'key_1     ,key_2 ' }
    columns.verifications = { ...columns.verifications, scope: [1], hour: [HOUR], keyIds, valid: [3, 4] }
    expect(await countBatch(sql, { writer: keyspaceId, number: 1, columns }, AT)).toBe(true)
    const rows = await sql`
      select key_id as "keyId", valid from usage_verifications where keyspace_id = ${keyspaceId} order by key_id`
    expect([...rows]).toEqual([
      { keyId: 'key_1', valid: 3 },
      { keyId: 'key_2', valid: 4 },
    ])
  })

  test('two sendings of one batch at the same time count once', async () => {
    const keyId = unique('key')
    await makeMonth(sql, AT)
    const columns = emptyColumns()
    columns.totals = { workspaceId: ['ws_1'], namespaceId: [keyId], hour: [HOUR], passed: [3], denied: [4] }
    const batch = { writer: keyId, number: 1, columns }
    const pools = [database.anotherPool(), database.anotherPool(), sql]
    const counted = await Promise.all(pools.map((pool) => countBatch(pool, batch, AT)))
    expect(counted.filter(Boolean)).toHaveLength(1)
    const rows = await sql`select passed, denied from usage_ratelimits where namespace_id = ${keyId}`
    expect([...rows]).toEqual([{ passed: 3, denied: 4 }])
  })

  /** The dangerous moment: the database has counted, and nobody knows. */
  test('a commit whose answer is lost counts once', async () => {
    const keyId = unique('key')
    using dataDir = makeDataDir()
    await using wire = await openWire(database.address)
    const wired = connect(wire.address, { connectionsMax: 1 })
    const recorder = makeRecorder({ sql: wired, dataDir: dataDir.path })
    recorder.recordVerification(verification({ keyId }))
    await recorder.flush()

    wire.deafen()
    for (let i = 0; i < 3; i++) recorder.recordVerification(verification({ keyId, tags: ['t'] }))
    await recorder.flush()
    expect(await validByHour(sql, keyId)).toEqual({ [HOUR]: 4 }) // committed, though the recorder was not told
    recorder.recordVerification(verification({ keyId })) // joins the next batch, not the one in doubt

    await wire.open()
    await recorder.flush()
    await recorder.flush()
    expect(await validByHour(sql, keyId)).toEqual({ [HOUR]: 5 })
    await recorder.stop()
    expect(spillsIn(dataDir.path)).toEqual([])
    await wired.end({ timeout: 1 })
  })

  /** The batch in doubt at a stop goes to the data dir under its number, so the next start finds it counted. */
  test('a batch whose answer was lost before a stop is counted once by the next process', async () => {
    const keyId = unique('key')
    using dataDir = makeDataDir()
    await using wire = await openWire(database.address)
    const wired = connect(wire.address, { connectionsMax: 1 })
    const recorder = makeRecorder({ sql: wired, dataDir: dataDir.path })
    recorder.recordVerification(verification({ keyId }))
    await recorder.flush()
    wire.deafen()
    recorder.recordVerification(verification({ keyId }))
    await recorder.flush()
    await wire.cut()
    recorder.recordVerification(verification({ keyId }))
    await recorder.stop()
    expect(spillsIn(dataDir.path)).toHaveLength(2)
    expect(await validByHour(sql, keyId)).toEqual({ [HOUR]: 2 })

    await recover(dataDir.path)
    expect(await validByHour(sql, keyId)).toEqual({ [HOUR]: 3 })
    expect(spillsIn(dataDir.path)).toEqual([])
    await wired.end({ timeout: 1 })
  })

  /** Its number stayed behind those of later batches, so the next start took it for counted. */
  test('a batch that a stop could not send is counted though the recorder goes on and sends others', async () => {
    const keyId = unique('key')
    using dataDir = makeDataDir()
    await using wire = await openWire(database.address)
    const wired = connect(wire.address, { connectionsMax: 2 })
    const recorder = makeRecorder({ sql: wired, dataDir: dataDir.path })
    await wire.cut()
    recorder.recordVerification(verification({ keyId }))
    await recorder.stop()
    expect(spillsIn(dataDir.path)).toHaveLength(1)
    await wire.open()
    recorder.recordVerification(verification({ keyId }))
    await flushUntil(recorder, async () => (await validByHour(sql, keyId))[HOUR] === 2)
    expect(spillsIn(dataDir.path)).toEqual([])
    recorder.recordVerification(verification({ keyId }))
    await recorder.stop()
    await recover(dataDir.path)
    expect(await validByHour(sql, keyId)).toEqual({ [HOUR]: 3 })
    await wired.end({ timeout: 1 })
  })

  test('two writers on the same keys and tags at once lose no count and do not deadlock', async () => {
    const keys = Array.from({ length: 200 }, () => unique('key'))
    const namespaceId = unique('rlns')
    const recorders = [database.anotherPool(), database.anotherPool()].map((pool) =>
      makeRecorder({ sql: pool }),
    )
    for (let round = 0; round < 10; round++) {
      for (const [index, recorder] of recorders.entries()) {
        // Opposite orders: where locks were taken as they come, this would deadlock.
        for (const keyId of index === 0 ? keys : keys.toReversed()) {
          recorder.recordVerification(verification({ keyId, tags: [`round_${round}`, keyId] }))
          recorder.recordRatelimit(ratelimit({ namespaceId, identifier: keyId }))
        }
      }
      await Promise.all(recorders.map((recorder) => recorder.flush()))
    }
    const [sums] = await sql<{ count: number; valid: number; least: number }[]>`
      select count(*), sum(valid)::bigint as valid, min(valid) as least
        from usage_verifications where key_id = any(${keys}::text[])`
    expect(sums).toEqual({ count: 2000, valid: 4000, least: 2 })
    const [totals] = await sql`
      select t.passed, t.identifiers, (select sum(passed)::bigint from usage_ratelimit_identifiers i where i.namespace_id = t.namespace_id) as named
        from usage_ratelimits t where namespace_id = ${namespaceId}`
    expect(totals).toEqual({ passed: 4000, identifiers: 200, named: 4000 })
  })
})

describe('while Postgres is away', () => {
  test('counts are added up in memory, and sent when it is back', async () => {
    const keyId = unique('key')
    await using wire = await openWire(database.address)
    const wired = connect(wire.address, { connectionsMax: 2 })
    const recorder = makeRecorder({ sql: wired })
    await wire.cut()
    for (let i = 0; i < 3; i++) {
      recorder.recordVerification(verification({ keyId }))
      await recorder.flush()
    }
    expect(await validByHour(sql, keyId)).toEqual({})
    await wire.open()
    await flushUntil(recorder, async () => (await validByHour(sql, keyId))[HOUR] === 3)
    await wired.end({ timeout: 1 })
  })

  test('usage that a stop could not send is counted once, also when two processes send it', async () => {
    const keyId = unique('key')
    using dataDir = makeDataDir()
    await using wire = await openWire(database.address)
    const wired = connect(wire.address, { connectionsMax: 2 })
    await wire.cut()
    const recorder = makeRecorder({ sql: wired, dataDir: dataDir.path })
    recorder.recordVerification(verification({ keyId, tags: ['kept'] }))
    recorder.recordRatelimit(ratelimit({ namespaceId: keyId, passed: false }))
    await recorder.stop()
    await wired.end({ timeout: 1 })
    expect(await validByHour(sql, keyId)).toEqual({})

    await Promise.all([recover(dataDir.path), recover(dataDir.path, database.anotherPool())])
    await recover(dataDir.path)
    expect(await validByHour(sql, keyId)).toEqual({ [HOUR]: 1 })
    const rows = await sql`select denied from usage_ratelimits where namespace_id = ${keyId}`
    expect([...rows]).toEqual([{ denied: 1 }])
  })

  /** Its columns are not those of this release: sent, they would be counted in part, and the file would be gone. */
  test('a spill file of a newer release stays, and those after it are sent', async () => {
    const keyId = unique('key')
    using dataDir = makeDataDir()
    await using wire = await openWire(database.address)
    const wired = connect(wire.address, { connectionsMax: 2 })
    await wire.cut()
    const recorder = makeRecorder({ sql: wired, dataDir: dataDir.path })
    recorder.recordVerification(verification({ keyId }))
    await recorder.stop()
    const [spilled] = [...openSpills(dataDir.path).read('usage')]
    expect(spilled?.value).toMatchObject({ format: 1 })
    const newer = { ...(spilled?.value as object), format: 2 } // a batch, by the line above
    openSpills(dataDir.path).write('usage', newer)
    await recover(dataDir.path)
    expect(await validByHour(sql, keyId)).toEqual({ [HOUR]: 1 })
    const left = [...openSpills(dataDir.path).read('usage')]
    expect(left.map(({ value }) => value)).toEqual([newer])
    await wired.end({ timeout: 1 })
  })

  test('only a recovering recorder sends the files of earlier processes, once each, and skips an invalid one', async () => {
    const keyId = unique('key')
    using dataDir = makeDataDir()
    const spills = openSpills(dataDir.path)
    await using wire = await openWire(database.address)
    const wired = connect(wire.address, { connectionsMax: 2 })
    await wire.cut()
    for (let i = 0; i < 5; i++) {
      const recorder = makeRecorder({ sql: wired, dataDir: dataDir.path })
      recorder.recordVerification(verification({ keyId, tags: [`stop_${i}`] }))
      await recorder.stop()
    }
    spills.write('usage', { writer: 'nobody' })
    await makeRecorder({ dataDir: dataDir.path }).flush()
    expect(await validByHour(sql, keyId)).toEqual({})

    const recorder = makeRecorder({ sql: wired, dataDir: dataDir.path, recovers: true })
    const another = makeRecorder({ dataDir: dataDir.path, recovers: true })
    await recorder.flush() // Postgres is away: no valid file is passed over
    expect(recorder.stats().batchesSpilled).toBeGreaterThanOrEqual(5)
    await wire.open()
    recorder.recordVerification(verification({ keyId }))
    await Promise.all([
      flushUntil(recorder, async () => recorder.stats().batchesSpilled === 0),
      another.flush(),
    ])
    expect(await validByHour(sql, keyId)).toEqual({ [HOUR]: 6 })
    expect(spillsIn(dataDir.path)).toHaveLength(1) // the broken one
    await recover(dataDir.path)
    expect(spillsIn(dataDir.path)).toHaveLength(1)
    await recorder.stop()
    await wired.end({ timeout: 1 })
  })

  test('counts beyond the bound go to spill files, and to Postgres when it is back', async () => {
    const prefix = unique('key')
    using dataDir = makeDataDir()
    await using wire = await openWire(database.address)
    const wired = connect(wire.address, { connectionsMax: 2 })
    const recorder = makeRecorder({ sql: wired, dataDir: dataDir.path, countsMax: 10_000 })
    await wire.cut()
    for (let i = 0; i < 12_000; i++) recorder.recordVerification(verification({ keyId: `${prefix}_${i}` }))
    await recorder.flush()
    expect(spillsIn(dataDir.path)).toHaveLength(12_000 / BATCH_ROWS_MAX - 1) // besides the batch without an answer, which stays in memory
    recorder.recordVerification(verification({ keyId: `${prefix}_0` }))
    await wire.open()
    const valid = async () => {
      const [row] = await sql<{ valid: number }[]>`
        select coalesce(sum(valid), 0)::bigint as valid from usage_verifications where starts_with(key_id, ${`${prefix}_`})`
      return row?.valid
    }
    await flushUntil(recorder, async () => (await valid()) === 12_001)
    expect(spillsIn(dataDir.path)).toEqual([])
    await wired.end({ timeout: 1 })
  }, 60_000)
})

/** Otherwise a crash while hours of spilled counts are sent would lose all new counts of that time. */
test('after a long outage each flush sends new counts first, then spill files for one interval', async () => {
  const prefix = unique('key')
  using dataDir = makeDataDir()
  await using wire = await openWire(database.address)
  const wired = connect(wire.address, { connectionsMax: 2 })
  let now = 0
  // An interval is over at each look at the time, so each flush sends one spilled batch.
  const timers = { ...systemTimers, now: () => (now += 60_000) }
  const recorder = makeRecorder({ sql: wired, dataDir: dataDir.path, countsMax: 10_000, timers })
  await wire.cut()
  for (let i = 0; i < 12_000; i++) recorder.recordVerification(verification({ keyId: `${prefix}_${i}` }))
  await recorder.flush()
  const spilled = spillsIn(dataDir.path).length
  expect(recorder.stats().batchesSpilled).toBe(spilled)
  await wire.open()
  await flushUntil(recorder, async () => spillsIn(dataDir.path).length < spilled)
  for (let left = spilled - 1; left > 0; left--) {
    expect(spillsIn(dataDir.path)).toHaveLength(left)
    expect(recorder.stats().batchesSpilled).toBe(left)
    recorder.recordVerification(verification({ keyId: `${prefix}_new` }))
    await recorder.flush()
    expect(await validByHour(sql, `${prefix}_new`)).toEqual({ [HOUR]: spilled - left })
  }
  expect(spillsIn(dataDir.path)).toEqual([])
  const [row] = await sql<{ valid: number }[]>`
    select sum(valid)::bigint as valid from usage_verifications where starts_with(key_id, ${`${prefix}_`})`
  expect(row?.valid).toBe(12_000 + spilled - 1)
  await wired.end({ timeout: 1 })
}, 60_000)

/** Otherwise a crash would cost an interval on top of two slow flushes. */
test('flushes begin one interval apart, also slow ones; after a failed one a whole interval passes', async () => {
  let now = 0
  let tookMs = 0
  let isAway = false
  const slow = new Proxy(sql, {
    apply: (target, self, args) => {
      now += tookMs
      return isAway ? Promise.reject(new Error('away')) : Reflect.apply(target, self, args)
    },
  })
  type Flush = { afterMs: number; run(): void }
  let next = Promise.withResolvers<Flush>()
  const timers: Timers = {
    ...systemTimers,
    now: () => now,
    after: (afterMs, run) => {
      if (afterMs !== SEND_TIMEOUT_MS) next.resolve({ afterMs, run })
      return () => {}
    },
  }
  const recorder = makeRecorder({ sql: slow, timers })
  const restAfterFlush = async ({ run }: Flush) => {
    next = Promise.withResolvers()
    run()
    return await next.promise
  }
  recorder.start()
  const first = await restAfterFlush(await next.promise) // makes the months, and closes the hours before
  expect(first.afterMs).toBe(60_000)
  const delays: number[] = []
  for (const [took, away] of [
    [20_000, false],
    [70_000, false],
    [20_000, true],
    [0, false],
  ] as const) {
    tookMs = took
    isAway = away
    recorder.recordVerification(verification({ keyId: unique('key') })) // one statement
    const { afterMs } = await restAfterFlush(first)
    delays.push(afterMs)
  }
  expect(delays).toEqual([40_000, 15_000, 60_000, 60_000])
  await recorder.stop()
})

/** Otherwise each statement to a slow database would add a file, and the files would never end. */
test('spill files get fewer with each flush, also while each statement takes so long that the bound is reached', async () => {
  const prefix = unique('key')
  using dataDir = makeDataDir()
  let isAway = true
  let recorded = 0
  const record = (count: number) => {
    for (let i = 0; i < count; i++)
      recorder.recordVerification(verification({ keyId: `${prefix}_${recorded++}` }))
  }
  const busy = new Proxy(sql, {
    apply: (target, self, args) => {
      if (isAway) return Promise.reject(new Error('away'))
      if (recorded < 400) record(15)
      return Reflect.apply(target, self, args)
    },
  })
  let now = 0
  // An interval is over at each look at the time, so each flush sends one spilled batch.
  const timers = { ...systemTimers, now: () => (now += 60_000) }
  const recorder = makeRecorder({ sql: busy, dataDir: dataDir.path, countsMax: 10, timers })
  for (let i = 0; i < 5; i++) {
    record(20)
    await recorder.flush()
  }
  const spilled = spillsIn(dataDir.path).length
  expect(spilled).toBeGreaterThan(2)
  isAway = false
  for (let left = spilled - 1; left >= 0; left--) {
    await recorder.flush()
    expect(spillsIn(dataDir.path)).toHaveLength(left)
  }
  while (recorded < 400) await recorder.flush()
  await recorder.flush()
  const [row] = await sql<{ cells: number; valid: number }[]>`
    select count(*) as cells, sum(valid)::bigint as valid
      from usage_verifications where starts_with(key_id, ${`${prefix}_`})`
  expect(row).toEqual({ cells: recorded, valid: recorded })
})

/** Otherwise a flood of distinct tags would fill the memory of a server whose database is slow. */
test('counts that come faster than Postgres takes them go through spill files, and count once', async () => {
  const prefix = unique('key')
  using dataDir = makeDataDir()
  const recorder = makeRecorder({ dataDir: dataDir.path, countsMax: 1_000 })
  const record = (from: number, to: number) => {
    for (let i = from; i < to; i++) recorder.recordVerification(verification({ keyId: `${prefix}_${i}` }))
  }
  record(0, 12_000)
  const flushing = recorder.flush()
  await Bun.sleep(0) // the flush has taken what was there
  record(6_000, 9_000)
  await flushing
  await recorder.flush()
  const [row] = await sql<{ cells: number; valid: number }[]>`
    select count(*) as cells, sum(valid)::bigint as valid
      from usage_verifications where starts_with(key_id, ${`${prefix}_`})`
  expect(row).toEqual({ cells: 12_000, valid: 15_000 })
  expect(existsSync(join(dataDir.path, 'spill'))).toBe(true)
  expect(spillsIn(dataDir.path)).toEqual([])
})

/** One batch that can never be written must not hold up all that come after it. */
test('a batch that the database refuses goes to a file of its own, and later batches are counted', async () => {
  const keyId = unique('key')
  using dataDir = makeDataDir()
  const recorder = makeRecorder({ dataDir: dataDir.path })
  recorder.recordVerification(verification({ keyId, tags: ['\0'] })) // no endpoint lets this through
  await recorder.flush()
  recorder.recordVerification(verification({ keyId }))
  await recorder.flush()
  expect(await validByHour(sql, keyId)).toEqual({ [HOUR]: 1 })
  expect(spillsIn(dataDir.path).map((name) => name.startsWith('rejected-usage-'))).toEqual([true])
  await recover(dataDir.path) // is not taken for a batch to send
  expect(spillsIn(dataDir.path)).toHaveLength(1)
})

describe('identifiers of a namespace', () => {
  const named = async (namespaceId: string) =>
    Object.fromEntries(
      (
        await sql<{ identifier: string; count: number }[]>`
          select identifier, passed + denied as count from usage_ratelimit_identifiers where namespace_id = ${namespaceId}`
      ).map(({ identifier, count }) => [identifier, count]),
    )

  /** Whoever is shown by name is exact: nobody is taken in after one of their calls was counted in the rest. */
  test('once an hour has all its identifiers, new ones count in the total only, and named ones stay exact', async () => {
    const namespaceId = unique('rlns')
    await makeMonth(sql, AT)
    const send = (number: number, counts: Record<string, number>) => {
      const columns = emptyColumns()
      const passed = Object.values(counts)
      const total = passed.reduce((sum, count) => sum + count, 0)
      columns.totals = {
        workspaceId: ['ws_1'],
        namespaceId: [namespaceId],
        hour: [HOUR],
        passed: [total],
        denied: [0],
      }
      columns.identifiers = {
        total: passed.map(() => 1),
        identifier: Object.keys(counts),
        passed,
        denied: passed.map(() => 0),
      }
      return countBatch(sql, { writer: namespaceId, number, columns }, AT, { identifiersMax: 3 })
    }
    await send(1, { a: 1, b: 2 })
    await send(2, { a: 1, c: 1, d: 9 }) // one place left: to the one with the most calls
    await send(3, { a: 1, c: 50, d: 1, e: 50 })
    expect(await named(namespaceId)).toEqual({ a: 3, b: 2, d: 10 })
    const [total] = await sql`select passed from usage_ratelimits where namespace_id = ${namespaceId}`
    expect(total?.passed).toBe(1 + 2 + 1 + 1 + 9 + 1 + 50 + 1 + 50)
  })

  test('a closed hour keeps the 1 000 identifiers with the most traffic, exact, and names no new ones', async () => {
    const namespaceId = unique('rlns')
    const atMs = Date.UTC(2024, 1, 3, 4, 56) // over for the database's clock too, whenever this runs
    let now = atMs
    const recorder = makeRecorder({ now: () => now })
    for (let i = 0; i < 1100; i++) {
      const identifier = `user_${i}`
      recorder.recordRatelimit(ratelimit({ namespaceId, identifier, atMs }))
      if (i >= 500) recorder.recordRatelimit(ratelimit({ namespaceId, identifier, passed: false, atMs }))
    }
    await recorder.flush()
    expect(Object.keys(await named(namespaceId))).toHaveLength(1100) // while the hour runs, everyone
    now += 4 * 3_600_000
    await closeRatelimitHours(sql, now)
    const kept = await named(namespaceId)
    expect(Object.keys(kept)).toHaveLength(1000)
    for (let i = 500; i < 1100; i++) expect(kept[`user_${i}`]).toBe(2)

    // Late events: of one that is kept, of one that is not, of a new one.
    const gone = Array.from({ length: 500 }, (_, i) => `user_${i}`).find(
      (identifier) => kept[identifier] === undefined,
    )
    for (const identifier of ['user_1000', gone ?? '', 'user_new'])
      recorder.recordRatelimit(ratelimit({ namespaceId, identifier, atMs }))
    await recorder.flush()
    await closeRatelimitHours(sql, now)
    expect(await named(namespaceId)).toEqual({ ...kept, user_1000: 3 })
    const [total] =
      await sql`select passed + denied as total from usage_ratelimits where namespace_id = ${namespaceId}`
    expect(total?.total).toBe(1100 + 600 + 3)
  })

  /** One server with its clock set wrong cut the running hour of all of them, and took in nobody new for its rest. */
  test('a server whose clock is ahead closes no hour that is open by the clock of the database', async () => {
    const namespaceId = unique('rlns')
    const atMs = Date.now()
    const send = async (now: () => number, identifier: string) => {
      const recorder = makeRecorder({ now })
      recorder.recordRatelimit(ratelimit({ namespaceId, identifier, atMs }))
      await recorder.flush()
    }
    await send(() => atMs, 'first')
    await send(() => atMs + 5 * 3_600_000, 'ahead')
    await closeRatelimitHours(sql, atMs + 5 * 3_600_000)
    await send(() => atMs, 'late')
    expect(await named(namespaceId)).toEqual({ first: 1, ahead: 1, late: 1 })
  })

  /** Bug: a flood of new identifiers was buffered and sent, only for the database to drop it: 1.6 GB for six million. */
  test('once an hour is full, new identifiers take no memory, and named ones stay exact on every thread', async () => {
    const namespaceId = unique('rlns')
    const workspaceId = unique('ws')
    await sql`insert into workspaces (id, name, bounds, created_at) values (${workspaceId}, 'full', '{"usageIdentifiers": 3000}', 0)`
    const [one, two] = [makeRecorder(), makeRecorder()]
    let recorded = 0
    const record = (recorder: UsageRecorder, prefix: string, count: number) => {
      for (let i = 0; i < count; i++)
        recorder.recordRatelimit({ ...ratelimit({ namespaceId, identifier: `${prefix}_${i}` }), workspaceId })
      recorded += count
    }
    record(one, 'named', 3_000)
    await one.flush()
    // Counted before this thread knows that the hour is full, and sent after it knows.
    record(two, 'early', 6_000)
    record(two, 'named', 1_000)
    await two.flush()
    for (const recorder of [one, two]) {
      record(recorder, 'fresh', 1_000_000)
      expect(recorder.stats().countsBuffered).toBeLessThan(3_000)
      record(recorder, 'named', 2_000)
      await recorder.flush()
    }
    const expected = Array.from({ length: 3_000 }, (_, i): [string, number] => [
      `named_${i}`,
      i < 1_000 ? 4 : i < 2_000 ? 3 : 1,
    ])
    expect(await named(namespaceId)).toEqual(Object.fromEntries(expected))
    const [total] = await sql`select passed from usage_ratelimits where namespace_id = ${namespaceId}`
    expect(total?.passed).toBe(recorded)
  })

  test('an identifier too long for a row of its own counts in the total', async () => {
    const namespaceId = unique('rlns')
    const recorder = makeRecorder()
    for (const identifier of ['x'.repeat(1024), '語'.repeat(1024), '語'.repeat(600)])
      recorder.recordRatelimit(ratelimit({ namespaceId, identifier }))
    await recorder.flush()
    expect(Object.keys(await named(namespaceId)).map((name) => name.length)).toEqual(
      expect.arrayContaining([1024, 600]),
    )
    const [total] = await sql`select passed from usage_ratelimits where namespace_id = ${namespaceId}`
    expect(total?.passed).toBe(3)
  })
})

/** The driver waits a growing while before it connects again, so the database being back shows a little later. */
async function flushUntil(recorder: UsageRecorder, isDone: () => Promise<boolean>): Promise<void> {
  for (let attempt = 0; attempt < 100; attempt++) {
    await recorder.flush()
    if (await isDone()) return
    await Bun.sleep(100)
  }
  throw new Error('usage did not arrive')
}
