import { notFound } from '../../errors.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { findKey, type KeyRow } from './store.ts'

/** A key that is not deleted, of an API that is not deleted. @throws ApiError NOT_FOUND */
export async function getKey(
  services: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  keyId: string,
): Promise<KeyRow> {
  const key = await findKey(services.sql, workspaceId, keyId)
  if (key === null) throw notFound('key', keyId)
  return key
}
