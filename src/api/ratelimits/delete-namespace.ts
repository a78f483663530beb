import { audit } from '../../audit/log.ts'
import { notFound } from '../../errors.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import type { DeleteNamespaceBody } from './schema.ts'
import { softDeleteNamespace } from './store.ts'

/** Its overrides go with it. A later namespace of the same name is another one: new id, new counters. */
export async function deleteNamespace(
  services: Services,
  call: Call,
  { namespaceId: id }: DeleteNamespaceBody,
): Promise<Record<string, never>> {
  const actor = await authenticate(
    services,
    call,
    anyOf('*', 'ratelimit.*.delete_namespace', `ratelimit.${id}.delete_namespace`),
  )
  await services.database.write(async (tx, touch) => {
    const deleted = await softDeleteNamespace(tx, actor.workspaceId, id, services.clock())
    if (deleted === null) throw notFound(`namespace ${id}`)
    await audit(tx, actor, [
      {
        event: 'ratelimitNamespace.delete',
        description: `deleted namespace ${id}`,
        resources: [{ type: 'ratelimitNamespace', id, name: deleted.name }],
      },
    ])
    touch(id)
  })
  return {}
}
