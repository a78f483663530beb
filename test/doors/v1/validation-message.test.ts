import { expect, test } from 'bun:test'
import { Type } from '@sinclair/typebox'
import { TypeCompiler } from '@sinclair/typebox/compiler'
import { Nullable } from '../../../src/doors/v1/page.ts'
import { validationMessage } from '../../../src/doors/v1/validation-message.ts'

const Limit = Type.Object({ limit: Type.Integer({ minimum: 1 }), duration: Type.Integer({ minimum: 1000 }) })
const Body = Type.Object({
  name: Type.String({ minLength: 3 }),
  count: Type.Optional(Nullable(Type.Integer({ maximum: 9 }))),
  label: Type.Optional(Nullable(Type.String({ maxLength: 2 }))),
  tags: Type.Optional(Nullable(Type.Array(Type.String({ minLength: 1 }), { minItems: 1 }))),
  limit: Type.Optional(Nullable(Limit)),
  op: Type.Optional(Type.Union([Type.Literal('set'), Type.Literal('add')])),
  op2: Type.Optional(Nullable(Type.Union([Type.Literal('set'), Type.Literal('add')]))),
})
const List = Type.Array(Limit, { maxItems: 2 })
const messageOf = (schema: typeof Body | typeof List, value: unknown) =>
  validationMessage(schema, TypeCompiler.Compile(schema).Errors(value))

/** The texts are contract: clients of the v1 API compare them. */
test.each([
  [{}, 'name: Required'],
  [{ name: 'ab' }, 'name: String must contain at least 3 character(s)'],
  [{ name: 5 }, 'name: Expected string, received number'],
  [[], ': Expected object, received array'],
  [null, ': Expected object, received null'],
  [{ name: 'abc', count: 10 }, 'count: Number must be less than or equal to 9'],
  [{ name: 'abc', count: '5' }, 'count: Expected number, received string'],
  [{ name: 'abc', count: 1.5 }, 'count: Expected integer, received float'],
  [{ name: 'abc', count: Number.NaN }, 'count: Expected number, received nan'], // a query text that is not a number
  [{ name: 'abc', label: 'abc' }, 'label: String must contain at most 2 character(s)'],
  [{ name: 'abc', tags: [] }, 'tags: Array must contain at least 1 element(s)'],
  [{ name: 'abc', tags: ['a', ''] }, 'tags.1: String must contain at least 1 character(s)'],
  [{ name: 'abc', limit: [] }, 'limit: Expected object, received array'],
  [
    { name: 'abc', limit: { limit: 0, duration: 1000 } },
    'limit.limit: Number must be greater than or equal to 1',
  ],
  [{ name: 'abc', limit: { limit: 1 } }, 'limit.duration: Required'],
  [{ name: 'abc', op: 'x' }, "op: Invalid enum value. Expected 'set' | 'add', received 'x'"],
  [{ name: 'abc', op: 1 }, "op: Expected 'set' | 'add', received number"],
])('%j says %s', (value, message) => {
  expect(messageOf(Body, value)).toBe(message)
})

test('in a list, the first element with a problem is named, with its first field', () => {
  const good = { limit: 1, duration: 1000 }
  expect(messageOf(List, [good, { limit: 0, duration: 0 }])).toBe(
    '1.limit: Number must be greater than or equal to 1',
  )
  expect(messageOf(List, [{ duration: 0 }, 5])).toBe('0.limit: Required')
  expect(messageOf(List, [good, good, good])).toBe(': Array must contain at most 2 element(s)')
  expect(messageOf(List, {})).toBe(': Expected array, received object')
})
