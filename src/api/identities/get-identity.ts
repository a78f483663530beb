import { lookAtLimits } from '../../verify/verify.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { findIdentity, type IdentityName, type IdentityRow } from './store.ts'

/** An identity with its limits, or null. Tell only a caller with the right on the identity that it does not exist. */
export async function getIdentity(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  by: IdentityName,
): Promise<IdentityRow | null> {
  return await findIdentity(sql, workspaceId, by)
}

/** The open window of a limit that the keys of an identity share. */
export type SharedWindow = { remaining: number; resetAtMs: number }

/**
 * How far the limits of an identity are used up now, in their order. Takes and counts nothing.
 * @throws Error when a shard does not answer.
 */
export async function lookAtSharedLimits(
  { limiter }: Pick<Services, 'limiter'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  { id, limits }: Pick<IdentityRow, 'id' | 'limits'>,
): Promise<SharedWindow[]> {
  return await lookAtLimits(limiter, {
    workspaceId,
    limits: limits.map((limit) => ({ ...limit, ownerId: id })),
  })
}
