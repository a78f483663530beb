import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import type { TSchema } from '@sinclair/typebox'
import type { Endpoint } from '../../../src/doors/http/endpoint.ts'
import { endpoints } from '../../../src/server/app.ts'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import { requestWith, type Site, sampleOf, sitesOf } from '../../support/request-fields.ts'
import { OPERATOR_KEY, startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

type Attempt = { value: unknown; reason: string; isRefused: boolean }

const attempt = (reason: string, atBound: unknown, past: unknown): Attempt[] => [
  { value: atBound, reason, isRefused: false },
  { value: past, reason, isRefused: true },
]
const refused = (reason: string, value: unknown): Attempt => ({ value, reason, isRefused: true })

/** Values at each bound of the field and one past it, and values of other types. */
function attemptsOn({ schema, isNullable, isOptional }: Site, isQuery: boolean): Attempt[] {
  const attempts = boundsOf(schema)
  if (isQuery) return attempts
  attempts.push(...wrongTypesOf(schema))
  if (!isNullable && expectedOf(schema) !== null)
    attempts.push(refused(`Expected ${expectedOf(schema)}, received null`, null))
  if (!isOptional && !isNullable) attempts.push(refused('Required', undefined))
  if (schema.type === 'string') {
    attempts.push(refused('String must not contain NUL characters', 'aaa\0'))
    attempts.push(refused('String must not contain lone surrogates', 'aaa\ud800'))
  }
  return attempts
}

function boundsOf(schema: TSchema): Attempt[] {
  const attempts: Attempt[] = []
  const { minLength = 0, maxLength, minItems = 0, maxItems, minimum, maximum, exclusiveMinimum } = schema
  if (schema.type === 'string') {
    const text = (length: number) => 'a'.repeat(length)
    attempts.push(
      ...attempt(
        `String must contain at most ${maxLength} character(s)`,
        text(maxLength),
        text(maxLength + 1),
      ),
    )
    if (minLength > 0)
      attempts.push(
        ...attempt(
          `String must contain at least ${minLength} character(s)`,
          text(minLength),
          text(minLength - 1),
        ),
      )
  }
  if (schema.type === 'array') {
    const list = (length: number) => Array.from({ length }, () => sampleOf(schema.items))
    attempts.push(
      ...attempt(`Array must contain at most ${maxItems} element(s)`, list(maxItems), list(maxItems + 1)),
    )
    if (minItems > 0)
      attempts.push(
        ...attempt(`Array must contain at least ${minItems} element(s)`, list(minItems), list(minItems - 1)),
      )
  }
  if (schema.type === 'integer') {
    if (minimum !== undefined)
      attempts.push(...attempt(`Number must be greater than or equal to ${minimum}`, minimum, minimum - 1))
    if (exclusiveMinimum !== undefined)
      attempts.push(
        ...attempt(`Number must be greater than ${exclusiveMinimum}`, exclusiveMinimum + 1, exclusiveMinimum),
      )
    attempts.push(...attempt(`Number must be less than or equal to ${maximum}`, maximum, maximum + 1))
    attempts.push(refused('Expected integer, received float', Math.max(minimum ?? exclusiveMinimum, 1) + 0.5))
  }
  return attempts
}

function wrongTypesOf(schema: TSchema): Attempt[] {
  switch (schema.type) {
    case 'string':
      return [
        refused('Expected string, received number', 5),
        refused('Expected string, received array', ['a']),
      ]
    case 'integer':
      return [
        refused('Expected number, received string', '5'),
        refused('Expected number, received boolean', true),
      ]
    case 'boolean':
      return [
        refused('Expected boolean, received string', 'true'),
        refused('Expected boolean, received number', 1),
      ]
    case 'array':
      return [refused('Expected array, received object', {}), refused('Expected array, received string', 'a')]
    case 'object':
      return [
        refused('Expected object, received array', []),
        refused('Expected object, received string', 'a'),
      ]
    default:
      return []
  }
}

/** Null where the schema accepts anything, or where the text depends on the enum. */
function expectedOf(schema: TSchema): string | null {
  if (schema.type === undefined || schema.const !== undefined) return null
  return schema.type === 'integer' ? 'number' : schema.type
}

/** Sent without a root key: a valid request ends there, so that nothing is stored. */
async function messageOf({ method, path, input }: Endpoint, site: Site, value: unknown): Promise<string> {
  const request = requestWith(input, site.path, value)
  const name = path.slice('/v1/'.length)
  const { status, body } =
    method === 'GET'
      ? await server.get(name, Object(request))
      : await server.post(name, JSON.stringify(request))
  return status === 400 ? body.error.message : `passes (${status})`
}

describe.each(endpoints.map((endpoint) => [endpoint.path, endpoint] as const))('%s', (_, endpoint) => {
  const sites = sitesOf(endpoint.input)

  test('every text, list and number has bounds', () => {
    const unbounded = sites.filter(
      ({ schema: { type, maxLength, maxItems, maximum, minimum, exclusiveMinimum, const: choice } }) =>
        (type === 'string' && choice === undefined && maxLength === undefined) ||
        (type === 'array' && maxItems === undefined) ||
        ((type === 'integer' || type === 'number') &&
          (maximum === undefined || (minimum === undefined && exclusiveMinimum === undefined))),
    )
    expect(unbounded.map(({ path }) => path.join('.'))).toEqual([])
  })

  test('every bound holds, and a value of another type is refused with the field’s name', async () => {
    const isQuery = endpoint.method === 'GET'
    const wrong: string[] = []
    for (const site of sites) {
      if (site.schema.const !== undefined) continue
      // A query has only texts: a list is a repeated parameter.
      if (isQuery && (site.schema.type === 'array' || site.path.length > 1)) continue
      for (const { value, reason, isRefused } of attemptsOn(site, isQuery)) {
        const expected = `${site.path.join('.')}: ${reason}`
        const message = await messageOf(endpoint, site, value)
        if ((message === expected) !== isRefused)
          wrong.push(
            `${JSON.stringify(value)?.slice(0, 40)} should ${isRefused ? '' : 'not '}be "${expected}" but is "${message}"`,
          )
      }
    }
    expect(wrong).toEqual([])
  })
})

/** Neither may reach the database, where it would cause a 500. */
test('names of fields in meta are checked like other texts', async () => {
  const send = async (meta: string) =>
    (await server.post('keys.createKey', `{"apiId":"a","meta":${meta}}`)).body.error.message
  expect(await send('{"a\\u0000":1}')).toContain('NUL')
  expect(await send('{"a":{"b":["\\ud800"]}}')).toBe('meta.a.b.0: String must not contain lone surrogates')
  expect(await send('{"__proto__":{"isAdmin":true}}')).toContain('meta.__proto__')
  expect(await send(`${'['.repeat(70)}${']'.repeat(70)}`)).toContain('Nested')
  expect(await send('{"constructor":{"prototype":1}}')).toBe('key required')
})

test('a refusal never repeats a long text or name of the caller in full', async () => {
  const long = 'n'.repeat(900_000)
  const refused: [body: unknown, method: string, says: string][] = [
    [{ keyId: 'k', op: long, value: 1 }, 'keys.updateRemaining', `received 'n`],
    [`{"apiId":"a","meta":{"${long}":"\\u0000"}}`, 'keys.createKey', 'NUL'],
    [{ workspaceId: 'w', bounds: { [long]: 1 } }, 'workspaces.updateWorkspace', 'bounds.n'],
  ]
  for (const [body, method, says] of refused) {
    const { status, body: answer } = await server.post(method, body, OPERATOR_KEY)
    expect(status).toBe(400)
    expect(answer.error.message).toContain(says)
    expect(answer.error.message.length).toBeLessThan(1_000)
  }
})

test('names that every object has, such as constructor, are ordinary names', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const meta = JSON.parse('{"constructor":1,"toString":"x","hasOwnProperty":null}')
  const { keyId } = await makeKey(workspace, apiId, { meta, name: '__proto__', externalId: 'constructor' })
  const shown = await workspace.get('keys.getKey', { keyId })
  expect(shown).toMatchObject({ meta, name: '__proto__', identity: { externalId: 'constructor' } })
  for (const name of ['constructor', 'toString'])
    expect((await server.get('keys.getKey', { [name]: 'x' })).body.error.message).toBe('keyId: Required')
})

/** Bug: two calls that create one unique thing at the same moment both saw that it was free. */
describe('of many concurrent calls that create one thing, one creates it and the others are told', () => {
  const things: [string, Record<string, unknown>][] = [
    ['permissions.createPermission', { name: 'a.permission' }],
    ['permissions.createRole', { name: 'a role' }],
    ['identities.createIdentity', { externalId: 'somebody' }],
    ['ratelimits.createNamespace', { name: 'a namespace' }],
  ]
  test.each(things)('%s', async (method, body) => {
    const { rootKey } = await server.workspace()
    const answers = await Promise.all(Array.from({ length: 8 }, () => server.post(method, body, rootKey)))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, ...Array(7).fill(409)])
    for (const { status, body } of answers) if (status === 409) expect(body.error.code).toBe('CONFLICT')
  })

  test('keys created with one new identity share it', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const made = await Promise.all(
      Array.from({ length: 8 }, () => makeKey(workspace, apiId, { externalId: 'somebody new' })),
    )
    const identities = await Promise.all(
      made.map(async ({ keyId }) => (await workspace.get('keys.getKey', { keyId })).identity.id),
    )
    expect(new Set(identities).size).toBe(1)
  })
})
