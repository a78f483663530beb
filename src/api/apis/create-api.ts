import { audit } from '../../audit/log.ts'
import type { Call } from '../../doors/http/endpoint.ts'
import { newId } from '../../lib/ids.ts'
import type { Deps } from '../../server/deps.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import type { CreateApiBody, CreateApiReply } from './schema.ts'
import { insertApi } from './store.ts'

/** Makes an API and the keyspace its keys will live in. */
export async function createApi(deps: Deps, call: Call, { name }: CreateApiBody): Promise<CreateApiReply> {
  const actor = await authenticate(deps, call, anyOf('*', 'api.*.create_api'))
  const id = newId('api')
  await deps.database.write(async (tx) => {
    await insertApi(tx, {
      id,
      keyspaceId: newId('ks'),
      workspaceId: actor.workspaceId,
      name,
      now: deps.clock(),
    })
    await audit(tx, actor, [
      { event: 'api.create', description: `created API ${id}`, resources: [{ type: 'api', id, name }] },
    ])
  })
  return { apiId: id, name }
}
