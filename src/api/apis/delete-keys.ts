import { auditDeletedKeys } from '../../audit/log.ts'
import { MANY_KEYS_MS } from '../../records/database.ts'
import { removeKeysOf, softDeleteKeysOf } from '../keys/store.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { getApiWithKeys } from './get-api.ts'

/**
 * Deletes all keys of an API, which are refused from then on. The API stays.
 * @param options.isPermanent Remove all records of keys, those deleted before included.
 * @returns how many keys this call deleted.
 * @throws ApiError as {@link getApiWithKeys}
 */
export async function deleteKeys(
  services: Pick<Services, 'sql' | 'database' | 'clock'>,
  actor: Actor,
  apiId: string,
  { isPermanent }: { isPermanent: boolean },
): Promise<number> {
  const { keyspaceId } = await getApiWithKeys(services, actor, apiId)
  return await services.database.write(
    async (tx, touch) => {
      touch(apiId)
      const audited = auditDeletedKeys(tx, actor, apiId)
      return isPermanent
        ? await removeKeysOf(tx, actor.workspaceId, { keyspaceId, audited })
        : await softDeleteKeysOf(tx, actor.workspaceId, { keyspaceId, audited, now: services.clock() })
    },
    { timeoutMs: MANY_KEYS_MS },
  )
}
