/**
 * Errors of the v2 API by their type, the text that follows {@link TYPE_BASE}. Types are contract: add a row, never rename
 * one. `about` and `remedy` are shown on the page of an error.
 */
export const PROBLEMS = {
  'unkey/application/invalid_input': {
    status: 400,
    title: 'Bad Request',
    about: 'The request is invalid: a field is missing, has the wrong type, is out of bounds or is unknown.',
    remedy: '`errors` lists what is wrong and where. Correct that and send the request again.',
  },
  'unkey/authentication/malformed': {
    status: 400,
    title: 'Bad Request',
    about: 'The Authorization header is not `Bearer ` and a root key.',
    remedy: 'Send `Authorization: Bearer <root key>`.',
  },
  'user/bad_request/permissions_query_syntax_error': {
    status: 400,
    title: 'Bad Request',
    about: 'The permission query of keys.verifyKey cannot be read.',
    remedy: 'The detail names the position. A query has permissions, AND, OR and parentheses.',
  },
  'user/bad_request/request_timeout': {
    status: 408,
    title: 'Request Timeout',
    about: 'The request did not arrive completely within 30 seconds. It was not carried out.',
    remedy: 'Send the request again, without pauses in between.',
  },
  'user/bad_request/request_body_too_large': {
    status: 413,
    title: 'Request Entity Too Large',
    about: 'The body is larger than 1 MiB.',
    remedy: 'Send a smaller body, for example fewer keys in one call.',
  },
  'user/too_many_requests/workspace_rate_limited': {
    status: 429,
    title: 'Too Many Requests',
    about: 'The root key has reached its rate limit in the current window.',
    remedy: 'Wait until the window ends, or raise the limit of the root key.',
  },
  'unkey/authentication/key_not_found': {
    status: 401,
    title: 'Unauthorized',
    about: 'The root key does not exist, or the key is not a root key.',
    remedy: 'Send an existing root key.',
  },
  'unkey/authorization/insufficient_permissions': {
    status: 403,
    title: 'Insufficient Permissions',
    about: 'The root key does not have the permission that this call needs.',
    remedy: 'The detail names the missing permission. Add it to the root key, or use another root key.',
  },
  'unkey/authorization/forbidden': {
    status: 403,
    title: 'Forbidden',
    about: 'The root key has expired, has no credits left, or may not be used from this IP address.',
    remedy: 'The detail says which. Change the root key with rootKeys.updateRootKey, or use another one.',
  },
  'unkey/authorization/key_disabled': {
    status: 403,
    title: 'Key is disabled',
    about: 'The root key is disabled.',
    remedy: 'Enable it with rootKeys.updateRootKey, or use another one.',
  },
  'unkey/authorization/workspace_disabled': {
    status: 403,
    title: 'Workspace is disabled',
    about: 'The workspace of the root key is disabled.',
    remedy: 'Enable it with workspaces.updateWorkspace and an operator root key.',
  },
  'unkey/data/api_not_found': notFound('API'),
  'unkey/data/identity_not_found': notFound('identity'),
  'unkey/data/key_not_found': notFound('key'),
  'unkey/data/migration_not_found': notFound('migration'),
  'unkey/data/permission_not_found': notFound('permission'),
  'unkey/data/ratelimit_namespace_not_found': notFound('rate limit namespace'),
  'unkey/data/ratelimit_override_not_found': notFound('override'),
  'unkey/data/role_not_found': notFound('role'),
  'unkey/data/workspace_not_found': notFound('workspace'),
  'unkey/data/identity_already_exists': alreadyExists('identity', 'external id'),
  'unkey/data/key_already_exists': alreadyExists('key', 'hash'),
  'unkey/data/permission_already_exists': alreadyExists('permission', 'slug'),
  'unkey/data/role_already_exists': alreadyExists('role', 'name'),
  'unkey/data/ratelimit_namespace_gone': {
    status: 410,
    title: 'Resource Gone',
    about: 'The rate limit namespace was deleted. It is not created again by a call of the v2 API.',
    remedy: 'Use another namespace, or create this one again with ratelimits.createNamespace of the v1 API.',
  },
  'unkey/application/protected_resource': {
    status: 412,
    title: 'Resource is protected',
    about: 'The API has delete protection.',
    remedy: 'Switch off delete protection with apis.updateApi of the v1 API, then delete the API.',
  },
  'unkey/application/precondition_failed': {
    status: 412,
    title: 'Precondition Failed',
    about: 'The request is valid, but something that it needs is missing, switched off or full.',
    remedy: 'The detail names what is missing.',
  },
  'unkey/data/analytics_not_configured': {
    status: 412,
    title: 'Precondition Failed',
    about: 'Analytics queries in SQL are not supported.',
    remedy: 'Ask analytics.getVerifications or analytics.getRatelimits of the v1 API.',
  },
  'unkey/application/unexpected_error': {
    status: 500,
    title: 'Internal Server Error',
    about: 'The server failed. A write may still have happened.',
    remedy:
      'Repeat a read. After a write, check before you repeat it. If the error persists, give the request id to the operator.',
  },
} as const satisfies Record<string, Problem>

export type ProblemType = keyof typeof PROBLEMS
export type Problem = { status: number; title: string; about: string; remedy: string }

/** Programs compare the whole type, so it is the same text on every server. */
export const TYPE_BASE = 'https://unkey.com/docs/errors/'

function notFound(what: string) {
  return {
    status: 404,
    title: 'Not Found',
    about: `The ${what} does not exist, was deleted, or belongs to another workspace.`,
    remedy: 'Check the id or name in the detail. Some calls also answer this when a permission is missing.',
  }
}

function alreadyExists(what: string, by: string) {
  return {
    status: 409,
    title: 'Conflicting Resource',
    about: `A ${what} with this ${by} already exists.`,
    remedy: `Use the existing ${what}, or choose another ${by}.`,
  }
}
