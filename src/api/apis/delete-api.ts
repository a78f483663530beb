import { audit } from '../../audit/log.ts'
import { ApiError, notFound } from '../../errors.ts'
import { insertKeyspaceSweeps } from '../../sweep/store.ts'
import { SWEEP_WAIT_MS } from '../../sweep/sweeper.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { deleteKeyspace, lockApi, softDeleteApi } from './store.ts'

/**
 * Deletes an API and its keys, at a cost that does not depend on their number. The next verification of a key finds none.
 * The rows of the keys are kept as deleted; many rows are marked in the background.
 * @throws ApiError NOT_FOUND, DELETE_PROTECTED
 */
export async function deleteApi(
  services: Pick<Services, 'database' | 'clock' | 'sweeper'>,
  actor: Actor,
  apiId: string,
): Promise<void> {
  const now = services.clock()
  const keyspaceId = await services.database.write(async (tx, invalidate) => {
    const api = await lockApi(tx, actor.workspaceId, apiId)
    if (api === null) throw notFound('api', apiId)
    if (api.deleteProtection)
      throw new ApiError('DELETE_PROTECTED', `api ${apiId} is protected against deletion`)
    await softDeleteApi(tx, actor.workspaceId, apiId, now)
    if (api.keyspaceId !== null) {
      await deleteKeyspace(tx, actor.workspaceId, { keyspaceId: api.keyspaceId, apiId, now })
      await insertKeyspaceSweeps(tx, actor.workspaceId, {
        keyspaceIds: [api.keyspaceId],
        detail: { apiId, isPermanent: false, actor: sweepActorOf(actor) },
        now,
      })
    }
    await audit(tx, actor, [
      {
        event: 'api.delete',
        description: `deleted API ${apiId}`,
        resources: [{ type: 'api', id: apiId, name: api.name }],
      },
    ])
    invalidate(apiId)
    return api.keyspaceId
  })
  if (keyspaceId !== null) await services.sweeper.finishWithin(SWEEP_WAIT_MS, [keyspaceId])
}

/** The actor, for the audit events of keys that are swept later. */
export const sweepActorOf = ({ rootKeyId, location, userAgent }: Actor) => ({
  rootKeyId,
  location,
  userAgent,
})
