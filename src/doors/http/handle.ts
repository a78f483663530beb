import type { Config } from '../../config.ts'
import { type AskingRequest, duringRequest } from '../../db/deadline.ts'
import { cutText } from '../../lib/cut-text.ts'
import { newRequestId } from '../../lib/ids.ts'
import { log } from '../../log.ts'
import type { Measures } from '../../observe/measures.ts'
import { newTraceHex, readTraceContext, traceparentOf } from '../../observe/trace-context.ts'
import { SPAN_KIND, type Trace, type Tracer } from '../../observe/tracing/tracer.ts'
import { type Answer, errorAnswer, jsonAnswer, LONG_LIST_ITEMS, listAnswer, traceFields } from './answer.ts'
import { parseBody, readBody } from './body.ts'
import { clientAddress } from './client-address.ts'
import type { AddableEnvelope, Dialect } from './dialect.ts'
import type { DoorServices, Endpoint, HttpCall } from './endpoint.ts'
import type { RequestReader } from './request-reader.ts'

export type Handler = (incoming: RequestReader) => Promise<Answer>

/** Services for answering HTTP requests, besides those of operations. */
export type HttpParts = {
  readonly config: Pick<Config, 'log' | 'trustedProxies'>
  readonly measures: Measures
  /** Null = no spans are exported. */
  readonly tracer: Tracer | null
  /** Base of links to this server, without a trailing slash. Callable once the server listens. */
  readonly publicUrl: () => string
  /** The dialect of errors for a path without an endpoint. */
  readonly dialectOf: (path: string) => Dialect
}

/**
 * Turns an endpoint into a function from request to answer: read, check, run, answer. The input is checked before any key
 * is looked up: a bad body without a root key is a 400.
 *
 * Elysia routes to this function but does not parse or validate: its validation has other texts, converts queries by other
 * rules than the v1 API, and costs more on the hot path (see `server/app.ts`).
 * @param options.watched Makes the services for a request that is traced.
 */
export function handlerOf(
  endpoint: Endpoint,
  deps: HttpParts,
  { services, watched }: { services: DoorServices; watched: (trace: Trace, tracer: Tracer) => DoorServices },
): Handler {
  const { dialect } = endpoint
  const readInput = dialect.reader(endpoint)
  const { checkHeaders } = dialect
  const measured = deps.measures.route(endpoint.path)
  const { hasAccess, slowMs } = deps.config.log
  const finish = ({ status, envelope, tookMs }: Answer) => {
    measured.add(status, tookMs)
    const isSlow = slowMs > 0 && tookMs > slowMs
    if (!isSlow && !hasAccess) return
    const fields = {
      requestId: envelope.requestId,
      ...traceFields(envelope),
      route: endpoint.path,
      status,
      tookMs: Math.round(tookMs * 100) / 100,
    }
    if (hasAccess) log('info', 'request', 'a request', fields)
    if (isSlow) log('warn', 'slow_request', 'a request took longer than TOLLGATE_SLOW_MS', fields)
  }
  const answer = async (
    incoming: RequestReader,
    exchange: RequestContext,
    parts: DoorServices,
  ): Promise<Answer> => {
    try {
      checkHeaders?.(incoming, endpoint)
      const read = endpoint.method === 'GET' ? searchOf(incoming) : readBody(incoming)
      const raw =
        typeof read === 'string' ? parseBody(read) : read instanceof Promise ? parseBody(await read) : read
      const input = readInput(raw)
      // The time limit for all database work of the request starts now, because the body may have arrived slowly.
      if (read instanceof Promise) exchange.waitsSince = performance.now()
      const reply = await duringRequest(exchange, endpoint.run, parts, exchange, input)
      exchange.isAnswered = true
      const body = dialect.success(reply, exchange)
      const isLong = Array.isArray(body) && body.length > LONG_LIST_ITEMS
      const answer = isLong
        ? await listAnswer(exchange, endpoint.status, body)
        : jsonAnswer(exchange, endpoint.status, body)
      finish(answer)
      return answer
    } catch (cause) {
      exchange.isAnswered = true
      const answer = errorAnswer(dialect, exchange, cause, endpoint.path)
      finish(answer)
      return answer
    }
  }
  const { tracer } = deps
  if (tracer === null)
    return (incoming) => {
      const exchange = new RequestContext(incoming, deps, dialect)
      const traceparent = incoming.header('traceparent')
      if (traceparent !== null) exchange.join(traceparent)
      return answer(incoming, exchange, services)
    }
  return async (incoming) => {
    const exchange = new RequestContext(incoming, deps, dialect)
    const trace = exchange.begin(tracer)
    if (!trace.isSampled) return answer(incoming, exchange, services)
    const answered = await answer(incoming, exchange, watched(trace, tracer))
    const name = `${incoming.method} ${endpoint.path}`
    const attributes = { 'http.route': endpoint.path, 'url.path': endpoint.path }
    endRequest(tracer, trace, { name, attributes, incoming, exchange, status: answered.status })
    return answered
  }
}

/**
 * The answer for a path without an endpoint. All such answers are counted and traced under one name, because clients can
 * ask for any path.
 * @param options.isApi False on a listener without the API: pages of other origins must not read the answer.
 */
export function unroutedAnswer(
  incoming: RequestReader,
  cause: unknown,
  deps: HttpParts,
  { headers = {}, isApi }: { headers?: Record<string, string>; isApi?: boolean } = {},
): Answer {
  const dialect = deps.dialectOf(incoming.path)
  const exchange = new RequestContext(incoming, deps, dialect, isApi)
  Object.assign(exchange.headers, headers)
  const { tracer } = deps
  const trace = tracer === null ? null : exchange.begin(tracer)
  const traceparent = tracer === null ? incoming.header('traceparent') : null
  if (traceparent !== null) exchange.join(traceparent)
  const answered = errorAnswer(dialect, exchange, cause, 'unknown')
  const { status, tookMs } = answered
  deps.measures.route('unknown').add(status, tookMs)
  if (tracer !== null && trace?.isSampled === true) {
    const attributes = { 'url.path': shortPath(incoming) }
    endRequest(tracer, trace, { name: incoming.method, attributes, incoming, exchange, status })
  }
  return answered
}

/** The path, cut for messages. */
export const shortPath = ({ path }: Pick<RequestReader, 'path'>): string => cutText(path, PATH_CHARACTERS_MAX)

const PATH_CHARACTERS_MAX = 200

/** Attributes follow OpenTelemetry's conventions for HTTP servers. The query is left out: it can contain secrets. */
function endRequest(
  tracer: Tracer,
  trace: Trace,
  {
    name,
    attributes,
    incoming,
    exchange,
    status,
  }: {
    name: string
    attributes: Record<string, string>
    incoming: RequestReader
    exchange: RequestContext
    status: number
  },
): void {
  const isError = status >= 500
  tracer.end({
    trace,
    spanId: trace.spanId,
    parentId: trace.parentId,
    name,
    kind: SPAN_KIND.server,
    startedAt: exchange.startedAt,
    attributes: {
      ...attributes,
      'http.request.method': incoming.method,
      'http.response.status_code': status,
      'url.scheme': 'http',
      'client.address': exchange.clientAddress(),
      'user_agent.original': exchange.userAgent,
      'error.type': isError ? String(status) : null,
      'tollgate.request_id': exchange.requestId,
    },
    isError,
  })
}

/** One request and its answer. Every call creates one, so values that only some calls need are getters. */
class RequestContext implements AddableEnvelope, HttpCall, AskingRequest {
  readonly startedAt = performance.now()
  readonly requestId = newRequestId(this.startedAt)
  waitsSince = this.startedAt
  isAnswered = false
  addedHeaders: Record<string, string> | null = null
  trace: { traceId: string; spanId: string } | null = null
  admit: HttpCall['admit'] = undefined

  constructor(
    private readonly incoming: RequestReader,
    private readonly deps: Pick<HttpParts, 'config' | 'publicUrl'>,
    private readonly dialect: Dialect,
    private readonly mayBeApi = true,
  ) {}

  /** Joins the caller's trace, or starts one, and sets `traceparent` on the answer. */
  begin(tracer: Tracer): Trace {
    const trace = tracer.begin(this.header('traceparent'), this.header('tracestate'))
    this.place(trace)
    return trace
  }
  /** Joins the caller's trace without exporting spans. */
  join(traceparent: string): void {
    const context = readTraceContext(traceparent, this.header('tracestate'))
    if (context !== null) this.place({ ...context, spanId: newTraceHex(16) })
  }
  private place(trace: Pick<Trace, 'traceId' | 'spanId' | 'isSampled' | 'state'>): void {
    this.trace = trace
    this.headers.traceparent = traceparentOf(trace)
    if (trace.state !== null) this.headers.tracestate = trace.state
  }
  get headers() {
    this.addedHeaders ??= {}
    return this.addedHeaders
  }
  get authorization() {
    return this.incoming.header('authorization')
  }
  get sessionHash() {
    return this.incoming.sessionHash ?? null
  }
  get userAgent() {
    return this.incoming.header('user-agent')
  }
  header(name: string) {
    return this.incoming.header(name)
  }
  get isCrossOrigin() {
    return this.incoming.header('origin') !== null
  }
  get path() {
    return this.incoming.path
  }
  get accept() {
    return this.incoming.header('accept')
  }
  get isApi() {
    return this.mayBeApi && this.incoming.path.startsWith(this.dialect.prefix)
  }
  get isPretty() {
    const { target } = this.incoming
    // Runs for every URL, so the cheap test comes first.
    return target.includes('pretty') && /[?&]pretty(=|&|$)/.test(target)
  }
  get publicUrl() {
    return this.deps.publicUrl()
  }
  clientAddress() {
    return clientAddress(this.incoming, this.deps.config.trustedProxies)
  }
}

/** The envelope of answers that no endpoint gives. */
export function openEnvelope(
  incoming: RequestReader,
  deps: Omit<HttpParts, 'measures' | 'tracer'>,
): AddableEnvelope {
  const exchange = new RequestContext(incoming, deps, deps.dialectOf(incoming.path))
  const traceparent = incoming.header('traceparent')
  if (traceparent !== null) exchange.join(traceparent)
  return exchange
}

const searchOf = ({ target }: RequestReader) => {
  const query = target.indexOf('?')
  return new URLSearchParams(query === -1 ? '' : target.slice(query + 1))
}
