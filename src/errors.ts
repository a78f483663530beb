/**
 * Every failure a client can see. Codes are contract: add a row, never rename one.
 * `about` and `remedy` are what the page behind an error's `docs` link tells a person.
 */
export const ERRORS = {
  BAD_REQUEST: {
    fault: 'caller',
    about: 'The request could not be understood: a field is missing, has the wrong type or is out of bounds.',
    remedy:
      'Read the message: it names the field and what is wrong with it. Correct the request and send it again.',
  },
  UNAUTHENTICATED: {
    fault: 'caller',
    about: 'No key came with the request, or one that does not exist.',
    remedy:
      'Send "Authorization: Bearer <key>" or "X-API-Key: <key>" with a key that was made for this service.',
  },
  UNAUTHORIZED: {
    fault: 'caller',
    about: 'No valid root key came with the request, or it may not touch this resource.',
    remedy:
      'Send "Authorization: Bearer <root key>" with a root key of the workspace that owns the resource.',
  },
  FORBIDDEN: {
    fault: 'caller',
    about:
      'The workspace is disabled, the key is of another API, or the caller’s address is not on the allow list.',
    remedy: 'Ask the operator of this server to enable the workspace or to extend the allow list.',
  },
  DISABLED: {
    fault: 'caller',
    about: 'The key or root key is disabled.',
    remedy: 'Enable it with keys.updateKey or rootKeys.updateRootKey, or use another.',
  },
  EXPIRED: {
    fault: 'caller',
    about: 'The key or root key has expired.',
    remedy: 'Move its expiry with keys.updateKey or rootKeys.updateRootKey, or make a new one.',
  },
  USAGE_EXCEEDED: {
    fault: 'caller',
    about: 'The key or root key has no credits left.',
    remedy: 'Add credits with keys.updateRemaining, or use another.',
  },
  INSUFFICIENT_PERMISSIONS: {
    fault: 'caller',
    about: 'The key or root key is valid but lacks a permission that is needed here.',
    remedy: 'The message names what would suffice. Use one that holds it, or extend this one.',
  },
  NOT_FOUND: {
    fault: 'caller',
    about: 'There is no such resource in the root key’s workspace, or no such endpoint.',
    remedy:
      'Check the id or name in the message. Deleted resources and those of other workspaces are not found either.',
  },
  METHOD_NOT_ALLOWED: {
    fault: 'caller',
    about: 'The endpoint exists, but not for this HTTP method.',
    remedy: 'Reads are GET with a query string, everything else is POST with a JSON body.',
  },
  CONFLICT: {
    fault: 'caller',
    about: 'Something with this unique name, identifier or hash exists already.',
    remedy: 'Use the existing one, or choose another name.',
  },
  PRECONDITION_FAILED: {
    fault: 'caller',
    about: 'The request is well formed, but something it relies on is missing or switched off.',
    remedy:
      'The message names it, for example a role to create first or storage of recoverable keys to switch on.',
  },
  DELETE_PROTECTED: {
    fault: 'caller',
    about: 'The API is protected against deletion.',
    remedy: 'Switch the protection off with apis.updateApi, then delete it.',
  },
  UNSUPPORTED_MEDIA_TYPE: {
    fault: 'caller',
    about: 'The body is compressed or otherwise encoded, which this API does not read.',
    remedy: 'Send the JSON as it is, without Content-Encoding.',
  },
  RATE_LIMITED: {
    fault: 'caller',
    about: 'The key or root key is limited and has used up its window.',
    remedy: 'Wait until the window resets, or raise its limit.',
  },
  INTERNAL_SERVER_ERROR: {
    fault: 'ours',
    about: 'This server failed. The request may or may not have been carried out.',
    remedy:
      'Try again. If it lasts, give the request id to the operator: the log line with that id holds the cause.',
  },
} as const satisfies Record<string, Row>

/** How what is no request of any endpoint is refused, before one is looked for. As {@link ERRORS}. */
export const WIRE_ERRORS = {
  REQUEST_TIMEOUT: {
    fault: 'caller',
    about: 'The request did not arrive as a whole within 30 seconds, so it was not carried out.',
    remedy: 'Send it again, without pauses in the middle.',
  },
  URI_TOO_LONG: {
    fault: 'caller',
    about: 'The request line is longer than the server reads.',
    remedy: 'Ask for less at a time, for example for fewer items of a list.',
  },
  EXPECTATION_FAILED: {
    fault: 'caller',
    about: 'The request has an Expect header that cannot be met.',
    remedy: 'Leave the header out, or send Expect: 100-continue.',
  },
  HEADERS_TOO_LARGE: {
    fault: 'caller',
    about: 'The headers of the request have more bytes than the server reads.',
    remedy: 'Send fewer or shorter headers. Behind a proxy, do not pass on cookies that nothing here needs.',
  },
  NOT_IMPLEMENTED: {
    fault: 'caller',
    about: 'The request uses a method or a transfer coding that this server does not have.',
    remedy: 'Send GET or POST, and a body either with Content-Length or in chunks.',
  },
  SERVICE_UNAVAILABLE: {
    fault: 'caller',
    about:
      'The server holds as many unfinished requests as its memory allows, and gave up the oldest. This one was not carried out.',
    remedy: 'Send it again. If it lasts, the operator can raise TOLLGATE_HTTP_MEMORY_MIB.',
  },
  HTTP_VERSION_NOT_SUPPORTED: {
    fault: 'caller',
    about: 'The request is written in a version of HTTP that this server does not speak.',
    remedy: 'Send HTTP/1.1. In front of the server, a proxy can speak other versions.',
  },
} as const satisfies Record<string, Row>

type Row = { fault: 'caller' | 'ours'; about: string; remedy: string }

/** What an operation may refuse with. A door says what it is on the wire. */
export type ErrorCode = keyof typeof ERRORS
export type AnyErrorCode = ErrorCode | keyof typeof WIRE_ERRORS
export const ALL_ERRORS: Record<AnyErrorCode, Row> = { ...ERRORS, ...WIRE_ERRORS }

/** `message` is public. Anything private goes in `cause`, which is logged and never sent. */
export class ApiError extends Error {
  override name = 'ApiError'
  constructor(
    readonly code: AnyErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options)
  }
}

/**
 * A part of the server that a request needs is not there. Its state is logged by whoever watches over it, once; that a call
 * met it is counted (`doors/http/failures.ts`).
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

/** Which part is missing, and everybody knows; null = none: a reason of its own. */
export function unavailablePart(cause: unknown): 'database' | 'limiter' | null {
  for (let each = cause, depth = 0; each instanceof Error && depth < 8; each = each.cause, depth++) {
    if (each instanceof Unavailable) return each.part
    if ('code' in each && DATABASE_CODES.test(String(each.code))) return 'database'
  }
  return null
}

/** Of the driver, the network and Postgres: no connection, no room, no memory, starting or stopping, read only. */
const DATABASE_CODES =
  /^(CONN\w+|ECONN\w+|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|EAI_AGAIN|08\w{3}|53\w{3}|57P\w\w|25006)$/

/**
 * A value that only the operation can refuse, named in the operation's words. A dialect says where it stood in its request.
 */
export class InvalidInput extends ApiError {
  override name = 'InvalidInput'
  /** @param index Which of several inputs it was; null = there is one. */
  constructor(
    readonly field: string,
    reason: string,
    readonly index: number | null = null,
  ) {
    super('BAD_REQUEST', reason)
  }
}

export const badRequest = (message: string) => new ApiError('BAD_REQUEST', message)
/** @param what The resource as the message names it: `api api_123`. */
export const notFound = (what: string) => new ApiError('NOT_FOUND', `${what} not found`)

/** Something outside the program keeps it from starting. Its message is the one line the start ends with. */
export class StartError extends Error {
  override name = 'StartError'
}
