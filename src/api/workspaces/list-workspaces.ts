import { cutPage, type Page } from '../../lib/page.ts'
import type { Services } from '../parts.ts'
import { countWorkspaces, listWorkspaceRows } from './store.ts'

/** All workspaces, oldest first. For operators. */
export async function listWorkspaces({ sql }: Pick<Services, 'sql'>, page: Page) {
  const [rows, total] = await Promise.all([listWorkspaceRows(sql, page), countWorkspaces(sql)])
  return { ...cutPage(rows, page.limit), total }
}
