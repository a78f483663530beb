import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { findLastUsed } from './search/store.ts'

/**
 * When keys were last verified, as far as usage is kept: Unix ms of the start of the hour, of old usage of the day. Keys that
 * were not are absent. Counts arrive with a flush, a second later.
 * @param keyIds Of keys of the workspace.
 */
export const lastUsed = (
  { history }: Pick<Services, 'history'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  keyIds: readonly string[],
): Promise<Map<string, number>> => findLastUsed(history, workspaceId, keyIds)
