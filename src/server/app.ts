import { Elysia } from 'elysia'
import { authRoutes } from '../doors/forward-auth/routes.ts'
import { type Answer, errorAnswer, headersOf, optionsAnswer, responseOf } from '../doors/http/answer.ts'
import type { Envelope } from '../doors/http/dialect.ts'
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
import { v2Routes } from '../doors/v2/routes.ts'
import { ApiError, notFoundAt } from '../errors.ts'
import { EXPOSITION_TYPE } from '../observe/exposition.ts'
import type { Trace, Tracer } from '../observe/tracing/tracer.ts'
import { apiPage } from '../pages/api-page.ts'
import { docPage, homePage } from '../pages/docs.ts'
import { errorPage } from '../pages/error-page.ts'
import { type OpenApiDocument, openApiDocument } from '../pages/openapi.ts'
import { PAGE_POLICY } from '../pages/page.ts'
import type { Deps } from './deps.ts'
import { watchedDeps } from './watched-deps.ts'

/** All endpoints of the v1 API, in the order of its description. */
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

/** Those of the v1 API, and of the v2 API. */
export const allEndpoints: readonly Endpoint[] = [...endpoints, ...v2Routes]

/**
 * The HTTP functions of one thread. Does not listen; `doors/http/listen.ts` does.
 *
 * `fastRoutes`: the endpoints called for every request of a customer's product, by method and path. `http-server.ts` calls
 * them directly, without Request, Response and Elysia. Schemas and functions are the same.
 *
 * `cold`: answers everything else. The path is compared as sent; Elysia would normalise it, so it gets only exact
 * spellings.
 */
export function createApp(deps: Deps) {
  const app = new Elysia({ name: 'tollgate' })
  const traced = {
    services: deps,
    watched: (trace: Trace, tracer: Tracer) => watchedDeps(deps, trace, tracer),
  }
  const fastRoutes = new Map<string, Handler>()
  /** Path → its methods. */
  const methods = new Map<string, string>()
  /** The request object for Elysia → the request as received. */
  const came = new WeakMap<Request, RequestReader>()
  const incomingOf = (request: Request): RequestReader => came.get(request) ?? new CopiedRequest(request)
  for (const endpoint of allEndpoints) {
    const handle = handlerOf(endpoint, deps, traced)
    const [get, post] = [endpoint.method === 'GET', endpoint.method === 'POST' || endpoint.answersPostToo]
    methods.set(endpoint.path, [...(get ? GET : []), ...(post ? ['POST'] : []), 'OPTIONS'].join(', '))
    for (const method of endpoint.answersPostToo ? (['GET', 'POST'] as const) : [endpoint.method]) {
      if (endpoint.isFastPath) fastRoutes.set(`${method} ${endpoint.path}`, handle)
      // `parse: 'none'`: the handler checks size and type of the body before it reads it.
      app.route(method, endpoint.path, async ({ request }) => responseOf(await handle(incomingOf(request))), {
        parse: 'none',
      })
    }
  }
  const pages = pagesOf(deps)
  for (const path of ['/errors/:name', '/errors/:name/:category/:code'])
    app.get(path, ({ request, path }) => {
      const name = path.slice('/errors/'.length)
      return pageAnswer(incomingOf(request), { page: pages.error(name), what: `error ${name}` }, deps)
    })
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
  // When metrics have a port of their own, callers of the API must not be able to read them.
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
    if (method === 'OPTIONS' && (allow !== null || path === '*' || /^\/v[12]\//.test(path)))
      return optionsAnswer(openEnvelope(incoming, deps), allow ?? ALL_METHODS)
    if (allow === null) return unknownAnswer(incoming, deps)
    if (!allow.split(', ').includes(method)) return notAllowed(incoming, allow, deps)
    const request = new Request(`http://localhost${path}`, { method: method === 'HEAD' ? 'GET' : method })
    came.set(request, incoming)
    return app.fetch(request)
  }
  return { app, fastRoutes, cold, refuse: refuserOf(deps, { isApi: true }) }
}

/** Serves only `/metrics`. */
export function createMetricsApp(deps: Deps) {
  const cold = (incoming: RequestReader): Answer | Response | Promise<Response> => {
    const { method, path } = incoming
    if (path !== '/metrics' && !(path === '*' && method === 'OPTIONS'))
      return unroutedAnswer(
        incoming,
        notFoundAt(`this port serves only /metrics: ${shortPath(incoming)}`),
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
  // The answer to HEAD has the length of the answer to GET.
  const method = incoming.method === 'HEAD' ? 'GET' : incoming.method
  return unroutedAnswer(incoming, notFoundAt(`${method} ${shortPath(incoming)}`), deps)
}

function notAllowed(incoming: RequestReader, allow: string, deps: Deps): Answer {
  const { method, path } = incoming
  const cause = new ApiError('METHOD_NOT_ALLOWED', `${path} does not support ${method}; it supports ${allow}`)
  return unroutedAnswer(incoming, cause, deps, { headers: { Allow: allow } })
}

const GET = ['GET', 'HEAD']
const PAGE_METHODS = 'GET, HEAD, OPTIONS'
const ALL_METHODS = 'GET, HEAD, POST, OPTIONS'
const PAGE = /^\/(errors|docs)\/[\w-]+$|^\/errors(\/\w+){3}$/

/** Stands for bytes that were refused before they were a request. */
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

/** The pages. Each is made once, on its first request, because the URL is known only once the server listens. */
function pagesOf(deps: Deps) {
  const made = new Map<string, string>()
  const once = <Text extends string | null>(name: string, make: () => Text): Text | string => {
    const page = made.get(name) ?? make()
    if (page !== null) made.set(name, page)
    return page
  }
  let document: OpenApiDocument | null = null
  const described = () => {
    document ??= openApiDocument(allEndpoints, deps.publicUrl())
    return document
  }
  return {
    error: (code: string) => once(`error ${code}`, () => errorPage(code, deps.publicUrl())),
    doc: (slug: string) =>
      once(`doc ${slug}`, () => {
        if (slug === 'api') return apiPage(described())
        // The list of all pages had this address in earlier releases.
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
    return responseOf(errorAnswer(deps.dialectOf(incoming.path), envelope, notFoundAt(what), 'a page'))
  const headers = {
    ...headersOf(envelope, 'text/html; charset=utf-8'),
    'Content-Security-Policy': PAGE_POLICY,
  }
  return new Response(page, { headers })
}
