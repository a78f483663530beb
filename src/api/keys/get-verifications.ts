import type { KeyVerificationsQuery, KeyVerificationsReply } from '../../doors/v1/keys/schema.ts'
import { badRequest, notFound } from '../../errors.ts'
import { DAY_MS } from '../../lib/clock.ts'
import { dailyCountsOfKeys } from '../analytics/store.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { type Actor, authenticate, type Right, requireOn, requireOnAny } from '../root-keys/authorize.ts'
import { findKey, findKeysOfOwner } from './store.ts'

const RIGHT: Right = { resource: 'api', action: 'read_key' }

/** Verifications by UTC day of one key, or of all keys of an owner, summed. Only the caller's workspace is searched. */
export async function getKeyVerifications(
  services: Services,
  call: Call,
  query: KeyVerificationsQuery,
): Promise<KeyVerificationsReply> {
  if (!query.keyId && !query.ownerId) throw badRequest('either keyId or ownerId is required')
  const actor = await authenticate(services, call)
  requireOnAny(actor, RIGHT)
  const keys = await selectKeys(services, actor, query)
  for (const apiId of new Set(keys.map(({ apiId }) => apiId))) requireOn(actor, RIGHT, apiId)
  const now = services.clock()
  const verifications = await dailyCountsOfKeys(services.history, {
    workspaceId: actor.workspaceId,
    keyIds: keys.map(({ id }) => id),
    from: query.start || Math.max(0, now - DAY_MS),
    to: query.end || now,
  })
  const isCounted = verifications.some(
    ({ success, rateLimited, usageExceeded }) => success + rateLimited + usageExceeded > 0,
  )
  return { verifications: isCounted ? verifications : [] }
}

/**
 * @throws ApiError NOT_FOUND when there is no such key, or none of that owner; INSUFFICIENT_PERMISSIONS where who may not
 *   read all keys would be told of an owner who has some.
 */
async function selectKeys(
  services: Services,
  actor: Actor,
  { keyId, ownerId = '' }: KeyVerificationsQuery,
): Promise<{ id: string; apiId: string }[]> {
  const { workspaceId } = actor
  if (keyId) {
    const key = await findKey(services.sql, workspaceId, keyId)
    if (key === null) throw notFound(`key ${keyId}`)
    return [key]
  }
  const keys = await findKeysOfOwner(services.sql, workspaceId, ownerId)
  if (keys.length > 0) return keys
  requireOn(actor, RIGHT, null)
  throw notFound(`key of owner ${ownerId}`)
}
