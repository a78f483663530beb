import { findPage } from '../../db/search.ts'
import { endPage, type Page } from '../../lib/page.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { type PermissionRow, permissionList, readPermissions } from './store.ts'

/** Permissions of the workspace, oldest first, whose id, name, slug or description contains the text. */
export async function findPermissions(
  { sql, history }: Pick<Services, 'sql' | 'history'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  text: string,
  page: Page,
): Promise<{ items: PermissionRow[]; cursor?: string }> {
  const { ids, next } = await findPage(text === '' ? sql : history, permissionList(workspaceId), page, text)
  return endPage(await readPermissions(sql, workspaceId, ids), next, { isCut: false })
}
