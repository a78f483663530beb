import { expect, test } from 'bun:test'
import { KnownCounters } from '../../../src/limiter/table/known-counters.ts'

const known = (used: number) => ({ endMs: 1000, used, unanswered: 0 })

/** Of a forgotten counter the next call passes unseen: a flood in one workspace would let another's refused callers through. */
test('a workspace with too many known counters makes only its own be forgotten', () => {
  const counters = new KnownCounters(1_000_000)
  for (let i = 0; i < 100; i++) counters.set('ws_quiet', `quiet ${i}`, known(i))
  for (let i = 0; i < 100_000; i++) counters.set('ws_loud', `loud ${i}`, known(i))
  for (let i = 0; i < 100; i++) expect(counters.get('ws_quiet', `quiet ${i}`)?.used).toBe(i)
  expect(counters.get('ws_loud', 'loud 0')).toBeUndefined()
  expect(counters.get('ws_loud', 'loud 99999')?.used).toBe(99_999)
})

test('the counters of a workspace that were used longest ago are forgotten first', () => {
  const counters = new KnownCounters(100_000)
  counters.set('ws', 'in use', known(1))
  for (let i = 0; i < 10_000; i++) {
    counters.set('ws', `other ${i}`, known(i))
    if (i % 50 === 0) expect(counters.get('ws', 'in use')?.used).toBe(1)
  }
  expect(counters.get('ws', 'other 0')).toBeUndefined()
})
