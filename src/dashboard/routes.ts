import type { Services } from '../api/parts.ts'
import { listServers } from '../api/server/list-servers.ts'
import type { Config } from '../config.ts'
import { errorAnswer, headersOf, responseOf } from '../doors/http/answer.ts'
import { parseBody, readBody } from '../doors/http/body.ts'
import { clientAddress } from '../doors/http/client-address.ts'
import { Content } from '../doors/http/content.ts'
import type { AddableEnvelope } from '../doors/http/dialect.ts'
import { type Handler, type HttpParts, openEnvelope, shortPath } from '../doors/http/handle.ts'
import type { RequestReader } from '../doors/http/request-reader.ts'
import { v1 } from '../doors/v1/dialect.ts'
import { ApiError, badRequest, notFoundAt } from '../errors.ts'
import { VERSION } from '../lib/version.ts'
import { FAVICON } from '../pages/favicon.ts'
import { dashboardAssets } from './assets.ts'
import {
  BridgedRequest,
  cookieOf,
  isBrowsing,
  type PageOrigin,
  requireOwnPage,
  requireSafeTransport,
} from './requests.ts'
import type { SessionReply } from './schema.ts'
import { IDLE_MS, SESSION_MS, type Session, SessionSealer, type SignedIn, withoutSignIn } from './seal.ts'
import { type Asker, describe, openSession, requireLive } from './session.ts'

export type DashboardParts = Services &
  HttpParts & {
    readonly config: Pick<Config, 'dashboard' | 'log' | 'trustedProxies'>
    /** The first seals sessions, all open them. */
    readonly sessionSecrets: readonly Uint8Array[]
  }

/** A method of the API that the dashboard may call. */
export type Method = { method: 'GET' | 'POST'; handle: Handler }

/**
 * Answers requests below `/dashboard`, for `/` and for the icon.
 *
 * `POST /dashboard/api/<method>` calls a method of the v1 API with the root key of the session; the body is its input, also
 * of a GET. Three methods are the dashboard's own: `session.state`, `session.open` and `session.close`. Only these paths
 * read the cookie.
 * @param methods By name, such as `keys.createKey`.
 * @returns null for any other request.
 */
export function dashboardOf(deps: DashboardParts, methods: ReadonlyMap<string, Method>) {
  const { dashboard } = deps.config
  const sealer = new SessionSealer(deps.sessionSecrets)
  const icon = new Content('image/svg+xml', FAVICON.text)
  const calls = { deps, methods, sealer }
  return (incoming: RequestReader): Response | Promise<Response> | null => {
    const { path } = incoming
    if (path === '/') return isBrowsing(incoming) ? redirect(incoming, deps) : null
    if (path === FAVICON.path || path === '/favicon.ico')
      return isRead(incoming)
        ? icon.answer(incoming, headersFor(incoming, deps, 'public, max-age=86400'))
        : null
    if (dashboard === null || !/^\/dashboard(\/|$)/.test(path)) return null
    return answering(incoming, deps, () => {
      if (path.startsWith(API)) return call(calls, incoming, path.slice(API.length))
      if (!isRead(incoming)) throw new ApiError('METHOD_NOT_ALLOWED', `${shortPath(incoming)} supports GET`)
      return path.startsWith(ASSETS) ? asset(incoming, deps, path.slice(ASSETS.length)) : page(incoming, deps)
    })
  }
}

const API = '/dashboard/api/'
const ASSETS = '/dashboard/assets/'

const isRead = ({ method }: RequestReader) => method === 'GET' || method === 'HEAD'

function redirect(incoming: RequestReader, deps: DashboardParts): Response {
  const location = deps.config.dashboard === null ? '/docs' : '/dashboard'
  return new Response(null, {
    status: 302,
    headers: { ...headersFor(incoming, deps, 'no-store'), Location: location, Vary: 'Accept' },
  })
}

async function page(incoming: RequestReader, deps: DashboardParts): Promise<Response> {
  const { html } = await dashboardAssets()
  return html.answer(incoming, headersFor(incoming, deps, 'no-store'))
}

/** The name changes with the content, so a browser never has to ask again. */
async function asset(incoming: RequestReader, deps: DashboardParts, name: string): Promise<Response> {
  const file = (await dashboardAssets()).files.get(name)
  if (file === undefined) throw notFoundAt(`GET ${shortPath(incoming)}`)
  return file.answer(incoming, headersFor(incoming, deps, 'public, max-age=31536000, immutable'))
}

/** Forbids what injected text could do: to load, to run, to send, and to be framed. A `<meta>` element could not forbid frames. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "form-action 'none'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ')

const ISOLATED = { 'Content-Security-Policy': POLICY, 'Cross-Origin-Opener-Policy': 'same-origin' }

function headersFor(incoming: RequestReader, deps: DashboardParts, caching: string): Record<string, string> {
  return { ...headersOf(openEnvelope(incoming, deps), 'text/plain'), ...ISOLATED, 'Cache-Control': caching }
}

/** Turns what is thrown into an answer in the words of v1. */
async function answering(
  incoming: RequestReader,
  deps: DashboardParts,
  answer: () => Response | Promise<Response>,
): Promise<Response> {
  try {
    return await answer()
  } catch (cause) {
    const failed = cause instanceof SessionEnded ? cause.error : cause
    const response = responseOf(errorAnswer(v1, openEnvelope(incoming, deps), failed, 'dashboard'))
    seal(response)
    if (cause instanceof SessionEnded) response.headers.append('Set-Cookie', cause.cookie)
    return response
  }
}

const seal = ({ headers }: Response): void => {
  for (const [name, value] of Object.entries(ISOLATED)) headers.set(name, value)
  headers.set('Cache-Control', 'no-store')
}

/** A refusal that also changes the browser's cookie. */
class SessionEnded extends Error {
  override name = 'SessionEnded'
  constructor(
    readonly error: unknown,
    readonly cookie: string,
  ) {
    super('the session has ended')
  }
}

type Calls = {
  deps: DashboardParts
  methods: ReadonlyMap<string, Method>
  sealer: SessionSealer
}

async function call(calls: Calls, incoming: RequestReader, name: string): Promise<Response> {
  const { deps, methods, sealer } = calls
  if (incoming.method !== 'POST')
    throw new ApiError('METHOD_NOT_ALLOWED', `${shortPath(incoming)} supports POST`)
  const origin = requireOwnPage(incoming, deps.publicUrl())
  const text = await readBody(incoming)
  const now = deps.clock()
  const session = sealer.open(cookieOf(incoming, cookieName(origin)) ?? '', now)
  const envelope = openEnvelope(incoming, deps)
  const asker: Asker = {
    requestId: envelope.requestId,
    userAgent: incoming.header('user-agent'),
    clientAddress: () => clientAddress(incoming, deps.config.trustedProxies),
  }
  const own = { calls, incoming, origin, session, envelope, asker }
  if (name.startsWith('session.')) return await sessionCall(own, name, parseBody(text))
  const method = methods.get(name)
  if (method === undefined) throw notFoundAt(`POST ${shortPath(incoming)}`)
  if (session === null) throw new ApiError('UNAUTHENTICATED', 'nobody is signed in, or the session has ended')
  const chosen = signInFor(session, incoming.header('x-tollgate-workspace'))
  await requireLive(deps, chosen, asker).catch((cause: unknown) => {
    throw endsSession(cause)
      ? new SessionEnded(cause, cookieFor(sealer, origin, withoutSignIn(session, chosen.workspaceId)))
      : cause
  })
  const search = method.method === 'GET' ? searchOf(parseBody(text)) : null
  const bridged = new BridgedRequest(incoming, chosen.hash, method.method, search, text)
  const response = responseOf(await method.handle(bridged))
  seal(response)
  // A page that refreshes itself is not in use.
  if (incoming.header('x-tollgate-refresh') === null && now - session.seenAt > SEEN_EVERY_MS)
    response.headers.append('Set-Cookie', cookieFor(sealer, origin, { ...session, seenAt: now }))
  return response
}

/** How often the cookie is told that the browser is in use. */
const SEEN_EVERY_MS = IDLE_MS / 60

const endsSession = (cause: unknown) => cause instanceof ApiError && cause.code === 'UNAUTHENTICATED'

/** @throws ApiError UNAUTHENTICATED when the browser is not signed in to this workspace. */
function signInFor({ signedIn }: Session, workspaceId: string | null): SignedIn {
  const found =
    workspaceId === null ? signedIn.at(-1) : signedIn.find((each) => each.workspaceId === workspaceId)
  if (found === undefined) throw new ApiError('UNAUTHENTICATED', 'nobody is signed in to this workspace')
  return found
}

/** The input of a GET as its query: lists are repeated parameters, what is absent or null is left out. */
function searchOf(input: unknown): URLSearchParams {
  if (typeof input !== 'object' || input === null || Array.isArray(input))
    throw badRequest('the body must be an object')
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(input))
    for (const each of Array.isArray(value) ? value : [value])
      if (each !== null) search.append(name, String(each))
  return search
}

type Own = {
  calls: Calls
  incoming: RequestReader
  origin: PageOrigin
  session: Session | null
  envelope: AddableEnvelope
  asker: Asker
}

async function sessionCall(own: Own, name: string, body: unknown): Promise<Response> {
  const { calls, incoming, session, asker } = own
  const fields = typeof body === 'object' && body !== null ? body : {}
  switch (name) {
    case 'session.state':
      return await stateOf(own, session)
    case 'session.open': {
      const rootKey = 'rootKey' in fields ? fields.rootKey : null
      if (typeof rootKey !== 'string' || rootKey === '' || rootKey.length > ROOT_KEY_CHARACTERS_MAX)
        throw badRequest(`rootKey: must be a text of 1 to ${ROOT_KEY_CHARACTERS_MAX} characters`)
      requireSafeTransport(incoming, calls.deps.config.dashboard?.isInsecureAllowed === true)
      return await stateOf(own, await openSession(calls.deps, { session, rootKey, asker }))
    }
    case 'session.close': {
      const workspaceId = 'workspaceId' in fields ? fields.workspaceId : null
      const left =
        session === null || typeof workspaceId !== 'string' ? null : withoutSignIn(session, workspaceId)
      return await stateOf(own, left)
    }
    default:
      throw notFoundAt(`POST ${shortPath(incoming)}`)
  }
}

const ROOT_KEY_CHARACTERS_MAX = 512

/** Describes the session and sets the cookie to it, without the root keys that are refused meanwhile. */
async function stateOf({ calls, incoming, origin, envelope, asker }: Own, session: Session | null) {
  const { deps, sealer } = calls
  const sessions: SessionReply['sessions'] = []
  let left = session === null ? null : { ...session, seenAt: deps.clock() }
  for (const own of session?.signedIn ?? []) {
    try {
      sessions.push(await describe(deps, own, asker))
    } catch (cause) {
      if (!endsSession(cause) || left === null) throw cause
      left = withoutSignIn(left, own.workspaceId)
    }
  }
  const reply: SessionReply = {
    sessions,
    maySignIn: maySignIn(incoming, deps),
    apiUrl: deps.publicUrl(),
    version: VERSION,
    servers: await listServers(deps).then(
      ({ servers }) => servers.length,
      () => null, // the page does without
    ),
  }
  const response = new Response(JSON.stringify(reply), { headers: headersOf(envelope, 'application/json') })
  seal(response)
  response.headers.append('Set-Cookie', cookieFor(sealer, origin, left))
  return response
}

function maySignIn(incoming: RequestReader, { config }: DashboardParts): boolean {
  try {
    requireSafeTransport(incoming, config.dashboard?.isInsecureAllowed === true)
    return true
  } catch {
    return false
  }
}

/** Cookies do not distinguish ports, so two servers of one host need two names. */
const cookieName = ({ port }: PageOrigin) => `tollgate_${port}`

function cookieFor(sealer: SessionSealer, origin: PageOrigin, session: Session | null): string {
  const isEmpty = session === null || session.signedIn.length === 0
  const value = isEmpty ? '' : sealer.seal(session)
  const secure = origin.isHttps ? '; Secure' : ''
  const maxAge = isEmpty ? 0 : SESSION_MS / 1000
  return `${cookieName(origin)}=${value}; Path=/dashboard; Max-Age=${maxAge}; HttpOnly; SameSite=Strict${secure}`
}
