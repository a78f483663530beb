import { audit, auditDeletedKeys } from '../../audit/log.ts'
import { ApiError, notFound } from '../../errors.ts'
import { MANY_KEYS_MS } from '../../records/database.ts'
import type { Call } from '../call.ts'
import { softDeleteKeysOf } from '../keys/store.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import type { DeleteApiBody } from './schema.ts'
import { lockApi, softDeleteApi } from './store.ts'

/** Deletes an API with its keys, which are refused from then on. The records stay. */
export async function deleteApi(
  services: Services,
  call: Call,
  { apiId }: DeleteApiBody,
): Promise<Record<string, never>> {
  const actor = await authenticate(services, call, anyOf('*', 'api.*.delete_api', `api.${apiId}.delete_api`))
  const now = services.clock()
  await services.database.write(
    async (tx, touch) => {
      const api = await lockApi(tx, actor.workspaceId, apiId)
      if (api === null) throw notFound(`api ${apiId}`)
      if (api.deleteProtection)
        throw new ApiError('DELETE_PROTECTED', `api ${apiId} is protected against deletion`)
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
  return {}
}
