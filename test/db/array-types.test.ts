import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import fc from 'fast-check'
import { openTestSql, type TestSql } from '../support/database.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let database: TestSql
beforeAll(async () => {
  database = await openTestSql()
})
afterAll(() => database[Symbol.asyncDispose]())

/** Postgres decides: its elements of the array are compared one by one. */
test('texts with any characters survive the way to Postgres and back', async () => {
  const { sql } = database
  const text = fc.oneof(
    fc.string({ unit: 'binary' }).filter((value) => !value.includes('\0') && value.isWellFormed()),
    fc.constantFrom('', 'NULL', 'null', '{}', ',', '"', '\\', '\\"', ' a ', '\n', 'a,b', '{"a"}', 'é€😀'),
  )
  await fc.assert(
    fc.asyncProperty(fc.array(text, { maxLength: 8 }), async (list) => {
      const rows = await sql<{ one: string; all: string[]; size: number }[]>`
        select e as one, ${list}::text[] as all, cardinality(${list}::text[]) as size
          from unnest(${list}::text[]) with ordinality as u (e, at) order by at`
      expect(rows.map(({ one }) => one)).toEqual(list)
      const [row] = await sql<{ all: string[] }[]>`select ${list}::text[] as all`
      expect(row?.all).toEqual(list)
    }),
    { numRuns: 200 },
  )
})

test('a text instead of a list is taken as the finished form', async () => {
  const [row] = await database.sql`select ${'{a,"b,c"}'}::text[] as text`
  expect(row).toEqual({ text: ['a', 'b,c'] })
})

test('numbers and nulls survive it too', async () => {
  const { sql } = database
  const [row] = await sql`
    select ${[1, -2, 2147483647]}::integer[] as int4, ${[1, 9007199254740991]}::bigint[] as int8,
           ${['a', null]}::text[] as text, ${[]}::text[] as none,
           ${[7]}::smallint[] as int2`
  expect(row).toEqual({
    int4: [1, -2, 2147483647],
    int8: [1, 9007199254740991],
    text: ['a', null],
    none: [],
    int2: [7],
  })
})
