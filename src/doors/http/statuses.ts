import type { WIRE_ERRORS } from '../../errors.ts'

/** Statuses of errors below any API, such as a malformed request. The same in every dialect. */
export const WIRE_STATUSES = {
  REQUEST_TIMEOUT: 408,
  URI_TOO_LONG: 414,
  EXPECTATION_FAILED: 417,
  HEADERS_TOO_LARGE: 431,
  NOT_IMPLEMENTED: 501,
  SERVICE_UNAVAILABLE: 503,
  HTTP_VERSION_NOT_SUPPORTED: 505,
} as const satisfies Record<keyof typeof WIRE_ERRORS, number>
