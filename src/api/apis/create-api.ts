import { audit } from '../../audit/log.ts'
import { newId } from '../../lib/ids.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import type { CreateApiBody, CreateApiReply } from './schema.ts'
import { insertApi } from './store.ts'

/** Makes an API and the keyspace its keys will live in. */
export async function createApi(
  services: Services,
  call: Call,
  { name }: CreateApiBody,
): Promise<CreateApiReply> {
  const actor = await authenticate(services, call, anyOf('*', 'api.*.create_api'))
  const id = newId('api')
  await services.database.write(async (tx) => {
    await insertApi(tx, {
      id,
      keyspaceId: newId('ks'),
      workspaceId: actor.workspaceId,
      name,
      now: services.clock(),
    })
    await audit(tx, actor, [
      { event: 'api.create', description: `created API ${id}`, resources: [{ type: 'api', id, name }] },
    ])
  })
  return { apiId: id, name }
}
