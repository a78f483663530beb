import { type RemainingChange, updateRemaining } from '../../../api/keys/update-remaining.ts'
import { InvalidInput } from '../../../errors.ts'
import { COUNT_MAX } from '../../../lib/bounds.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import { creditsObject } from './key-object.ts'
import { keyWithRight } from './key-with-right.ts'
import type { Credits, UpdateCreditsBody } from './schema.ts'

export async function updateCreditsEndpoint(
  services: DoorServices,
  call: HttpCall,
  body: UpdateCreditsBody,
): Promise<Credits> {
  const { keyId, operation } = body
  const { actor, key } = await keyWithRight(services, call, 'update_key', keyId)
  const changed = await updateRemaining(services, actor, key, readChange(body))
  if (changed === 'beyond')
    throw new InvalidInput('value', `remaining would exceed ${COUNT_MAX}; nothing was changed`)
  if (changed === 'uncounted')
    throw new InvalidInput('operation', `key ${keyId} has unlimited credits; use set before ${operation}`)
  return creditsObject(changed.remaining, changed.refill)
}

/** @throws InvalidInput for an increment or decrement without a number. */
function readChange({ operation: op, value = null }: UpdateCreditsBody): RemainingChange {
  if (op === 'set') return value === null ? { op, value, endsRefill: true } : { op, value }
  if (value === null) throw new InvalidInput('value', `is required for ${op}`)
  return { op, value }
}
