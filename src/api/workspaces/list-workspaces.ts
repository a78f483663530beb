import { cutPage, PAGE_ITEMS_DEFAULT } from '../../lib/page.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { authenticateOperator } from '../root-keys/authorize.ts'
import type { ListWorkspacesQuery, ListWorkspacesReply } from './schema.ts'
import { countWorkspaces, listWorkspaceRows } from './store.ts'

/** All workspaces, oldest first. */
export async function listWorkspaces(
  services: Services,
  call: Call,
  query: ListWorkspacesQuery,
): Promise<ListWorkspacesReply> {
  await authenticateOperator(services, call)
  const { limit = PAGE_ITEMS_DEFAULT, cursor = '' } = query
  const [rows, total] = await Promise.all([
    listWorkspaceRows(services.sql, { limit, cursor }),
    countWorkspaces(services.sql),
  ])
  const { items, ...page } = cutPage(rows, limit)
  const workspaces = items.map(({ bounds, ...row }) => (bounds === null ? row : { ...row, bounds }))
  return { workspaces, total, ...page }
}
