import { Elysia } from 'elysia'
import type { Method } from '../dashboard/routes.ts'
import { authRoutes } from '../doors/forward-auth/routes.ts'
import { type Answer, headersOf, optionsAnswer, responseOf } from '../doors/http/answer.ts'
import type { Envelope } from '../doors/http/dialect.ts'
import type { Endpoint } from '../doors/http/endpoint.ts'
import { type Handler, handlerOf, openEnvelope, shortPath, unroutedAnswer } from '../doors/http/handle.ts'
import type { Refused } from '../doors/http/request-head.ts'
import { CopiedRequest, type RequestReader } from '../doors/http/request-reader.ts'
import { analyticsRoutes } from '../doors/v1/analytics/routes.ts'
import { apiRoutes } from '../doors/v1/apis/routes.ts'
import { auditEventRoutes } from '../doors/v1/audit-events/routes.ts'
import { eventRoutes } from '../doors/v1/events/routes.ts'
import { identityRoutes } from '../doors/v1/identities/routes.ts'
import { keyRoutes } from '../doors/v1/keys/routes.ts'
import { livenessRoutes } from '../doors/v1/liveness.ts'
import { migrationRoutes } from '../doors/v1/migrations/routes.ts'
import { permissionRoutes } from '../doors/v1/permissions/routes.ts'
import { ratelimitRoutes } from '../doors/v1/ratelimits/routes.ts'
import { rootKeyRoutes } from '../doors/v1/root-keys/routes.ts'
import { serverRoutes } from '../doors/v1/server/routes.ts'
import { vaultRoutes } from '../doors/v1/vault/routes.ts'
import { workspaceRoutes } from '../doors/v1/workspaces/routes.ts'
import { v2Routes } from '../doors/v2/routes.ts'
import { ApiError, notFoundAt } from '../errors.ts'
import { EXPOSITION_TYPE } from '../observe/exposition.ts'
import type { Trace, Tracer } from '../observe/tracing/tracer.ts'
import type { Deps } from './deps.ts'
import { notAllowed, PAGE_METHODS, pagesOf, unknownAnswer } from './pages.ts'
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
  ...eventRoutes,
  ...auditEventRoutes,
  ...rootKeyRoutes,
  ...workspaceRoutes,
  ...serverRoutes,
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
  const handle = handlersOf(deps)
  const fastRoutes = new Map<string, Handler>()
  /** Path → its methods. */
  const methods = new Map<string, string>()
  /** The request object for Elysia → the request as received. */
  const came = new WeakMap<Request, RequestReader>()
  const incomingOf = (request: Request): RequestReader => came.get(request) ?? new CopiedRequest(request)
  /** What the dashboard may call. */
  const bridged = new Map<string, Method>()
  for (const endpoint of allEndpoints) {
    const handler = handle(endpoint)
    bridge(bridged, endpoint, handler)
    const [get, post] = [endpoint.method === 'GET', endpoint.method === 'POST' || endpoint.answersPostToo]
    methods.set(endpoint.path, [...(get ? GET : []), ...(post ? ['POST'] : []), 'OPTIONS'].join(', '))
    for (const method of endpoint.answersPostToo ? (['GET', 'POST'] as const) : [endpoint.method]) {
      if (endpoint.isFastPath) fastRoutes.set(`${method} ${endpoint.path}`, handler)
      // `parse: 'none'`: the handler checks size and type of the body before it reads it.
      app.route(
        method,
        endpoint.path,
        async ({ request }) => responseOf(await handler(incomingOf(request))),
        {
          parse: 'none',
        },
      )
    }
  }
  // When the dashboard has a port of its own, callers of the API must not be able to reach it.
  const hasDashboard = deps.config.dashboard !== null && deps.config.dashboard.port === null
  const page = pagesOf(deps, { endpoints: allEndpoints, methods: hasDashboard ? bridged : null })
  // When metrics have a port of their own, callers of the API must not be able to read them.
  if (deps.config.metricsPort === null) {
    methods.set('/metrics', PAGE_METHODS)
    app.get('/metrics', ({ request }) => metricsAnswer(openEnvelope(incomingOf(request), deps), deps))
  }
  app.onError(({ request, code, error }) => {
    const incoming = incomingOf(request)
    const answer =
      code === 'NOT_FOUND' ? unknownAnswer(incoming, deps) : unroutedAnswer(incoming, error, deps)
    return answer instanceof Response ? answer : responseOf(answer)
  })

  const cold = (incoming: RequestReader): Answer | Response | Promise<Response> => {
    const shown = page(incoming)
    if (shown !== null) return shown
    const { method, path } = incoming
    const allow = methods.get(path) ?? null
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

/** Makes the handler of an endpoint. */
function handlersOf(deps: Deps): (endpoint: Endpoint) => Handler {
  const traced = {
    services: deps,
    watched: (trace: Trace, tracer: Tracer) => watchedDeps(deps, trace, tracer),
  }
  return (endpoint) => handlerOf(endpoint, deps, traced)
}

function bridge(methods: Map<string, Method>, { path, method }: Endpoint, handle: Handler): void {
  if (path.startsWith('/v1/')) methods.set(path.slice('/v1/'.length), { method, handle })
}

/** Serves only the dashboard, and the pages that it links to. */
export function createDashboardApp(deps: Deps) {
  const handle = handlersOf(deps)
  const methods = new Map<string, Method>()
  for (const endpoint of endpoints) bridge(methods, endpoint, handle(endpoint))
  const page = pagesOf(deps, { endpoints: allEndpoints, methods })
  const cold = (incoming: RequestReader): Answer | Response | Promise<Response> =>
    page(incoming) ?? unknownAnswer(incoming, deps)
  return { cold, refuse: refuserOf(deps, { isApi: false }) }
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

const GET = ['GET', 'HEAD']
const ALL_METHODS = 'GET, HEAD, POST, OPTIONS'

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
