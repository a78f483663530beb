import { audit } from '../../audit/log.ts'
import { ApiError } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import type { CreateNamespaceBody, CreateNamespaceReply } from './schema.ts'
import { insertNamespace } from './store.ts'

/** Makes a namespace before its first use, so that overrides can be set, or for callers who may not make one. */
export async function createNamespace(
  services: Services,
  call: Call,
  { name }: CreateNamespaceBody,
): Promise<CreateNamespaceReply> {
  const actor = await authenticate(services, call, anyOf('*', 'ratelimit.*.create_namespace'))
  const id = newId('rlns')
  await services.database.write(async (tx) => {
    const isNew = await insertNamespace(tx, {
      id,
      workspaceId: actor.workspaceId,
      name,
      now: services.clock(),
    })
    if (!isNew) throw new ApiError('CONFLICT', `namespace ${name} exists already`)
    await audit(tx, actor, [
      {
        event: 'ratelimitNamespace.create',
        description: `created namespace ${id}`,
        resources: [{ type: 'ratelimitNamespace', id, name }],
      },
    ])
  })
  return { namespaceId: id }
}
