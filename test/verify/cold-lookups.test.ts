import { expect, test } from 'bun:test'
import type { AnySql } from '../../src/db/connect.ts'
import { systemTimers } from '../../src/lib/timers.ts'
import { ColdLookups, HASHES_MAX } from '../../src/verify/cold-lookups.ts'

/** A database that answers when it is told to, and keeps what it was asked, statement by statement. */
function makeSql() {
  const asked: string[][] = []
  const answers: (() => void)[] = []
  const sql = ((_: TemplateStringsArray, hashes: string[]) => {
    asked.push(hashes)
    return new Promise((resolve) => answers.push(() => resolve([])))
  }) as unknown as AnySql // all that a lookup uses of it
  return { sql, asked, answers }
}

/** Findings of November 2026, part 3: who sends unknown keys by the thousand must be who waits for them. */
test('where more wait than one statement takes, each client has its turn', async () => {
  const { sql, asked, answers } = makeSql()
  let time = 0
  const cold = new ColdLookups(sql, { ...systemTimers, now: () => time, after: () => () => {} })
  const from = (address: string | null) => ({ clientAddress: () => address })
  // Two are under way, the others wait.
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
  // Of one client they stay in their order.
  expect(asked[2]?.filter((hash) => hash.startsWith('junk'))).toEqual(flood.slice(0, HASHES_MAX - 3))
})
