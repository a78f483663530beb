import { explainKey } from '../../../api/keys/explain-key.ts'
import { badRequest } from '../../../errors.ts'
import { isAddressOrRange } from '../../../lib/address.ts'
import { V1_RULES } from '../../../verify/rules.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import { authenticateOnKey } from './right-on-key.ts'
import type { ExplainKeyBody, ExplainKeyReply } from './schema.ts'

export async function explainKeyEndpoint(
  services: DoorServices,
  call: HttpCall,
  { keyId, authorization, ...body }: ExplainKeyBody,
): Promise<ExplainKeyReply> {
  const { apiId = null, ipAddress: address = null } = body
  if (address !== null && (!isAddressOrRange(address) || address.includes('/')))
    throw badRequest('ipAddress: Expected an IP address')
  const permissions = V1_RULES.readPermissions(authorization?.permissions)
  const { actor, key } = await authenticateOnKey(services, call, 'read_key', keyId)
  const { code, checks } = await explainKey(services, actor, key, { apiId, address, permissions })
  return {
    valid: code === 'VALID',
    code,
    checks: checks.map(({ check, verdict, code: refusal, fact, limit, credits }) => ({
      check,
      verdict,
      ...(refusal !== null && { code: refusal }),
      fact,
      ...(limit !== undefined && {
        limit: {
          name: limit.name,
          owner: limit.owner,
          limit: limit.limit,
          duration: limit.durationMs,
          remaining: limit.remaining,
          reset: limit.resetAtMs,
        },
      }),
      ...(credits !== undefined && { credits }),
    })),
  }
}
