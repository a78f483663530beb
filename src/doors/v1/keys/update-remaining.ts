import { type RemainingChange, updateRemaining } from '../../../api/keys/update-remaining.ts'
import { badRequest } from '../../../errors.ts'
import { COUNT_MAX } from '../../../lib/bounds.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import { authenticateOnKey } from './right-on-key.ts'
import type { UpdateRemainingBody, UpdateRemainingReply } from './schema.ts'

export async function updateRemainingEndpoint(
  services: DoorServices,
  call: HttpCall,
  body: UpdateRemainingBody,
): Promise<UpdateRemainingReply> {
  const { keyId, op } = body
  const change = readChange(body)
  const { actor, key } = await authenticateOnKey(services, call, 'update_key', keyId)
  const changed = await updateRemaining(services, actor, key, change)
  if (changed === 'beyond')
    throw badRequest(`value: remaining would exceed ${COUNT_MAX}; nothing was changed`)
  if (changed === 'uncounted')
    throw badRequest(`op: key ${keyId} has unlimited credits; use op set before ${op}`)
  return { remaining: changed.remaining }
}

/** @throws ApiError BAD_REQUEST for an increment or decrement without a number. */
function readChange({ op, value }: UpdateRemainingBody): RemainingChange {
  if (op === 'set') return value === null ? { op, value, endsRefill: false } : { op, value }
  if (value === null) throw badRequest('value: Expected number, received null')
  return { op, value }
}
