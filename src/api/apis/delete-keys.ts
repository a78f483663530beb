import { audit } from '../../audit/log.ts'
import type { Transaction } from '../../db/connect.ts'
import { ApiError, notFound } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import { type Invalidate, MANY_KEYS_MS } from '../../records/database.ts'
import { insertKeyspaceSweeps } from '../../sweep/store.ts'
import { SWEEP_WAIT_MS } from '../../sweep/sweeper.ts'
import { countKeyRows, countKeys, hasKeys } from '../keys/store.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { sweepActorOf } from './delete-api.ts'
import { deleteKeyspace, listKeyspaceIds, lockApi, lockKeyspace, replaceKeyspace } from './store.ts'

/**
 * Deletes all keys of an API. The API gets a new keyspace, so the keys of the old one are out of reach at once, however
 * many there are: the next verification of a key finds none. Their rows are swept in the background.
 * @param options.isPermanent Remove the rows of all keys, including keys deleted before. Their hashes can then be used
 *   again.
 * @returns how many keys this call deleted.
 * @throws ApiError NOT_FOUND; PRECONDITION_FAILED when the API has no keyspace.
 */
export async function deleteKeys(
  services: Pick<Services, 'database' | 'clock' | 'sweeper'>,
  actor: Actor,
  apiId: string,
  { isPermanent }: { isPermanent: boolean },
): Promise<number> {
  const { workspaceId } = actor
  const now = services.clock()
  const deletion = async (tx: Transaction, invalidate: Invalidate) => {
    const api = await lockApi(tx, workspaceId, apiId)
    if (api === null) throw notFound('api', apiId)
    const { keyspaceId } = api
    if (keyspaceId === null) throw new ApiError('PRECONDITION_FAILED', `api ${apiId} has no keyspace`)
    await lockKeyspace(tx, workspaceId, keyspaceId)
    const keyspaceIds = isPermanent
      ? await listKeyspaceIds(tx, workspaceId, { apiId, keyspaceId })
      : [keyspaceId]
    const total = isPermanent
      ? await countKeyRows(tx, workspaceId, keyspaceIds)
      : await countKeys(tx, workspaceId, keyspaceId)
    // Not asked of the total: were it ever wrong, keys would stay valid.
    if (!(await hasKeys(tx, keyspaceIds, { alsoDeleted: isPermanent }))) return { total: 0, keyspaceIds: [] }
    await deleteKeyspace(tx, workspaceId, { keyspaceId, apiId, now })
    await replaceKeyspace(tx, workspaceId, { keyspaceId, by: newId('ks'), apiId, now })
    const detail = { apiId, isPermanent, actor: sweepActorOf(actor) }
    await insertKeyspaceSweeps(tx, workspaceId, { keyspaceIds, detail, now })
    await audit(tx, actor, [
      {
        event: 'key.delete',
        description: `deleted ${total} keys of API ${apiId}`,
        resources: [
          { type: 'api', id: apiId, name: api.name, meta: { keys: total, permanent: isPermanent } },
        ],
      },
    ])
    invalidate(apiId)
    return { total, keyspaceIds }
  }
  // A permanent deletion counts all rows, which may take seconds for millions. Only the creation of keys in this API waits
  // for that.
  const { total, keyspaceIds } = await services.database.write(
    deletion,
    isPermanent ? { timeoutMs: MANY_KEYS_MS } : {},
  )
  await services.sweeper.finishWithin(SWEEP_WAIT_MS, keyspaceIds)
  return total
}
