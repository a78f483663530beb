import { dailyCountsOfKeys } from '../analytics/store.ts'
import type { Deps } from '../deps.ts'
import { badRequest, notFound } from '../errors.ts'
import type { Call } from '../http/endpoint.ts'
import { DAY_MS } from '../lib/clock.ts'
import { type Actor, anyOf, authenticate, requirePermission } from '../root-keys/authorize.ts'
import type { KeyVerificationsQuery, KeyVerificationsReply } from './schema.ts'
import { findKey, findKeysOfOwner } from './store.ts'

/** Verifications by UTC day of one key, or of all keys of an owner, summed. Only the caller's workspace is searched. */
export async function getKeyVerifications(
  deps: Deps,
  call: Call,
  query: KeyVerificationsQuery,
): Promise<KeyVerificationsReply> {
  if (!query.keyId && !query.ownerId) throw badRequest('either keyId or ownerId is required')
  const actor = await authenticate(deps, call)
  const keys = await selectKeys(deps, actor, query)
  const apiIds = [...new Set(keys.map(({ apiId }) => apiId))]
  requirePermission(
    actor,
    anyOf('*', 'api.*.read_key', { and: apiIds.map((apiId) => `api.${apiId}.read_key`) }),
  )
  const now = deps.clock()
  const verifications = await dailyCountsOfKeys(deps.history, {
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

/** @throws ApiError NOT_FOUND when there is no such key, or none of that owner. */
async function selectKeys(
  deps: Deps,
  { workspaceId }: Actor,
  { keyId, ownerId = '' }: KeyVerificationsQuery,
): Promise<{ id: string; apiId: string }[]> {
  if (keyId) {
    const key = await findKey(deps.sql, workspaceId, keyId)
    if (key === null) throw notFound(`key ${keyId}`)
    return [key]
  }
  const keys = await findKeysOfOwner(deps.sql, workspaceId, ownerId)
  if (keys.length === 0) throw notFound(`key of owner ${ownerId}`)
  return keys
}
