import { STATUS_CODES } from 'node:http'
import { ALL_ERRORS, type AnyErrorCode, ApiError } from '../../errors.ts'
import { VERSION } from '../../lib/version.ts'
import type { Dialect } from './dialect.ts'
import { failures } from './failures.ts'

/** Sent as `Unkey-Version`. */
const PRODUCT = `tollgate/${VERSION}`

/** What every answer carries, whatever happened. */
export type Envelope = Readonly<{
  requestId: string
  /** `performance.now()` when the request arrived. */
  startedAt: number
  /** Headers a verb added; null = none. */
  addedHeaders: Readonly<Record<string, string>> | null
  /** The request has an `Origin`: a browser sent it from another page. */
  isCrossOrigin: boolean
  /** Below `/v1/`: pages of any origin may read it. */
  isApi: boolean
  /** Indent the JSON: `?pretty` was in the URL. */
  isPretty: boolean
  /** Base of the links in errors. */
  publicUrl: string
  /** The request's place in a trace, for log lines; null = in none. */
  trace: { traceId: string; spanId: string } | null
}>

/** One that headers can still be added to. */
export type AddableEnvelope = Envelope & { readonly headers: Record<string, string> }

/** JSON on its way out: {@link responseOf} makes it a Response, `ResponseEncoder` an HTTP message. */
export type Answer = {
  readonly status: number
  readonly text: string
  readonly envelope: Envelope
  /** From the request's arrival. */
  readonly tookMs: number
}

export const jsonAnswer = (envelope: Envelope, status: number, body: unknown): Answer => ({
  status,
  text: envelope.isPretty ? JSON.stringify(body, null, 2) : JSON.stringify(body),
  envelope,
  tookMs: performance.now() - envelope.startedAt,
})

/** For Elysia. */
export const responseOf = ({ status, text, envelope, tookMs }: Answer): Response =>
  new Response(text, { status, headers: headersOf(envelope, 'application/json', tookMs) })

/**
 * Header lines that only some answers have, for an HTTP/1.1 message (`response-encoder.ts`).
 * @throws Error for a value that could not be sent as one line.
 */
export function addedLines(envelope: Envelope, isLast: boolean): string {
  let lines = ''
  const { addedHeaders } = envelope
  for (const name in addedHeaders) {
    lines += headerLine(name, addedHeaders[name] as string) // it names its own
  }
  if (envelope.isCrossOrigin) lines += `${EXPOSE}: ${EXPOSED_HEADERS}\r\n`
  if (isLast) lines += 'Connection: close\r\n'
  return lines
}

/** An error as its dialect words it. A failure of ours is logged here, once, with its cause; the client gets only the request id. */
export function errorAnswer(
  dialect: Dialect,
  envelope: AddableEnvelope,
  cause: unknown,
  route: string,
): Answer {
  const error =
    cause instanceof ApiError
      ? cause
      : new ApiError('INTERNAL_SERVER_ERROR', 'something went wrong', { cause })
  const { requestId } = envelope
  if (ALL_ERRORS[error.code].fault === 'ours')
    failures.report(error.cause, { requestId, ...traceFields(envelope), route, reason: error.message })
  const { status, body, headers } = dialect.failure(error, envelope)
  if (headers !== null) Object.assign(envelope.headers, headers)
  return jsonAnswer(envelope, status, body)
}

/** By which a line of the log is found from a trace, and the other way round. */
export const traceFields = ({ trace }: Envelope): { traceId?: string; spanId?: string } =>
  trace === null ? {} : { traceId: trace.traceId, spanId: trace.spanId }

export const docsUrl = (publicUrl: string, code: AnyErrorCode): string => `${publicUrl}/errors/${code}`

export const headersOf = (
  envelope: Envelope,
  contentType: string,
  tookMs = performance.now() - envelope.startedAt,
): Record<string, string> => ({
  ...envelope.addedHeaders,
  ...(envelope.isApi ? CORS : SECURITY),
  ...(envelope.isApi && envelope.isCrossOrigin ? { [EXPOSE]: EXPOSED_HEADERS } : {}),
  'Unkey-Version': PRODUCT,
  'Content-Type': contentType,
  'Unkey-Request-Id': envelope.requestId,
  'Unkey-Latency': latencyOf(tookMs),
})

/** In hundredths of a millisecond, put together from whole numbers: making text of a fraction takes longer. */
function latencyOf(tookMs: number): string {
  const hundredths = Math.round(tookMs * 100)
  const rest = hundredths % 100
  return `service=${(hundredths - rest) / 100}.${rest < 10 ? '0' : ''}${rest}ms`
}

/**
 * Of this second, RFC 9110 5.6.7. Made once for it: until it ends the clock is not asked again.
 * @param atMs `performance.now()`.
 */
export function httpDate(atMs = performance.now()): string {
  if (atMs >= dateEndsAtMs) {
    const now = Date.now()
    dateText = new Date(now).toUTCString()
    dateEndsAtMs = atMs + 1000 - (now % 1000)
  }
  return dateText
}
let dateEndsAtMs = 0
let dateText = ''

const CORS = { 'Access-Control-Allow-Origin': '*' }
/** Of everything that is not the API: what a browser must not do with it. Pages add their own policy. */
export const SECURITY = {
  'X-Content-Type-Options': 'nosniff',
  'X-Frame-Options': 'DENY',
  'Referrer-Policy': 'no-referrer',
  'Content-Security-Policy': "default-src 'none'; frame-ancestors 'none'",
  'Cross-Origin-Resource-Policy': 'same-origin',
}
const CONSTANT_LINES = Object.entries({
  'Content-Type': 'application/json',
  'Unkey-Version': PRODUCT,
  ...CORS,
})
  .map(([name, value]) => `${name}: ${value}\r\n`)
  .join('')
/** Up to the constant headers of an HTTP/1.1 message with JSON. */
export const startLines = (status: number): string =>
  `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'Unknown'}\r\n${CONSTANT_LINES}`

/** @throws Error for a value that could not be sent as one line: verbs encode what is not theirs (`lib/header-text.ts`). */
export function headerLine(name: string, value: string): string {
  if (!SENDABLE.test(value)) throw new Error(`the header ${name} cannot be sent: ${JSON.stringify(value)}`)
  return `${name}: ${value}\r\n`
}
/** ASCII only, so that as many bytes are sent as the text has characters. */
const SENDABLE = /^[\t\x20-\x7e]*$/
const EXPOSE = 'Access-Control-Expose-Headers'
const EXPOSED_HEADERS =
  'Unkey-Request-Id, Unkey-Latency, Unkey-Version, Unkey-Ratelimit-Triggered, RateLimit, RateLimit-Policy'

/** The answer to OPTIONS. Below `/v1/` a preflight: any origin, the methods and headers the API has. */
export const optionsAnswer = (envelope: Envelope, allow: string): Response =>
  new Response(null, {
    status: 204,
    headers: {
      ...headersOf(envelope, 'text/plain'),
      Allow: allow,
      ...(envelope.isApi ? PREFLIGHT : {}),
    },
  })

const PREFLIGHT = {
  'Access-Control-Allow-Methods': 'GET, POST, OPTIONS',
  'Access-Control-Allow-Headers': '*, Authorization',
  'Access-Control-Max-Age': '86400',
}
