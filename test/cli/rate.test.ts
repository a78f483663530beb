import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { parseRate, readNamedRate } from '../../src/cli/rate.ts'
import { durationText } from '../../src/lib/written-time.ts'

test('a rate is a number of tokens in a window', () => {
  expect(parseRate('100/1m')).toEqual({ limit: 100, duration: 60_000 })
  expect(parseRate('10/s')).toEqual({ limit: 10, duration: 1000 })
  expect(parseRate('5/1h30m')).toEqual({ limit: 5, duration: 5_400_000 })
  expect(parseRate('5/60000')).toEqual({ limit: 5, duration: 60_000 })
})

test.each([
  '',
  '100',
  '100/',
  '/1m',
  '0/1m',
  '-1/1m',
  '1.5/1m',
  '10/0s',
  '10/month',
  '10 / 1m',
  '9007199254740993/1m',
])('%p is not a rate', (text) => {
  expect(parseRate(text)).toBe(null)
})

test('a rate and its name, written and parsed again, are the same', () => {
  const counts = fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER })
  const durations = fc.integer({ min: 1, max: 3_155_760_000_000 })
  fc.assert(
    fc.property(fc.string({ minLength: 1 }), counts, durations, (name, limit, duration) => {
      const text = `${name}=${limit}/${durationText(duration)}`
      expect(readNamedRate('ratelimit', text)).toEqual({ name, limit, duration })
    }),
  )
})
