import { changesOf } from '../../audit/changes.ts'
import { audit } from '../../audit/log.ts'
import { requireBound } from '../../db/bounds.ts'
import { newId } from '../../lib/ids.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { requireNamespace } from './namespace-name.ts'
import { hasInnerText } from './overrides.ts'
import {
  countInnerPatterns,
  countOverrides,
  holdNamespace,
  lockOverrideRow,
  type NamespaceName,
  type OverrideRow,
  upsertOverride,
} from './store.ts'

/**
 * Creates an override, or changes the one of this identifier. It applies from the next call on. Creates no namespace.
 * @returns the id of the override.
 * @throws ApiError as {@link requireNamespace}; PRECONDITION_FAILED at a bound of the workspace.
 */
export async function setOverride(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  by: NamespaceName,
  { identifier, limit, durationMs, async }: Omit<OverrideRow, 'id'> & { async: boolean },
): Promise<string> {
  const { workspaceId } = actor
  return await services.database.write(async (tx, invalidate) => {
    const found = await holdNamespace(tx, workspaceId, by)
    const namespace = requireNamespace(actor, { found, by, action: 'set_override' })
    const before = await lockOverrideRow(tx, workspaceId, namespace.id, identifier)
    const override = { id: newId('rlor'), identifier, limit, durationMs, async }
    const id = await upsertOverride(tx, workspaceId, namespace.id, override, services.clock())
    if (before === null) {
      const rows = await countOverrides(tx, workspaceId, namespace.id)
      await requireBound(tx, workspaceId, { name: 'overridesPerNamespace', rows })
      if (hasInnerText(identifier)) {
        const patterns = await countInnerPatterns(tx, workspaceId, namespace.id)
        await requireBound(tx, workspaceId, { name: 'innerPatternsPerNamespace', rows: patterns })
      }
    }
    await audit(tx, actor, [
      {
        event: 'ratelimit.set_override',
        description: `set override ${id} in namespace ${namespace.id}`,
        resources: [
          { type: 'ratelimitNamespace', id: namespace.id, name: namespace.name },
          {
            type: 'ratelimitOverride',
            id,
            meta: { identifier },
            ...changesOf(before && valuesOf(before), valuesOf(override)),
          },
        ],
      },
    ])
    invalidate(namespace.id)
    return id
  })
}

/** The override's values under their names in the API. */
export const valuesOf = ({ limit, durationMs, async }: OverrideRow) => ({
  limit,
  duration: durationMs,
  async,
})
