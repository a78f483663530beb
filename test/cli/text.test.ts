import { expect, test } from 'bun:test'
import { fieldsText, tableText } from '../../src/cli/text.ts'

test('columns are as wide as their widest cell, also where characters take two places', () => {
  const text = tableText(
    ['name', 'n'],
    [
      ['日本語', 7],
      ['a', 1234],
    ],
  )
  expect(text.split('\n').map((line) => Bun.stringWidth(line))).toEqual([9, 12, 12])
})

/** Whoever may name a key must not be able to clear the operator's screen. */
test('what would move the cursor or hide text is shown instead of done', () => {
  const hostile = 'a\x1b[2Jb\nc\u202ed'
  for (const text of [tableText(['name'], [[hostile]]), fieldsText({ name: hostile })])
    expect(text).toContain('a\\u001b[2Jb\\u000ac\\u202ed')
})

test('a field that is not set has no line', () => {
  expect(fieldsText({ id: 'key_1', name: undefined, enabled: false })).toBe('id       key_1\nenabled  false')
})
