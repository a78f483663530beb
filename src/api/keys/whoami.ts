import { ApiError } from '../../errors.ts'
import { hashKey } from '../../verify/secret.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { findKeyByHash, type KeyRow } from './store.ts'

/**
 * Finds a key by its text. Spends and counts nothing; also finds disabled and expired keys.
 * @throws ApiError NOT_FOUND, without the text in its message.
 */
export async function whoami(
  services: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  text: string,
): Promise<KeyRow> {
  const key = await findKeyByHash(services.sql, workspaceId, hashKey(text))
  if (key === null) throw textNotFound()
  return key
}

/** For a key that is not shown by its text. */
export const textNotFound = () => new ApiError('NOT_FOUND', 'Key not found', { resource: 'key' })
