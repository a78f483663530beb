import { audit } from '../../audit/log.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import type { KeyRow } from './store.ts'

/**
 * Decrypts the texts of keys of one API. Each call writes an audit event with the ids, at most a page of them, before it
 * returns any text.
 * @returns texts by key id; a key that is not recoverable has none.
 * @throws ApiError INTERNAL_SERVER_ERROR when a text cannot be decrypted.
 */
export async function decryptKeys(
  services: Pick<Services, 'sql' | 'vault'>,
  actor: Actor,
  apiId: string,
  keys: readonly KeyRow[],
): Promise<ReadonlyMap<string, string>> {
  const plaintexts = await services.vault.open(actor.workspaceId, keys)
  const [first] = plaintexts.keys()
  if (first === undefined) return plaintexts
  const what = plaintexts.size === 1 ? `key ${first}` : `${plaintexts.size} keys`
  await audit(services.sql, actor, [
    {
      event: 'key.decrypt',
      description: `showed the plaintext of ${what} of API ${apiId}`,
      resources: [...[...plaintexts.keys()].map((id) => ({ type: 'key', id })), { type: 'api', id: apiId }],
    },
  ])
  return plaintexts
}
