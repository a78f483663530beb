import { cutPage, PAGE_ITEMS_DEFAULT } from '../../lib/page.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { authenticate } from '../root-keys/authorize.ts'
import { readNamespaceName, requireNamespace } from './namespace-name.ts'
import type { ListOverridesQuery, ListOverridesReply } from './schema.ts'
import { countOverrides, findNamespace, listOverrideRows } from './store.ts'

/** Overrides of a namespace, oldest first. */
export async function listOverrides(
  services: Services,
  call: Call,
  query: ListOverridesQuery,
): Promise<ListOverridesReply> {
  const by = readNamespaceName(query)
  const actor = await authenticate(services, call)
  const { workspaceId } = actor
  const { limit = PAGE_ITEMS_DEFAULT, cursor = '' } = query
  const found = await findNamespace(services.sql, workspaceId, by)
  const namespace = requireNamespace(actor, { found, by, action: 'read_override' })
  const [rows, total] = await Promise.all([
    listOverrideRows(services.sql, workspaceId, namespace.id, { limit, cursor }),
    countOverrides(services.sql, workspaceId, namespace.id),
  ])
  const { items, ...page } = cutPage(rows, limit)
  const overrides = items.map(({ id, identifier, limit, durationMs, async }) => ({
    id,
    identifier,
    limit,
    duration: durationMs,
    ...(async === null ? {} : { async }),
  }))
  return { overrides, total, ...page }
}
