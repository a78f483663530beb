import { expect, test } from 'bun:test'
import { changesOf } from '../../src/audit/changes.ts'

test('a change has the fields that differ, with their old and new values, and no others', () => {
  const before = { name: 'a', enabled: true, meta: { plan: 'free' }, list: ['1', '2'] }
  expect(changesOf(before, { ...before, enabled: false, meta: { plan: 'pro' } })).toEqual({
    before: { enabled: true, meta: { plan: 'free' } },
    after: { enabled: false, meta: { plan: 'pro' } },
  })
  expect(changesOf(before, { ...before, list: ['2', '1'] })).toEqual({
    before: { list: ['1', '2'] },
    after: { list: ['2', '1'] },
  })
  expect(changesOf(before, structuredClone(before))).toEqual({})
})

test('a new thing has no before, a deleted one no after, and absent and null are the same', () => {
  expect(changesOf(null, { name: 'a', expires: undefined })).toEqual({ after: { name: 'a', expires: null } })
  expect(changesOf({ name: 'a' }, null)).toEqual({ before: { name: 'a' } })
  expect(changesOf({ name: undefined }, { name: null })).toEqual({})
  expect(changesOf({}, { name: 'a' })).toEqual({ before: { name: null }, after: { name: 'a' } })
})

test('with values of any length an entry stays short, and says what it leaves out', () => {
  const long = changesOf(
    { text: 'x'.repeat(100_000), list: [], meta: {} },
    {
      text: '\u{1f600}'.repeat(50_000),
      list: Array(1000).fill('p'.repeat(512)),
      meta: { a: 'y'.repeat(900_000) },
    },
  )
  expect(JSON.stringify(long).length).toBeLessThan(10_000)
  expect(long.before?.text).toEndWith('… (100000 characters)')
  expect(String(long.after?.text).isWellFormed()).toBe(true)
  expect(long.after?.list).toContain('… 997 more')
  expect(long.after?.meta).toBe('… (900008 characters of JSON)')
})

/** Else whoever grants themselves everything hides it behind a thousand permissions that they had before. */
test('an element added to a long list is shown, whatever its position and the other elements', () => {
  const held = Array.from({ length: 500 }, (_, index) => `api.*.some_permission_${index}`)
  expect(changesOf({ permissions: held }, { permissions: [...held, '*'] })).toEqual({
    before: { permissions: ['… 500 that stay'] },
    after: { permissions: ['*', '… 500 that stay'] },
  })
  const { after } = changesOf({ permissions: [] }, { permissions: [...held, '*'] })
  expect(after?.permissions).toContain('*')
})
