import { isBrowsing } from '../dashboard/requests.ts'
import { dashboardOf, type Method } from '../dashboard/routes.ts'
import { type Answer, errorAnswer, headersOf, optionsAnswer } from '../doors/http/answer.ts'
import { Content } from '../doors/http/content.ts'
import type { Endpoint } from '../doors/http/endpoint.ts'
import { openEnvelope, shortPath, unroutedAnswer } from '../doors/http/handle.ts'
import type { RequestReader } from '../doors/http/request-reader.ts'
import { ApiError, notFoundAt } from '../errors.ts'
import { apiPage } from '../pages/api-page.ts'
import { docPage, guideWords, homePage } from '../pages/docs.ts'
import { errorPage } from '../pages/error-page.ts'
import { notFoundPage } from '../pages/not-found-page.ts'
import { type OpenApiDocument, openApiDocument } from '../pages/openapi.ts'
import { PAGE_POLICY, SENDING_PAGE_POLICY } from '../pages/page.ts'
import type { Deps } from './deps.ts'

export const PAGE_METHODS = 'GET, HEAD, OPTIONS'

/**
 * What people look at: documentation, errors, the dashboard.
 * @param options.methods What the dashboard may call; null = it is not served here.
 * @returns a function that answers requests for pages, and null for all others.
 */
export function pagesOf(
  deps: Deps,
  { endpoints, methods }: { endpoints: readonly Endpoint[]; methods: ReadonlyMap<string, Method> | null },
) {
  const { config } = deps
  const dashboard = dashboardOf(
    methods === null ? { ...deps, config: { ...config, dashboard: null } } : deps,
    methods ?? new Map(),
  )
  const sendable = config.dashboard === null ? null : methods
  const made = madeOnce(deps, endpoints, sendable)
  return (incoming: RequestReader): Answer | Response | Promise<Response> | null => {
    const { method, path } = incoming
    const { of, name = '' } = PAGE.exec(path)?.groups ?? {}
    if (of === undefined) return dashboard(incoming)
    if (method === 'OPTIONS') return optionsAnswer(openEnvelope(incoming, deps), PAGE_METHODS)
    if (method !== 'GET' && method !== 'HEAD') return notAllowed(incoming, PAGE_METHODS, deps)
    const envelope = openEnvelope(incoming, deps)
    if (of === '/openapi.json') {
      const content = made.openApi(envelope.isPretty)
      return content.answer(incoming, { ...headersOf(envelope, content.type), ...REVALIDATED })
    }
    const page = of === '/errors' ? made.error(name) : made.doc(name === '' ? 'guides' : name)
    const policy = name === 'api' && sendable !== null ? SENDING_PAGE_POLICY : PAGE_POLICY
    if (page !== null) return pageAnswer(incoming, page, deps, { policy })
    const what = of === '/errors' ? `error ${name}` : `page ${name} of the docs`
    return isBrowsing(incoming)
      ? unknownPage(incoming, deps)
      : errorAnswer(deps.dialectOf(path), envelope, notFoundAt(what), 'a page')
  }
}

/** `/docs`, `/docs/<page>`, `/errors/<code>`, `/errors/<system>/<category>/<code>` and `/openapi.json`. */
const PAGE =
  /^(?:(?<of>\/openapi\.json|\/docs)|(?<of>\/docs|\/errors)\/(?<name>[\w-]+)|(?<of>\/errors)\/(?<name>\w+\/\w+\/\w+))$/

export function notAllowed(incoming: RequestReader, allow: string, deps: Deps): Answer {
  const { method, path } = incoming
  const cause = new ApiError('METHOD_NOT_ALLOWED', `${path} does not support ${method}; it supports ${allow}`)
  return unroutedAnswer(incoming, cause, deps, { headers: { Allow: allow } })
}

/** A path that leads nowhere: a page for people, an error for programs. */
export function unknownAnswer(incoming: RequestReader, deps: Deps): Answer | Response {
  // The answer to HEAD has the length of the answer to GET.
  const method = incoming.method === 'HEAD' ? 'GET' : incoming.method
  const isApi = /^\/v[12]\//.test(incoming.path)
  if (!isApi && isBrowsing(incoming)) return unknownPage(incoming, deps)
  return unroutedAnswer(incoming, notFoundAt(`${method} ${shortPath(incoming)}`), deps)
}

function unknownPage(incoming: RequestReader, deps: Deps): Response {
  deps.measures.route('unknown').add(404, 0)
  const page = notFoundPage({ path: shortPath(incoming), hasDashboard: deps.config.dashboard !== null })
  return pageAnswer(incoming, new Content(HTML, page), deps, { status: 404 })
}

const HTML = 'text/html; charset=utf-8'
/** A browser asks each time whether it changed: a new version of the server has new pages. */
const REVALIDATED = { 'Cache-Control': 'no-cache' }

const pageAnswer = (
  incoming: RequestReader,
  page: Content,
  deps: Deps,
  { status = 200, policy = PAGE_POLICY } = {},
): Response =>
  page.answer(
    incoming,
    {
      ...headersOf(openEnvelope(incoming, deps), page.type),
      ...REVALIDATED,
      'Content-Security-Policy': policy,
      'Cross-Origin-Opener-Policy': 'same-origin',
    },
    status,
  )

/** Each page is made once, on its first request, because the URL is known only once the server listens. */
function madeOnce(deps: Deps, endpoints: readonly Endpoint[], sendable: ReadonlyMap<string, Method> | null) {
  const made = new Map<string, Content>()
  const once = (name: string, type: string, make: () => string | null): Content | null => {
    const known = made.get(name)
    if (known !== undefined) return known
    const text = make()
    if (text === null) return null
    const content = new Content(type, text)
    made.set(name, content)
    return content
  }
  let document: OpenApiDocument | null = null
  const described = () => {
    document ??= openApiDocument(endpoints, deps.publicUrl())
    return document
  }
  return {
    error: (name: string) => once(`error ${name}`, HTML, () => errorPage(name, deps.publicUrl())),
    doc: (slug: string) =>
      once(`doc ${slug}`, HTML, () => {
        if (slug === 'api') return apiPage(described(), guideWords(), sendable)
        // The list of all pages had this address in earlier releases.
        return slug === 'guides' ? homePage(described()) : docPage(slug, described())
      }),
    openApi: (isPretty: boolean) =>
      once(`openapi ${isPretty}`, 'application/json', () =>
        JSON.stringify(described(), null, isPretty ? 2 : 0),
      ) as Content, // its text is never null
  }
}
