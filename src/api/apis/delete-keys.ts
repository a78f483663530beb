import { auditDeletedKeys } from '../../audit/log.ts'
import type { Call } from '../../doors/http/endpoint.ts'
import { MANY_KEYS_MS } from '../../records/database.ts'
import type { Deps } from '../../server/deps.ts'
import { removeKeysOf, softDeleteKeysOf } from '../keys/store.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import { requireKeyspace } from './list-keys.ts'
import type { DeleteKeysBody, DeleteKeysReply } from './schema.ts'

/** Deletes all keys of an API, which are refused from then on. The API stays. */
export async function deleteKeys(
  deps: Deps,
  call: Call,
  { apiId, permanent = false }: DeleteKeysBody,
): Promise<DeleteKeysReply> {
  const actor = await authenticate(deps, call, anyOf('*', 'api.*.delete_key', `api.${apiId}.delete_key`))
  const { keyspaceId } = await requireKeyspace(deps, actor, apiId)
  const deletedKeys = await deps.database.write(
    async (tx, touch) => {
      touch(apiId)
      const audited = auditDeletedKeys(tx, actor, apiId)
      return permanent
        ? await removeKeysOf(tx, actor.workspaceId, { keyspaceId, audited })
        : await softDeleteKeysOf(tx, actor.workspaceId, { keyspaceId, audited, now: deps.clock() })
    },
    { timeoutMs: MANY_KEYS_MS },
  )
  return { deletedKeys }
}
