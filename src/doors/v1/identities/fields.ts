import type { WantedLimit } from '../../../api/identities/new-limits.ts'
import type { ExactIdentityName, IdentityLimit, IdentityRow } from '../../../api/identities/store.ts'
import { ApiError, badRequest } from '../../../errors.ts'
import { parseMeta } from '../../../lib/meta.ts'
import type { IdentityReply, Ratelimit } from './schema.ts'

/**
 * The identity that a request names; `identityId` wins.
 * @throws ApiError BAD_REQUEST when neither field is given.
 */
export function readIdentityName({
  identityId,
  externalId,
}: {
  identityId?: string
  externalId?: string
}): ExactIdentityName {
  if (identityId !== undefined) return { id: identityId }
  if (externalId !== undefined) return { externalId }
  throw badRequest('either identityId or externalId is required')
}

/** v1 does not know `autoApply`, and leaves it as it is. @throws ApiError CONFLICT for a repeated name. */
export function readLimits(ratelimits: readonly Ratelimit[]): WantedLimit[] {
  const names = new Set<string>()
  return ratelimits.map(({ name, limit, duration: durationMs }) => {
    if (names.has(name)) throw new ApiError('CONFLICT', `ratelimit ${name} is listed more than once`)
    names.add(name)
    return { name, limit, durationMs, autoApply: null }
  })
}

export const presentLimits = (limits: readonly IdentityLimit[]): Ratelimit[] =>
  limits.map(({ name, limit, durationMs }) => ({ name, limit, duration: durationMs }))

export const presentIdentity = ({ id, externalId, meta, limits }: IdentityRow): IdentityReply => ({
  id,
  externalId,
  meta: parseMeta(meta) ?? {},
  ratelimits: presentLimits(limits),
})
