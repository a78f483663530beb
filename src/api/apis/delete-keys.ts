import { auditDeletedKeys } from '../../audit/log.ts'
import { MANY_KEYS_MS } from '../../records/database.ts'
import type { Call } from '../call.ts'
import { removeKeysOf, softDeleteKeysOf } from '../keys/store.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import { requireKeyspace } from './list-keys.ts'
import type { DeleteKeysBody, DeleteKeysReply } from './schema.ts'

/** Deletes all keys of an API, which are refused from then on. The API stays. */
export async function deleteKeys(
  services: Services,
  call: Call,
  { apiId, permanent = false }: DeleteKeysBody,
): Promise<DeleteKeysReply> {
  const actor = await authenticate(services, call, anyOf('*', 'api.*.delete_key', `api.${apiId}.delete_key`))
  const { keyspaceId } = await requireKeyspace(services, actor, apiId)
  const deletedKeys = await services.database.write(
    async (tx, touch) => {
      touch(apiId)
      const audited = auditDeletedKeys(tx, actor, apiId)
      return permanent
        ? await removeKeysOf(tx, actor.workspaceId, { keyspaceId, audited })
        : await softDeleteKeysOf(tx, actor.workspaceId, { keyspaceId, audited, now: services.clock() })
    },
    { timeoutMs: MANY_KEYS_MS },
  )
  return { deletedKeys }
}
