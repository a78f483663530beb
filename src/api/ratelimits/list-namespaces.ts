import { cutPage, PAGE_ITEMS_DEFAULT } from '../../lib/page.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import type { ListNamespacesQuery, ListNamespacesReply } from './schema.ts'
import { countNamespaces, listNamespaceRows } from './store.ts'

/** Namespaces of the workspace, oldest first. */
export async function listNamespaces(
  services: Services,
  call: Call,
  { limit = PAGE_ITEMS_DEFAULT, cursor = '' }: ListNamespacesQuery,
): Promise<ListNamespacesReply> {
  const actor = await authenticate(services, call, anyOf('*', 'ratelimit.*.read_namespace'))
  const [rows, total] = await Promise.all([
    listNamespaceRows(services.sql, actor.workspaceId, { limit, cursor }),
    countNamespaces(services.sql, actor.workspaceId),
  ])
  const { items: namespaces, ...page } = cutPage(rows, limit)
  return { namespaces, total, ...page }
}
