import { findPage } from '../../db/search.ts'
import { endPage, type Page } from '../../lib/page.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { type RoleWithPermissions, readRoles, roleList } from './store.ts'

/**
 * Roles of the workspace with their permissions, oldest first, whose id, name or description contains the text. A page holds
 * fewer than `limit` where they have many permissions.
 */
export async function findRoles(
  { sql, history }: Pick<Services, 'sql' | 'history'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  text: string,
  page: Page,
): Promise<{ items: RoleWithPermissions[]; cursor?: string }> {
  const { ids, next } = await findPage(text === '' ? sql : history, roleList(workspaceId), page, text)
  const { rows, isCut } = await readRoles(sql, workspaceId, ids)
  return endPage(rows, next, { isCut })
}
