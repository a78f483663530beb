import type { AnyErrorCode, ErrorCode } from '../../errors.ts'
import { WIRE_STATUSES } from '../http/statuses.ts'

/** The HTTP status of every error code in the v1 API. */
export const STATUSES: Readonly<Record<AnyErrorCode, number>> = {
  ...({
    BAD_REQUEST: 400,
    UNAUTHENTICATED: 401, // forward-auth only: proxies need to tell a missing key (401) from a refused one (403)
    UNAUTHORIZED: 403, // on purpose: the v1 API never answers 401
    FORBIDDEN: 403,
    DISABLED: 403,
    EXPIRED: 403,
    USAGE_EXCEEDED: 403,
    INSUFFICIENT_PERMISSIONS: 403,
    NOT_FOUND: 404,
    METHOD_NOT_ALLOWED: 405,
    CONFLICT: 409,
    GONE: 410,
    PRECONDITION_FAILED: 412,
    DELETE_PROTECTED: 412,
    UNSUPPORTED_MEDIA_TYPE: 415,
    RATE_LIMITED: 429,
    INTERNAL_SERVER_ERROR: 500,
    NOT_READY: 503,
  } as const satisfies Record<ErrorCode, number>),
  ...WIRE_STATUSES,
}
