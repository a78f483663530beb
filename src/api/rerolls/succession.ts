import type { AnySql } from '../../db/connect.ts'
import { ApiError } from '../../errors.ts'
import { findSuccessor } from './store.ts'

/**
 * When a rerolled key ends, Unix ms.
 * @param overlapMs How long it still works beside its successor. Rounded up to a full minute; 0 = not at all.
 */
export const endOfSource = (now: number, overlapMs: number): number =>
  // A key is accepted at the very millisecond of its end.
  overlapMs === 0 ? now - 1 : Math.ceil((now + overlapMs) / MINUTE_MS) * MINUTE_MS

const MINUTE_MS = 60_000

/**
 * A key has one successor: a second one would have the same rights without anybody having asked for two keys. An expired key
 * would have an expired successor.
 * @param what The key as messages name it: `key key_123`.
 * @throws ApiError PRECONDITION_FAILED
 */
export async function requireRerollable(
  tx: AnySql,
  { id, expiresAt }: { id: string; expiresAt: number | null },
  { what, now }: { what: string; now: number },
): Promise<void> {
  const successorId = await findSuccessor(tx, id)
  if (successorId !== null)
    throw new ApiError(
      'PRECONDITION_FAILED',
      `${what} ${id} was rerolled before; its successor is ${successorId}: reroll that one, or delete it first`,
    )
  if (expiresAt !== null && expiresAt < now)
    throw new ApiError(
      'PRECONDITION_FAILED',
      `${what} ${id} expired at ${new Date(expiresAt).toISOString()}, and a successor ends no later: set a later end first`,
    )
}
