import type { WorkspaceId } from '../../lib/ids.ts'
import { cutPage, type Page } from '../../lib/page.ts'
import { findLastUsed } from '../keys/search/store.ts'
import type { Services } from '../parts.ts'
import type { Actor } from './authorize.ts'
import { countRootKeys, listRootKeyRows, ROOT_WORKSPACE_ID } from './store.ts'

/**
 * Root keys of the actor's workspace, oldest first, without their texts.
 * @param filter.grantedBy Only those that this root key created; null = no filter.
 */
export async function listRootKeys(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  { grantedBy }: { grantedBy: string | null },
  page: Page,
) {
  const [rows, total] = await Promise.all([
    listRootKeyRows(sql, workspaceId, { ...page, grantedBy }),
    countRootKeys(sql, workspaceId, grantedBy),
  ])
  return { ...cutPage(rows, page.limit), total }
}

/**
 * The start of the hour in which root keys last called, whatever the answer, Unix ms; of old usage the day. Those without a counted
 * call are absent. Their calls are counted as verifications of the workspace that holds all root keys.
 * @param ids Of root keys of the actor's workspace: of a page.
 */
export const rootKeysLastUsed = (
  { history }: Pick<Services, 'history'>,
  ids: readonly string[],
): Promise<Map<string, number>> => findLastUsed(history, ROOT_WORKSPACE_ID as WorkspaceId, ids) // no actor's: only ids lead there
