import type { Call } from '../../doors/http/endpoint.ts'
import { cutPage, PAGE_ITEMS_DEFAULT } from '../../lib/page.ts'
import type { Deps } from '../../server/deps.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import type { ListNamespacesQuery, ListNamespacesReply } from './schema.ts'
import { countNamespaces, listNamespaceRows } from './store.ts'

/** Namespaces of the workspace, oldest first. */
export async function listNamespaces(
  deps: Deps,
  call: Call,
  { limit = PAGE_ITEMS_DEFAULT, cursor = '' }: ListNamespacesQuery,
): Promise<ListNamespacesReply> {
  const actor = await authenticate(deps, call, anyOf('*', 'ratelimit.*.read_namespace'))
  const [rows, total] = await Promise.all([
    listNamespaceRows(deps.sql, actor.workspaceId, { limit, cursor }),
    countNamespaces(deps.sql, actor.workspaceId),
  ])
  const { items: namespaces, ...page } = cutPage(rows, limit)
  return { namespaces, total, ...page }
}
