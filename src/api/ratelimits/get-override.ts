import { notFound } from '../../errors.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { requireNamespace } from './namespace-name.ts'
import { findNamespace, findOverrideRow, type NamespaceName, type OverrideRow } from './store.ts'

/**
 * The override of exactly this identifier. Patterns that match it are not considered.
 * @throws ApiError NOT_FOUND; as {@link requireNamespace}
 */
export async function getOverride(
  { sql }: Pick<Services, 'sql'>,
  actor: Actor,
  by: NamespaceName,
  identifier: string,
): Promise<OverrideRow> {
  const found = await findNamespace(sql, actor.workspaceId, by)
  const namespace = requireNamespace(actor, { found, by, action: 'read_override' })
  const override = await findOverrideRow(sql, actor.workspaceId, namespace.id, identifier)
  if (override === null) throw notFound('override', identifier)
  return override
}
