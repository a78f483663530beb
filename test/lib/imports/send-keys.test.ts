import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { checkItems, type ImportItem, sendKeys } from '../../../src/lib/imports/send-keys.ts'

/** A line's fate in these tests is its key's only field. */
const itemsOf = (fates: readonly string[]): ImportItem[] =>
  fates.map((fate, index) =>
    fate === 'problem'
      ? { line: index + 2, lines: 1, problem: 'not a key' }
      : { line: index + 2, lines: fate === 'long' ? 2 : 1, key: { fate, at: index } },
  )

/** `migrations.createKeys` as it answers: all or none, existing keys named by their places, else the first problem. */
function server() {
  const made: unknown[] = []
  return {
    made,
    createAll: async (keys: readonly Record<string, unknown>[]) => {
      const bad = keys.findIndex(({ fate }) => fate === 'bad')
      if (bad !== -1) return { code: 'BAD_REQUEST', message: `${bad}.name: too long` }
      const there = keys.flatMap(({ fate, at }, index) =>
        fate === 'exists' || made.includes(at) ? [index] : [],
      )
      if (there.length > 0)
        return {
          code: 'CONFLICT',
          message:
            there.length === 1
              ? `element ${there[0]}: a key with this hash already exists`
              : `elements ${there.join(', ')}: keys with these hashes already exist`,
        }
      made.push(...keys.map(({ at }) => at))
      return null
    },
  }
}

const FATES = fc.array(fc.constantFrom('ok', 'ok', 'ok', 'exists', 'bad', 'problem', 'long'), {
  maxLength: 100,
})

test('every line has one fate, whatever stands beside it, and the same again makes no key twice', async () => {
  await fc.assert(
    fc.asyncProperty(FATES, async (fates) => {
      const { made, createAll } = server()
      const count = (...wanted: string[]) => fates.filter((fate) => wanted.includes(fate)).length
      const refused = fates.flatMap((fate, index) =>
        fate === 'bad'
          ? [{ line: index + 2, reason: 'name: too long' }]
          : fate === 'problem'
            ? [{ line: index + 2, reason: 'not a key' }]
            : [],
      )
      const first = await sendKeys(itemsOf(fates), createAll)
      expect(first).toEqual({ imported: count('ok', 'long'), existing: count('exists'), refused })
      const before = made.length
      const again = await sendKeys(itemsOf(fates), createAll)
      expect(again).toEqual({ imported: 0, existing: count('ok', 'long', 'exists'), refused })
      expect(made).toHaveLength(before)
    }),
    { numRuns: 60 },
  )
})

test('a row over several lines is refused with how many they are', async () => {
  const createAll = async () => ({ code: 'PRECONDITION_FAILED', message: 'roles not found: a' })
  expect((await sendKeys(itemsOf(['long']), createAll)).refused).toEqual([
    { line: 2, lines: 2, reason: 'roles not found: a' },
  ])
})

test('what is wrong with the call and not with a key is thrown', () => {
  const createAll = () => Promise.reject(new Error('away'))
  expect(sendKeys(itemsOf(['ok']), createAll)).rejects.toThrow('away')
})

test('a check tells the same of each line, in one call', async () => {
  let calls = 0
  const found = await checkItems(itemsOf(['ok', 'problem', 'exists', 'bad', 'ok']), async (keys) => {
    calls++
    return keys.map(({ fate }) =>
      fate === 'bad'
        ? { outcome: 'refused', reason: 'name: too long' }
        : { outcome: fate === 'exists' ? 'exists' : 'new' },
    )
  })
  expect(found).toEqual({
    imported: 2,
    existing: 1,
    refused: [
      { line: 3, reason: 'not a key' },
      { line: 5, reason: 'name: too long' },
    ],
  })
  expect(calls).toBe(1)
})
