import { describe, expect, test } from 'bun:test'
import fc from 'fast-check'
import { compileWildcard, matchesWildcard } from '../../src/lib/wildcard.ts'

const matches = (pattern: string, text: string) =>
  pattern.includes('*') ? matchesWildcard(compileWildcard(pattern), text) : pattern === text

describe('a star matches any run of characters, every other character matches itself', () => {
  const cases: [string, string, boolean][] = [
    ['*', 'anything', true],
    ['*', '', true],
    ['job-*', 'job-1', true],
    ['job-*', 'job-', true],
    ['job-*', 'task-1', false],
    ['*@example.org', 'ann@example.org', true],
    ['mail:*', 'mail:a b c', true],
    ['pre*post', 'pre-123-post', true],
    ['pre*post', 'prepos', false],
    ['a*b*c', 'a-b-b-c', true],
    ['Job-*', 'job-1', false],
    ['a.c*', 'abc', false],
    ['a*b', 'ab*b', true],
    ['aa*aa', 'aaa', false],
    ['*aab*', 'aaab', true],
    ['*ab*b', 'ab', false],
    ['**', '', true],
  ]
  for (const [pattern, text, expected] of cases)
    test(`${pattern} ${expected ? 'matches' : 'does not match'} ${JSON.stringify(text)}`, () =>
      expect(matches(pattern, text)).toBe(expected))
})

test('it agrees with a regular expression on every short pattern and text', () => {
  const word = fc.string({ unit: fc.constantFrom('a', 'b', '*'), maxLength: 8 })
  const model = (pattern: string, text: string) =>
    new RegExp(
      `^${pattern
        .split('*')
        .map((part) => part.replace(/\W/g, '\\$&'))
        .join('.*')}$`,
      's',
    ).test(text)
  fc.assert(
    fc.property(word, word, (pattern, text) => matches(pattern, text) === model(pattern, text)),
    { numRuns: 20_000 },
  )
})
