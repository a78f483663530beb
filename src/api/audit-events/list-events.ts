import { cutPage, type Page } from '../../lib/page.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { type AuditEventFilter, listAuditEventRows } from './store.ts'

/** What was changed in the workspace, by whom. No total: a log only grows, and counting it would cost more each day. */
export async function listEvents(
  { history }: Pick<Services, 'history'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  filter: AuditEventFilter,
  page: Page,
) {
  const { rows, isCut } = await listAuditEventRows(history, workspaceId, filter, page)
  return cutPage(rows, page.limit, { isCut })
}
