import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { setBounds } from '../../src/db/bounds.ts'
import { startOfMonth } from '../../src/lib/buckets.ts'
import { defaultBounds } from '../../src/lib/workspace-bounds.ts'
import { countBatch, makeMonth } from '../../src/usage/rollup.ts'
import { OTHER_TAGS } from '../../src/usage/tag-sets.ts'
import { UsageAccumulator } from '../../src/usage/usage-accumulator.ts'
import { openTestSql, type TestSql } from '../support/database.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { AT, HOUR, ratelimit, verification } from './support.ts'

setDefaultTimeout(SLOW_MS)

const KEPT = 50
let database: TestSql
beforeAll(async () => {
  database = await openTestSql()
  await makeMonth(database.sql, startOfMonth(AT))
  await setBounds(database.sql, { ...defaultBounds(), tagSets: KEPT })
})
afterAll(() => database[Symbol.asyncDispose]())

let workspaces = 0
/** One writer's flushes of a workspace of its own: each call is one. */
function writer() {
  const workspaceId = `ws_${++workspaces}`
  const name = crypto.randomUUID()
  let number = 0
  const record = async (events: Parameters<typeof verification>[0][]) => {
    const usage = new UsageAccumulator()
    for (const event of events)
      usage.addVerification({ ...verification(event), workspaceId, keyspaceId: `ks_of_${workspaceId}` })
    for (const columns of usage.columns())
      if (columns !== null) await countBatch(database.sql, { writer: name, number: ++number, columns }, AT)
  }
  /** Of each set: what is counted, all outcomes together. */
  const kept = async (hour = HOUR): Promise<Record<string, number>> => {
    const rows = await database.sql<{ tags: string[]; total: number }[]>`
      select coalesce(tags, '{}') as tags,
             sum(valid + rate_limited + expired + disabled + forbidden + usage_exceeded + insufficient_permissions)::integer as total
        from usage_verifications v
        left join usage_tag_sets s on s.workspace_id = v.workspace_id and s.id = v.tag_set
       where v.workspace_id = ${workspaceId} and hour = ${hour}
       group by 1`
    return Object.fromEntries(rows.map(({ tags, total }) => [tags.join(' '), total]))
  }
  const texts = async () => {
    const [row] = await database.sql<{ count: number }[]>`
      select count(*)::integer as count from usage_tag_sets where workspace_id = ${workspaceId}`
    return row?.count ?? 0
  }
  return { workspaceId, record, kept, texts }
}

const times = (count: number, event: Parameters<typeof verification>[0]) =>
  Array.from({ length: count }, () => event)
const random = (count: number, changes: Parameters<typeof verification>[0] = {}) =>
  Array.from({ length: count }, () => ({ ...changes, tags: [crypto.randomUUID()] }))
const sum = (counts: Record<string, number>) => Object.values(counts).reduce((all, each) => all + each, 0)

/** Findings of November 2026, 3.2: 20 000 of these grew the database by 260 MB. */
test('an hour keeps as many tag sets as its bound says and counts the others together; its total is exact', async () => {
  const { record, kept, texts } = writer()
  for (let flush = 0; flush < 5; flush++) await record([...random(300), ...times(10, {})])
  const counts = await kept()
  expect(Object.keys(counts)).toHaveLength(KEPT + 2) // the others, and those without tags
  expect(counts[OTHER_TAGS.join(' ')]).toBe(1500 - KEPT)
  expect(counts['']).toBe(50)
  expect(sum(counts)).toBe(1550)
  expect(await texts()).toBe(KEPT + 1)
})

test('a tag set with much traffic has its own row after a flood of random ones', async () => {
  const { record, kept, texts } = writer()
  await record(random(200))
  await record([...random(200), ...times(30, { tags: ['plan=pro'] }), ...times(20, { tags: ['plan=free'] })])
  await record([...random(200), ...times(5, { tags: ['plan=free'] })])
  const counts = await kept()
  expect([counts['plan=pro'], counts['plan=free']]).toEqual([30, 25])
  expect(Object.keys(counts)).toHaveLength(KEPT + 1)
  expect(sum(counts)).toBe(655)
  expect(await texts()).toBe(KEPT + 1) // of the two whose place was taken nothing is left
})

test('a tag set that loses its place counts as (other), for each key and identity', async () => {
  const { record, kept } = writer()
  const old = ['key_1', 'key_2', 'key_2'].map((keyId, at) => ({
    keyId,
    identityId: at === 2 ? 'id_1' : null,
    tags: ['old'],
  }))
  await record([
    ...old,
    ...Array.from({ length: KEPT - 1 }, (_, at) => times(9, { tags: [`set_${at}`] })).flat(),
  ])
  await record(times(4, { keyId: 'key_3', tags: ['new'] }))
  const counts = await kept()
  expect([counts.old, counts.new, counts[OTHER_TAGS.join(' ')]]).toEqual([undefined, 4, 3])
})

/** Whoever holds a disabled key may present it as often as they like: it must not cost the tags of the others. */
test('tag sets that have only refused verifications get a tenth of the places, and lose them first', async () => {
  const { record, kept } = writer()
  await record(random(500, { outcome: 'DISABLED' }))
  expect(Object.keys(await kept())).toHaveLength(KEPT / 10 + 1)
  await record([...random(300, { outcome: 'FORBIDDEN' }), ...random(KEPT)])
  await record(random(3, { outcome: 'EXPIRED' }))
  const counts = await kept()
  expect(Object.keys(counts)).toHaveLength(KEPT + 1)
  const rows = await database.sql<{ count: number }[]>`
    select count(*)::integer as count from usage_tag_set_hours where counted = 0 and workspace_id = ${`ws_${workspaces}`}`
  expect(rows[0]?.count).toBe(0)
  expect(sum(counts)).toBe(500 + 300 + KEPT + 3)
})

test('refused verifications count in a tag set that has a row already', async () => {
  const { record, kept } = writer()
  await record([...times(3, { tags: ['a'] }), ...times(4, { tags: ['a'], outcome: 'DISABLED' })])
  expect(await kept()).toEqual({ a: 7 })
})

test('each hour and each workspace has its own places', async () => {
  const one = writer()
  const other = writer()
  await one.record(random(500))
  await one.record([{ tags: ['late'], atMs: AT + 3_600_000 }])
  await other.record([{ tags: ['mine'] }])
  expect(await one.kept(HOUR + 3_600_000)).toEqual({ late: 1 })
  expect(await other.kept()).toEqual({ mine: 1 })
})

test('the tags of a set stay stored while another hour of the month has a row of it', async () => {
  const { record, kept } = writer()
  await record([{ tags: ['rare'] }, { tags: ['rare'], atMs: AT + 3_600_000 }])
  for (let at = 0; at < KEPT; at++) await record(times(2, { tags: [`set_${at}`] }))
  expect((await kept()).rare).toBeUndefined()
  expect(await kept(HOUR + 3_600_000)).toEqual({ rare: 1 })
})

test('two writers of one workspace at once keep no more than the bound, and lose nothing', async () => {
  const one = writer()
  const record = async () => {
    const usage = new UsageAccumulator()
    for (const event of random(400))
      usage.addVerification({ ...verification(event), workspaceId: one.workspaceId, keyspaceId: 'ks_both' })
    for (const columns of usage.columns())
      if (columns !== null)
        await countBatch(database.anotherPool(), { writer: crypto.randomUUID(), number: 1, columns }, AT)
  }
  await Promise.all([record(), record(), record()])
  const counts = await one.kept()
  expect(Object.keys(counts)).toHaveLength(KEPT + 1)
  expect(sum(counts)).toBe(1200)
})

test('tag sets and spellings in memory are bounded for each workspace', () => {
  const usage = new UsageAccumulator({ setsMax: 100 })
  for (let i = 0; i < 20_000; i++)
    usage.addVerification(verification({ tags: [`a ${i}`, `b ${i}`, `c ${i}`] }))
  expect(usage.size).toBeLessThan(100 * 10)
  for (let i = 0; i < 5_000; i++) {
    const shuffled = Array.from({ length: 8 }, (_, at) => `t ${(at * 7 + i * (at + 1)) % 97}`)
    usage.addVerification({ ...verification({ tags: shuffled }), workspaceId: 'ws_2' })
  }
  expect(usage.size).toBeLessThan(100 * 40)
  const sets: string[][] = []
  let valid = 0
  usage.addVerification({ ...verification({ tags: ['mine'] }), workspaceId: 'ws_3' })
  for (const columns of usage.columns()) {
    if (columns === null) continue
    sets.push(...columns.sets.tags)
    valid += columns.verifications.valid.reduce((all, each) => all + each, 0)
  }
  expect(valid).toBe(25_001)
  expect(sets).toContainEqual(['mine'])
  expect(sets).toContainEqual([...OTHER_TAGS])
})

/** 20 tags of 512 characters each: as many sets as of short tags would take some 80 MB a workspace. */
test('characters of tags are bounded, in memory for each workspace and in one statement', () => {
  const usage = new UsageAccumulator()
  const tagsOf = (i: number) => Array.from({ length: 20 }, (_, at) => `${i} ${at} `.padEnd(512, 'x'))
  for (let i = 0; i < 1_000; i++) usage.addVerification(verification({ tags: tagsOf(i) }))
  usage.addVerification({ ...verification({ tags: ['mine'] }), workspaceId: 'ws_2' })
  const batches = [...usage.columns()].filter((columns) => columns !== null)
  const lengths = batches.map(({ sets }) => JSON.stringify(sets.tags).length)
  const all = lengths.reduce((sum, length) => sum + length, 0)
  expect(all).toBeGreaterThan(4_900_000)
  expect(all).toBeLessThan(5_100_000)
  expect(Math.max(...lengths)).toBeLessThan(2_300_000)
  const sets = batches.flatMap((columns) => columns.sets.tags)
  expect(sets).toContainEqual(tagsOf(0).toSorted())
  expect(sets).toContainEqual([...OTHER_TAGS])
  expect(sets).toContainEqual(['mine'])
  const counted = batches.flatMap((columns) => columns.verifications.valid)
  expect(counted.reduce((sum, count) => sum + count, 0)).toBe(1_001)
})

/** A namespace has its own bound, but there may be thousands of them. */
test('the identifiers of an hour are bounded over all namespaces of a workspace, totals stay exact', async () => {
  await setBounds(database.sql, { ...defaultBounds(), tagSets: KEPT, usageIdentifiers: 40 })
  const count = async (workspaceId: string, namespaces: number) => {
    for (let flush = 0; flush < 2; flush++) {
      const usage = new UsageAccumulator()
      for (let at = 0; at < namespaces; at++)
        for (let identifier = 0; identifier < 10; identifier++)
          usage.addRatelimit({
            ...ratelimit({
              namespaceId: `rlns_${workspaceId}_${at}`,
              identifier: `user_${identifier}_${flush}`,
            }),
            workspaceId,
          })
      for (const columns of usage.columns())
        if (columns !== null)
          await countBatch(database.sql, { writer: crypto.randomUUID(), number: 1, columns }, AT)
    }
    const [row] = await database.sql<{ named: number; passed: number }[]>`
      select (select count(*)::integer from usage_ratelimit_identifiers where workspace_id = ${workspaceId}) as named,
             (select sum(passed)::integer from usage_ratelimits where workspace_id = ${workspaceId}) as passed`
    return row
  }
  expect(await count('ws_flood', 20)).toEqual({ named: 40, passed: 400 })
  expect(await count('ws_quiet', 1)).toEqual({ named: 20, passed: 20 })
})
