import { cutPage, type Page } from '../../lib/page.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { requireNamespace } from './namespace-name.ts'
import { countOverrides, findNamespace, listOverrideRows, type NamespaceName } from './store.ts'

/**
 * Overrides of a namespace, oldest first.
 * @throws ApiError as {@link requireNamespace}
 */
export async function listOverrides(
  { sql }: Pick<Services, 'sql'>,
  actor: Actor,
  by: NamespaceName,
  page: Page,
) {
  const { workspaceId } = actor
  const found = await findNamespace(sql, workspaceId, by)
  const namespace = requireNamespace(actor, { found, by, action: 'read_override' })
  const [rows, total] = await Promise.all([
    listOverrideRows(sql, workspaceId, namespace.id, page),
    countOverrides(sql, workspaceId, namespace.id),
  ])
  return { ...cutPage(rows, page.limit), total }
}
