import { expect, test } from 'bun:test'
import { nearestWord } from '../../src/lib/nearest.ts'

test('the nearest word is suggested when it is near enough, and none otherwise', () => {
  const known = ['key list', 'key get', 'key create', 'identity list', 'api list']
  expect(nearestWord('key lst', known)).toBe('key list')
  expect(nearestWord('identities list', known)).toBe('identity list')
  expect(nearestWord('steal everything', known)).toBe(null)
  expect(nearestWord('', known)).toBe(null)
})
