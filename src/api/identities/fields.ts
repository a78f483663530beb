import { ApiError, badRequest } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import type { IdentityReply, Ratelimit } from './schema.ts'
import type { IdentityLimitRow, IdentityRow } from './store.ts'

/**
 * An identity as a request names it; `identityId` wins.
 * @throws ApiError BAD_REQUEST when neither is given.
 */
export function readIdentityName({
  identityId,
  externalId,
}: {
  identityId?: string
  externalId?: string
}): { id: string } | { externalId: string } {
  if (identityId !== undefined) return { id: identityId }
  if (externalId !== undefined) return { externalId }
  throw badRequest('either identityId or externalId is required')
}

/** @param text As `readMeta` made it. */
export const readObject = (text: string | null): Record<string, unknown> | null =>
  text === null ? null : (JSON.parse(text) as Record<string, unknown>) // see above

/** @throws ApiError CONFLICT when a name comes twice. */
export function requireDistinctNames(ratelimits: readonly Ratelimit[]): void {
  const names = new Set<string>()
  for (const { name } of ratelimits) {
    if (names.has(name)) throw new ApiError('CONFLICT', `ratelimit ${name} is in the list more than once`)
    names.add(name)
  }
}

/** Rows for new limits. Their ids sort in the order of the request, which is the order replies show them in. */
export function newLimits(ratelimits: readonly Ratelimit[]): IdentityLimitRow[] {
  const ids = ratelimits.map(() => newId('rl')).sort()
  return ratelimits.map(({ name, limit, duration }, index) => ({
    id: ids[index] as string, // as many as there are limits
    name,
    limit,
    durationMs: duration,
  }))
}

export const presentLimits = (limits: readonly IdentityLimitRow[]): Ratelimit[] =>
  limits.map(({ name, limit, durationMs }) => ({ name, limit, duration: durationMs }))

export const presentIdentity = ({ id, externalId, meta, limits }: IdentityRow): IdentityReply => ({
  id,
  externalId,
  meta: readObject(meta) ?? {},
  ratelimits: presentLimits(limits),
})
