import { PROBLEMS, type ProblemType, TYPE_BASE } from '../doors/v2/problems.ts'
import type { ErrorCode } from '../errors.ts'
import type { ApiDescription, DescribedError } from './api-description.ts'
import type { JsonSchema } from './json-schema.ts'
import { V2_NEEDS } from './v2-needs.ts'
import { V2_SAMPLES } from './v2-samples.ts'

export const V2: ApiDescription = {
  name: 'v2',
  about: `The API of Unkey’s current clients: \`@unkey/api\` and \`@unkey/ratelimit\` in their versions 2.

Everything but \`liveness\` is \`POST\` with a JSON body. Fields that an endpoint does not know are refused, or ignored where
Unkey ignores them. An answer is \`{"meta": {"requestId"}, "data"}\`; what has no value is left out. Lists also have
\`pagination\`: send its \`cursor\` to get the next page; it is absent on the last.

A failure is \`{"meta", "error": {"title", "detail", "status", "type"}}\`. A 400, a 408 and a 413 also list \`errors\`, each
with its \`location\`. The \`type\` is the same text as Unkey’s, because programs compare it; what follows
\`${TYPE_BASE}\` is also the address of a page of this server, below \`/errors/\`.`,
  groups: {
    keys: 'Keys of your users: create, verify, change, rotate and revoke them.',
    apis: 'APIs: sets of keys, for example all keys of one product.',
    identities: 'Users and organisations that keys belong to, with rate limits that their keys share.',
    permissions: 'Permissions and the roles that bundle them.',
    ratelimit: 'Rate limits for any identifier, and overrides for single identifiers.',
    analytics: 'Usage in SQL, which this server does not answer. Ask the v1 API instead.',
    server: 'State of the server.',
  },
  tagPrefix: 'v2 ',
  idPrefix: 'v2.',
  needs: V2_NEEDS,
  remarksOn: (_, { requestHeaders }) =>
    'Idempotency-Key' in requestHeaders
      ? [
          'With an `Idempotency-Key` it is carried out once, and a call that is sent again gets the same answer for ten minutes.',
        ]
      : [],
  samples: V2_SAMPLES,
  errorsOf: (method, { errors, access, method: verb }) => {
    const types = new Set([
      ...errors.flatMap((code) => TYPES[code]),
      ...(access === 'root-key' ? (['unkey/authentication/malformed'] as const) : []),
      ...(verb === 'POST' ? (['user/bad_request/request_body_too_large'] as const) : []),
      ...(OWN_TYPES[method] ?? []),
    ])
    return [...types].map(describedProblem).sort((one, other) => one.status - other.status)
  },
  errorSchema: ['Problem', problemSchema()],
}

/** The types behind a code, except those that depend on the method. */
const TYPES: Readonly<Record<ErrorCode, readonly ProblemType[]>> = {
  BAD_REQUEST: ['unkey/application/invalid_input'],
  UNSUPPORTED_MEDIA_TYPE: ['unkey/application/invalid_input'],
  UNAUTHENTICATED: ['unkey/authentication/key_not_found'],
  UNAUTHORIZED: ['unkey/authentication/key_not_found'],
  FORBIDDEN: ['unkey/authorization/forbidden', 'unkey/authorization/workspace_disabled'],
  DISABLED: ['unkey/authorization/key_disabled'],
  EXPIRED: ['unkey/authorization/forbidden'],
  USAGE_EXCEEDED: ['unkey/authorization/forbidden'],
  INSUFFICIENT_PERMISSIONS: ['unkey/authorization/insufficient_permissions'],
  RATE_LIMITED: ['user/too_many_requests/workspace_rate_limited'],
  NOT_FOUND: [],
  METHOD_NOT_ALLOWED: [],
  CONFLICT: [],
  GONE: ['unkey/data/ratelimit_namespace_gone'],
  PRECONDITION_FAILED: ['unkey/application/precondition_failed'],
  DELETE_PROTECTED: ['unkey/application/protected_resource'],
  INTERNAL_SERVER_ERROR: ['unkey/application/unexpected_error'],
  NOT_READY: [], // only the v1 API has readiness
}

const API = 'unkey/data/api_not_found'
const KEY = 'unkey/data/key_not_found'
const IDENTITY = 'unkey/data/identity_not_found'
const PERMISSION = 'unkey/data/permission_not_found'
const ROLE = 'unkey/data/role_not_found'
const NAMESPACE = 'unkey/data/ratelimit_namespace_not_found'
const OVERRIDE = 'unkey/data/ratelimit_override_not_found'

/** What is missing or there already, by method; and types that no code has. */
const OWN_TYPES: Readonly<Record<string, readonly ProblemType[]>> = {
  'keys.createKey': [API, ROLE],
  'keys.verifyKey': ['user/bad_request/permissions_query_syntax_error'],
  'keys.getKey': [KEY],
  'keys.whoami': [KEY],
  'keys.updateKey': [KEY, ROLE],
  'keys.deleteKey': [KEY],
  'keys.updateCredits': [KEY],
  'keys.rerollKey': [KEY],
  'keys.migrateKeys': [API],
  'keys.addPermissions': [KEY],
  'keys.setPermissions': [KEY],
  'keys.removePermissions': [KEY, PERMISSION],
  'keys.addRoles': [KEY, ROLE],
  'keys.setRoles': [KEY, ROLE],
  'keys.removeRoles': [KEY, ROLE],
  'apis.getApi': [API],
  'apis.deleteApi': [API],
  'apis.listKeys': [API],
  'identities.createIdentity': ['unkey/data/identity_already_exists'],
  'identities.getIdentity': [IDENTITY],
  'identities.updateIdentity': [IDENTITY],
  'identities.deleteIdentity': [IDENTITY],
  'permissions.createPermission': ['unkey/data/permission_already_exists'],
  'permissions.getPermission': [PERMISSION],
  'permissions.deletePermission': [PERMISSION],
  'permissions.createRole': ['unkey/data/role_already_exists'],
  'permissions.getRole': [ROLE],
  'permissions.deleteRole': [ROLE],
  'permissions.setRolePermissions': [ROLE],
  'ratelimit.setOverride': [NAMESPACE],
  'ratelimit.getOverride': [NAMESPACE, OVERRIDE],
  'ratelimit.listOverrides': [NAMESPACE],
  'ratelimit.deleteOverride': [NAMESPACE, OVERRIDE],
  'analytics.getVerifications': ['unkey/data/analytics_not_configured'],
  'analytics.getRatelimits': ['unkey/data/analytics_not_configured'],
}

/** An error of the v2 API, as the description shows it. */
export const describedProblem = (type: ProblemType): DescribedError => ({
  status: PROBLEMS[type].status,
  name: type,
  about: PROBLEMS[type].about,
  example: problemExample(type),
})

/** An error of this type, as it is answered. */
function problemExample(type: ProblemType) {
  const { status, title } = PROBLEMS[type]
  return {
    meta: { requestId: 'req_4aBcDeFgHjKmNpQr' },
    error: {
      title,
      detail: DETAILS[type],
      status,
      type: `${TYPE_BASE}${type}`,
      ...(status === 400 || status === 408 || status === 413 ? { errors: EXAMPLE_ERRORS[type] ?? [] } : {}),
    },
  }
}

const ID = '4aBcDeFgHjKmNpQr'
const DETAILS: Readonly<Record<ProblemType, string>> = {
  'unkey/application/invalid_input': "POST request body for '/v2/apis.createApi' failed to validate schema",
  'unkey/authentication/malformed': 'the Authorization header must be "Bearer " and a root key',
  'user/bad_request/permissions_query_syntax_error':
    'the permission query has a syntax error at position 15: expected a permission or (, found the end',
  'user/bad_request/request_timeout': 'the request did not arrive completely within 30 seconds',
  'user/bad_request/request_body_too_large': 'the body is larger than 1048576 bytes',
  'user/too_many_requests/workspace_rate_limited': 'the root key is rate limited',
  'unkey/authentication/key_not_found': 'key not found',
  'unkey/authorization/insufficient_permissions':
    'missing permission: needs * or api.*.read_api; the root key has none',
  'unkey/authorization/forbidden': 'the root key expired at 2026-01-01T00:00:00.000Z',
  'unkey/authorization/key_disabled': 'the root key is disabled',
  'unkey/authorization/workspace_disabled': 'the workspace is disabled',
  'unkey/data/api_not_found': `api api_${ID} not found`,
  'unkey/data/identity_not_found': 'identity user_123 not found',
  'unkey/data/key_not_found': `key key_${ID} not found`,
  'unkey/data/migration_not_found': 'migration from-the-old-system not found',
  'unkey/data/permission_not_found': 'permission documents.read not found',
  'unkey/data/ratelimit_namespace_not_found': 'namespace email.send not found',
  'unkey/data/ratelimit_override_not_found': 'override user_123 not found',
  'unkey/data/role_not_found': 'role editor not found',
  'unkey/data/workspace_not_found': `workspace ws_${ID} not found`,
  'unkey/data/identity_already_exists': 'identity user_123 already exists',
  'unkey/data/key_already_exists': `key key_${ID} already exists`,
  'unkey/data/permission_already_exists': 'permission documents.read already exists',
  'unkey/data/role_already_exists': 'role editor already exists',
  'unkey/data/ratelimit_namespace_gone': 'namespace email.send was deleted',
  'unkey/application/protected_resource': `api api_${ID} has delete protection; switch it off with apis.updateApi first`,
  'unkey/application/precondition_failed': 'recoverable keys are switched off for this API',
  'unkey/data/analytics_not_configured':
    'queries in SQL are not supported; ask GET /v1/analytics.getVerifications, which takes the same question as parameters',
  'unkey/application/unexpected_error': 'internal error',
}
const EXAMPLE_ERRORS: Partial<Record<ProblemType, readonly unknown[]>> = {
  'unkey/application/invalid_input': [
    { message: 'minLength: got 2, want 3', location: '/properties/name/minLength' },
  ],
}

function problemSchema(): JsonSchema {
  const text = (description: string): JsonSchema => ({ type: 'string', description })
  return {
    type: 'object',
    required: ['meta', 'error'],
    properties: {
      meta: {
        type: 'object',
        description: 'About the request.',
        required: ['requestId'],
        properties: { requestId: text('Id of this request in the server’s log.') },
      },
      error: {
        type: 'object',
        description: 'The error, as problem details (RFC 9457).',
        required: ['title', 'detail', 'status', 'type'],
        properties: {
          title: text('Name of the kind of error, for people.'),
          detail: text('What is wrong, for people.'),
          status: { type: 'integer', description: 'The HTTP status.' },
          type: { ...text('Kind of error, for programs. Types are never renamed.'), format: 'uri' },
          errors: {
            type: 'array',
            description: 'What is wrong with the request, of the statuses 400, 408 and 413.',
            items: {
              type: 'object',
              required: ['message', 'location'],
              properties: {
                message: text('What is wrong.'),
                location: text(
                  'Where: a JSON pointer into the schema of the body, or `requestBody`, or `security`.',
                ),
                fix: text('What to do.'),
              },
            },
          },
        },
      },
    },
  }
}
