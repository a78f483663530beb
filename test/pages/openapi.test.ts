import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { Validator } from '@seriousme/openapi-schema-validator'
import { Value } from '@sinclair/typebox/value'
import { STATUSES } from '../../src/doors/v1/statuses.ts'
import { PROBLEMS, type ProblemType, TYPE_BASE } from '../../src/doors/v2/problems.ts'
import { ERRORS } from '../../src/errors.ts'
import type { JsonSchema } from '../../src/pages/json-schema.ts'
import type { OpenApiDocument, Operation } from '../../src/pages/openapi.ts'
import { allEndpoints as endpoints } from '../../src/server/app.ts'
import { startTestServer, type TestServer } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
let document: OpenApiDocument
let operations: [string, Operation][]
beforeAll(async () => {
  server = await startTestServer()
  const response = await fetch(`${server.url}/openapi.json`)
  expect(response.headers.get('content-type')).toBe('application/json')
  document = (await response.json()) as OpenApiDocument // checked by the first test
  operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.values(methods).map((operation): [string, Operation] => [path, operation]),
  )
})
afterAll(() => server[Symbol.asyncDispose]())

const bodyOf = (operation: Operation) => operation.requestBody?.content['application/json'].schema
const at = (path: string) => {
  const methods = document.paths[path]
  const operation = methods?.get ?? methods?.post
  if (operation === undefined) throw new Error(`${path} is not described`)
  return operation
}

/** Client generators refuse an invalid document. */
test('the description is valid OpenAPI 3.1, and is served without a root key', async () => {
  const result = await new Validator().validate(structuredClone(document))
  expect(result.errors ?? []).toEqual([])
  expect(result.valid).toBe(true)
  expect(document.openapi).toStartWith('3.1')
  expect(document.servers).toEqual([{ url: server.url }])
})

/** `v2.keys.createKey` of `/v2/keys.createKey`, and `keys.createKey` of `/v1/keys.createKey`. */
const idOf = (path: string) => path.slice(1).replace(/^v1\//, '').replace('/', '.')

test('every endpoint is described, under its own id, with a summary and an explained tag', () => {
  const answered = endpoints.flatMap(({ path, answersPostToo }) => (answersPostToo ? [path, path] : [path]))
  expect(operations.map(([path]) => path).sort()).toEqual(answered.sort())
  const ids = operations.map(([, { operationId }]) => operationId)
  expect(new Set(ids).size).toBe(ids.length)
  const tags = new Map(document.tags.map(({ name, description }) => [name, description]))
  for (const [path, { operationId, summary, tags: names }] of operations) {
    expect(operationId).toBeOneOf([idOf(path), `${idOf(path)}.post`])
    expect(summary).not.toBe('')
    for (const name of names) expect(tags.get(name)).toEndWith('.')
  }
  // Each API has its tags, and each tag one API.
  const grouped = document['x-tagGroups'].flatMap(({ tags }) => tags)
  expect(grouped).toEqual([...tags.keys()])
  expect(document['x-tagGroups'].map(({ name }) => name)).toEqual(['v2', 'v1'])
  for (const [path, { tags: names }] of operations)
    expect(names.map((name) => name.startsWith('v2 '))).toEqual([path.startsWith('/v2/')])
})

/** Findings of November 2026, 9.5: clients generated from it get other names than from Unkey's description. */
test('the names that differ from Unkey’s description are what the guide says', async () => {
  const schemes = Object.keys(document.components.securitySchemes)
  expect(schemes).toContain('rootKey')
  expect(schemes).not.toContain('bearerAuth')
  const guide = await Bun.file(`${import.meta.dir}/../../docs/how-to/from-unkey.md`).text()
  expect(guide).toContain(
    '| `operationId` in `/openapi.json` | `group.method`, and the security scheme is `rootKey` |',
  )
})

/** Unit, bound and default are in the description or beside it. */
test('every field has a description', () => {
  const silent: string[] = []
  const visit = (where: string, schema: JsonSchema) => {
    for (const [name, property] of Object.entries(schema.properties ?? {})) {
      if ((property.description ?? '') === '') silent.push(`${where}.${name}`)
      visit(`${where}.${name}`, property)
    }
    if (schema.items !== undefined) visit(`${where}[]`, schema.items)
    for (const option of schema.anyOf ?? []) visit(where, option)
  }
  for (const [path, operation] of operations) {
    const body = bodyOf(operation)
    if (body !== undefined) visit(`${path} body`, body)
    for (const { name, description } of operation.parameters ?? [])
      if (description === '') silent.push(`${path} ?${name}`)
    for (const [status, { content }] of Object.entries(operation.responses))
      visit(`${path} ${status}`, content['application/json'].schema)
  }
  expect(silent).toEqual([])
})

test('a description that mentions a default or a deprecation also has it as a keyword', () => {
  const wrong: string[] = []
  const check = (where: string, { description = '', ...schema }: JsonSchema) => {
    if (/^Deprecated/.test(description) && !/"deprecated":true/.test(JSON.stringify(schema)))
      wrong.push(where)
    // Defaults that are not constants are only described.
    const constant = /[Dd]efault:? (true|false|\d+|asc)\b/.exec(description)?.[1]
    if (constant !== undefined && !/hours/.test(description) && String(schema.default) !== constant)
      wrong.push(`${where}: default ${constant}`)
    for (const [name, property] of Object.entries(schema.properties ?? {}))
      check(`${where}.${name}`, property)
    if (schema.items !== undefined) check(`${where}[]`, schema.items)
  }
  for (const [path, operation] of operations) {
    check(path, bodyOf(operation) ?? {})
    for (const { name, description, deprecated, schema } of operation.parameters ?? [])
      check(`${path} ?${name}`, { ...schema, description, deprecated: deprecated === true })
  }
  expect(wrong).toEqual([])
})

/** An example that the server would refuse, or never give, is misleading. */
test('every method has an example of its answer and of its body, valid by their schemas', () => {
  for (const [path, operation] of operations) {
    const endpoint = endpoints.find((each) => each.path === path)
    if (endpoint === undefined) throw new Error(path)
    const body = operation.requestBody?.content['application/json']
    const reply = operation.responses[endpoint.status]?.content['application/json']
    const problems = [
      ...(body === undefined ? [] : Value.Errors(endpoint.input, body.example)),
      ...Value.Errors(endpoint.reply, reply?.example),
    ]
    expect(problems.map((problem) => `${path}${problem.path}: ${problem.message}`)).toEqual([])
    // A value that only repeats the field's name says nothing.
    const named = JSON.stringify([body?.example, reply?.example]).match(/"(\w+)":\[?"\1"/g) ?? []
    expect({ path, named }).toEqual({ path, named: [] })
  }
})

/** Without a bound a client does not know what is too much, and the server accepts anything. */
test('every number, text and list of a request is bounded, and every duration and time has its unit', () => {
  const wrong: string[] = []
  const visit = (where: string, { description = '', ...schema }: JsonSchema) => {
    const lacks = (what: string) => wrong.push(`${where}: ${what}`)
    const has = (...names: string[]) => names.some((name) => schema[name] !== undefined)
    const isNumber = schema.type === 'integer' || schema.type === 'number'
    if (isNumber && !(has('minimum', 'exclusiveMinimum') && has('maximum', 'exclusiveMaximum')))
      lacks('minimum and maximum')
    if (schema.type === 'string' && !has('maxLength', 'enum', 'const')) lacks('maxLength')
    if (schema.type === 'array' && !has('maxItems')) lacks('maxItems')
    if (
      isNumber &&
      /\.(duration|refillInterval|start|end|expires)$/.test(where) &&
      !/[Mm]illiseconds/.test(description)
    )
      lacks('its unit')
    for (const [name, property] of Object.entries(schema.properties ?? {}))
      visit(`${where}.${name}`, property)
    if (schema.items !== undefined) visit(`${where}[]`, schema.items)
    // A description beside a union is that of its type other than null.
    for (const option of schema.anyOf ?? [])
      visit(where, option.description === undefined ? { ...option, description } : option)
  }
  for (const [path, operation] of operations) {
    visit(path, bodyOf(operation) ?? {})
    for (const { name, description, schema } of operation.parameters ?? [])
      visit(`${path}.${name}`, { ...schema, description })
  }
  expect(wrong).toEqual([])
})

/** An absent switch has an effect, which the reader should not have to find out. */
test('every optional switch of a request has a default, unless its absence means no change', () => {
  const silent: string[] = []
  const visit = (where: string, schema: JsonSchema) => {
    for (const [name, property] of Object.entries(schema.properties ?? {})) {
      const isOptional = !(schema.required ?? []).includes(name)
      if (isOptional && property.type === 'boolean' && property.default === undefined)
        silent.push(`${where}.${name}`)
      visit(`${where}.${name}`, property)
    }
    if (schema.items !== undefined) visit(`${where}[]`, schema.items)
    for (const option of schema.anyOf ?? []) visit(where, option)
  }
  for (const [path, operation] of operations) {
    // An update does not touch absent fields.
    if (!/\.update/.test(path)) visit(path, bodyOf(operation) ?? {})
    for (const { name, required, schema } of operation.parameters ?? [])
      if (!required && schema.type === 'boolean' && schema.default === undefined)
        silent.push(`${path} ?${name}`)
  }
  expect(silent).toEqual([])
})

test('bounds, defaults and required fields are in the schema of a request', () => {
  const body = bodyOf(at('/v1/ratelimits.limit'))
  expect(body?.properties).toMatchObject({
    limit: { type: 'integer', exclusiveMinimum: 0, maximum: Number.MAX_SAFE_INTEGER },
    duration: { minimum: 1000 },
    cost: { minimum: 0, default: 1 },
    namespace: { default: 'default' },
    async: { default: false },
  })
  expect(body?.required).toEqual(['identifier', 'limit', 'duration'])
})

test('old fields and the dates of the v1 API are marked', () => {
  const key = bodyOf(at('/v1/keys.createKey'))
  expect(key?.properties?.ownerId?.deprecated).toBe(true)
  expect(key?.properties?.ratelimit?.properties?.type).toMatchObject({
    deprecated: true,
    enum: ['fast', 'consistent'],
  })
  const parameters = at('/v1/apis.listKeys').parameters ?? []
  expect(parameters.find(({ name }) => name === 'ownerId')?.deprecated).toBe(true)
  const introduced = Object.fromEntries(
    operations.flatMap(([, { operationId, 'x-introduced': date }]) =>
      date === undefined ? [] : [[operationId, date]],
    ),
  )
  expect(introduced).toEqual({
    'keys.createKey': '2023-12-06',
    'migrations.createKeys': '2024-05-08',
    'identities.listIdentities': '2024-07-17',
    'identities.updateIdentity': '2024-07-17',
    'ratelimits.limit': '2024-03-16',
    'ratelimits.listOverrides': '2024-11-25',
    'analytics.getVerifications': '2025-01-01',
  })
})

test('every error code of v1 is described, each with an example under its own status', () => {
  const seen = new Set<string>()
  for (const [path, operation] of operations.filter(([path]) => path.startsWith('/v1/')))
    for (const [status, code, value] of errorExamples(operation)) {
      seen.add(code)
      expect([path, STATUSES]).toEqual([path, expect.objectContaining({ [code]: Number(status) })])
      expect(value).toMatchObject({
        error: { code, docs: `${server.url}/errors/${code}`, message: expect.any(String) },
      })
    }
  const examples = Object.entries(document.components.examples)
  expect(examples.map(([code]) => code).sort()).toEqual(Object.keys(ERRORS).sort())
  for (const [code, { value }] of examples) expect(value).toMatchObject({ error: { code } })
  // Missing paths and methods are not part of a description: nothing in it answers 405. Only the v2 API answers 410.
  expect([...seen].sort()).toEqual(
    Object.keys(ERRORS)
      .filter((code) => code !== 'METHOD_NOT_ALLOWED' && code !== 'GONE')
      .sort(),
  )
})

test('every method of v2 describes its errors by type, each with an example under its own status', () => {
  for (const [path, operation] of operations.filter(([path]) => path.startsWith('/v2/'))) {
    const types = errorExamples(operation).map(([status, type, value]) => {
      const { title, status: own } = PROBLEMS[type as ProblemType] // else the next line fails
      expect(own).toBe(Number(status))
      expect(value).toMatchObject({
        meta: { requestId: expect.stringMatching(/^req_/) },
        error: { title, status: own, type: `${TYPE_BASE}${type}`, detail: expect.any(String) },
      })
      return type
    })
    // A code that says only "not found" or "there already" is one of several types.
    const codes = endpoints.find((endpoint) => endpoint.path === path)?.errors ?? []
    const has = (ending: RegExp) => types.some((type) => ending.test(type) && type.startsWith('unkey/data/'))
    expect({ path, isFound: has(/_not_found$/), isTaken: has(/_already_exists$/) }).toEqual({
      path,
      isFound: codes.includes('NOT_FOUND'),
      isTaken: codes.includes('CONFLICT'),
    })
  }
})

/** Status, name and value of each example of an error. */
const errorExamples = ({ responses }: Operation): [status: string, name: string, value: unknown][] =>
  Object.entries(responses).flatMap(([status, { content }]) =>
    Object.entries(content['application/json'].examples ?? {}).map(
      ([name, { value }]): [string, string, unknown] => [status, name, value],
    ),
  )

test('exactly the endpoints that need no root key are marked as such', () => {
  const open = operations.filter(([, { security }]) => security.length === 0).map(([path]) => path)
  expect(open.sort()).toEqual(['/v1/keys.verifyKey', '/v1/liveness', '/v1/readiness', '/v2/liveness'])
})

describe('/docs/api', () => {
  test('shows every method, and loads nothing from elsewhere', async () => {
    const response = await fetch(`${server.url}/docs/api`)
    expect(response.headers.get('content-type')).toStartWith('text/html')
    const page = await response.text()
    // A path that answers two methods answers both in the same way, so it is described once.
    for (const [path, { operationId }] of operations.filter(
      ([, each]) => !each.operationId.endsWith('.post'),
    )) {
      expect(page).toContain(`<section class="method" id="${operationId}"`)
      expect(page).toContain(`href="#${operationId}"`)
      expect(page).toContain(`<code>${path}</code>`)
    }
    expect(page).not.toMatch(/<(link|img|iframe|base)\b|\bsrc=|@import|url\(/)
  })

  /** If foreign content got into a page, the browser would neither run nor load it. */
  test('forbids all scripts and styles but its own', async () => {
    const page = await (await fetch(`${server.url}/docs/api`)).text()
    const policy = /http-equiv="Content-Security-Policy" content="([^"]+)"/.exec(page)?.[1]?.split('; ') ?? []
    const hashesOf = (element: string) =>
      [...page.matchAll(new RegExp(`<${element}>(.*?)</${element}>`, 'gs'))]
        .map(([, text = '']) => `'sha256-${new Bun.CryptoHasher('sha256').update(text).digest('base64')}'`)
        .join(' ')
    expect(policy).toContain("default-src 'none'")
    expect(policy).toContain(`script-src ${hashesOf('script')}`)
    expect(policy).toContain(`style-src ${hashesOf('style')}`)
    // Blocked by such a policy: handlers and styles in attributes.
    expect(page).not.toMatch(/<[^>]+ (style|on[a-z]+)=/)
  })

  /** An example that does not work is worse than none. */
  test('has a first example that the server accepts', async () => {
    const workspace = await server.workspace()
    const body = at('/v1/ratelimits.limit').requestBody?.content['application/json'].example
    expect(await workspace.post('ratelimits.limit', body)).toMatchObject({ success: true })
  })
})
