import { describe, expect, test } from 'bun:test'
import {
  describePermissionQuery,
  holdsPermissions,
  type PermissionQuery,
  PermissionSyntaxError,
  parsePermissionQuery,
  parsePermissionWords,
  readPermissionText,
} from '../../src/verify/permission-query.ts'

const and = (...parts: PermissionQuery[]): PermissionQuery => ({ and: parts })
const or = (...parts: PermissionQuery[]): PermissionQuery => ({ or: parts })
const p = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => `p${from + i}`)

/** The table of the v1 API's own suite: held permissions, query, whether it is satisfied. */
describe('a permission query is decided by exact texts, `and` and `or`', () => {
  const held16 = p(1, 6)
  const cases: [string[], PermissionQuery, boolean][] = [
    [['p1'], or('p1'), true],
    [[], or('p1'), false],
    [['p1', 'p2', 'p3', 'p4', 'p5'], and('p1', or('p2', 'p6', and('p4', 'p2'))), true],
    [held16, 'p1', true],
    [held16, and('p1', 'p2'), true],
    [held16, or('p1', 'p7'), true],
    [held16, and('p1', or('p2', 'p3')), true],
    [held16, and('p1', and('p2', and('p3', 'p4'))), true],
    [held16, or('p1', or('p2', or('p3', 'p4'))), true],
    [held16, or(and('p1', 'p2'), and('p3', 'p4')), true],
    [held16, or(and('p1', or('p2', and('p3', 'p4'))), 'p5'), true],
    [held16, or(and('p1', or('p2', and('p3', 'p4'))), and('p5', 'p6')), true],
    [held16, 'p7', false],
    [held16, and('p1', 'p7'), false],
    [held16, and('p1', and('p7', 'p3')), false],
    [['p1', 'p2', 'p4', 'p5', 'p6'], or('p7', 'p3'), false],
    [p(2, 6), and('p1', or('p7', 'p5')), false],
    [p(2, 6), or(and('p1', or('p7', and('p3', 'p4'))), and('p5', 'p7')), false],
    [p(1, 4), or('p7', or('p5', 'p6')), false],
    [['p1', 'p2', 'p3', 'p4', 'p6'], or(and('p1', 'p7'), and('p5', 'p6')), false],
    [p(2, 5), or(and('p1', or('p7', and('p3', 'p4'))), 'p6'), false],
    [[], and('p1', 'p2'), false],
    [['p1', 'p2'], 'p3', false],
    [['*'], 'p1', false], // a key's `*` has no special meaning
    [p(1, 10), and(...p(1, 10)), true],
    [['a', 'b', 'c', 'd', 'e'], and('a', or('b', and('c', or('d', 'e')))), true],
    [['b', 'c', 'd', 'e'], and('a', or('b', and('c', or('d', 'e')))), false],
  ]
  for (const [held, query, expected] of cases)
    test(`{${held}} ${expected ? 'satisfies' : 'does not satisfy'} ${describePermissionQuery(query)}`, () => {
      expect(parsePermissionQuery(query)).toEqual(query)
      expect(holdsPermissions(new Set(held), query)).toBe(expected)
    })
})

test('anything but texts and non-empty lists makes the whole query malformed', () => {
  for (const query of [
    {},
    [],
    1,
    null,
    true,
    { and: [] },
    { or: ['p1', {}] },
    { and: ['p1', 5] },
    { xor: ['p1'] },
  ])
    expect(parsePermissionQuery(query)).toBeNull()
  let deep: PermissionQuery = 'p1'
  for (let i = 0; i < 40; i++) deep = { and: [deep] }
  expect(parsePermissionQuery(deep)).toBeNull()
})

test('with both lists in one object, `and` is used and `or` ignored', () => {
  expect(parsePermissionQuery({ and: ['p1'], or: ['p2'] })).toEqual({ and: ['p1'] })
})

/** As in the v1 API, found by comparing both (finding 9.2). */
test('an empty or malformed list beside another counts as absent, and an empty text inside `and` is no condition', () => {
  const cases: [object, PermissionQuery | null][] = [
    [{ or: ['p1'], and: [] }, or('p1')],
    [{ or: ['p1'], and: ['p2', 5] }, or('p1')],
    [{ or: ['p1'], and: null }, or('p1')],
    [{ or: [], and: ['p1'] }, and('p1')],
    [{ and: ['p1', ''] }, and('p1')],
    [{ and: [''], or: ['p1'] }, and()],
    [{ and: ['p1', { and: [], or: ['p2', ''] }] }, and('p1', or('p2', ''))],
    [{ and: [], or: [] }, null],
    [{ and: ['p1', { or: [] }] }, null],
  ]
  for (const [value, query] of cases) expect([value, parsePermissionQuery(value)]).toEqual([value, query])
  const holds = (query: PermissionQuery) => holdsPermissions(new Set(['p1']), query)
  expect([and(), and('p1'), or('', 'p1')].map(holds)).toEqual([true, true, true])
  // No key holds the empty text, so as an alternative it admits none.
  expect([or(''), or('', 'p2')].map(holds)).toEqual([false, false])
})

describe('a query in words', () => {
  test('is parsed as it is written: and binds tighter than or, and blanks do not matter', () => {
    const queries = ['p1', or('p1', 'p2'), and('p1', or('p2', and('p3', 'p4'))), or(and('p1', 'p2'), 'p3')]
    for (const query of queries) {
      const text = describePermissionQuery(query)
      expect(readPermissionText(text)).toEqual(query)
      expect(readPermissionText(` ${text.replaceAll(/([()])/g, ' $1 ')} `)).toEqual(query)
    }
    expect(readPermissionText('a OR b AND c')).toEqual(or('a', and('b', 'c')))
    expect(readPermissionText('((a))')).toBe('a')
    expect(readPermissionText('android')).toBe('android')
    expect(readPermissionText('{"and":["may read",{"or":["a(b)","c"]}]}')).toEqual(
      and('may read', or('a(b)', 'c')),
    )
  })

  test('that is invalid is refused, not guessed', () => {
    const deep = (levels: number) => `${'('.repeat(levels)}a${')'.repeat(levels)}`
    expect(readPermissionText(deep(31))).toBe('a')
    const wrong = [
      '',
      ' ',
      'a b',
      'a and',
      'or',
      'a or or b',
      '(a',
      'a)',
      '()',
      'a (b)',
      deep(33),
      '{',
      '{}',
      '{"and":[]}',
    ]
    for (const text of wrong) expect([text, readPermissionText(text)]).toEqual([text, null])
  })
})

describe('a query in words with plain slugs', () => {
  test('is parsed as it is written, however deep it nests', () => {
    const cases: [string, PermissionQuery][] = [
      ['a', 'a'],
      ['a AND b', and('a', 'b')],
      ['a or b And c', or('a', and('b', 'c'))],
      ['a AND (b OR c)', and('a', or('b', 'c'))],
      ['(a)\tAND\n((b))', and('a', 'b')],
      ['documents.* OR api:v1/read_all-2', or('documents.*', 'api:v1/read_all-2')],
      [p(1, 30).join(' AND '), and(...p(1, 30))],
      ['android OR Order', or('android', 'Order')],
      [`${'('.repeat(499)}a${')'.repeat(499)}`, 'a'],
    ]
    for (const [text, query] of cases) expect([text, parsePermissionWords(text)]).toEqual([text, query])
  })

  test('that is malformed is refused with the position of the first token that does not fit', () => {
    const cases: [string, number][] = [
      [' ', 1],
      ['a AND', 5],
      ['a AND  ', 7],
      ['AND a', 0],
      ['a OR OR b', 5],
      ['(a', 2],
      ['(a OR (b)', 9],
      ['a)', 1],
      ['()', 1],
      ['a (b)', 2],
      ['a b', 2],
      ['a & b', 2],
      ['a&b', 1],
      ['& a', 0],
      ['a AND é', 6],
      ['a AND 😀', 6],
      ['{"and":["a"]}', 0],
      ['"a"', 0],
      ['not', -1],
      ['a AND not b', 10],
    ]
    const positionOf = (text: string) => {
      try {
        parsePermissionWords(text)
        return -1
      } catch (cause) {
        if (!(cause instanceof PermissionSyntaxError)) throw cause
        expect(cause.message).toContain(`position ${cause.position}`)
        return cause.position
      }
    }
    for (const [text, position] of cases) expect([text, positionOf(text)]).toEqual([text, position])
  })
})
