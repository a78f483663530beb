import { readMade } from '../../usage/sums.ts'
import { dailyCountsOfKeys } from '../analytics/store.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { findKeysOfOwner } from './store.ts'

/**
 * Verifications of keys by UTC day, summed over the keys. Only the caller's workspace is searched.
 * @param range Unix ms, both days included.
 * @returns days with at least one verification, oldest first.
 */
export async function getKeyVerifications(
  services: Pick<Services, 'history'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  keyIds: readonly string[],
  { fromMs, toMs }: { fromMs: number; toMs: number },
) {
  const { history } = services
  return await readMade(
    history,
    (made) => dailyCountsOfKeys(history, { workspaceId, keyIds, from: fromMs, to: toMs, made }),
    { isEmpty: (days) => days.length === 0 },
  )
}

/** Keys of an owner with their APIs, without deleted ones. Empty when there is no such owner. */
export async function listKeysOfOwner(
  services: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  ownerId: string,
): Promise<{ id: string; apiId: string }[]> {
  return await findKeysOfOwner(services.sql, workspaceId, ownerId)
}
