import { isJson } from '../doors/http/body.ts'
import type { RequestReader } from '../doors/http/request-reader.ts'
import { ApiError } from '../errors.ts'
import { isLoopbackUrl } from '../lib/address.ts'

/** Where a browser shows the page that calls. */
export type PageOrigin = {
  isHttps: boolean
  /** The port that the browser asks, for the name of its cookie: cookies do not distinguish ports themselves. */
  port: string
}

/**
 * Refuses calls of the dashboard that its own page cannot have sent: a cookie comes along with requests of other pages too.
 * @param publicUrl Base URL that people open; its origin counts even when a proxy changes `Host`.
 * @throws ApiError FORBIDDEN naming the header.
 */
export function requireOwnPage(incoming: RequestReader, publicUrl: string): PageOrigin {
  const origin = originOf(incoming.header('origin'))
  if (origin === null) throw refused('Origin: required, as browsers send it')
  const asked = [originOf(`${origin.protocol}//${incoming.header('host')}`), originOf(publicUrl)]
  if (!asked.some((each) => each?.host === origin.host))
    throw refused(
      'Origin: must be the address that the request was sent to. A proxy must pass Host on, or TOLLGATE_PUBLIC_URL must be the address that people open',
    )
  const site = incoming.header('sec-fetch-site')
  if (site !== null && site !== 'same-origin') throw refused('Sec-Fetch-Site: must be same-origin')
  if (incoming.header('x-tollgate-dashboard') !== '1') throw refused('X-Tollgate-Dashboard: must be 1')
  if (!isJson(incoming.header('content-type'))) throw refused('Content-Type: must be application/json')
  const isHttps = origin.protocol === 'https:'
  return { isHttps, port: origin.port === '' ? (isHttps ? '443' : '80') : origin.port }
}

/**
 * Refuses a root key that came over a network which can read it. A browser on this machine asks `localhost` and the like,
 * also through a tunnel or a container's port.
 * @throws ApiError FORBIDDEN
 */
export function requireSafeTransport(incoming: RequestReader, isInsecureAllowed: boolean): void {
  const origin = originOf(incoming.header('origin'))
  if (isInsecureAllowed || origin === null || origin.protocol === 'https:') return
  if (isLoopbackUrl(origin.href)) return
  throw refused(
    'sign-in over plain HTTP is only possible on the machine itself: open the dashboard over HTTPS, through a tunnel to localhost, or set TOLLGATE_DASHBOARD_INSECURE=1',
  )
}

const refused = (message: string) => new ApiError('FORBIDDEN', message)

function originOf(text: string | null): URL | null {
  if (text === null || !/^https?:\/\//.test(text) || !URL.canParse(text)) return null
  return new URL(text)
}

/** The value of a cookie; null when it is absent, or sent more than once. */
export function cookieOf(incoming: RequestReader, name: string): string | null {
  const values = (incoming.header('cookie') ?? '')
    .split(/;\s*/)
    .flatMap((pair) => (pair.startsWith(`${name}=`) ? [pair.slice(name.length + 1)] : []))
  return values.length === 1 ? (values[0] ?? null) : null
}

/** True when a person's browser asks for a page. */
export const isBrowsing = (incoming: RequestReader): boolean =>
  (incoming.method === 'GET' || incoming.method === 'HEAD') &&
  (incoming.header('accept') ?? '').toLowerCase().includes('text/html')

/** A call of the dashboard as a call of the API: with the session's root key in place of cookie and Authorization header. */
export class BridgedRequest implements RequestReader {
  readonly target: string

  /**
   * @param search The input of a GET, which is a query in the API; null = the body is the input.
   */
  constructor(
    private readonly incoming: RequestReader,
    readonly sessionHash: string,
    readonly method: 'GET' | 'POST',
    search: URLSearchParams | null,
    private readonly body: string,
  ) {
    this.target = search === null ? incoming.path : `${incoming.path}?${search}`
  }
  get path() {
    return this.incoming.path
  }
  header(name: string) {
    return PASSED_ON.has(name) ? this.incoming.header(name) : null
  }
  text() {
    return this.body
  }
  peerAddress() {
    return this.incoming.peerAddress()
  }
}

/** What an endpoint may know of the browser's request. */
const PASSED_ON: ReadonlySet<string> = new Set([
  'content-type',
  'user-agent',
  'accept',
  'traceparent',
  'tracestate',
  'x-forwarded-for',
  'true-client-ip',
  'cf-connecting-ip',
])
