import { expect, setDefaultTimeout, test } from 'bun:test'
import { BATCH_ROWS_MAX, type Outcome } from '../../src/usage/batch.ts'
import { Counts, type Group, Groups, RowTable } from '../../src/usage/row-table.ts'
import {
  type CounterRef,
  NAMED_IDENTIFIER_BYTES_MAX,
  UsageAccumulator,
} from '../../src/usage/usage-accumulator.ts'
import { randomNumbers } from '../support/random.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { OUTCOMES } from './oracle.ts'
import { AT, HOUR, verification } from './support.ts'

setDefaultTimeout(SLOW_MS)

const ALL = Object.keys(OUTCOMES) as Outcome[] // its keys are the outcomes
const newRef = (): CounterRef => ({ usageRows: null, usageRow: 0 })

type Told = Record<string, number>
const nameOf = (...parts: (string | number | null)[]) => JSON.stringify(parts)
const add = (counts: Told, name: string, by: number) => {
  if (by > 0) counts[name] = (counts[name] ?? 0) + by
}

/** What the columns say, each row by itself. */
function told(usage: UsageAccumulator, counts: Told = {}): Told {
  for (const columns of usage.columns()) {
    if (columns === null) continue
    const { scopes, sets, verifications: v } = columns
    const ids = v.keyId
    expect(ids.length).toBeLessThanOrEqual(BATCH_ROWS_MAX)
    const of = <T>(column: readonly T[], row: number) => (column.length === 1 ? column[0] : column[row])
    for (const [row, keyId] of ids.entries()) {
      const scope = (of(v.scope, row) ?? 0) - 1
      const tags = sets.tags[(v.set[row] ?? 0) - 1] ?? []
      for (const outcome of ALL)
        add(
          counts,
          nameOf(
            scopes.workspaceId[scope] ?? '',
            scopes.keyspaceId[scope] ?? '',
            keyId,
            v.identityId[row] || null,
            of(v.hour, row) ?? 0,
            tags.join(' '),
            outcome,
          ),
          v[OUTCOMES[outcome]][row] ?? 0,
        )
    }
  }
  return counts
}

/** The model counts each event under its full name. */
test('verifications are counted as recorded, with counter references or without, over flushes, hours and records read again', () => {
  for (const [seed, keys] of [
    [1, 40],
    [2, 40],
    [3, 3_000],
    [4, 3_000],
  ] as const) {
    const random = randomNumbers(seed)
    const below = (n: number) => Math.floor(random() * n)
    const odd = ['key,1', '', 'kéy', 'key 1', '"', `key_${'x'.repeat(30)}`, 'a', `key_${'y'.repeat(19)}`]
    const records = Array.from({ length: keys }, (_, i) => ({
      workspaceId: `ws_${i % 2}`,
      keyspaceId: `ks_${i % 6}`,
      keyId: odd[i] ?? `key_${String(i).padStart(16, '0')}`,
      identityId: i % 5 === 0 ? `id_${i}` : null,
      counterRef: newRef(),
    }))
    let usage = new UsageAccumulator()
    for (let flush = 0; flush < 5; flush++) {
      const expected: Told = {}
      for (let i = 0; i < 3 * keys; i++) {
        const record = records[below(keys)] as (typeof records)[number] // in range
        const { counterRef, ...owner } = record
        if (below(20) === 0) record.counterRef = newRef()
        const outcome = ALL[below(seed % 2 === 0 ? 7 : 2)] ?? 'VALID'
        // The hour turns in the middle, and now and then an event of the one before comes late.
        const atMs = flush < 2 ? AT : below(50) === 0 ? AT : AT + 3_600_000
        const tags = below(10) === 0 ? ['t'] : null
        usage.addVerification({
          ...verification({ outcome, atMs, tags }),
          ...owner,
          ...(below(10) > 0 && { counterRef }),
        })
        const hour = Math.floor(atMs / 3_600_000) * 3_600_000
        const { workspaceId, keyspaceId, keyId, identityId } = owner
        const name = nameOf(workspaceId, keyspaceId, keyId, identityId, hour, tags?.join(' ') ?? '', outcome)
        add(expected, name, 1)
      }
      const taken = usage
      usage = taken.next()
      expect(told(taken)).toEqual(expected)
    }
  }
})

test('rows outlast a flush, and end with their hour', () => {
  const counterRef = newRef()
  const first = new UsageAccumulator()
  first.addVerification({ ...verification(), counterRef })
  const { usageRows } = counterRef
  const second = first.next()
  second.addVerification({ ...verification(), counterRef })
  expect(counterRef.usageRows).toBe(usageRows)
  second.addVerification({ ...verification({ atMs: HOUR + 3_600_000 }), counterRef }) // a row of another hour
  expect(Object.values(told(second))).toEqual([1, 1])
  const third = second.next()
  third.addVerification({ ...verification({ atMs: HOUR + 3_600_000 }), counterRef })
  expect(counterRef.usageRows).not.toBe(usageRows)
  expect(Object.values(told(third))).toEqual([1])
  expect(Object.values(told(first))).toEqual([1])
})

test('tables are not kept beyond the flush in which their hour ends', () => {
  const keys = new RowTable()
  const kept = { keys, identifiers: new RowTable(), hour: HOUR, keysToken: {} }
  const record = (usage: UsageAccumulator, keyId: string, atMs: number) => {
    usage.addVerification(verification({ keyId, atMs }))
    return usage.next()
  }
  const second = record(new UsageAccumulator({}, kept), 'key_1', HOUR)
  const third = record(second, 'key_2', HOUR + 3_600_000)
  expect(keys.size).toBe(2)
  record(third, 'key_3', HOUR + 3_600_000)
  expect(keys.size).toBe(2)
})

/** Keys come and go; what is kept must not grow with all that were ever verified in an hour. */
test('rows are dropped when few of them are used, and their counts are not', () => {
  const refs = Array.from({ length: 5_000 }, newRef)
  const count = (usage: UsageAccumulator, counterRef: CounterRef, keyId: string) =>
    usage.addVerification({ ...verification(), keyId, counterRef })
  const first = new UsageAccumulator()
  for (const [i, counterRef] of refs.entries()) count(first, counterRef, `key_${i}`)
  const [counterRef = newRef()] = refs
  const { usageRows } = counterRef
  const second = first.next()
  for (const [i, each] of refs.entries()) if (i < 1_300) count(second, each, `key_${i}`)
  const third = second.next() // more than a quarter were used
  count(third, counterRef, 'key_0')
  expect(counterRef.usageRows).toBe(usageRows)
  const fourth = third.next()
  count(fourth, counterRef, 'key_0')
  expect(counterRef.usageRows).not.toBe(usageRows)
  expect([first, second, third, fourth].map((usage) => Object.values(told(usage)).length)).toEqual([
    5_000, 1_300, 1, 1,
  ])
})

/** A thread that builds columns answers requests too: 2 000 rows of identifiers held it for 3 ms. */
test('columns are built in slices of 250 rows, and every row is in a batch', () => {
  const usage = new UsageAccumulator()
  const event = { workspaceId: 'ws', passed: true, atMs: HOUR }
  for (let i = 0; i < 5_000; i++)
    usage.addRatelimit({ ...event, namespaceId: `ns_${i % 3}`, identifier: `user ${i}`, passed: i % 2 === 0 })
  // Too long for rows of their own: each is one of its namespace's.
  const long = 'x'.repeat(NAMED_IDENTIFIER_BYTES_MAX + 1)
  for (let i = 0; i < 5_000; i++)
    usage.addRatelimit({ ...event, namespaceId: `long_${i}`, identifier: long, passed: true })
  let slices = 0
  let passed = 0
  let denied = 0
  const named: string[] = []
  const steps = [...usage.columns()]
  for (const columns of steps) {
    slices++
    if (columns === null) continue
    const rows = columns.totals.hour.length + columns.identifiers.identifier.length
    if (columns !== steps.at(-1)) expect(slices).toBe(BATCH_ROWS_MAX / 250)
    expect(rows).toBeLessThan(BATCH_ROWS_MAX + slices)
    slices = 0
    named.push(...columns.identifiers.identifier)
    for (const count of columns.totals.passed) passed += count
    for (const count of columns.totals.denied) denied += count
  }
  expect(new Set(named).size).toBe(5_000)
  expect({ passed, denied, named: named.length }).toEqual({ passed: 7_500, denied: 2_500, named: 5_000 })
})

/** Each batch is a transaction, which waits for a disk. */
test('keys, tagged keys and identifiers share a batch where there is room', () => {
  /** Rows of keys, and of identifiers with their totals, in each batch. */
  const batchesOf = (keys: number, identifiers: number, tagged = 0) => {
    const usage = new UsageAccumulator()
    for (let i = 0; i < keys; i++)
      usage.addVerification({ ...verification({ keyId: `key_${i}` }), counterRef: newRef() })
    for (let i = 0; i < tagged; i++) usage.addVerification(verification({ keyId: `key_${i}`, tags: ['a'] }))
    for (let i = 0; i < identifiers; i++)
      usage.addRatelimit({
        workspaceId: 'ws_1',
        namespaceId: 'rlns_1',
        identifier: `user_${i}`,
        passed: true,
        atMs: AT,
      })
    return [...usage.columns()]
      .filter((columns) => columns !== null)
      .map(({ verifications: v, totals, identifiers: i }) => [
        v.keyId.length,
        totals.hour.length + i.identifier.length,
      ])
  }
  expect(batchesOf(3, 0)).toEqual([[3, 0]])
  expect(batchesOf(0, 3)).toEqual([[0, 4]])
  expect(batchesOf(3, 3)).toEqual([[3, 4]])
  expect(batchesOf(3, 3, 2)).toEqual([[5, 4]])
  const max = BATCH_ROWS_MAX
  expect(batchesOf(max, 3)).toEqual([
    [max, 0],
    [0, 4],
  ])
  expect(batchesOf(max + 1_990, 20)).toEqual([
    [max, 0],
    [1_990, 10],
    [0, 12],
  ])
})

/** The obvious model: what was recorded since the last flush, by namespace, hour and identifier. */
test('identifiers are counted as recorded, over flushes, hours and namespaces, whether their rows were kept or not', () => {
  const random = randomNumbers(11)
  const below = (n: number) => Math.floor(random() * n)
  let usage = new UsageAccumulator()
  for (let flush = 0; flush < 40; flush++) {
    const expected: Told = {}
    // Now very many, so that the next folds are mostly idle; now texts so long that no rows are kept.
    const filler = flush % 5 === 0 ? 'x'.repeat(1_500) : ''
    const identifiers = Array.from({ length: flush % 7 === 0 ? 4_000 : 50 }, (_, i) => `user ${i}${filler}`)
    const places = new Map(identifiers.map((identifier, i) => [identifier, i])) // for the model, as texts so long are slow
    for (let i = 0; i < 6_000; i++) {
      const namespaceId = `ns_${below(3)}`
      const place = below(identifiers.length)
      const identifier = identifiers[place] ?? ''
      const atMs = HOUR + (Math.floor(flush / 10) + below(2)) * 3_600_000
      const passed = below(4) > 0
      usage.addRatelimit({ workspaceId: 'ws', namespaceId, identifier, passed, atMs })
      add(expected, nameOf(namespaceId, atMs, place, String(passed)), 1)
    }
    const next = usage.next()
    // Recorded while the flush is under way: of the next one.
    for (const identifier of ['user 1', 'new']) {
      const event = { workspaceId: 'ws', namespaceId: 'ns_0', identifier, passed: true, atMs: HOUR }
      next.addRatelimit(event)
    }
    const counts: Told = {}
    for (const columns of usage.columns()) {
      if (columns === null) continue
      const { totals, identifiers: named } = columns
      for (const [row, identifier] of named.identifier.entries()) {
        const at = (named.total[row] ?? 0) - 1
        const place = places.get(identifier) ?? identifier
        const name = (passed: boolean) =>
          nameOf(totals.namespaceId[at] ?? '', totals.hour[at] ?? 0, place, String(passed))
        add(counts, name(true), named.passed[row] ?? 0)
        add(counts, name(false), named.denied[row] ?? 0)
      }
    }
    expect(counts).toEqual(expected)
    const told = next.columns().next().value
    expect(told?.identifiers).toMatchObject({ identifier: ['user 1', 'new'], passed: [1, 1], denied: [0, 0] })
    expect(next.size).toBe(2)
    usage = usage.next()
  }
})

test('a table is mostly idle when less than a fourth of its rows is used', () => {
  const rows = new RowTable()
  const group = rows.groups.of('ws', 'ns', HOUR)
  const rowOf = (i: number) => rows.rowOf(group, `user ${i}`)
  for (let i = 0; i < 4_000; i++) rowOf(i)
  const counts = new Counts(rows)
  for (let i = 0; i < 999; i++) counts.add(rowOf(i), 0)
  expect(counts.isMostlyIdle).toBeTrue()
  counts.add(rowOf(999), 1)
  expect(counts.isMostlyIdle).toBeFalse()
  expect(counts.size).toBe(1_000)
})

/** Two identifiers in one row would each be told the other's traffic. */
test('each text of a group has a row of its own, the same each time, also where all hashes are equal', () => {
  const hashes = [undefined, { update() {}, h0: 7, h1: 3 }, { update() {}, h0: -1, h1: -1 }]
  for (const hash of hashes) {
    const many = hash === undefined ? 30_000 : 600
    const rows = new RowTable(hash)
    const others = new RowTable(hash)
    // No seeds: equal texts of different groups meet.
    const groups: Group[] = [0, 1].map((at) => ({ ...new Groups().of('ws', `ns_${at}`, HOUR), seed: 0 }))
    const random = randomNumbers(11)
    const expected = new Map<string, number>()
    const names: [Group, string, string][] = []
    const look = (text: string, at = 0, detail = '') => {
      const group = groups[at] as Group // 0 or 1
      const name = nameOf(text, at, detail)
      const row = expected.get(name) ?? expected.size
      expected.set(name, row)
      names[row] = [group, text, detail]
      expect(rows.rowOf(group, text, detail)).toBe(row)
    }
    for (const text of ['', '\0', 'é', 'e\u0301', '\u0100', '\ud800', '\ufffd', 'x'.repeat(2_048)]) look(text)
    for (let i = 0; i < 2 * many; i++) {
      look(`user ${Math.floor(random() * many)}`, i % 2, i % 5 === 0 ? 'id' : '')
      if (i % 3 === 0) others.rowOf(groups[0] as Group, `other ${i}`) // there are two
    }
    expect(rows.size).toBe(expected.size)
    for (const [row, [group, text, detail]] of names.entries())
      expect([rows.groupOf(row), rows.textOf(row), rows.detailOf(row)]).toEqual([group, text, detail])
  }
})
