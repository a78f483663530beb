import { STATUS_CODES } from 'node:http'
import { ALL_ERRORS, type AnyErrorCode, ApiError } from '../../errors.ts'
import { Turns } from '../../lib/turns.ts'
import { VERSION } from '../../lib/version.ts'
import type { AddableEnvelope, Dialect, Envelope, JsonType } from './dialect.ts'
import { failures } from './failures.ts'

/** Value of the `Unkey-Version` header. */
const PRODUCT = `tollgate/${VERSION}`

/** A JSON answer. {@link responseOf} turns it into a Response, `ResponseEncoder` into an HTTP message. */
export type Answer = {
  readonly status: number
  readonly contentType: JsonType
  /** The JSON; of a long list, encoded already. */
  readonly text: string | Buffer
  readonly envelope: Envelope
  /** Ms since the request arrived. */
  readonly tookMs: number
}

export const jsonAnswer = (
  envelope: Envelope,
  status: number,
  body: unknown,
  contentType: JsonType = 'application/json',
): Answer => ({
  status,
  contentType,
  text: envelope.isPretty ? JSON.stringify(body, null, 2) : JSON.stringify(body),
  envelope,
  tookMs: performance.now() - envelope.startedAt,
})

/**
 * As {@link jsonAnswer}, for lists that would hold the thread: it writes some elements at a time and lets others have their
 * turn in between. Only few lists come in one answer, as v1 has them; most have pages.
 */
export async function listAnswer(
  envelope: Envelope,
  status: number,
  list: readonly unknown[],
): Promise<Answer> {
  const turns = new Turns()
  const { isPretty } = envelope
  const parts: Buffer[] = []
  for (let from = 0; from < list.length; from += SLICE_ITEMS) {
    const slice = list.slice(from, from + SLICE_ITEMS)
    const text = isPretty ? JSON.stringify(slice, null, 2).slice(2, -2) : JSON.stringify(slice).slice(1, -1)
    parts.push(Buffer.from(from === 0 ? text : (isPretty ? ',\n' : ',') + text))
    const turn = turns.next()
    if (turn !== null) await turn
  }
  const [start, end] = isPretty ? ['[\n', '\n]'] : ['[', ']']
  return {
    status,
    contentType: 'application/json',
    text: Buffer.concat([Buffer.from(start), ...parts, Buffer.from(end)]),
    envelope,
    tookMs: performance.now() - envelope.startedAt,
  }
}

/** Longer lists are written by {@link listAnswer}: the shortest take a millisecond. */
export const LONG_LIST_ITEMS = 1_000
/** {@link Turns} looks at the clock after some of these. */
const SLICE_ITEMS = 20

/** For Elysia. */
export const responseOf = ({ status, contentType, text, envelope, tookMs }: Answer): Response =>
  new Response(text, { status, headers: headersOf(envelope, contentType, tookMs) })

/**
 * Header lines that only some answers have, for an HTTP/1.1 message (`response-encoder.ts`).
 * @throws Error for a value that cannot be sent as one line.
 */
export function addedLines(envelope: Envelope, isLast: boolean): string {
  let lines = ''
  const { addedHeaders } = envelope
  for (const name in addedHeaders) {
    lines += headerLine(name, addedHeaders[name] as string) // the name is a key of the object
  }
  if (envelope.isCrossOrigin) lines += `${EXPOSE}: ${EXPOSED_HEADERS}\r\n`
  if (isLast) lines += 'Connection: close\r\n'
  return lines
}

/**
 * An error in the words of its dialect. A failure of the server is logged here, once and with its cause; the client gets
 * only the request id.
 */
export function errorAnswer(
  dialect: Dialect,
  envelope: AddableEnvelope,
  cause: unknown,
  route: string,
): Answer {
  const error =
    cause instanceof ApiError ? cause : new ApiError('INTERNAL_SERVER_ERROR', 'internal error', { cause })
  const { requestId } = envelope
  if (ALL_ERRORS[error.code].fault === 'ours')
    failures.report(error.cause, { requestId, ...traceFields(envelope), route, reason: error.message })
  const { status, contentType, body, headers } = dialect.failure(error, envelope)
  if (headers !== null) Object.assign(envelope.headers, headers)
  return jsonAnswer(envelope, status, body, contentType)
}

/** Fields that connect a log line with its trace. */
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

/** Rounded to 0.01 ms and built from integers: converting a fraction to text takes longer. */
function latencyOf(tookMs: number): string {
  const hundredths = Math.round(tookMs * 100)
  const rest = hundredths % 100
  return `service=${(hundredths - rest) / 100}.${rest < 10 ? '0' : ''}${rest}ms`
}

/**
 * The date in the form of RFC 9110 5.6.7. Cached for a second.
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
/** Security headers of everything outside the API. Pages add their own policy. */
export const SECURITY = {
  'X-Content-Type-Options': 'nosniff',
  'X-Frame-Options': 'DENY',
  'Referrer-Policy': 'no-referrer',
  'Content-Security-Policy': "default-src 'none'; frame-ancestors 'none'",
  'Cross-Origin-Resource-Policy': 'same-origin',
}
const CONSTANT_LINES = Object.entries({
  'Unkey-Version': PRODUCT,
  ...CORS,
})
  .map(([name, value]) => `${name}: ${value}\r\n`)
  .join('')
/** The first lines of an HTTP/1.1 message with JSON: the status and the constant headers. */
export const startLines = (status: number, contentType: JsonType): string =>
  `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'Unknown'}\r\nContent-Type: ${contentType}\r\n${CONSTANT_LINES}`

/**
 * @throws Error for a value that cannot be sent as one line. Endpoints encode text of callers first (`lib/header-text.ts`).
 */
export function headerLine(name: string, value: string): string {
  if (!SENDABLE.test(value)) throw new Error(`the header ${name} cannot be sent: ${JSON.stringify(value)}`)
  return `${name}: ${value}\r\n`
}
/** ASCII only, so that the number of bytes sent is the number of characters. */
const SENDABLE = /^[\t\x20-\x7e]*$/
const EXPOSE = 'Access-Control-Expose-Headers'
const EXPOSED_HEADERS =
  'Unkey-Request-Id, Unkey-Latency, Unkey-Version, Unkey-Ratelimit-Triggered, RateLimit, RateLimit-Policy'

/** The answer to OPTIONS. Below the API's prefixes it allows any origin and the API's methods and headers. */
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
