import { cutPage, type Page } from '../../lib/page.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { countNamespaces, listNamespaceRows } from './store.ts'

/** Namespaces of the workspace, oldest first. */
export async function listNamespaces(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  page: Page,
) {
  const [rows, total] = await Promise.all([
    listNamespaceRows(sql, workspaceId, page),
    countNamespaces(sql, workspaceId),
  ])
  return { ...cutPage(rows, page.limit), total }
}
