import { expect, test } from 'bun:test'
import { BATCH_ROWS_MAX, type Outcome } from '../../src/usage/batch.ts'
import { Fold, NAMED_IDENTIFIER_BYTES_MAX } from '../../src/usage/fold.ts'
import { IdentifierCounts, IdentifierRows } from '../../src/usage/identifier-rows.ts'
import { type CounterRef, KeyRows } from '../../src/usage/key-rows.ts'
import { randomNumbers } from '../support/random.ts'
import { OUTCOMES } from './oracle.ts'
import { AT, HOUR, verification } from './support.ts'

const ALL = Object.keys(OUTCOMES) as Outcome[] // its keys are the outcomes
const newSlot = (): CounterRef => ({ usageRows: null, usageRow: 0 })

type Counts = Record<string, number>
const nameOf = (...parts: (string | number | null)[]) => JSON.stringify(parts)
const add = (counts: Counts, name: string, by: number) => {
  if (by > 0) counts[name] = (counts[name] ?? 0) + by
}

/** What the columns of a fold say, each row by itself. */
function told(fold: Fold, counts: Counts = {}): Counts {
  for (const columns of fold.columns()) {
    if (columns === null) continue
    const { scopes, sets, verifications: v } = columns
    const ids = v.keyIds === undefined ? v.keyId : v.keyIds.list.split(',').map((id) => id.trimEnd())
    expect(ids.length).toBeLessThanOrEqual(BATCH_ROWS_MAX)
    if (v.keyIds !== undefined) expect(ids).toHaveLength(v.keyIds.rows)
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

/** The model counts each event under its full name. Rows for few keys only, so that many keys get none. */
test('a fold tells what was recorded, with rows of keys or without, over flushes, hours and records read again', () => {
  for (const [seed, keys, rowsMax] of [
    [1, 40, 25],
    [2, 40, 1_000],
    [3, 3_000, 2_500],
    [4, 3_000, 65_536],
  ] as const) {
    const random = randomNumbers(seed)
    const below = (n: number) => Math.floor(random() * n)
    const odd = ['key,1', '', 'kéy', 'key 1', '"', `key_${'x'.repeat(30)}`, 'a', `key_${'y'.repeat(19)}`]
    const records = Array.from({ length: keys }, (_, i) => ({
      workspaceId: `ws_${i % 2}`,
      keyspaceId: `ks_${i % 6}`,
      keyId: odd[i] ?? `key_${String(i).padStart(16, '0')}`,
      identityId: i % 5 === 0 ? `id_${i}` : null,
      slot: newSlot(),
    }))
    let fold = new Fold(new KeyRows(rowsMax))
    for (let flush = 0; flush < 5; flush++) {
      const expected: Counts = {}
      for (let i = 0; i < 3 * keys; i++) {
        const record = records[below(keys)] as (typeof records)[number] // in range
        const { slot, ...owner } = record
        if (below(20) === 0) record.slot = newSlot()
        const outcome = ALL[below(seed % 2 === 0 ? 7 : 2)] ?? 'VALID'
        // The hour turns in the middle, and now and then an event of the one before comes late.
        const atMs = flush < 2 ? AT : below(50) === 0 ? AT : AT + 3_600_000
        const tags = below(10) === 0 ? ['t'] : null
        fold.addVerification({ ...verification({ outcome, atMs, tags }), ...owner, slot })
        const hour = Math.floor(atMs / 3_600_000) * 3_600_000
        const { workspaceId, keyspaceId, keyId, identityId } = owner
        const name = nameOf(workspaceId, keyspaceId, keyId, identityId, hour, tags?.join(' ') ?? '', outcome)
        add(expected, name, 1)
      }
      const taken = fold
      fold = taken.next()
      expect(told(taken)).toEqual(expected)
    }
  }
})

test('rows outlast a flush, and end with their hour', () => {
  const slot = newSlot()
  const first = new Fold()
  first.addVerification({ ...verification(), slot })
  const { usageRows } = slot
  const second = first.next()
  second.addVerification({ ...verification(), slot })
  expect(slot.usageRows).toBe(usageRows)
  second.addVerification({ ...verification({ atMs: HOUR + 3_600_000 }), slot }) // no row, but counted
  expect(Object.values(told(second))).toEqual([1, 1])
  const third = second.next()
  third.addVerification({ ...verification({ atMs: HOUR + 3_600_000 }), slot })
  expect(slot.usageRows).not.toBe(usageRows)
  expect(Object.values(told(third))).toEqual([1])
  expect(Object.values(told(first))).toEqual([1])
})

/** Keys come and go; what is kept must not grow with all that were ever verified in an hour. */
test('rows are given up when few of them are used, and nothing that was counted with them', () => {
  const slots = Array.from({ length: 5_000 }, newSlot)
  const count = (fold: Fold, slot: CounterRef, keyId: string) =>
    fold.addVerification({ ...verification(), keyId, slot })
  const first = new Fold()
  for (const [i, slot] of slots.entries()) count(first, slot, `key_${i}`)
  const [slot = newSlot()] = slots
  const { usageRows } = slot
  const second = first.next()
  for (const [i, each] of slots.entries()) if (i < 1_300) count(second, each, `key_${i}`)
  const third = second.next() // more than a quarter were used
  count(third, slot, 'key_0')
  expect(slot.usageRows).toBe(usageRows)
  const fourth = third.next()
  count(fourth, slot, 'key_0')
  expect(slot.usageRows).not.toBe(usageRows)
  expect([first, second, third, fourth].map((fold) => Object.values(told(fold)).length)).toEqual([
    5_000, 1_300, 1, 1,
  ])
})

/** A thread that builds columns answers requests too: 2 000 rows of identifiers held it for 3 ms. */
test('columns are built in slices of 250 rows, in batches of whole ones, and nothing is left out', () => {
  const fold = new Fold()
  const event = { workspaceId: 'ws', passed: true, atMs: HOUR }
  for (let i = 0; i < 5_000; i++)
    fold.addRatelimit({ ...event, namespaceId: `ns_${i % 3}`, identifier: `user ${i}`, passed: i % 2 === 0 })
  // Too long for rows of their own: each is one of its namespace's.
  const long = 'x'.repeat(NAMED_IDENTIFIER_BYTES_MAX + 1)
  for (let i = 0; i < 5_000; i++)
    fold.addRatelimit({ ...event, namespaceId: `long_${i}`, identifier: long, passed: true })
  let slices = 0
  let passed = 0
  let denied = 0
  const named: string[] = []
  const steps = [...fold.columns()]
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
test('keys and identifiers share a batch where there is room, and where no rows of other keys come between', () => {
  /** Rows of keys, of other cells and of identifiers with their totals in each batch. */
  const batchesOf = (keys: number, identifiers: number, cells = 0) => {
    const fold = new Fold()
    for (let i = 0; i < keys; i++)
      fold.addVerification({ ...verification({ keyId: `key_${i}` }), slot: newSlot() })
    for (let i = 0; i < cells; i++) fold.addVerification(verification({ keyId: `key_${i}`, tags: ['a'] }))
    for (let i = 0; i < identifiers; i++)
      fold.addRatelimit({
        workspaceId: 'ws_1',
        namespaceId: 'rlns_1',
        identifier: `user_${i}`,
        passed: true,
        atMs: AT,
      })
    return [...fold.columns()]
      .filter((columns) => columns !== null)
      .map(({ verifications: v, totals, identifiers: i }) => [
        v.keyIds?.rows ?? 0,
        v.keyId.length,
        totals.hour.length + i.identifier.length,
      ])
  }
  expect(batchesOf(3, 0)).toEqual([[3, 0, 0]])
  expect(batchesOf(0, 3)).toEqual([[0, 0, 4]])
  expect(batchesOf(3, 3)).toEqual([[3, 0, 4]])
  expect(batchesOf(3, 3, 2)).toEqual([
    [3, 0, 0],
    [0, 2, 4],
  ])
  const max = BATCH_ROWS_MAX
  expect(batchesOf(max, 3)).toEqual([
    [max, 0, 0],
    [0, 0, 4],
  ])
  expect(batchesOf(max + 1_990, 20)).toEqual([
    [max, 0, 0],
    [1_990, 0, 10],
    [0, 0, 12],
  ])
})

/** The obvious model: what was recorded since the last flush, by namespace, hour and identifier. */
test('identifiers are told as recorded, over flushes, hours and namespaces, whether their rows were kept or not', () => {
  const random = randomNumbers(11)
  const below = (n: number) => Math.floor(random() * n)
  let fold = new Fold()
  for (let flush = 0; flush < 40; flush++) {
    const expected: Counts = {}
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
      fold.addRatelimit({ workspaceId: 'ws', namespaceId, identifier, passed, atMs })
      add(expected, nameOf(namespaceId, atMs, place, String(passed)), 1)
    }
    const next = fold.next()
    // Recorded while the flush is under way: of the next one.
    for (const identifier of ['user 1', 'new']) {
      const event = { workspaceId: 'ws', namespaceId: 'ns_0', identifier, passed: true, atMs: HOUR }
      next.addRatelimit(event)
    }
    const counts: Counts = {}
    for (const columns of fold.columns()) {
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
    expect(next.size).toBe(3)
    fold = fold.next()
  }
})

test('rows of identifiers are kept while a fourth of them is used, and begun anew when fewer are', () => {
  const rows = new IdentifierRows()
  for (let i = 0; i < 4_000; i++) rows.rowOf(`user ${i}`)
  const counts = new IdentifierCounts(rows)
  for (let i = 0; i < 999; i++) counts.add(`user ${i}`, true)
  expect(counts.isMostlyIdle).toBeTrue()
  counts.add('user 999', false)
  expect(counts.isMostlyIdle).toBeFalse()
  expect(counts.size).toBe(1_000)
})

/** Two identifiers in one row would each be told the other's traffic. */
test('every identifier has a row of its own, the same each time, also where all their hashes are equal', () => {
  const hashes = [undefined, { update() {}, h0: 7, h1: 3 }, { update() {}, h0: -1, h1: -1 }]
  for (const hash of hashes) {
    const many = hash === undefined ? 30_000 : 600
    const rows = new IdentifierRows(hash)
    const others = new IdentifierRows(hash)
    const random = randomNumbers(11)
    const expected = new Map<string, number>()
    const look = (identifier: string) => {
      const row = expected.get(identifier) ?? expected.size
      expected.set(identifier, row)
      expect(rows.rowOf(identifier)).toBe(row)
    }
    for (const identifier of ['', '\0', 'é', 'e\u0301', '\u0100', '\ud800', '\ufffd', 'x'.repeat(2_048)])
      look(identifier)
    for (let i = 0; i < 2 * many; i++) {
      look(`user ${Math.floor(random() * many)}`)
      if (i % 3 === 0) others.rowOf(`other ${i}`)
    }
    expect(rows.size).toBe(expected.size)
    for (const [identifier, row] of expected) expect(rows.textOf(row)).toBe(identifier)
  }
})
