/**
 * Every failure a client can see. Codes are contract: add a row, never rename one.
 * `about` and `remedy` are what the page behind an error's `docs` link tells a person.
 */
export const ERRORS = {
  BAD_REQUEST: {
    status: 400,
    fault: 'caller',
    about: 'The request could not be understood: a field is missing, has the wrong type or is out of bounds.',
    remedy:
      'Read the message: it names the field and what is wrong with it. Correct the request and send it again.',
  },
  UNAUTHENTICATED: {
    status: 401, // only where a proxy asks: it must tell "who are you?" from "not you"
    fault: 'caller',
    about: 'No key came with the request, or one that does not exist.',
    remedy:
      'Send "Authorization: Bearer <key>" or "X-API-Key: <key>" with a key that was made for this service.',
  },
  UNAUTHORIZED: {
    status: 403, // on purpose: the v1 API never answers 401
    fault: 'caller',
    about: 'No valid root key came with the request, or it may not touch this resource.',
    remedy:
      'Send "Authorization: Bearer <root key>" with a root key of the workspace that owns the resource.',
  },
  FORBIDDEN: {
    status: 403,
    fault: 'caller',
    about:
      'The workspace is disabled, the key is of another API, or the caller’s address is not on the allow list.',
    remedy: 'Ask the operator of this server to enable the workspace or to extend the allow list.',
  },
  DISABLED: {
    status: 403,
    fault: 'caller',
    about: 'The key or root key is disabled.',
    remedy: 'Enable it with keys.updateKey or rootKeys.updateRootKey, or use another.',
  },
  EXPIRED: {
    status: 403,
    fault: 'caller',
    about: 'The key or root key has expired.',
    remedy: 'Move its expiry with keys.updateKey or rootKeys.updateRootKey, or make a new one.',
  },
  USAGE_EXCEEDED: {
    status: 403,
    fault: 'caller',
    about: 'The key or root key has no uses left.',
    remedy: 'Raise its remaining uses with keys.updateRemaining, or use another.',
  },
  INSUFFICIENT_PERMISSIONS: {
    status: 403,
    fault: 'caller',
    about: 'The key or root key is valid but lacks a permission that is needed here.',
    remedy: 'The message names what would suffice. Use one that holds it, or extend this one.',
  },
  NOT_FOUND: {
    status: 404,
    fault: 'caller',
    about: 'There is no such resource in the root key’s workspace, or no such endpoint.',
    remedy:
      'Check the id or name in the message. Deleted resources and those of other workspaces are not found either.',
  },
  METHOD_NOT_ALLOWED: {
    status: 405,
    fault: 'caller',
    about: 'The endpoint exists, but not for this HTTP method.',
    remedy: 'Reads are GET with a query string, everything else is POST with a JSON body.',
  },
  CONFLICT: {
    status: 409,
    fault: 'caller',
    about: 'Something with this unique name, identifier or hash exists already.',
    remedy: 'Use the existing one, or choose another name.',
  },
  PRECONDITION_FAILED: {
    status: 412,
    fault: 'caller',
    about: 'The request is well formed, but something it relies on is missing or switched off.',
    remedy:
      'The message names it, for example a role to create first or storage of recoverable keys to switch on.',
  },
  DELETE_PROTECTED: {
    status: 412,
    fault: 'caller',
    about: 'The API is protected against deletion.',
    remedy: 'Switch the protection off with apis.updateApi, then delete it.',
  },
  RATE_LIMITED: {
    status: 429,
    fault: 'caller',
    about: 'The key or root key is limited and has used up its window.',
    remedy: 'Wait until the window resets, or raise its limit.',
  },
  INTERNAL_SERVER_ERROR: {
    status: 500,
    fault: 'ours',
    about: 'This server failed. The request may or may not have been carried out.',
    remedy:
      'Try again. If it lasts, give the request id to the operator: the log line with that id holds the cause.',
  },
} as const satisfies Record<
  string,
  { status: number; fault: 'caller' | 'ours'; about: string; remedy: string }
>

export type ErrorCode = keyof typeof ERRORS

/** `message` is public. Anything private goes in `cause`, which is logged and never sent. */
export class ApiError extends Error {
  override name = 'ApiError'
  constructor(
    readonly code: ErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options)
  }
}

export const badRequest = (message: string) => new ApiError('BAD_REQUEST', message)
/** @param what The resource as the message names it: `api api_123`. */
export const notFound = (what: string) => new ApiError('NOT_FOUND', `${what} not found`)
