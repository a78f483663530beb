import { audit } from '../../audit/log.ts'
import { newId } from '../../lib/ids.ts'
import { type Keep, keepNothing } from '../idempotency/answers.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { insertApi } from './store.ts'

/**
 * Creates an API and the keyspace for its keys.
 * @returns the id of the API.
 * @throws ApiError PRECONDITION_FAILED at a bound of the workspace.
 */
export async function createApi(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  name: string,
  keep: Keep<string> = keepNothing,
): Promise<string> {
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
    await keep(tx, id)
  })
  return id
}
