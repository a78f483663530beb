import { TypeCompiler } from '@sinclair/typebox/compiler'
import type { Deps } from '../deps.ts'
import { badRequest } from '../errors.ts'
import { newId } from '../lib/ids.ts'
import { type Envelope, errorAnswer, jsonAnswer } from './answer.ts'
import { readBody } from './body.ts'
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
 * converts queries by other rules than the v1 API's, and costs more (the figure is in the note of bench/http.bench.ts).
 */
export function handlerOf(endpoint: Endpoint, deps: Deps): Handler {
  const checker = TypeCompiler.Compile(endpoint.input)
  const read = endpoint.method === 'GET' ? readSearch : readBody
  const measured = deps.measures.route(endpoint.path)
  return async (request, connection) => {
    const envelope = openEnvelope(request, deps)
    try {
      const input = await read(request, endpoint)
      if (!checker.Check(input)) throw badRequest(validationMessage(endpoint.input, checker.Errors(input)))
      const reply = await endpoint.run(deps, callOf(deps, envelope, request, connection), input)
      const answer = jsonAnswer(envelope, endpoint.status, reply)
      measured.add(endpoint.status, performance.now() - envelope.startedAt)
      return answer
    } catch (cause) {
      const answer = errorAnswer(envelope, cause, endpoint.path)
      measured.add(answer.status, performance.now() - envelope.startedAt)
      return answer
    }
  }
}

export const openEnvelope = (request: Request, deps: Pick<Deps, 'publicUrl'>): Envelope => ({
  requestId: newId('req'),
  startedAt: performance.now(),
  headers: {},
  isPretty: /[?&]pretty(=|&|$)/.test(request.url),
  publicUrl: deps.publicUrl(),
})

const readSearch = (request: Request, endpoint: Endpoint) =>
  readQuery(endpoint.input, new URL(request.url).searchParams)

const callOf = (
  { config }: Pick<Deps, 'config'>,
  envelope: Envelope,
  request: Request,
  connection: ConnectionInfo | null,
): Call => ({
  requestId: envelope.requestId,
  authorization: request.headers.get('authorization'),
  userAgent: request.headers.get('user-agent'),
  clientAddress: () => clientAddress(request, connection, config.trustedProxies),
  headers: envelope.headers,
})
