import { changesOf } from '../../audit/changes.ts'
import { audit } from '../../audit/log.ts'
import { notFound } from '../../errors.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { authenticate } from '../root-keys/authorize.ts'
import { readNamespaceName, requireNamespace } from './namespace-name.ts'
import type { DeleteOverrideBody } from './schema.ts'
import { valuesOf } from './set-override.ts'
import { holdNamespace, softDeleteOverride } from './store.ts'

/** From the next call on the identifier has the limits its callers ask for. */
export async function deleteOverride(
  services: Services,
  call: Call,
  body: DeleteOverrideBody,
): Promise<Record<string, never>> {
  const actor = await authenticate(services, call)
  const { workspaceId } = actor
  const by = readNamespaceName(body)
  const { identifier } = body
  await services.database.write(async (tx, touch) => {
    const found = await holdNamespace(tx, workspaceId, by)
    const namespace = requireNamespace(actor, { found, by, action: 'delete_override' })
    const deleted = await softDeleteOverride(tx, workspaceId, namespace.id, identifier, services.clock())
    if (deleted === null) throw notFound(`override ${identifier}`)
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
    touch(namespace.id)
  })
  return {}
}
