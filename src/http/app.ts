import { Elysia } from 'elysia'
import { analyticsRoutes } from '../analytics/routes.ts'
import { apiRoutes } from '../apis/routes.ts'
import { auditEventRoutes } from '../audit-events/routes.ts'
import { authRoutes } from '../auth/routes.ts'
import type { Deps } from '../deps.ts'
import { notFound } from '../errors.ts'
import { identityRoutes } from '../identities/routes.ts'
import { keyRoutes } from '../keys/routes.ts'
import { EXPOSITION_TYPE } from '../lib/exposition.ts'
import { permissionRoutes } from '../permissions/routes.ts'
import { ratelimitRoutes } from '../ratelimits/routes.ts'
import { rootKeyRoutes } from '../root-keys/routes.ts'
import { workspaceRoutes } from '../workspaces/routes.ts'
import { type Envelope, errorAnswer, headersOf, jsonAnswer, preflightAnswer, responseOf } from './answer.ts'
import { docsPage } from './docs-page.ts'
import type { Endpoint } from './endpoint.ts'
import { errorPage } from './error-page.ts'
import { guidePage } from './guides.ts'
import { type Handler, handlerOf, openEnvelope, unroutedAnswer } from './handle.ts'
import { type ConnectionInfo, RequestIncoming } from './incoming.ts'
import { livenessRoutes } from './liveness.ts'
import { type OpenApiDocument, openApiDocument } from './openapi.ts'

/** Every endpoint of the API, in the order of its description. */
export const endpoints: readonly Endpoint[] = [
  ...keyRoutes,
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
 * `hot` holds the endpoints that are on the path of every request of somebody's product, by method and path, for
 * `front.ts`, which calls them without a Request, a Response or Elysia's dispatch. Schema and verb are the same.
 */
export function createApp(deps: Deps, connection: ConnectionInfo) {
  const app = new Elysia({ name: 'tollgate' })
  const hot = new Map<string, Handler>()
  for (const endpoint of endpoints) {
    const handle = handlerOf(endpoint, deps)
    for (const method of endpoint.answersPostToo ? (['GET', 'POST'] as const) : [endpoint.method]) {
      if (endpoint.isHot) hot.set(`${method} ${endpoint.path}`, handle)
      // `parse: 'none'`: the handler reads the body itself, once its size and type are known.
      app.route(
        method,
        endpoint.path,
        async ({ request }) => responseOf(await handle(new RequestIncoming(request, connection))),
        { parse: 'none' },
      )
    }
  }
  app.get('/errors/:code', ({ request, params: { code } }) =>
    pageAnswer(request, { page: errorPage(code, deps.publicUrl()), what: `error code ${code}` }, deps),
  )
  app.get('/docs/:guide', ({ request, params: { guide } }) =>
    pageAnswer(request, { page: guidePage(guide), what: `guide ${guide}` }, deps),
  )
  const description = describe(deps)
  app.get('/openapi.json', ({ request }) => {
    const envelope = openEnvelope(request, deps)
    return responseOf(jsonAnswer(envelope, 200, description().document))
  })
  app.get('/docs', ({ request }) => pageAnswer(request, { page: description().page, what: 'docs' }, deps))
  // With a port of its own, nobody who may call the API may read the metrics too.
  if (deps.config.metricsPort === null)
    app.get('/metrics', ({ request }) => metricsAnswer(openEnvelope(request, deps), deps))
  app.options('*', ({ request }) => preflightAnswer(openEnvelope(request, deps)))
  app.onError(({ request, code, error }) => {
    // A trailing slash on the client's base URL makes `//v1/…`: the same request, one slash less.
    const url = new URL(request.url)
    if (code === 'NOT_FOUND' && url.pathname.startsWith('//')) {
      url.pathname = url.pathname.replace(/^\/+/, '/')
      return app.fetch(new Request(url.href, request))
    }
    const path = url.pathname
    const cause = code === 'NOT_FOUND' ? notFound(`${request.method} ${path}`) : error
    return responseOf(unroutedAnswer(request, cause, { path, deps }))
  })
  return { app, hot }
}

/** @throws Error when the threads do not answer. */
async function metricsAnswer(envelope: Envelope, deps: Deps): Promise<Response> {
  const text = await deps.metricsText()
  return new Response(text, { headers: headersOf(envelope, EXPOSITION_TYPE) })
}

/** What the API can do, for programs and for people; made when first asked for, as the URL is only known once it listens. */
function describe(deps: Deps) {
  let made: { document: OpenApiDocument; page: string } | null = null
  return () => {
    if (made === null) {
      const document = openApiDocument(endpoints, deps.publicUrl())
      made = { document, page: docsPage(document) }
    }
    return made
  }
}

/** An HTML page; null = there is no `what`. */
function pageAnswer(
  request: Request,
  { page, what }: { page: string | null; what: string },
  deps: Deps,
): Response {
  const envelope = openEnvelope(request, deps)
  if (page === null) return responseOf(errorAnswer(envelope, notFound(what), 'a page'))
  return new Response(page, { headers: headersOf(envelope, 'text/html; charset=utf-8') })
}
