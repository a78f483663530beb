import { type LimitDecision, limit } from '../../../api/ratelimits/limit.ts'
import { multiLimit } from '../../../api/ratelimits/multi-limit.ts'
import { authenticate } from '../../../api/root-keys/authorize.ts'
import { ratelimitHeaders } from '../../../lib/ratelimit-headers.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import type { LimitBody, LimitReply, MultiLimitBody } from './schema.ts'

/** Checks the root key, then finds the namespace, then checks the right to limit in it. The order is contract. */
export function limitEndpoint(services: DoorServices, call: HttpCall, body: LimitBody): Promise<LimitReply> {
  const answerOf = (decision: LimitDecision): LimitReply => {
    const reply = replyOf(decision)
    if (services.config.sendsRatelimitHeaders) addHeaders(services, call, decision, reply)
    return reply
  }
  const known = authenticate(services, call)
  return known instanceof Promise
    ? known.then((actor) => limit(services, actor, body, answerOf))
    : limit(services, known, body, answerOf)
}

function addHeaders(
  { clock }: Pick<DoorServices, 'clock'>,
  { headers }: HttpCall,
  { namespace, charge }: LimitDecision,
  { limit, remaining, reset: resetAtMs }: LimitReply,
): void {
  const state = { name: namespace.name, limit, remaining, resetAtMs, durationMs: charge.durationMs }
  Object.assign(headers, ratelimitHeaders(state, clock()))
}

export async function multiLimitEndpoint(
  services: DoorServices,
  call: HttpCall,
  body: MultiLimitBody,
): Promise<LimitReply[]> {
  const decisions = await multiLimit(services, await authenticate(services, call), body)
  return decisions.map(replyOf)
}

const replyOf = ({ charge, decision }: Pick<LimitDecision, 'charge' | 'decision'>): LimitReply => ({
  success: decision.passed,
  limit: charge.limit,
  remaining: Math.max(0, charge.limit - decision.used),
  reset: decision.resetAtMs,
})
