import { expect, test } from 'bun:test'
import { fieldsText, tableText } from '../../src/cli/text.ts'

test('columns are as wide as their widest cell, also with characters of double width', () => {
  const text = tableText(
    ['name', 'n'],
    [
      ['日本語', 7],
      ['a', 1234],
    ],
  )
  expect(text.split('\n').map((line) => Bun.stringWidth(line))).toEqual([9, 12, 12])
})

/** The name of a key must not be able to clear the operator's screen. */
test('characters that move the cursor or hide text are made visible', () => {
  const hostile = 'a\x1b[2Jb\nc\u202ed'
  for (const text of [tableText(['name'], [[hostile]]), fieldsText({ name: hostile })])
    expect(text).toContain('a\\u001b[2Jb\\u000ac\\u202ed')
})

test('an undefined field has no line', () => {
  expect(fieldsText({ id: 'key_1', name: undefined, enabled: false })).toBe('id       key_1\nenabled  false')
})
