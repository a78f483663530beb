import { cutPage, type Page } from '../../lib/page.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { type AuditEventFilter, type AuditEventOrder, listAuditEventRows } from './store.ts'

/** Changes in the workspace and who made them. Without a total: counting a log that only grows costs more each day. */
export async function listEvents(
  { history }: Pick<Services, 'history'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  filter: AuditEventFilter,
  page: Page & { order: AuditEventOrder },
) {
  const { rows, isCut } = await listAuditEventRows(history, workspaceId, filter, page)
  return cutPage(rows, page.limit, { isCut })
}
