import { changesOf } from '../../audit/changes.ts'
import { audit } from '../../audit/log.ts'
import { requireBound } from '../../db/bounds.ts'
import { newId } from '../../lib/ids.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { authenticate } from '../root-keys/authorize.ts'
import { readNamespaceName, requireNamespace } from './namespace-name.ts'
import { hasInnerText } from './overrides.ts'
import type { SetOverrideBody, SetOverrideReply } from './schema.ts'
import {
  countInnerPatterns,
  countOverrides,
  holdNamespace,
  lockOverrideRow,
  type OverrideRow,
  upsertOverride,
} from './store.ts'

/** Makes an override or changes the one of this identifier; it counts from the next call on. Makes no namespace. */
export async function setOverride(
  services: Services,
  call: Call,
  body: SetOverrideBody,
): Promise<SetOverrideReply> {
  const by = readNamespaceName(body)
  const actor = await authenticate(services, call)
  const { workspaceId } = actor
  const { identifier, limit, duration: durationMs, async = false } = body
  return await services.database.write(async (tx, touch) => {
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
    touch(namespace.id)
    return { overrideId: id }
  })
}

/** What an override puts in place of a caller's values, as the API names it. */
export const valuesOf = ({ limit, durationMs, async }: OverrideRow) => ({
  limit,
  duration: durationMs,
  async,
})
