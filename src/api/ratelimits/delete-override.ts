import { changesOf } from '../../audit/changes.ts'
import { audit } from '../../audit/log.ts'
import { notFound } from '../../errors.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { requireNamespace } from './namespace-name.ts'
import { valuesOf } from './set-override.ts'
import { holdNamespace, type NamespaceName, softDeleteOverride } from './store.ts'

/**
 * Deletes an override. From the next call on, the limits that callers name apply to the identifier.
 * @throws ApiError NOT_FOUND; as {@link requireNamespace}
 */
export async function deleteOverride(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  by: NamespaceName,
  identifier: string,
): Promise<void> {
  const { workspaceId } = actor
  await services.database.write(async (tx, invalidate) => {
    const found = await holdNamespace(tx, workspaceId, by)
    const namespace = requireNamespace(actor, { found, by, action: 'delete_override' })
    const deleted = await softDeleteOverride(tx, workspaceId, namespace.id, identifier, services.clock())
    if (deleted === null) throw notFound('override', identifier)
    await audit(tx, actor, [
      {
        event: 'ratelimit.delete_override',
        description: `deleted override ${deleted.id} of namespace ${namespace.id}`,
        resources: [
          { type: 'ratelimitNamespace', id: namespace.id, name: namespace.name },
          {
            type: 'ratelimitOverride',
            id: deleted.id,
            meta: { identifier },
            ...changesOf(valuesOf(deleted), null),
          },
        ],
      },
    ])
    invalidate(namespace.id)
  })
}
