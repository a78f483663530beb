import { updateKey } from '../../../api/keys/update-key.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import { readLimits } from '../limits.ts'
import { requireShortMeta } from '../meta.ts'
import { readChangedCredits, refillWithoutCredits } from './fields.ts'
import { keyWithRight } from './key-with-right.ts'
import type { UpdateKeyBody } from './schema.ts'

/** The right to update keys is enough, also for roles and permissions and to create a permission. */
export async function updateKeyEndpoint(
  services: DoorServices,
  call: HttpCall,
  body: UpdateKeyBody,
): Promise<Record<string, never>> {
  const { keyId, name, externalId, meta, expires, enabled, ratelimits, permissions, roles } = body
  const { actor, key } = await keyWithRight(services, call, 'update_key', keyId)
  requireShortMeta(meta)
  const update = {
    name,
    externalId,
    meta,
    expiresAt: expires,
    enabled,
    ...readChangedCredits(body.credits),
    limits: ratelimits && readLimits(ratelimits),
    permissions: permissions?.map((text) => ({ text, create: true })),
    roles: roles?.map((text) => ({ text, create: false })),
    fieldNames: Object.keys(body).filter((field) => field !== 'keyId'),
  }
  await updateKey(services, actor, key, update, {
    roles: NO_RULES,
    permissions: NO_RULES,
    refuseMissingDuration() {
      throw new Error('the schema requires a duration')
    },
    refuseUnknownLimit() {
      throw new Error('all limits are replaced')
    },
    mayRefillUncounted() {
      throw refillWithoutCredits()
    },
  })
  return {}
}

const NO_RULES = { mayChange() {}, mayCreate() {} }
