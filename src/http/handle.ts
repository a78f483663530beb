import { TypeCompiler } from '@sinclair/typebox/compiler'
import type { Deps } from '../deps.ts'
import { badRequest } from '../errors.ts'
import { newId } from '../lib/ids.ts'
import { log } from '../log.ts'
import { type Envelope, errorAnswer, jsonAnswer } from './answer.ts'
import { parseBody, readBody } from './body.ts'
import { type ConnectionInfo, clientAddress } from './client-address.ts'
import type { Call, Endpoint } from './endpoint.ts'
import { readQuery } from './query.ts'
import { validationMessage } from './validation-message.ts'

export type Handler = (request: Request, connection: ConnectionInfo | null) => Promise<Response>

/**
 * One endpoint as a function from request to response: read, check, run, answer. The input is checked before any key
 * is looked at: a bad body without a root key is a 400.
 *
 * Elysia routes to this function and does not parse or validate itself. Its own validation words problems its own way,
 * converts queries by other rules than the v1 API's, and costs more on the hot path (see `app.ts`).
 *
 * Of the 20 µs of CPU of a hot call, 12 are what bare Bun.serve takes; the rest is mostly native: headers in and out,
 * messages to the shard. Refused: `request.json()`, no quicker (13.9 against 14.3 µs, within the noise), and the text is
 * needed to look for what cannot be stored; an HTTP parser of our own on a raw socket, the one way to get below bare
 * Bun.serve, because a parser that disagrees with the proxy before it lets requests be smuggled.
 */
export function handlerOf(endpoint: Endpoint, deps: Deps): Handler {
  const checker = TypeCompiler.Compile(endpoint.input)
  const measured = deps.measures.route(endpoint.path)
  const { hasAccess, slowMs } = deps.config.log
  const finish = (status: number, { requestId, startedAt }: Envelope) => {
    const tookMs = performance.now() - startedAt
    measured.add(status, tookMs)
    const isSlow = slowMs > 0 && tookMs > slowMs
    if (!isSlow && !hasAccess) return
    const fields = { requestId, route: endpoint.path, status, tookMs: Math.round(tookMs * 100) / 100 }
    if (hasAccess) log('info', 'request', fields)
    if (isSlow) log('warn', 'slow request', fields)
  }
  return async (request, connection) => {
    const exchange = new Exchange(request, connection, deps)
    try {
      const input =
        endpoint.method === 'GET' ? readSearch(request, endpoint) : parseBody(await readBody(request))
      if (!checker.Check(input)) throw badRequest(validationMessage(endpoint.input, checker.Errors(input)))
      const reply = await endpoint.run(deps, exchange, input)
      const answer = jsonAnswer(exchange, endpoint.status, reply)
      finish(endpoint.status, exchange)
      return answer
    } catch (cause) {
      const answer = errorAnswer(exchange, cause, endpoint.path)
      finish(answer.status, exchange)
      return answer
    }
  }
}

/** One request and its answer. Getters for what only some calls ask: every call makes one of these. */
class Exchange implements Envelope, Call {
  readonly requestId = newId('req')
  readonly startedAt = performance.now()
  readonly headers: Record<string, string> = {}

  constructor(
    private readonly request: Request,
    private readonly connection: ConnectionInfo | null,
    private readonly deps: Pick<Deps, 'config' | 'publicUrl'>,
  ) {}

  get authorization() {
    return this.request.headers.get('authorization')
  }
  get userAgent() {
    return this.request.headers.get('user-agent')
  }
  header(name: string) {
    return this.request.headers.get(name)
  }
  get isCrossOrigin() {
    return this.request.headers.has('origin')
  }
  get isPretty() {
    const { url } = this.request
    // Looked for in every URL, so the cheap test comes first.
    return url.includes('pretty') && /[?&]pretty(=|&|$)/.test(url)
  }
  get publicUrl() {
    return this.deps.publicUrl()
  }
  clientAddress() {
    return clientAddress(this.request, this.connection, this.deps.config.trustedProxies)
  }
}

/** For answers that no endpoint gives. */
export const openEnvelope = (request: Request, deps: Pick<Deps, 'config' | 'publicUrl'>): Envelope =>
  new Exchange(request, null, deps)

const readSearch = (request: Request, endpoint: Endpoint) =>
  readQuery(endpoint.input, new URL(request.url).searchParams)
