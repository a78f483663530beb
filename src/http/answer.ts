import packageJson from '../../package.json' with { type: 'json' }
import { ApiError, ERRORS, type ErrorCode } from '../errors.ts'
import { log } from '../log.ts'

/** Sent as `Unkey-Version`. */
export const VERSION = `tollgate/${packageJson.version}`

/** What every answer carries, whatever happened. */
export type Envelope = Readonly<{
  requestId: string
  /** `performance.now()` when the request arrived. */
  startedAt: number
  /** Headers a verb added. */
  headers: Record<string, string>
  /** The request has an `Origin`: a browser sent it from another page. */
  isCrossOrigin: boolean
  /** Indent the JSON: `?pretty` was in the URL. */
  isPretty: boolean
  /** Base of the links in errors. */
  publicUrl: string
}>

export function jsonAnswer(envelope: Envelope, status: number, body: unknown): Response {
  const text = envelope.isPretty ? JSON.stringify(body, null, 2) : JSON.stringify(body)
  return new Response(text, { status, headers: jsonHeaders(envelope) })
}

/** The one error shape. A failure of ours is logged here, once, with its cause; the client gets only the request id. */
export function errorAnswer(envelope: Envelope, cause: unknown, route: string): Response {
  const error =
    cause instanceof ApiError
      ? cause
      : new ApiError('INTERNAL_SERVER_ERROR', 'something went wrong', { cause })
  const { status, fault } = ERRORS[error.code]
  const { requestId } = envelope
  if (fault === 'ours')
    log('error', 'request failed', { requestId, route, message: error.message, cause: error.cause })
  return jsonAnswer(envelope, status, {
    error: {
      code: error.code,
      docs: docsUrl(envelope.publicUrl, error.code),
      message: error.message,
      requestId,
    },
  })
}

export const docsUrl = (publicUrl: string, code: ErrorCode): string => `${publicUrl}/errors/${code}`

export const headersOf = (envelope: Envelope, contentType: string): Record<string, string> => ({
  ...envelope.headers,
  ...(envelope.isCrossOrigin ? { [EXPOSE]: EXPOSED_HEADERS } : {}),
  ...CONSTANT_HEADERS,
  'Content-Type': contentType,
  'Unkey-Request-Id': envelope.requestId,
  'Unkey-Latency': latencyOf(envelope),
})

/**
 * The same for JSON, on the path of every call: one object for all, of which only what differs is set, since a Response
 * copies it. Made anew for each answer the headers cost 0.9 instead of 0.5 µs.
 */
function jsonHeaders(envelope: Envelope): Headers {
  let headers = JSON_HEADERS
  // Only a browser asks what it may see.
  if (envelope.isCrossOrigin) {
    headers = new Headers(JSON_HEADERS)
    headers.set(EXPOSE, EXPOSED_HEADERS)
  }
  for (const name in envelope.headers) {
    if (headers === JSON_HEADERS) headers = new Headers(JSON_HEADERS)
    headers.set(name, envelope.headers[name] as string) // it names its own
  }
  headers.set('Unkey-Request-Id', envelope.requestId)
  headers.set('Unkey-Latency', latencyOf(envelope))
  return headers
}

const latencyOf = ({ startedAt }: Envelope) =>
  `service=${Math.round((performance.now() - startedAt) * 100) / 100}ms`

const CONSTANT_HEADERS = { 'Unkey-Version': VERSION, 'Access-Control-Allow-Origin': '*' }
const JSON_HEADERS = new Headers({ 'Content-Type': 'application/json', ...CONSTANT_HEADERS })
const EXPOSE = 'Access-Control-Expose-Headers'
const EXPOSED_HEADERS =
  'Unkey-Request-Id, Unkey-Latency, Unkey-Version, Unkey-Ratelimit-Triggered, RateLimit, RateLimit-Policy'

/** A preflight: any origin, the methods and headers the API has. */
export const preflightAnswer = (envelope: Envelope): Response =>
  new Response(null, {
    status: 204,
    headers: {
      ...headersOf(envelope, 'text/plain'),
      'Access-Control-Allow-Methods': 'GET, POST, OPTIONS',
      'Access-Control-Allow-Headers': '*, Authorization',
      'Access-Control-Max-Age': '86400',
    },
  })
