import { expect, test } from 'bun:test'
import type { AnySql } from '../../src/db/connect.ts'
import { Unavailable } from '../../src/errors.ts'
import { systemTimers } from '../../src/lib/timers.ts'
import { ColdLookups, HASHES_MAX } from '../../src/verify/cold-lookups.ts'

/** A database that answers when told to, and records the hashes of each statement. */
function makeSql() {
  const asked: string[][] = []
  const answers: (() => void)[] = []
  const sql = ((_: TemplateStringsArray, hashes: unknown) => {
    if (!Array.isArray(hashes)) return // a fragment
    asked.push(hashes)
    return new Promise((resolve) => answers.push(() => resolve([])))
  }) as unknown as AnySql // all that a look-up uses of it
  return { sql, asked, answers }
}

/** Findings of November 2026, part 3: a client that sends thousands of unknown keys must itself wait for them. */
test('when more look-ups wait than fit into one statement, clients take turns', async () => {
  const { sql, asked, answers } = makeSql()
  let time = 0
  const cold = new ColdLookups(sql, { ...systemTimers, now: () => time, after: () => () => {} })
  const from = (address: string | null) => ({ clientAddress: () => address })
  // Two run, the others wait.
  for (const hash of ['a', 'b']) void cold.find(hash, from('198.51.100.1'))
  const flood = Array.from({ length: 5 * HASHES_MAX }, (_, i) => `junk ${i}`)
  for (const hash of flood) void cold.find(hash, from('198.51.100.1'))
  for (const hash of ['real 1', 'real 2']) void cold.find(hash, from('203.0.113.7'))
  void cold.find('unknown address')
  expect(asked).toEqual([['a'], ['b']])
  time += 1000
  answers[0]?.()
  await Bun.sleep(0)
  expect(asked).toHaveLength(3)
  expect(asked[2]).toHaveLength(HASHES_MAX)
  expect(asked[2]).toContainValues(['real 1', 'real 2', 'unknown address'])
  // Those of one client keep their order.
  expect(asked[2]?.filter((hash) => hash.startsWith('junk'))).toEqual(flood.slice(0, HASHES_MAX - 3))
})

/** The bound on statements for unknown keys made 64 clients with real keys wait 20 ms for a statement of 0.7. */
test('statements for unknown keys are bounded in a period, those for keys that exist are not', async () => {
  const asked: string[] = []
  const sql = ((_: TemplateStringsArray, hashes: unknown) => {
    if (!Array.isArray(hashes)) return // a fragment
    asked.push(...hashes)
    const key = {
      id: 'key_1',
      workspaceId: 'ws_1',
      keyspaceId: 'ks_1',
      apiId: 'api_1',
      meta: null,
      identityMeta: null,
    }
    const rows = hashes.flatMap((hash: string, i: number) =>
      hash.startsWith('real')
        ? [{ at: i + 1, weight: 1, isLeft: false, ...key, limits: [], roles: [], permissions: [] }]
        : [],
    )
    return Promise.resolve(rows)
  }) as unknown as AnySql // all that a look-up uses of it
  const cold = new ColdLookups(sql, { ...systemTimers, now: () => 0, after: () => () => {} })
  for (let i = 0; i < 20; i++) {
    void cold.find(`unknown ${i}`)
    await Bun.sleep(0)
  }
  expect(asked).toEqual(['unknown 0', 'unknown 1', 'unknown 2', 'unknown 3'])
  asked.length = 0
  const others = new ColdLookups(sql, { ...systemTimers, now: () => 0, after: () => () => {} })
  for (let i = 0; i < 20; i++) {
    void others.find(`real ${i}`)
    await Bun.sleep(0)
  }
  for (let i = 0; i < 20; i++) expect(asked).toContain(`real ${i}`)
})

type Outcome = { at: number; weight: number; heavyOf: string; isLeft: boolean; id: null }

/** A database that answers each statement at once with `outcome`. */
function answering(outcome: (hashes: string[]) => Outcome[]) {
  const asked: string[][] = []
  const sql = ((_: TemplateStringsArray, hashes: unknown) => {
    if (!Array.isArray(hashes)) return // a fragment
    asked.push(hashes)
    return new Promise((resolve) => resolve(outcome(hashes)))
  }) as unknown as AnySql // all that a look-up uses of it
  let time = 0
  const cold = new ColdLookups(sql, { ...systemTimers, now: () => (time += 1000), after: () => () => {} })
  return { cold, asked }
}

test('keys too large for their batch are read after it, with the workspaces taking turns', async () => {
  const left = (hashes: string[]) =>
    hashes.flatMap((hash, at): Outcome[] =>
      hash.startsWith('large') && hashes.length > 1
        ? [{ at: at + 1, weight: 5_000_000, heavyOf: hash.split(' ')[1] ?? '', isLeft: true, id: null }]
        : [],
    )
  const { cold, asked } = answering(left)
  const first = ['alone', 'alone too'].map((hash) => cold.find(hash)) // both run, so the following look-ups share a statement
  const hashes = ['large a 1', 'large a 2', 'large a 3', 'small', 'large b 1']
  expect(await Promise.all([...first, ...hashes.map((hash) => cold.find(hash))])).toEqual(Array(7).fill(null))
  expect(asked).toEqual([
    ['alone'],
    ['alone too'],
    hashes,
    ['large a 1'],
    ['large b 1'],
    ['large a 2'],
    ['large a 3'],
  ])
})

test('a record that the database refuses to read fails alone', async () => {
  const { cold, asked } = answering((hashes) => {
    if (hashes.includes('bad')) throw new Error('invalid byte sequence')
    return []
  })
  const first = ['one', 'two'].map((hash) => cold.find(hash))
  const others = Array.from({ length: 100 }, (_, i) => cold.find(`good ${i}`))
  const bad = cold.find('bad').catch((cause: Error) => cause.message)
  expect(await Promise.all([...first, ...others])).toEqual(Array(102).fill(null))
  expect(await bad).toBe('invalid byte sequence')
  expect(asked.length).toBeLessThan(20)
})

test('when the database is away, the halves of a batch are not tried', async () => {
  const { cold, asked } = answering(() => {
    throw new Unavailable('database', 'away')
  })
  const all = ['one', 'two', 'three', 'four', 'five'].map((hash) => cold.find(hash))
  expect((await Promise.allSettled(all)).map(({ status }) => status)).toEqual(Array(5).fill('rejected'))
  expect(asked).toHaveLength(3)
})
