import { KindGuard, type TSchema } from '@sinclair/typebox'
import { docsUrl } from '../doors/http/answer.ts'
import type { Endpoint } from '../doors/http/endpoint.ts'
import { STATUSES } from '../doors/v1/statuses.ts'
import { type AnyErrorCode, ERRORS, type ErrorCode } from '../errors.ts'
import { VERSION } from '../lib/version.ts'
import { replyExample, requestExample } from './examples.ts'
import type { JsonSchema } from './json-schema.ts'
import { NEEDS } from './needs.ts'

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
  in: 'query'
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
  return {
    openapi: '3.1.1',
    info: {
      title: 'Tollgate',
      version: VERSION,
      description: ABOUT,
      license: { name: 'Apache License 2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: publicUrl }],
    tags: [...new Set(endpoints.map(tagOf))].map((name) => ({ name, description: TAGS[name] ?? name })),
    paths,
    components: {
      securitySchemes: {
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
      },
      headers: HEADERS,
      examples: Object.fromEntries(CODES.map((code) => [code, errorExample(code, publicUrl)])),
      schemas: { Error: ERROR_SCHEMA },
    },
  }
}

const ABOUT = `API keys, rate limits and usage.

Reads are \`GET\` with a query string, everything else is \`POST\` with a JSON body. Times are Unix milliseconds. Fields
that an endpoint does not know are ignored. \`?pretty\` indents the answer. Lists are paged: send the \`cursor\` of one
page to get the next; it is absent on the last.

A failure has one shape, \`{"error": {"code", "docs", "message", "requestId"}}\`, and its status is the code's. A rate
limit or a key that is refused is not a failure: those answer 200 and say so in the body.`

const TAGS: Record<string, string> = {
  keys: 'Keys of your users: create, verify, change and revoke them.',
  auth: 'Key checks for nginx, Caddy, Traefik and other reverse proxies.',
  migrations: 'Import existing keys, as hashes or as plain text.',
  permissions: 'Permissions and the roles that bundle them.',
  identities: 'Users and organisations that keys belong to, with rate limits that their keys share.',
  ratelimits: 'Rate limits for any identifier, and overrides for single identifiers.',
  apis: 'APIs: sets of keys, for example all keys of one product.',
  analytics: 'Usage: counts of verifications and rate limit decisions by hour.',
  audit: 'Audit events: who changed what.',
  rootKeys: 'Root keys: what your backend calls Tollgate with, each with its own permissions.',
  vault: 'Encryption of recoverable keys. Needs an operator root key.',
  workspaces: 'Tenants of this server. Needs an operator root key.',
  server: 'State of the server.',
}

/** `keys` of `/v1/keys.createKey`. */
function tagOf({ path }: Endpoint): string {
  const [name = '', method] = path.slice('/v1/'.length).split('.')
  return method === undefined ? 'server' : name
}

function operationOf(endpoint: Endpoint, publicUrl: string): Operation {
  const { method, path, input, reply, summary, status, access, introduced, errors } = endpoint
  const name = path.slice('/v1/'.length)
  const properties = KindGuard.IsObject(input) ? Object.entries(input.properties) : []
  const body: JsonContent = {
    'application/json': { schema: jsonSchemaOf(input), example: requestExample(name, jsonSchemaOf(input)) },
  }
  const answer = jsonSchemaOf(reply)
  return {
    operationId: name,
    tags: [tagOf(endpoint)],
    summary,
    description: descriptionOf(endpoint),
    security: SECURITY[access],
    ...(method === 'GET' && properties.length > 0
      ? { parameters: properties.map(([name, schema]) => parameterOf(name, schema, input)) }
      : {}),
    ...(method === 'POST' ? { requestBody: { required: true as const, content: body } } : {}),
    responses: {
      [status]: {
        description: status === 202 ? 'Accepted: the work is done later.' : 'Success.',
        headers: headersOf(endpoint),
        content: { 'application/json': { schema: answer, example: replyExample(name, answer) } },
      },
      ...errorAnswers(errors, publicUrl, headersOf(endpoint)),
    },
    ...(introduced === null ? {} : { 'x-introduced': introduced }),
  }
}

function descriptionOf({ path, access, introduced }: Endpoint): string {
  const name = path.slice('/v1/'.length)
  const needs = NEEDS[name]
  return [
    access !== 'root-key' ? 'Needs no root key.' : `Needs a root key with ${needs ?? 'some permission.'}`,
    introduced === null ? '' : `In Unkey’s v1 API since ${introduced}.`,
    OWN.has(name) ? 'Added by Tollgate; not part of Unkey’s v1 API.' : '',
  ]
    .filter((sentence) => sentence !== '')
    .join(' ')
}

/** Methods that Unkey's v1 API does not have: its dashboard did this, or nothing did. */
const OWN: ReadonlySet<string> = new Set([
  'analytics.getRatelimits',
  'apis.listApis',
  'apis.updateApi',
  'audit.listEvents',
  'auth.forward',
  'identities.eraseIdentity',
  'keys.eraseKey',
  'permissions.setRolePermissions',
  'ratelimits.createNamespace',
  'ratelimits.deleteNamespace',
  'ratelimits.listNamespaces',
  'ratelimits.multiLimit',
  'rootKeys.createRootKey',
  'rootKeys.deleteRootKey',
  'rootKeys.listRootKeys',
  'rootKeys.updateRootKey',
  'vault.reseal',
  'workspaces.createWorkspace',
  'workspaces.listWorkspaces',
  'workspaces.updateWorkspace',
])

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

/** One answer for each status, with an example for each code of that status. */
function errorAnswers(
  codes: readonly ErrorCode[],
  publicUrl: string,
  headers: AnswerObject['headers'],
): Record<string, AnswerObject> {
  const byStatus = Map.groupBy(codes, (code) => STATUSES[code])
  return Object.fromEntries(
    [...byStatus].map(([status, those]) => [
      status,
      {
        description: those.map((code) => `\`${code}\`: ${ERRORS[code].about}`).join('\n\n'),
        headers,
        content: {
          'application/json': {
            schema: { $ref: '#/components/schemas/Error' },
            examples: Object.fromEntries(those.map((code) => [code, errorExample(code, publicUrl)])),
          },
        },
      },
    ]),
  )
}

const CODES = Object.keys(ERRORS) as ErrorCode[] // the names of the object
const errorExample = (code: ErrorCode, publicUrl: string): ErrorExample => ({
  summary: ERRORS[code].about,
  value: exampleOf(code, publicUrl),
})

/** An error with this code, as it is answered. */
export const exampleOf = (code: AnyErrorCode, publicUrl: string) => ({
  error: {
    code,
    docs: docsUrl(publicUrl, code),
    message: EXAMPLE_MESSAGES[code],
    requestId: 'req_4aBcDeFgHjKmNpQr',
  },
})

const EXAMPLE_MESSAGES: Record<AnyErrorCode, string> = {
  UNAUTHENTICATED: 'API key required',
  BAD_REQUEST: 'limit: Number must be greater than 0',
  UNAUTHORIZED: 'key not found',
  FORBIDDEN: 'the root key may not be used from this IP address',
  DISABLED: 'the root key is disabled',
  EXPIRED: 'the root key expired at 2026-01-01T00:00:00.000Z',
  USAGE_EXCEEDED: 'the root key has no credits left',
  INSUFFICIENT_PERMISSIONS: 'missing permission: needs * or api.*.read_api; the root key has none',
  NOT_FOUND: 'api api_4aBcDeFgHjKmNpQr not found',
  METHOD_NOT_ALLOWED: '/v1/keys.verifyKey does not support PUT; it supports POST, OPTIONS',
  REQUEST_TIMEOUT: 'the request did not arrive completely within 30 seconds',
  CONFLICT: 'permission documents.read already exists',
  GONE: 'namespace email.send was deleted',
  PRECONDITION_FAILED: 'roles not found: admin',
  DELETE_PROTECTED: 'api api_4aBcDeFgHjKmNpQr has delete protection; switch it off with apis.updateApi first',
  URI_TOO_LONG: 'the request line has more than 16384 bytes',
  UNSUPPORTED_MEDIA_TYPE: 'Content-Encoding: encoded bodies are not supported; send uncompressed JSON',
  EXPECTATION_FAILED: 'Expect: only 100-continue is supported',
  RATE_LIMITED: 'the root key is rate limited',
  HEADERS_TOO_LARGE: 'the request headers have more than 16384 bytes',
  INTERNAL_SERVER_ERROR: 'internal error',
  NOT_IMPLEMENTED: 'Transfer-Encoding: only chunked is supported',
  SERVICE_UNAVAILABLE: 'too many unfinished requests: this request was dropped and not carried out',
  HTTP_VERSION_NOT_SUPPORTED: 'HTTP/2.0 is not supported: send HTTP/1.1',
}

const ERROR_SCHEMA: JsonSchema = {
  type: 'object',
  required: ['error'],
  properties: {
    error: {
      type: 'object',
      description: 'The error.',
      required: ['code', 'docs', 'message', 'requestId'],
      properties: {
        code: {
          type: 'string',
          enum: Object.keys(ERRORS),
          description: 'Error code, for programs. Codes are never renamed.',
        },
        docs: { type: 'string', format: 'uri', description: 'Address of a page that says what to do.' },
        message: { type: 'string', description: 'What is wrong, for people.' },
        requestId: { type: 'string', description: 'Id of this request in the server’s log.' },
      },
    },
  },
}

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
