import { describe, expect, test } from 'bun:test'
import { makeBundle } from '../../src/dashboard/bundle.ts'
import { exact, fromNow, share, short } from '../../src/dashboard/ui/format.ts'
import { match } from '../../src/dashboard/ui/match.ts'
import { csvOf } from '../../src/dashboard/ui/parts/csv.ts'
import { niceTop } from '../../src/dashboard/ui/parts/scale.ts'
import { destinationOf, looksLikeKey } from '../../src/dashboard/ui/parts/search-shape.ts'
import {
  createInput,
  fieldOfMessage,
  fieldsOf,
  NEW_KEY,
  updateInput,
} from '../../src/dashboard/ui/screens/key-fields.ts'
import { limitText } from '../../src/dashboard/ui/screens/key-state.ts'

/** What an operator on a train waits for. */
test('the first load has at most 70 KB, compressed, and the other screens are not in it', async () => {
  const { scripts, entry, first, style } = await makeBundle()
  const size = (text: string) => Bun.gzipSync(text).length
  const loaded = scripts.filter(({ name }) => name === entry || first.includes(name))
  const bytes = [...loaded, style].reduce((sum, { text }) => sum + size(text), 0)
  expect(bytes).toBeLessThan(70_000)
  expect(bytes).toBeGreaterThan(5_000)
  expect(first.some((name) => name.startsWith('overview-'))).toBeTrue()
  expect(loaded.length).toBeLessThan(scripts.length - 10)
})

/** The name is all that a browser compares for a year. */
test('two bundles of one source are the same, under the same names', async () => {
  expect(await makeBundle()).toEqual(await makeBundle())
})

test('the style keeps light-dark(), which the switch of colours needs', async () => {
  const { style } = await makeBundle()
  expect(style.text).toContain('light-dark(#ffffff, #14171c)'.replace(', ', ','))
  expect(style.text).not.toContain('/*')
})

describe('CSV', () => {
  test('a cell that a spreadsheet would run as a formula is text', () => {
    for (const formula of ['=1+1', '+1+1', '-1+1', '@SUM(A1)', '\t=1', '\r=1'])
      expect(csvOf([[formula]])).toContain(`'${formula}`)
    expect(csvOf([['-5', '-5.25', '7']])).toBe('-5,-5.25,7')
  })
  test('commas, quotes and line breaks stay within their cell', () => {
    expect(csvOf([['a,b', 'say "hi"', 'two\nlines'], ['plain']])).toBe(
      '"a,b","say ""hi""","two\nlines"\r\nplain',
    )
  })
})

describe('numbers', () => {
  test('tables are exact, cards are short', () => {
    expect([0, 999, 9999, 12_345, 1_234_567].map(exact)).toEqual([
      '0',
      '999',
      '9999',
      '12\u202f345',
      '1\u202f234\u202f567',
    ])
    expect([9999, 12_400, 999_900, 1_250_000, 7e9].map(short)).toEqual([
      '9999',
      '12.4\u202fk',
      '1000\u202fk',
      '1.3\u202fM',
      '7.0\u202fG',
    ])
  })
  test('one refusal in a million is not nought percent', () => {
    expect([share(0, 10), share(1, 1_000_000), share(1, 3), share(0, 0)]).toEqual([
      '0\u202f%',
      '<\u202f0.1\u202f%',
      '33\u202f%',
      '0\u202f%',
    ])
  })
  test('the scale of a chart ends at or above its largest value, with four equal steps', () => {
    for (const max of [0, 1, 3, 4, 5, 9, 11, 37, 99, 100, 101, 250, 4_001, 123_456]) {
      const top = niceTop(max)
      expect(top).toBeGreaterThanOrEqual(max)
      expect(top % 4).toBe(0)
      expect(top).toBeLessThanOrEqual(Math.max(4, max * 4))
    }
  })
  test('times are told from now', () => {
    const now = Date.UTC(2026, 0, 1)
    expect(fromNow(now + 35 * 86_400_000, now)).toBe('in 35\u00a0days')
    expect(fromNow(now - 3 * 3_600_000, now)).toBe('3\u00a0h ago')
    expect(fromNow(now + 1000, now)).toBe('now')
  })
})

test('paths name the parts that a pattern asks for, and match no other pattern', () => {
  expect(match('/dashboard/w/:workspace/keys/:id', '/dashboard/w/ws_1/keys/a%2Fb')).toEqual({
    workspace: 'ws_1',
    id: 'a/b',
  })
  expect(match('/dashboard/w/:workspace/keys', '/dashboard/w/ws_1/keys/')).toEqual({ workspace: 'ws_1' })
  expect(match('/dashboard/w/:workspace/keys', '/dashboard/w/ws_1/apis')).toBeNull()
  expect(match('/dashboard/:id', '/dashboard/%zz')).toEqual({ id: '%zz' })
})

test('the search tells ids and whole keys by their shape, and searches the rest', () => {
  const id = '4aBcDeFgHjKmNpQr'
  expect([`key_${id}`, `api_${id}`, `id_${id}`, `req_${id}`].map(destinationOf)).toEqual([
    `keys/key_${id}`,
    `apis/api_${id}`,
    `identities/id_${id}`,
    `why?request=req_${id}`,
  ])
  for (const text of ['web checkout', 'user_881', 'key_', `key_${id}x`, '203.0.113.7', 'demo_3ZU'])
    expect(destinationOf(text)).toBeNull()
  for (const key of ['demo_3ZWUpQAoZ7LkM4nDeSjgbRqY', '3ZWUpQAoZ7LkM4nDeSjgbRqY'])
    expect(looksLikeKey(key)).toBe(true)
  for (const text of [`key_${id}`, 'web checkout', 'user_881', 'anna@example.com'])
    expect(looksLikeKey(text)).toBe(false)
})

describe('the form of a key', () => {
  const record = {
    id: 'key_1',
    start: 'demo_3ZU',
    apiId: 'api_1',
    workspaceId: 'ws_1',
    createdAt: 0,
    enabled: true,
    roles: [],
    permissions: [],
    name: 'ci',
    expires: Date.UTC(2027, 0, 1, 12, 30, 15, 250),
    remaining: 5,
    refill: { interval: 'monthly' as const, amount: 10, refillDay: 3 },
    ratelimit: { async: false, limit: 7, duration: 90_000, refillRate: 7, refillInterval: 90_000 },
    meta: { plan: 'pro' },
  }
  test('an untouched form changes nothing, not even milliseconds that it does not show', () => {
    expect(updateInput(record, fieldsOf(record))).toEqual({ input: { keyId: 'key_1' }, problems: {} })
  })
  test('an emptied field is cleared, and a changed one is sent whole', () => {
    const fields = { ...fieldsOf(record), name: '', limit: '', expires: '', refillAmount: '20' }
    expect(updateInput(record, fields).input).toEqual({
      keyId: 'key_1',
      name: null,
      ratelimit: null,
      expires: null,
      refill: { interval: 'monthly', amount: 20, refillDay: 3 },
    })
  })
  test('what cannot be read is a problem of its field and is not sent', () => {
    const fields = { ...NEW_KEY, remaining: '1.5', limit: '-1', meta: '[]', refill: 'daily' as const }
    const { input, problems } = createInput('api_1', fields)
    expect(input).toEqual({ apiId: 'api_1' })
    expect(Object.keys(problems).sort()).toEqual(['limit', 'meta', 'refillAmount', 'remaining'])
  })
  test('messages of the server find their field', () => {
    expect(fieldOfMessage('ratelimit.duration: Number must be greater than or equal to 1000')).toBe(
      'duration',
    )
    expect(fieldOfMessage('refill.amount: Expected number')).toBe('refillAmount')
    expect(fieldOfMessage('api api_1 not found')).toBeNull()
  })
  test('limits are said in the largest whole unit', () => {
    const said = [60_000, 90_000, 1_500].map((duration) => limitText({ limit: 5, duration }))
    expect(said).toEqual(['5 a minute', '5 in 90 s', '5 in 1500 ms'])
  })
})
