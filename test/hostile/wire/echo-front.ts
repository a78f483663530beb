import type { Answer } from '../../../src/doors/http/answer.ts'
import { HeldMemory } from '../../../src/doors/http/held-memory.ts'
import { HttpServer } from '../../../src/doors/http/http-server.ts'
import { Turns } from '../../../src/doors/http/turns.ts'
import { STATUSES } from '../../../src/doors/v1/statuses.ts'
import { systemTimers } from '../../../src/lib/timers.ts'
import { echoHeader } from './echo.ts'

/** Tollgate's parser on a Unix socket, with a handler that returns how it read the request. */
export function startEchoFront(path: string): AsyncDisposable {
  const counts = { open: 0, refused: 0, heldBytes: 0, givenUp: 0 }
  const front = new HttpServer({
    where: { unix: path },
    fastRoutes: new Map(),
    cold: async (incoming) => {
      const { method, target } = incoming
      try {
        const body = await incoming.text(Number.MAX_SAFE_INTEGER, () => new TooLarge())
        return answerOf(200, { 'X-Echo': echoHeader({ method, target, body }) })
      } catch (cause) {
        if (cause instanceof TooLarge) return refusal(413, 'the body is too large')
        throw cause
      }
    },
    refuse: ({ code, message }) => refusal(STATUSES[code], message),
    connectionsMax: 10_000,
    counts,
    garbage: { received: () => {} },
    memory: new HeldMemory(2 ** 26, counts),
    turns: new Turns(systemTimers),
  })
  return { [Symbol.asyncDispose]: () => front.stop(0) }
}

class TooLarge extends Error {}

/** The reason in ASCII, as a header requires. */
const refusal = (status: number, reason: string): Answer =>
  answerOf(status, { 'X-Reason': reason.replaceAll(/[^ -~]/g, "'") })

const answerOf = (status: number, addedHeaders: Record<string, string>): Answer => ({
  status,
  contentType: 'application/json',
  text: '',
  envelope: {
    requestId: 'req_1',
    startedAt: 0,
    addedHeaders,
    isCrossOrigin: false,
    path: '/v1/liveness',
    accept: null,
    isApi: false,
    isPretty: false,
    publicUrl: '',
    trace: null,
  },
  tookMs: 0,
})
