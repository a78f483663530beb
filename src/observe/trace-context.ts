/** W3C Trace Context, https://www.w3.org/TR/trace-context/: the trace of a request, passed from service to service. */
export type TraceContext = {
  /** 32 hex digits. */
  traceId: string
  /** The caller's span, 16 hex digits. */
  parentId: string
  /** True when the caller records the trace. */
  isSampled: boolean
  /** `tracestate`, passed on unchanged; null = none. */
  state: string | null
}

/**
 * @param traceparent Several values joined by commas are invalid.
 * @returns null for an invalid context: the request then starts its own trace.
 */
export function readTraceContext(traceparent: string | null, tracestate: string | null): TraceContext | null {
  if (traceparent === null) return null
  const [, version = '', traceId = '', parentId = '', flags = '', rest = ''] =
    TRACEPARENT.exec(traceparent.trim()) ?? []
  // Version 00 ends here; later versions may have more fields after another dash.
  if (version === '' || version === 'ff' || (version === '00' && rest !== '')) return null
  if (ALL_ZEROES.test(traceId) || ALL_ZEROES.test(parentId)) return null
  return {
    traceId,
    parentId,
    isSampled: (Number.parseInt(flags, 16) & 1) === 1,
    state: tracestate !== null && isTraceState(tracestate) ? tracestate : null,
  }
}

/** The `traceparent` header for the next service. */
export const traceparentOf = (trace: { traceId: string; spanId: string; isSampled: boolean }): string =>
  `00-${trace.traceId}-${trace.spanId}-${trace.isSampled ? '01' : '00'}`

/** Random hex digits: 32 for a trace id, 16 for a span id. */
export function newTraceHex(digits: 16 | 32): string {
  if (randomAt + digits > randomHex.length) {
    randomHex = Buffer.from(crypto.getRandomValues(new Uint8Array(2048))).toString('hex')
    randomAt = 0
  }
  randomAt += digits
  return randomHex.slice(randomAt - digits, randomAt)
}

/** Drawn in bulk: a system call for each id would be measurable. */
let randomHex = ''
let randomAt = 0

const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/
const ALL_ZEROES = /^0+$/

/** Longer states may be dropped by the specification. */
const STATE_CHARACTERS_MAX = 512
const STATE_MEMBERS_MAX = 32
const STATE_MEMBER =
  /^[a-z0-9][\w\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$/

function isTraceState(text: string): boolean {
  if (text.length > STATE_CHARACTERS_MAX) return false
  const members = text.split(',').map((member) => member.trim())
  const named = members.filter((member) => member !== '')
  return (
    named.length > 0 &&
    named.length <= STATE_MEMBERS_MAX &&
    named.every((member) => STATE_MEMBER.test(member))
  )
}
