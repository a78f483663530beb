import { expect, test } from 'bun:test'
import { listed } from '../../src/lib/listed.ts'

test('a message lists the first of many texts and counts the others', () => {
  expect(listed(['a', 'b'])).toBe('a, b')
  expect(listed([1, 2, 3], 2)).toBe('1, 2, and 1 more')
  expect(listed(Array.from({ length: 1000 }, () => 'x'.repeat(500))).length).toBeLessThan(11_000)
})
