import { auditDeletedKeys } from '../../audit/log.ts'
import { MANY_KEYS_MS } from '../../records/database.ts'
import { removeKeysOf, softDeleteKeysOf } from '../keys/store.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { getApiWithKeys } from './get-api.ts'

/**
 * Deletes all keys of an API. The next verification of a key finds none. The API stays.
 * @param options.isPermanent Remove the rows of all keys, including keys deleted before.
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
