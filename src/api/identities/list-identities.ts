import { cutPage, type Page } from '../../lib/page.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { countIdentities, listIdentityRows } from './store.ts'

/** Identities of the workspace with their limits, oldest first. */
export async function listIdentities(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  page: Page,
) {
  const [rows, total] = await Promise.all([
    listIdentityRows(sql, workspaceId, page),
    countIdentities(sql, workspaceId),
  ])
  return { ...cutPage(rows, page.limit), total }
}
