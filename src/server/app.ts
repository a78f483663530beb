import { Elysia } from 'elysia'
import { authRoutes } from '../doors/forward-auth/routes.ts'
import {
  type Answer,
  type Envelope,
  errorAnswer,
  headersOf,
  optionsAnswer,
  responseOf,
} from '../doors/http/answer.ts'
import type { Endpoint } from '../doors/http/endpoint.ts'
import { type Handler, handlerOf, openEnvelope, shortPath, unroutedAnswer } from '../doors/http/handle.ts'
import type { Refused } from '../doors/http/request-head.ts'
import { CopiedRequest, type RequestReader } from '../doors/http/request-reader.ts'
import { analyticsRoutes } from '../doors/v1/analytics/routes.ts'
import { apiRoutes } from '../doors/v1/apis/routes.ts'
import { auditEventRoutes } from '../doors/v1/audit-events/routes.ts'
import { identityRoutes } from '../doors/v1/identities/routes.ts'
import { keyRoutes } from '../doors/v1/keys/routes.ts'
import { livenessRoutes } from '../doors/v1/liveness.ts'
import { migrationRoutes } from '../doors/v1/migrations/routes.ts'
import { permissionRoutes } from '../doors/v1/permissions/routes.ts'
import { ratelimitRoutes } from '../doors/v1/ratelimits/routes.ts'
import { rootKeyRoutes } from '../doors/v1/root-keys/routes.ts'
import { vaultRoutes } from '../doors/v1/vault/routes.ts'
import { workspaceRoutes } from '../doors/v1/workspaces/routes.ts'
import { ApiError, notFound } from '../errors.ts'
import { EXPOSITION_TYPE } from '../observe/exposition.ts'
import type { Trace, Tracer } from '../observe/tracing/tracer.ts'
import { apiPage } from '../pages/api-page.ts'
import { docPage, homePage } from '../pages/docs.ts'
import { errorPage } from '../pages/error-page.ts'
import { type OpenApiDocument, openApiDocument } from '../pages/openapi.ts'
import { PAGE_POLICY } from '../pages/page.ts'
import type { Deps } from './deps.ts'
import { watchedDeps } from './watched-deps.ts'

/** Every endpoint of the API, in the order of its description. */
export const endpoints: readonly Endpoint[] = [
  ...keyRoutes,
  ...migrationRoutes,
  ...vaultRoutes,
  ...authRoutes,
  ...permissionRoutes,
  ...identityRoutes,
  ...ratelimitRoutes,
  ...apiRoutes,
  ...analyticsRoutes,
  ...auditEventRoutes,
  ...rootKeyRoutes,
  ...workspaceRoutes,
  ...livenessRoutes,
]

/**
 * The HTTP side of one thread. Opens nothing: whoever serves it decides where.
 *
 * `fastRoutes` holds the endpoints that are on the path of every request of somebody's product, by method and path, for
 * `http-server.ts`, which calls them without a Request, a Response or Elysia's dispatch. Schema and verb are the same.
 *
 * `cold` answers everything else. The path is compared as it was sent; Elysia, which would normalise it, sees those alone that
 * are spelled as they should be.
 */
export function createApp(deps: Deps) {
  const app = new Elysia({ name: 'tollgate' })
  const traced = {
    services: deps,
    watched: (trace: Trace, tracer: Tracer) => watchedDeps(deps, trace, tracer),
  }
  const fastRoutes = new Map<string, Handler>()
  /** Path → the methods it has. */
  const methods = new Map<string, string>()
  /** What Elysia routes → the request as it came. */
  const came = new WeakMap<Request, RequestReader>()
  const incomingOf = (request: Request): RequestReader => came.get(request) ?? new CopiedRequest(request)
  for (const endpoint of endpoints) {
    const handle = handlerOf(endpoint, deps, traced)
    const [get, post] = [endpoint.method === 'GET', endpoint.method === 'POST' || endpoint.answersPostToo]
    methods.set(endpoint.path, [...(get ? GET : []), ...(post ? ['POST'] : []), 'OPTIONS'].join(', '))
    for (const method of endpoint.answersPostToo ? (['GET', 'POST'] as const) : [endpoint.method]) {
      if (endpoint.isFastPath) fastRoutes.set(`${method} ${endpoint.path}`, handle)
      // `parse: 'none'`: the handler reads the body itself, once its size and type are known.
      app.route(method, endpoint.path, async ({ request }) => responseOf(await handle(incomingOf(request))), {
        parse: 'none',
      })
    }
  }
  const pages = pagesOf(deps)
  app.get('/errors/:code', ({ request, params: { code } }) =>
    pageAnswer(incomingOf(request), { page: pages.error(code), what: `error code ${code}` }, deps),
  )
  app.get('/docs/:slug', ({ request, params: { slug } }) =>
    pageAnswer(incomingOf(request), { page: pages.doc(slug), what: `page ${slug} of the docs` }, deps),
  )
  app.get('/docs', ({ request }) =>
    pageAnswer(incomingOf(request), { page: pages.doc('guides'), what: 'docs' }, deps),
  )
  app.get('/openapi.json', ({ request }) => {
    const envelope = openEnvelope(incomingOf(request), deps)
    return new Response(pages.openApi(envelope.isPretty), {
      headers: headersOf(envelope, 'application/json'),
    })
  })
  for (const path of ['/docs', '/openapi.json']) methods.set(path, PAGE_METHODS)
  // With a port of its own, nobody who may call the API may read the metrics too.
  if (deps.config.metricsPort === null) {
    methods.set('/metrics', PAGE_METHODS)
    app.get('/metrics', ({ request }) => metricsAnswer(openEnvelope(incomingOf(request), deps), deps))
  }
  app.onError(({ request, code, error }) => {
    const incoming = incomingOf(request)
    return responseOf(
      code === 'NOT_FOUND' ? unknownAnswer(incoming, deps) : unroutedAnswer(incoming, error, deps),
    )
  })

  const cold = (incoming: RequestReader): Answer | Response | Promise<Response> => {
    const { method, path } = incoming
    const allow = methods.get(path) ?? (PAGE.test(path) ? PAGE_METHODS : null)
    if (method === 'OPTIONS' && (allow !== null || path === '*' || path.startsWith('/v1/')))
      return optionsAnswer(openEnvelope(incoming, deps), allow ?? ALL_METHODS)
    if (allow === null) return unknownAnswer(incoming, deps)
    if (!allow.split(', ').includes(method)) return notAllowed(incoming, allow, deps)
    const request = new Request(`http://localhost${path}`, { method: method === 'HEAD' ? 'GET' : method })
    came.set(request, incoming)
    return app.fetch(request)
  }
  return { app, fastRoutes, cold, refuse: refuserOf(deps, { isApi: true }) }
}

/** `/metrics` and nothing else. */
export function createMetricsApp(deps: Deps) {
  const cold = (incoming: RequestReader): Answer | Response | Promise<Response> => {
    const { method, path } = incoming
    if (path !== '/metrics' && !(path === '*' && method === 'OPTIONS'))
      return unroutedAnswer(
        incoming,
        notFound(`this port serves only /metrics: ${shortPath(incoming)}`),
        deps,
        {
          isApi: false,
        },
      )
    if (GET.includes(method)) return metricsAnswer(openEnvelope(incoming, deps), deps)
    if (method === 'OPTIONS') return optionsAnswer(openEnvelope(incoming, deps), PAGE_METHODS)
    return notAllowed(incoming, PAGE_METHODS, deps)
  }
  return { cold, refuse: refuserOf(deps, { isApi: false }) }
}

const refuserOf =
  (deps: Deps, { isApi }: { isApi: boolean }) =>
  ({ code, message }: Refused): Answer =>
    unroutedAnswer(NO_REQUEST, new ApiError(code, message), deps, { isApi })

function unknownAnswer(incoming: RequestReader, deps: Deps): Answer {
  // HEAD gets the length that GET would get.
  const method = incoming.method === 'HEAD' ? 'GET' : incoming.method
  return unroutedAnswer(incoming, notFound(`${method} ${shortPath(incoming)}`), deps)
}

function notAllowed(incoming: RequestReader, allow: string, deps: Deps): Answer {
  const { method, path } = incoming
  const cause = new ApiError('METHOD_NOT_ALLOWED', `${path} does not support ${method}; it supports ${allow}`)
  return unroutedAnswer(incoming, cause, deps, { headers: { Allow: allow } })
}

const GET = ['GET', 'HEAD']
const PAGE_METHODS = 'GET, HEAD, OPTIONS'
const ALL_METHODS = 'GET, HEAD, POST, OPTIONS'
const PAGE = /^\/(errors|docs)\/[\w-]+$/

/** What is refused before it is one. */
const NO_REQUEST: RequestReader = {
  method: '',
  path: '/v1/',
  target: '',
  header: () => null,
  text: () => '',
  peerAddress: () => null,
}

/** @throws Error when the threads do not answer. */
async function metricsAnswer(envelope: Envelope, deps: Deps): Promise<Response> {
  const text = await deps.metricsText()
  return new Response(text, { headers: headersOf(envelope, EXPOSITION_TYPE) })
}

/** What there is to read, each made when it is first asked for, as the URL is only known once it listens, and once. */
function pagesOf(deps: Deps) {
  const made = new Map<string, string>()
  const once = <Text extends string | null>(name: string, make: () => Text): Text | string => {
    const page = made.get(name) ?? make()
    if (page !== null) made.set(name, page)
    return page
  }
  let document: OpenApiDocument | null = null
  const described = () => {
    document ??= openApiDocument(endpoints, deps.publicUrl())
    return document
  }
  return {
    error: (code: string) => once(`error ${code}`, () => errorPage(code, deps.publicUrl())),
    doc: (slug: string) =>
      once(`doc ${slug}`, () => {
        if (slug === 'api') return apiPage(described())
        // The list of all had this address once.
        return slug === 'guides' ? homePage(described()) : docPage(slug, described())
      }),
    openApi: (isPretty: boolean) =>
      once(`openapi ${isPretty}`, () => JSON.stringify(described(), null, isPretty ? 2 : 0)),
  }
}

/** An HTML page; null = there is no `what`. */
function pageAnswer(
  incoming: RequestReader,
  { page, what }: { page: string | null; what: string },
  deps: Deps,
): Response {
  const envelope = openEnvelope(incoming, deps)
  if (page === null)
    return responseOf(errorAnswer(deps.dialectOf(incoming.path), envelope, notFound(what), 'a page'))
  const headers = {
    ...headersOf(envelope, 'text/html; charset=utf-8'),
    'Content-Security-Policy': PAGE_POLICY,
  }
  return new Response(page, { headers })
}
