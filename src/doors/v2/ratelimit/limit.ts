import { limitByIdOrName, type SharedLimitDecision } from '../../../api/ratelimits/limit-by-id-or-name.ts'
import { limitTogether } from '../../../api/ratelimits/limit-together.ts'
import { authenticate } from '../../../api/root-keys/authorize.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import type { LimitBody, LimitData, MultiLimitBody, MultiLimitData } from './schema.ts'

/** Checks the root key, then finds the namespace, then checks the right to limit in it. */
export function limitEndpoint(services: DoorServices, call: HttpCall, body: LimitBody): Promise<LimitData> {
  const known = authenticate(services, call)
  return known instanceof Promise
    ? known.then((actor) => limitByIdOrName(services, actor, body, dataOf))
    : limitByIdOrName(services, known, body, dataOf)
}

export async function multiLimitEndpoint(
  services: DoorServices,
  call: HttpCall,
  body: MultiLimitBody,
): Promise<MultiLimitData> {
  const decisions = await limitTogether(services, await authenticate(services, call), body)
  return {
    passed: decisions.every(({ decision }) => decision.passed),
    limits: decisions.map((each, i) => {
      const { namespace, identifier } = body[i] as LimitBody // one for each
      const { success: passed, ...limit } = dataOf(each)
      return { namespace, identifier, ...limit, passed }
    }),
  }
}

function dataOf({ charge, decision, overrideId }: SharedLimitDecision): LimitData {
  const data: LimitData = {
    success: decision.passed,
    limit: charge.limit,
    remaining: Math.max(0, charge.limit - decision.used),
    reset: decision.resetAtMs,
  }
  if (overrideId !== null) data.overrideId = overrideId
  return data
}
