import { cutPage, type Page } from '../../lib/page.ts'
import type { Services } from '../parts.ts'
import type { Actor } from './authorize.ts'
import { countRootKeys, listRootKeyRows } from './store.ts'

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
