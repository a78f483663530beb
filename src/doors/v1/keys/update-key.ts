import { DEFAULT_LIMIT } from '../../../api/keys/limits/store.ts'
import { type KeyUpdate, updateKey } from '../../../api/keys/update-key.ts'
import { badRequest } from '../../../errors.ts'
import { readMeta } from '../../../lib/meta.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import { readReferences } from '../references.ts'
import { refillDayOf } from './fields.ts'
import { PERMISSIONS, ROLES, replacingRules } from './links.ts'
import { authenticateOnKey } from './right-on-key.ts'
import type { UpdateKeyBody } from './schema.ts'

/** Fields are checked one by one before the root key, and against each other after the right. */
export async function updateKeyEndpoint(
  services: DoorServices,
  call: HttpCall,
  body: UpdateKeyBody,
): Promise<Record<string, never>> {
  readMeta(body.meta)
  const roles = body.roles && readReferences(body.roles, 'roles')
  const permissions = body.permissions && readReferences(body.permissions, 'permissions')
  const { actor, key } = await authenticateOnKey(services, call, 'update_key', body.keyId)
  const update = { ...readUpdate(body), roles, permissions }
  await updateKey(services, actor, key, update, {
    roles: replacingRules(actor, ROLES.kind),
    permissions: replacingRules(actor, PERMISSIONS.kind),
    refuseMissingDuration() {
      throw badRequest('ratelimit.duration: Required')
    },
    refuseUnknownLimit(name) {
      throw badRequest(`ratelimit.name: the key has no limit ${name}`)
    },
    mayRefillUncounted() {},
  })
  return {}
}

/** `ownerId` is used only when `externalId` is absent. @throws ApiError BAD_REQUEST */
function readUpdate(body: UpdateKeyBody): KeyUpdate {
  const { name, meta, externalId, ownerId, expires, remaining, refill, ratelimit, enabled } = body
  if (remaining === null && refill) throw badRequest('refill: needs credits; remaining is null (unlimited)')
  const owner = externalId === undefined ? ownerId : externalId
  return {
    name,
    meta,
    externalId: owner === '' ? null : owner,
    expiresAt: expires === 0 ? null : expires,
    remaining,
    refill: refill && { amount: refill.amount, day: refillDayOf(refill, 'refill'), mode: 'add' },
    ratelimit: ratelimit && {
      name: ratelimit.name ?? DEFAULT_LIMIT,
      limit: ratelimit.limit,
      durationMs: ratelimit.duration ?? ratelimit.refillInterval ?? null,
    },
    enabled,
    fieldNames: Object.keys(body).filter((field) => field !== 'keyId'),
  }
}
