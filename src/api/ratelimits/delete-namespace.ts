import { audit } from '../../audit/log.ts'
import type { Call } from '../../doors/http/endpoint.ts'
import { notFound } from '../../errors.ts'
import type { Deps } from '../../server/deps.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import type { DeleteNamespaceBody } from './schema.ts'
import { softDeleteNamespace } from './store.ts'

/** Its overrides go with it. A later namespace of the same name is another one: new id, new counters. */
export async function deleteNamespace(
  deps: Deps,
  call: Call,
  { namespaceId: id }: DeleteNamespaceBody,
): Promise<Record<string, never>> {
  const actor = await authenticate(
    deps,
    call,
    anyOf('*', 'ratelimit.*.delete_namespace', `ratelimit.${id}.delete_namespace`),
  )
  await deps.database.write(async (tx, touch) => {
    const deleted = await softDeleteNamespace(tx, actor.workspaceId, id, deps.clock())
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
