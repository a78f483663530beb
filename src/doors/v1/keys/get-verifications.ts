import { getKey } from '../../../api/keys/get-key.ts'
import { getKeyVerifications, listKeysOfOwner } from '../../../api/keys/get-verifications.ts'
import {
  type Actor,
  authenticate,
  type Right,
  requireOn,
  requireOnAny,
} from '../../../api/root-keys/authorize.ts'
import { badRequest, notFound } from '../../../errors.ts'
import { DAY_MS } from '../../../lib/clock.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import type { KeyVerificationsQuery, KeyVerificationsReply } from './schema.ts'

const RIGHT: Right = { resource: 'api', action: 'read_key' }

/** Verifications of one key, or of all keys of an owner. Needs the right to read keys on each of their APIs. */
export async function keyVerifications(
  services: DoorServices,
  call: HttpCall,
  query: KeyVerificationsQuery,
): Promise<KeyVerificationsReply> {
  if (!query.keyId && !query.ownerId) throw badRequest('either keyId or ownerId is required')
  const actor = await authenticate(services, call)
  requireOnAny(actor, RIGHT)
  const keys = await selectKeys(services, actor, query)
  for (const apiId of new Set(keys.map(({ apiId }) => apiId))) requireOn(actor, RIGHT, apiId)
  const now = services.clock()
  const verifications = await getKeyVerifications(
    services,
    actor,
    keys.map(({ id }) => id),
    { fromMs: query.start || Math.max(0, now - DAY_MS), toMs: query.end || now },
  )
  const isCounted = verifications.some(
    ({ success, rateLimited, usageExceeded }) => success + rateLimited + usageExceeded > 0,
  )
  return { verifications: isCounted ? verifications : [] }
}

/**
 * @throws ApiError NOT_FOUND when no key matches; INSUFFICIENT_PERMISSIONS instead for a root key that may not read all
 *   keys, as NOT_FOUND would tell it whether the owner has keys.
 */
async function selectKeys(
  services: Pick<DoorServices, 'sql'>,
  actor: Actor,
  { keyId, ownerId = '' }: KeyVerificationsQuery,
): Promise<{ id: string; apiId: string }[]> {
  if (keyId) return [await getKey(services, actor, keyId)]
  const keys = await listKeysOfOwner(services, actor, ownerId)
  if (keys.length > 0) return keys
  requireOn(actor, RIGHT, null)
  throw notFound('key', `of owner ${ownerId}`)
}
