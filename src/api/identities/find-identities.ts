import { findPage } from '../../db/search.ts'
import { endPage, type Page } from '../../lib/page.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { type IdentityRow, identityList, readIdentities } from './store.ts'

/**
 * Identities of the workspace with meta and limits, oldest first, whose id or external id contains the text. A page holds
 * fewer than `limit` where meta are long, and where a search has to read many identities.
 */
export async function findIdentities(
  { sql, history }: Pick<Services, 'sql' | 'history'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  text: string,
  page: Page,
): Promise<{ items: IdentityRow[]; cursor?: string }> {
  // Searches have the connections of slow reads, so that they take none from verifications.
  const { ids, next } = await findPage(text === '' ? sql : history, identityList(workspaceId), page, text)
  const { rows, isCut } = await readIdentities(sql, workspaceId, ids)
  return endPage(rows, next, { isCut })
}
