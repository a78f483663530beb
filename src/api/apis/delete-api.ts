import { audit, auditDeletedKeys } from '../../audit/log.ts'
import { ApiError, notFound } from '../../errors.ts'
import { MANY_KEYS_MS } from '../../records/database.ts'
import { softDeleteKeysOf } from '../keys/store.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { lockApi, softDeleteApi } from './store.ts'

/**
 * Deletes an API and its keys. The next verification of a key finds none. The rows stay.
 * @throws ApiError NOT_FOUND, DELETE_PROTECTED
 */
export async function deleteApi(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  apiId: string,
): Promise<void> {
  const now = services.clock()
  await services.database.write(
    async (tx, touch) => {
      const api = await lockApi(tx, actor.workspaceId, apiId)
      if (api === null) throw notFound(`api ${apiId}`)
      if (api.deleteProtection)
        throw new ApiError(
          'DELETE_PROTECTED',
          `api ${apiId} has delete protection; switch it off with apis.updateApi first`,
        )
      await softDeleteApi(tx, actor.workspaceId, apiId, now)
      await audit(tx, actor, [
        {
          event: 'api.delete',
          description: `deleted API ${apiId}`,
          resources: [{ type: 'api', id: apiId, name: api.name }],
        },
      ])
      if (api.keyspaceId !== null)
        await softDeleteKeysOf(tx, actor.workspaceId, {
          keyspaceId: api.keyspaceId,
          audited: auditDeletedKeys(tx, actor, apiId),
          now,
        })
      touch(apiId)
    },
    { timeoutMs: MANY_KEYS_MS },
  )
}
