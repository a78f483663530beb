/** One limit as it stands after a call. */
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
 * `RateLimit` and `RateLimit-Policy` as the IETF's draft (draft-ietf-httpapi-ratelimit-headers, 8 and later) has them: a
 * name with its quota `q` and window `w`, and with what remains `r` and the seconds `t` until it is whole again. An integer
 * of structured fields has at most 15 digits: a larger `r` is cut, and a policy with a larger quota left out.
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

/** Whole seconds, rounded up: who waits so long does not come too early. */
export const secondsUntil = (atMs: number, nowMs: number) => Math.max(0, Math.ceil((atMs - nowMs) / 1000))

/** @see RFC 9651, 3.3.1. */
const INTEGER_MAX = 999_999_999_999_999

/** A string of structured fields (RFC 9651) holds printable ASCII only; a name that has more goes without. */
const quoted = (name: string) =>
  /^[\x20-\x7e]+$/.test(name) ? `"${name.replace(/["\\]/g, '\\$&')}"` : '"default"'
