import { KindGuard, type TSchema } from '@sinclair/typebox'
import type { Dialect } from '../doors/http/dialect.ts'
import type { Endpoint } from '../doors/http/endpoint.ts'
import { v1 } from '../doors/v1/dialect.ts'
import { v2 } from '../doors/v2/dialect.ts'
import { ERRORS, type ErrorCode } from '../errors.ts'
import { VERSION } from '../lib/version.ts'
import type { ApiDescription, DescribedError } from './api-description.ts'
import { replyExample, requestExample } from './examples.ts'
import type { JsonSchema } from './json-schema.ts'
import { describedError, V1 } from './v1-description.ts'
import { V2 } from './v2-description.ts'

/*
 * The OpenAPI 3.1 description, made from the definitions that route and validate. TypeBox schemas are JSON Schema, as 3.1
 * wants.
 *
 * Not `@elysiajs/openapi` (1.4.16): Elysia does not validate here, so the plugin would only add the outermost object. It
 * also needs the TypeScript compiler as a peer, and its page loads scripts from elsewhere. Look again if Elysia ever
 * validates for us.
 */

/** An operation of the description. Its id is also the id of its section on `/docs/api`. */
export type Operation = {
  operationId: string
  tags: [string]
  summary: string
  /** Who may call it and since when it exists; code between backticks. */
  description: string
  security: Record<string, string[]>[]
  parameters?: Parameter[]
  requestBody?: { required: true; content: JsonContent }
  responses: Record<string, AnswerObject>
  'x-introduced'?: string
}
export type Parameter = {
  name: string
  in: 'query' | 'header'
  required: boolean
  description: string
  deprecated?: true
  style?: 'form'
  explode?: true
  schema: JsonSchema
}
type AnswerObject = {
  description: string
  headers: Record<string, { $ref: string } | { description: string; schema: JsonSchema }>
  content: JsonContent
}
type ErrorExample = { summary: string; value: unknown }
type JsonContent = {
  'application/json': {
    schema: JsonSchema
    example?: unknown
    examples?: Record<string, ErrorExample>
  }
}
export type OpenApiDocument = {
  openapi: '3.1.1'
  info: { title: string; version: string; description: string; license: { name: string; identifier: string } }
  servers: { url: string }[]
  tags: { name: string; description: string }[]
  /** The tags of each API. Several viewers of descriptions show them. */
  'x-tagGroups': { name: string; description: string; tags: string[] }[]
  paths: Record<string, Partial<Record<'get' | 'post', Operation>>>
  components: {
    securitySchemes: Record<string, unknown>
    headers: Record<string, unknown>
    /** One for every error code, including those that no described path answers. */
    examples: Record<string, ErrorExample>
    schemas: Record<string, JsonSchema>
  }
}

/** @param publicUrl Base of the server's address and of the links in examples. */
export function openApiDocument(endpoints: readonly Endpoint[], publicUrl: string): OpenApiDocument {
  const paths: OpenApiDocument['paths'] = {}
  for (const endpoint of endpoints) {
    const method = endpoint.method === 'GET' ? 'get' : 'post'
    const operation = operationOf(endpoint, publicUrl)
    paths[endpoint.path] = { ...paths[endpoint.path], [method]: operation }
    if (endpoint.answersPostToo)
      paths[endpoint.path] = {
        get: operation,
        post: { ...operation, operationId: `${operation.operationId}.post` },
      }
  }
  const apis = Object.entries(API_DESCRIPTIONS).map(([prefix, api]) => ({
    api,
    tags: tagsOf(
      api,
      endpoints.filter((endpoint) => endpoint.dialect.prefix === prefix),
    ),
  }))
  return {
    openapi: '3.1.1',
    info: {
      title: 'Tollgate',
      version: VERSION,
      description: ABOUT,
      license: { name: 'Apache License 2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: publicUrl }],
    tags: apis.flatMap(({ tags }) => tags),
    'x-tagGroups': apis.map(({ api: { name, about }, tags }) => ({
      name,
      description: about,
      tags: tags.map(({ name }) => name),
    })),
    paths,
    components: {
      securitySchemes: SECURITY_SCHEMES,
      headers: HEADERS,
      examples: Object.fromEntries(CODES.map((code) => [code, exampleOf(describedError(code, publicUrl))])),
      schemas: Object.fromEntries(apis.map(({ api }) => api.errorSchema)),
    },
  }
}
const ABOUT = `API keys, rate limits and usage.

One server answers two APIs. Both work on the same keys, limits and identities. \`/v2\` is for Unkey’s current clients;
\`/v1\` is for its earlier ones and for what operators do. Times are Unix milliseconds. \`?pretty\` indents the answer. A
rate limit or a key that is refused is not a failure: those answer 200 and say so in the body.`

const API_DESCRIPTIONS: Readonly<Record<Dialect['prefix'], ApiDescription>> = {
  [v2.prefix]: V2,
  [v1.prefix]: V1,
}

const descriptionOf = ({ dialect, path }: Endpoint): ApiDescription => {
  const description = API_DESCRIPTIONS[dialect.prefix]
  if (description === undefined) throw new Error(`${path} is of an API that is not described`)
  return description
}

/** `keys.createKey` of `/v1/keys.createKey`. */
const methodOf = ({ path, dialect }: Endpoint): string => path.slice(dialect.prefix.length)

/** `keys` of `/v1/keys.createKey`. */
function tagOf(endpoint: Endpoint): string {
  const [group = '', method] = methodOf(endpoint).split('.')
  return descriptionOf(endpoint).tagPrefix + (method === undefined ? 'server' : group)
}

/** The groups that have methods, in the order of the first method of each. */
const tagsOf = ({ groups, tagPrefix }: ApiDescription, endpoints: readonly Endpoint[]) =>
  [...new Set(endpoints.map(tagOf))].map((name) => ({
    name,
    description: groups[name.slice(tagPrefix.length)] ?? name,
  }))

function operationOf(endpoint: Endpoint, publicUrl: string): Operation {
  const { method, input, reply, summary, status, access, introduced } = endpoint
  const name = methodOf(endpoint)
  const description = descriptionOf(endpoint)
  const { samples } = description
  const properties = KindGuard.IsObject(input) ? Object.entries(input.properties) : []
  const parameters = [
    ...(method === 'GET' ? properties.map(([name, schema]) => parameterOf(name, schema, input)) : []),
    ...Object.entries(endpoint.requestHeaders).map(([name, header]) => headerOf(name, header)),
  ]
  const request = jsonSchemaOf(input)
  const answer = jsonSchemaOf(reply)
  const body: JsonContent = {
    'application/json': { schema: request, example: requestExample(samples, name, request) },
  }
  return {
    operationId: description.idPrefix + name,
    tags: [tagOf(endpoint)],
    summary,
    description: sentencesOf(endpoint, description),
    security: SECURITY[access],
    ...(parameters.length > 0 ? { parameters } : {}),
    ...(method === 'POST' ? { requestBody: { required: true as const, content: body } } : {}),
    responses: {
      [status]: {
        description: status === 202 ? 'Accepted: the work is done later.' : 'Success.',
        headers: headersOf(endpoint),
        content: { 'application/json': { schema: answer, example: replyExample(samples, name, answer) } },
      },
      ...errorAnswers(description.errorsOf(name, endpoint, publicUrl), description, headersOf(endpoint)),
    },
    ...(introduced === null ? {} : { 'x-introduced': introduced }),
  }
}

const sentencesOf = (endpoint: Endpoint, { needs, remarksOn }: ApiDescription): string =>
  [
    endpoint.access !== 'root-key'
      ? 'Needs no root key.'
      : `Needs a root key with ${needs[methodOf(endpoint)] ?? 'some permission.'}`,
    ...remarksOn(methodOf(endpoint), endpoint),
  ]
    .filter((sentence) => sentence !== '')
    .join(' ')

const headerOf = (
  name: string,
  { description, ...lengths }: Endpoint['requestHeaders'][string],
): Parameter => ({ name, in: 'header', required: false, description, schema: { type: 'string', ...lengths } })

const headersOf = ({ answerHeaders }: Endpoint): AnswerObject['headers'] => ({
  ...ANSWER_HEADERS,
  ...Object.fromEntries(
    Object.entries(answerHeaders).map(([name, description]) => [
      name,
      { description, schema: { type: 'string' } },
    ]),
  ),
})

const SECURITY: Record<Endpoint['access'], Operation['security']> = {
  'root-key': [{ rootKey: [] }],
  key: [{ key: [] }, { keyHeader: [] }],
  public: [],
}
const SECURITY_SCHEMES = {
  rootKey: {
    type: 'http',
    scheme: 'bearer',
    description: 'A root key of the workspace, as `Authorization: Bearer <root key>`.',
  },
  key: {
    type: 'http',
    scheme: 'bearer',
    description: 'The key to check, as `Authorization: Bearer <key>`.',
  },
  keyHeader: {
    type: 'apiKey',
    in: 'header',
    name: 'X-API-Key',
    description: 'The key to check. If this header is present, `Authorization` is ignored.',
  },
}

function parameterOf(name: string, schema: TSchema, input: TSchema): Parameter {
  const { description = '', deprecated, ...rest } = jsonSchemaOf(schema)
  return {
    name,
    in: 'query',
    required: (input.required ?? []).includes(name),
    description,
    ...(deprecated === true ? { deprecated } : {}),
    ...(rest.type === 'array' ? { style: 'form', explode: true } : {}),
    schema: rest,
  }
}

/** One answer for each status, with an example for each error of that status. */
function errorAnswers(
  errors: readonly DescribedError[],
  { errorSchema: [schemaName] }: ApiDescription,
  headers: AnswerObject['headers'],
): Record<string, AnswerObject> {
  const byStatus = Map.groupBy(errors, ({ status }) => status)
  return Object.fromEntries(
    [...byStatus].map(([status, those]) => [
      status,
      {
        description: those.map(({ name, about }) => `\`${name}\`: ${about}`).join('\n\n'),
        headers,
        content: {
          'application/json': {
            schema: { $ref: `#/components/schemas/${schemaName}` },
            examples: Object.fromEntries(those.map((error) => [error.name, exampleOf(error)])),
          },
        },
      },
    ]),
  )
}

const CODES = Object.keys(ERRORS) as ErrorCode[] // the names of the object
const exampleOf = ({ about, example }: DescribedError): ErrorExample => ({ summary: about, value: example })

const HEADERS = {
  'Unkey-Request-Id': {
    description: 'Id of this request in the server’s log.',
    schema: { type: 'string' },
  },
  'Unkey-Latency': {
    description: 'Time spent in the server, as `service=<milliseconds>ms`.',
    schema: { type: 'string' },
  },
  'Unkey-Version': { description: 'Name and version of the server.', schema: { type: 'string' } },
}
const ANSWER_HEADERS = Object.fromEntries(
  Object.keys(HEADERS).map((name) => [name, { $ref: `#/components/headers/${name}` }]),
)

/** Plain JSON Schema: unions of constants become `enum`, and keywords for the checker are removed. */
function jsonSchemaOf(schema: TSchema): JsonSchema {
  const plain: JsonSchema = JSON.parse(
    JSON.stringify(schema, (key, value) => (key === 'errorMessage' ? undefined : value)),
  )
  return withEnums(plain)
}

function withEnums({ anyOf, properties, items, ...rest }: JsonSchema): JsonSchema {
  const schema: JsonSchema = { ...rest }
  if (properties !== undefined)
    schema.properties = Object.fromEntries(
      Object.entries(properties).map(([name, property]) => [name, withEnums(property)]),
    )
  if (items !== undefined) schema.items = withEnums(items)
  if (anyOf?.every((option) => option.const !== undefined))
    return { type: 'string', ...schema, enum: anyOf.map((option) => option.const) }
  if (anyOf !== undefined) schema.anyOf = anyOf.map(withEnums)
  return schema
}
