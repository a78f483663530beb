/** One limit after a call. */
export type LimitState = {
  name: string
  /** Tokens allowed in a window. */
  limit: number
  remaining: number
  /** Unix ms. */
  resetAtMs: number
  /** Length of the window in ms. */
  durationMs: number
}

/**
 * The headers `RateLimit` and `RateLimit-Policy` of the IETF's draft (draft-ietf-httpapi-ratelimit-headers, 8 and later): a
 * name with quota `q` and window `w`, and with remaining tokens `r` and seconds `t` until the reset. Integers of structured
 * fields have at most 15 digits: a larger `r` is cut, and a policy with a larger quota is left out.
 */
export function ratelimitHeaders(
  { name, limit, remaining, resetAtMs, durationMs }: LimitState,
  nowMs: number,
): { RateLimit: string; 'RateLimit-Policy'?: string } {
  const label = quoted(name)
  const r = Math.min(remaining, INTEGER_MAX)
  const state = { RateLimit: `${label};r=${r};t=${secondsUntil(resetAtMs, nowMs)}` }
  if (limit > INTEGER_MAX) return state
  return { ...state, 'RateLimit-Policy': `${label};q=${limit};w=${Math.ceil(durationMs / 1000)}` }
}

/** Whole seconds, rounded up so that a client that waits this long is not too early. */
export const secondsUntil = (atMs: number, nowMs: number) => Math.max(0, Math.ceil((atMs - nowMs) / 1000))

/** @see RFC 9651, 3.3.1. */
const INTEGER_MAX = 999_999_999_999_999

/** A string of structured fields (RFC 9651), which holds printable ASCII only. Other names are sent as `default`. */
const quoted = (name: string) =>
  /^[\x20-\x7e]+$/.test(name) ? `"${name.replace(/["\\]/g, '\\$&')}"` : '"default"'
