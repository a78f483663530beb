import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { findUnstorable, JSON_DEPTH_MAX, mayBeUnstorable } from '../../src/lib/json.ts'

type Kind = (level: number) => 'list' | 'object'
/** `levels` lists or objects inside each other. */
const nested = (levels: number, kind: Kind): string => {
  let json = '"innermost"'
  for (let i = 0; i < levels; i++) json = kind(i) === 'list' ? `[1, ${json}]` : `{"a":1,"b":${json}}`
  return json
}

test('nesting of the largest depth is accepted, one level more is not, in lists, objects and both', () => {
  const kinds: Kind[] = [() => 'list', () => 'object', (i: number) => (i % 2 === 0 ? 'list' : 'object')]
  for (const kind of kinds) {
    const deep = JSON.parse(nested(JSON_DEPTH_MAX, kind))
    expect(mayBeUnstorable(nested(JSON_DEPTH_MAX, kind), deep)).toBe(false)
    expect(findUnstorable(deep)).toBeNull()

    const deeper = JSON.parse(nested(JSON_DEPTH_MAX + 1, kind))
    expect(mayBeUnstorable(nested(JSON_DEPTH_MAX + 1, kind), deeper)).toBe(true)
    expect(findUnstorable(deeper)?.reason).toStartWith('Nested deeper than')
  }
})

test('brackets in texts are not nesting, and nesting after them is found', () => {
  const quoted = JSON.stringify({ a: '[{'.repeat(100), b: [']}'.repeat(100)] })
  expect(mayBeUnstorable(quoted, JSON.parse(quoted))).toBe(false)
  const behind = `{"a":"${']}'.repeat(100)}","b":${nested(JSON_DEPTH_MAX, () => 'list')}}`
  expect(mayBeUnstorable(behind, JSON.parse(behind))).toBe(true)
})

test('a value accepted by the quick check contains nothing that cannot be stored', () => {
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 8 },
      fc.string({ unit: 'binary' }),
      fc.integer(),
      fc.constantFrom(null, '\0', '\ud800', '__proto__'),
      fc.array(tie('value'), { maxLength: 4 }),
      fc.array(fc.tuple(fc.constantFrom('a', '__proto__', '\0', '\udc00', 'constructor'), tie('value')), {
        maxLength: 4,
      }),
    ),
  }))
  /** Pairs of name and value become objects, with any names. */
  const jsonOf = (each: unknown): string => {
    if (!Array.isArray(each)) return JSON.stringify(each)
    const isPairs =
      each.length > 0 && each.every((pair) => Array.isArray(pair) && typeof pair[0] === 'string')
    return isPairs
      ? `{${each.map(([name, ...rest]) => `${JSON.stringify(name)}:${jsonOf(rest[0] ?? null)}`).join(',')}}`
      : `[${each.map(jsonOf).join(',')}]`
  }
  const counts = { passed: 0, notStorable: 0 }
  fc.assert(
    fc.property(value, fc.integer({ min: 0, max: 70 }), (inner, levels) => {
      const json = nested(levels, (i) => (i % 3 === 0 ? 'object' : 'list')).replace('"innermost"', () =>
        jsonOf(inner),
      )
      const parsed: unknown = JSON.parse(json)
      const problem = findUnstorable(parsed)
      if (problem !== null) counts.notStorable++
      if (mayBeUnstorable(json, parsed)) return
      counts.passed++
      expect(problem).toBeNull()
    }),
    { numRuns: 5000 },
  )
  expect(counts.passed).toBeGreaterThan(500)
  expect(counts.notStorable).toBeGreaterThan(500)
})

test('checking the largest body for text that cannot be stored takes about as long as parsing it', () => {
  for (const element of ['0', '[]', '{}', '"a"', '{"a":0}']) {
    const elements = Array(Math.floor(1_000_000 / (element.length + 1))).fill(element)
    const json = `{"key":"\\u0041","unknown":[${elements.join(',')}]}`
    expect(mayBeUnstorable(json, JSON.parse(json))).toBe(true)
    // CPU of the whole process, including the collector's threads.
    const cpuOf = (work: () => unknown): number => {
      const before = process.cpuUsage()
      work()
      const { user, system } = process.cpuUsage(before)
      return user + system
    }
    const rounds = Array.from({ length: 4 }, () => {
      let body: unknown
      const parse = cpuOf(() => {
        body = JSON.parse(json)
      })
      return { parse, find: cpuOf(() => expect(findUnstorable(body)).toBeNull()) }
    })
    const least = (of: 'parse' | 'find') => Math.min(...rounds.map((round) => round[of]))
    expect(least('find'), element).toBeLessThan(5 * least('parse') + 10_000)
  }
})

test('the first value that cannot be stored is named by its place', () => {
  expect(findUnstorable(JSON.parse('{"a":[1,{"b":["c","\\u0000"]}],"d":"\\ud800"}'))).toEqual({
    path: 'a.1.b.1',
    reason: 'String must not contain NUL characters',
  })
})
