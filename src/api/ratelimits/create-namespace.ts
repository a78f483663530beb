import { audit } from '../../audit/log.ts'
import { ApiError } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { insertNamespace } from './store.ts'

/**
 * Makes a namespace before its first use, so that overrides can be set, or for callers who may not make one.
 * @returns its id.
 * @throws ApiError CONFLICT when there is one of this name.
 */
export async function createNamespace(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  name: string,
): Promise<string> {
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
  return id
}
