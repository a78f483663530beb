import { docsUrl } from '../doors/http/answer.ts'
import { STATUSES } from '../doors/v1/statuses.ts'
import { type AnyErrorCode, ERRORS, type ErrorCode } from '../errors.ts'
import type { ApiDescription, DescribedError } from './api-description.ts'
import type { JsonSchema } from './json-schema.ts'
import { NEEDS } from './needs.ts'
import { V1_SAMPLES } from './v1-samples.ts'

export const V1: ApiDescription = {
  name: 'v1',
  about: `The API of Unkey’s earlier clients, and of everything that operators need.

Reads are \`GET\` with a query string, everything else is \`POST\` with a JSON body. Fields that an endpoint does not know
are ignored. Lists are paged: send the \`cursor\` of one page to get the next; it is absent on the last.

A failure has one shape, \`{"error": {"code", "docs", "message", "requestId"}}\`, and its status is the code’s.`,
  groups: {
    keys: 'Keys of your users: create, verify, change and revoke them.',
    auth: 'Key checks for nginx, Caddy, Traefik and other reverse proxies.',
    migrations: 'Import existing keys, as hashes or as plain text.',
    permissions: 'Permissions and the roles that bundle them.',
    identities: 'Users and organisations that keys belong to, with rate limits that their keys share.',
    ratelimits: 'Rate limits for any identifier, and overrides for single identifiers.',
    apis: 'APIs: sets of keys, for example all keys of one product.',
    analytics: 'Usage: counts of verifications and rate limit decisions by hour.',
    events: 'Recent verifications and rate limit decisions, from the memory of the server.',
    audit: 'Audit events: who changed what.',
    rootKeys: 'Root keys: what your backend calls Tollgate with, each with its own permissions.',
    vault: 'Encryption of recoverable keys. Needs an operator root key.',
    workspaces: 'Tenants of this server. Needs an operator root key.',
    server: 'State of the server.',
  },
  tagPrefix: '',
  idPrefix: '',
  needs: NEEDS,
  remarksOn: (method, { introduced }) => [
    introduced === null ? '' : `In Unkey’s v1 API since ${introduced}.`,
    OWN.has(method) ? 'Added by Tollgate; not part of Unkey’s v1 API.' : '',
  ],
  samples: V1_SAMPLES,
  errorsOf: (_, { errors }, publicUrl) => errors.map((code) => describedError(code, publicUrl)),
  errorSchema: ['Error', errorSchema()],
}

/** Methods that Unkey's v1 API does not have: its dashboard did this, or nothing did. */
const OWN: ReadonlySet<string> = new Set([
  'analytics.getOverview',
  'analytics.getRatelimits',
  'apis.listApis',
  'apis.updateApi',
  'audit.listEvents',
  'auth.forward',
  'events.listRecent',
  'events.listWatches',
  'events.unwatch',
  'events.watch',
  'identities.eraseIdentity',
  'keys.askServers',
  'keys.eraseKey',
  'keys.listKeys',
  'keys.rerollKey',
  'migrations.checkKeys',
  'migrations.discardImports',
  'migrations.listImports',
  'migrations.retryImports',
  'permissions.searchPermissions',
  'permissions.searchRoles',
  'keys.explainKey',
  'keys.getLastUsed',
  'keys.searchKeys',
  'permissions.setRolePermissions',
  'ratelimits.createNamespace',
  'ratelimits.deleteNamespace',
  'ratelimits.getWindows',
  'ratelimits.listNamespaces',
  'ratelimits.listNearLimit',
  'ratelimits.multiLimit',
  'ratelimits.updateNamespace',
  'rootKeys.askServers',
  'rootKeys.createRootKey',
  'rootKeys.deleteRootKey',
  'rootKeys.listRootKeys',
  'rootKeys.rerollRootKey',
  'rootKeys.updateRootKey',
  'rootKeys.whoami',
  'server.getHistory',
  'server.getSettings',
  'server.getStatus',
  'server.listServers',
  'vault.reseal',
  'workspaces.createWorkspace',
  'workspaces.listWorkspaces',
  'workspaces.updateWorkspace',
])

/** An error of the v1 API, as the description shows it. */
export const describedError = (code: ErrorCode, publicUrl: string): DescribedError => ({
  status: STATUSES[code],
  name: code,
  about: ERRORS[code].about,
  example: exampleOf(code, publicUrl),
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
  NOT_READY: 'the server is draining',
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

function errorSchema(): JsonSchema {
  return {
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
}
