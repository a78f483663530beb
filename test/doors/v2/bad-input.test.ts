import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import type { TSchema } from '@sinclair/typebox'
import { v2Routes } from '../../../src/doors/v2/routes.ts'
import { requestWith, type Site, sampleOf, sitesOf } from '../../support/request-fields.ts'
import { startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

/** A value, and the problem that it is; null = it is allowed. */
type Attempt = { value: unknown; keyword: string | null; message?: string }

function attemptsOn({ schema, isNullable, isOptional }: Site): Attempt[] {
  const attempts = [...boundsOf(schema), ...wrongTypesOf(schema)]
  if (schema.type !== undefined && schema.const === undefined && !isNullable)
    attempts.push({ value: null, keyword: 'type', message: `got null, want ${schema.type}` })
  if (!isOptional) attempts.push({ value: undefined, keyword: 'required' })
  return attempts
}

function boundsOf(schema: TSchema): Attempt[] {
  const { type, minLength = 0, maxLength, minItems = 0, maxItems, minimum, maximum } = schema
  const pair = (keyword: string, at: unknown, past: unknown, got: number): Attempt[] => [
    { value: at, keyword: null },
    { value: past, keyword, message: `${keyword}: got ${got}, want ${schema[keyword]}` },
  ]
  const text = (length: number) => 'a'.repeat(length)
  const list = (length: number) => Array.from({ length }, () => sampleOf(schema.items))
  if (type === 'string')
    return [
      ...pair('maxLength', text(maxLength), text(maxLength + 1), maxLength + 1),
      ...(minLength > 0 ? pair('minLength', text(minLength), text(minLength - 1), minLength - 1) : []),
    ]
  if (type === 'array')
    return [
      ...pair('maxItems', list(maxItems), list(maxItems + 1), maxItems + 1),
      ...(minItems > 0 ? pair('minItems', list(minItems), list(minItems - 1), minItems - 1) : []),
    ]
  if (type === 'integer')
    return [
      ...pair('minimum', minimum, minimum - 1, minimum - 1),
      ...pair('maximum', maximum, maximum + 1, maximum + 1),
      { value: Math.max(minimum, 1) + 0.5, keyword: 'type', message: 'got number, want integer' },
    ]
  return []
}

function wrongTypesOf({ type }: TSchema): Attempt[] {
  const wrong = (value: unknown, kind: string): Attempt => ({
    value,
    keyword: 'type',
    message: `got ${kind}, want ${type}`,
  })
  switch (type) {
    case 'string':
      return [wrong(5, 'number'), wrong(['a'], 'array')]
    case 'integer':
      return [wrong('5', 'string'), wrong(true, 'boolean')]
    case 'boolean':
      return [wrong('true', 'string'), wrong(1, 'number')]
    case 'array':
      return [wrong({}, 'object'), wrong('a', 'string')]
    case 'object':
      return [wrong([], 'array'), wrong('a', 'string')]
    default:
      return []
  }
}

/** JSON pointer into the schema. */
const pointerOf = (path: string[]) =>
  path.map((name) => (name === '0' ? '/items' : `/properties/${name}`)).join('')

/** Sent with an unknown root key: a valid request ends there, so that nothing is stored. */
async function problemOf(path: string, body: unknown): Promise<{ message: string; location: string } | null> {
  const { status, body: answer } = await server.post(path, JSON.stringify(body) ?? '', 'unknown')
  return status === 400 ? answer.error.errors[0] : null
}

const posts = v2Routes.filter(({ method }) => method === 'POST')

describe.each(posts.map((endpoint) => [endpoint.path, endpoint.input] as const))('%s', (path, input) => {
  const sites = sitesOf(input)

  test('every text, list and number has bounds', () => {
    const unbounded = sites.filter(
      ({ schema: { type, maxLength, maxItems, maximum, minimum, const: choice } }) =>
        (type === 'string' && choice === undefined && maxLength === undefined) ||
        (type === 'array' && maxItems === undefined) ||
        ((type === 'integer' || type === 'number') && (maximum === undefined || minimum === undefined)),
    )
    expect(unbounded.map((site) => site.path.join('.'))).toEqual([])
  })

  test('every bound holds, and what is refused is refused by its place', async () => {
    const wrong: string[] = []
    for (const site of sites) {
      if (site.schema.const !== undefined) continue
      const pointer = pointerOf(site.path)
      for (const { value, keyword, message } of attemptsOn(site)) {
        const problem = await problemOf(path, requestWith(input, site.path, value))
        const location =
          keyword === 'required' ? `${pointerOf(site.path.slice(0, -1))}/required` : `${pointer}/${keyword}`
        const isRight =
          keyword === null
            ? problem?.location.startsWith(`${pointer}/`) !== true
            : problem?.location === location &&
              (message === undefined || site.isNullable || problem.message === message)
        if (!isRight)
          wrong.push(
            `${location} ${message}: ${JSON.stringify(value)?.slice(0, 40)} is ${JSON.stringify(problem)}`,
          )
      }
    }
    expect(wrong).toEqual([])
  })

  test('an unknown field is refused where the object is closed, and dropped elsewhere', async () => {
    const objects = sites.filter(({ schema }) => schema.type === 'object' && schema.properties !== undefined)
    const whole: Pick<(typeof sites)[number], 'path' | 'schema'>[] =
      input.type === 'object' ? [{ path: [], schema: input }] : []
    for (const { path: at, schema } of [...whole, ...objects]) {
      const value = { ...Object(sampleOf(schema)), unknown_field: 1 }
      const problem = await problemOf(path, requestWith(input, at, value))
      if (schema.additionalProperties === false)
        expect(problem).toEqual({
          message: "additional properties 'unknown_field' not allowed",
          location: `${pointerOf(at)}/additionalProperties`,
        })
      else expect(problem?.message ?? '').not.toContain('unknown_field')
    }
  })
})
