/** One limit as it stands after a call. */
export type LimitState = {
  name: string
  /** Tokens allowed in a window. */
  limit: number
  remaining: number
  /** Unix ms. */
  resetAtMs: number
  /** Length of the window in ms, where it is known. */
  durationMs?: number
}

/**
 * `RateLimit` and `RateLimit-Policy` as the IETF's draft (draft-ietf-httpapi-ratelimit-headers, 8 and later) has them: a
 * name with its quota `q` and window `w`, and with what remains `r` and the seconds `t` until it is whole again.
 */
export function ratelimitHeaders(
  { name, limit, remaining, resetAtMs, durationMs }: LimitState,
  nowMs: number,
): { RateLimit: string; 'RateLimit-Policy': string } {
  const label = quoted(name)
  const window = durationMs === undefined ? '' : `;w=${Math.ceil(durationMs / 1000)}`
  return {
    RateLimit: `${label};r=${remaining};t=${Math.max(0, Math.ceil((resetAtMs - nowMs) / 1000))}`,
    'RateLimit-Policy': `${label};q=${limit}${window}`,
  }
}

/** A string of structured fields (RFC 9651) holds printable ASCII only; a name that has more goes without. */
const quoted = (name: string) =>
  /^[\x20-\x7e]+$/.test(name) ? `"${name.replace(/["\\]/g, '\\$&')}"` : '"default"'
