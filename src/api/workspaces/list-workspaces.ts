import type { Call } from '../../doors/http/endpoint.ts'
import { cutPage, PAGE_ITEMS_DEFAULT } from '../../lib/page.ts'
import type { Deps } from '../../server/deps.ts'
import { authenticateOperator } from '../root-keys/authorize.ts'
import type { ListWorkspacesQuery, ListWorkspacesReply } from './schema.ts'
import { countWorkspaces, listWorkspaceRows } from './store.ts'

/** All workspaces, oldest first. */
export async function listWorkspaces(
  deps: Deps,
  call: Call,
  query: ListWorkspacesQuery,
): Promise<ListWorkspacesReply> {
  await authenticateOperator(deps, call)
  const { limit = PAGE_ITEMS_DEFAULT, cursor = '' } = query
  const [rows, total] = await Promise.all([
    listWorkspaceRows(deps.sql, { limit, cursor }),
    countWorkspaces(deps.sql),
  ])
  const { items, ...page } = cutPage(rows, limit)
  const workspaces = items.map(({ bounds, ...row }) => (bounds === null ? row : { ...row, bounds }))
  return { workspaces, total, ...page }
}
