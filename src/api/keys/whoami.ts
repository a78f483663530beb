import { notFound } from '../../errors.ts'
import { hashKey } from '../../verify/secret.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { findKeyByHash, type KeyRow } from './store.ts'

/**
 * The key of which someone holds the text. Uses nothing up, counts nothing; disabled and expired keys are found too.
 * @throws ApiError NOT_FOUND, which does not repeat the text.
 */
export async function whoami(
  services: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  text: string,
): Promise<KeyRow> {
  const key = await findKeyByHash(services.sql, workspaceId, hashKey(text))
  if (key === null) throw notFound('Key')
  return key
}
