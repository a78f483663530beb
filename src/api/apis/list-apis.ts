import { cutPage, type Page } from '../../lib/page.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { countApis, listApiRows } from './store.ts'

/** APIs of the workspace that are not deleted, oldest first. */
export async function listApis(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  page: Page,
) {
  const [rows, total] = await Promise.all([listApiRows(sql, workspaceId, page), countApis(sql, workspaceId)])
  return { ...cutPage(rows, page.limit), total }
}
