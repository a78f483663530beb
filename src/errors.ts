/**
 * All errors that a client can see. Codes are contract: add a row, never rename one. `about` and `remedy` are shown on the
 * page behind an error's `docs` link.
 */
export const ERRORS = {
  BAD_REQUEST: {
    fault: 'caller',
    about: 'The request is invalid: a field is missing, has the wrong type or is out of bounds.',
    remedy:
      'The message names the field and what is wrong with it. Correct that field and send the request again.',
  },
  UNAUTHENTICATED: {
    fault: 'caller',
    about:
      'The request has no API key, or its API key does not exist. In the dashboard: nobody is signed in, or the session has ended.',
    remedy:
      'Send an existing key as "Authorization: Bearer <key>" or "X-API-Key: <key>". In the dashboard: sign in again.',
  },
  UNAUTHORIZED: {
    fault: 'caller',
    about: 'The request has no valid root key, or its root key may not use this resource.',
    remedy:
      'Send "Authorization: Bearer <root key>". The root key must belong to the workspace that owns the resource.',
  },
  FORBIDDEN: {
    fault: 'caller',
    about:
      'The workspace is disabled, the key belongs to another API, or the client’s IP address is not on the allow list.',
    remedy:
      'Enable the workspace with workspaces.updateWorkspace (operator root key), extend the allow list with apis.updateApi, or use a key of this API.',
  },
  DISABLED: {
    fault: 'caller',
    about: 'The key or root key is disabled.',
    remedy: 'Enable it with keys.updateKey or rootKeys.updateRootKey, or use another key.',
  },
  EXPIRED: {
    fault: 'caller',
    about: 'The key or root key has expired.',
    remedy: 'Set a later expiry with keys.updateKey or rootKeys.updateRootKey, or create a new key.',
  },
  USAGE_EXCEEDED: {
    fault: 'caller',
    about: 'The key or root key has no credits left.',
    remedy: 'Add credits with keys.updateRemaining, or use another key.',
  },
  INSUFFICIENT_PERMISSIONS: {
    fault: 'caller',
    about: 'The key or root key is valid, but it does not have the permission that this call needs.',
    remedy:
      'The message names the missing permission. Add that permission to the key, or use a key that has it.',
  },
  NOT_FOUND: {
    fault: 'caller',
    about: 'The resource does not exist in the root key’s workspace, or the endpoint does not exist.',
    remedy:
      'Check the id or name in the message. Deleted resources and resources of other workspaces also answer NOT_FOUND.',
  },
  METHOD_NOT_ALLOWED: {
    fault: 'caller',
    about: 'The endpoint does not support this HTTP method.',
    remedy: 'Send reads as GET with a query string, and everything else as POST with a JSON body.',
  },
  CONFLICT: {
    fault: 'caller',
    about:
      'A resource with this name, external id or key hash already exists, or the request names one twice.',
    remedy: 'Use the existing resource, or choose another name.',
  },
  GONE: {
    fault: 'caller',
    about: 'The rate limit namespace was deleted. The v2 API does not create it again.',
    remedy: 'Use another namespace, or create this one again with ratelimits.createNamespace of the v1 API.',
  },
  PRECONDITION_FAILED: {
    fault: 'caller',
    about: 'The request is valid, but something that it needs is missing, switched off or full.',
    remedy:
      'The message names what is missing: for example, create the role first, switch on recoverable keys, or have a bound raised.',
  },
  DELETE_PROTECTED: {
    fault: 'caller',
    about: 'The API has delete protection.',
    remedy: 'Switch off delete protection with apis.updateApi, then delete the API.',
  },
  UNSUPPORTED_MEDIA_TYPE: {
    fault: 'caller',
    about: 'The request body is compressed or otherwise encoded. This API reads plain JSON only.',
    remedy: 'Send uncompressed JSON, without a Content-Encoding header.',
  },
  RATE_LIMITED: {
    fault: 'caller',
    about: 'The key or root key has reached its rate limit in the current window.',
    remedy: 'Wait until the window ends, or raise the limit.',
  },
  NOT_READY: {
    fault: 'caller',
    about: 'The server is starting or stopping, or its database is away. Only /v1/readiness answers this.',
    remedy:
      'Send requests to another server. A load balancer does that by itself when it checks /v1/readiness.',
  },
  INTERNAL_SERVER_ERROR: {
    fault: 'ours',
    about: 'The server failed. A write may still have happened.',
    remedy:
      'Repeat a read. After a write, check before you repeat it. If the error persists, give the request id to the operator: the server’s log has the cause under that id.',
  },
} as const satisfies Record<string, Row>

/** Errors of requests that are refused before an endpoint is found. As {@link ERRORS}. */
export const WIRE_ERRORS = {
  REQUEST_TIMEOUT: {
    fault: 'caller',
    about: 'The request did not arrive completely within 30 seconds. It was not carried out.',
    remedy: 'Send the request again, without pauses in between.',
  },
  URI_TOO_LONG: {
    fault: 'caller',
    about: 'The request line (method, path and query string) is too long.',
    remedy: 'Shorten the query string, for example by sending fewer ids in one call.',
  },
  EXPECTATION_FAILED: {
    fault: 'caller',
    about: 'The request has an Expect header that the server does not support.',
    remedy: 'Leave out the Expect header, or send Expect: 100-continue.',
  },
  HEADERS_TOO_LARGE: {
    fault: 'caller',
    about: 'The request headers are too large.',
    remedy: 'Send fewer or shorter headers. Behind a proxy, do not forward cookies to Tollgate.',
  },
  NOT_IMPLEMENTED: {
    fault: 'caller',
    about: 'The request uses an HTTP method or a transfer coding that the server does not support.',
    remedy: 'Send GET or POST. Send a body with Content-Length or with Transfer-Encoding: chunked.',
  },
  SERVICE_UNAVAILABLE: {
    fault: 'caller',
    about:
      'The request was dropped because the memory for unfinished requests is full. It was not carried out.',
    remedy: 'Send the request again. If the error persists, the operator can raise TOLLGATE_HTTP_MEMORY_MIB.',
  },
  HTTP_VERSION_NOT_SUPPORTED: {
    fault: 'caller',
    about: 'The request uses an HTTP version that the server does not support.',
    remedy: 'Send HTTP/1.1. For HTTP/2 or HTTP/3, put a proxy in front of the server.',
  },
} as const satisfies Record<string, Row>

type Row = { fault: 'caller' | 'ours'; about: string; remedy: string }

/** Error codes of operations. A door maps them to statuses. */
export type ErrorCode = keyof typeof ERRORS
export type AnyErrorCode = ErrorCode | keyof typeof WIRE_ERRORS
export const ALL_ERRORS: Record<AnyErrorCode, Row> = { ...ERRORS, ...WIRE_ERRORS }

/** A kind of thing that an error can be about. v2 has an error type for most of them. */
export type Resource =
  | 'api'
  | 'identity'
  | 'key'
  | 'migration'
  | 'namespace'
  | 'override'
  | 'permission'
  | 'role'
  | 'watch'
  | 'root key'
  | 'workspace'

/** An error for the client. `message` is public; anything private goes into `cause`, which is logged and never sent. */
export class ApiError extends Error {
  override name = 'ApiError'
  /** What is missing, there already or gone; null = the error is about something else. */
  readonly resource: Resource | null
  constructor(
    readonly code: AnyErrorCode,
    message: string,
    { resource = null, ...options }: ErrorOptions & { resource?: Resource | null } = {},
  ) {
    super(message, options)
    this.resource = resource
  }
}

/** The body of a request cannot be read. */
export class UnreadableBody extends ApiError {
  override name = 'UnreadableBody'
  constructor(
    readonly reason: 'too-large' | 'encoded' | 'empty' | 'malformed' | 'unstorable',
    message: string,
  ) {
    super(reason === 'encoded' ? 'UNSUPPORTED_MEDIA_TYPE' : 'BAD_REQUEST', message)
  }
}

/**
 * A part of the server that a request needs is not available. The part's state is logged once where it is watched; requests
 * that met it are counted (`doors/http/failures.ts`).
 */
export class Unavailable extends Error {
  constructor(
    readonly part: 'database' | 'limiter',
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options)
  }
}

/** The part that is unavailable; null = the error has another cause. */
export function unavailablePart(cause: unknown): 'database' | 'limiter' | null {
  for (let each = cause, depth = 0; each instanceof Error && depth < 8; each = each.cause, depth++) {
    if (each instanceof Unavailable) return each.part
    if ('code' in each && DATABASE_CODES.test(String(each.code))) return 'database'
  }
  return null
}

/** Codes of the driver, the network and Postgres: no connection, no room, no memory, starting or stopping, read-only. */
const DATABASE_CODES =
  /^(CONN\w+|ECONN\w+|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|EAI_AGAIN|08\w{3}|53\w{3}|57P\w\w|25006)$/

/** A value that only the operation can refuse, under its name in the operation. A dialect adds its place in the request. */
export class InvalidInput extends ApiError {
  override name = 'InvalidInput'
  /** @param index Position among several inputs; null = there is one. */
  constructor(
    readonly field: string,
    reason: string,
    readonly index: number | null = null,
  ) {
    super('BAD_REQUEST', reason)
  }
}

export const badRequest = (message: string) => new ApiError('BAD_REQUEST', message)
/** @param name Its id or name, as the request has it. */
export const notFound = (resource: Resource, name: string) =>
  new ApiError('NOT_FOUND', `${resource} ${name} not found`, { resource })
/** @param name As {@link notFound}. */
export const alreadyExists = (resource: Resource, name: string) =>
  new ApiError('CONFLICT', `${resource} ${name} already exists`, { resource })
/** For a path or page, which is no resource. */
export const notFoundAt = (path: string) => new ApiError('NOT_FOUND', `${path} not found`)

/** The environment keeps the program from starting. The message is the last line of the start. */
export class StartError extends Error {
  override name = 'StartError'
}
