import { getKey } from '../../../api/keys/get-key.ts'
import type { KeyRow } from '../../../api/keys/store.ts'
import {
  type Actor,
  authenticate,
  type Right,
  requireOn,
  requireOnAny,
} from '../../../api/root-keys/authorize.ts'
import type { Verifier } from '../../../verify/verify.ts'
import type { HttpCall } from '../../http/endpoint.ts'

/**
 * Authenticates, finds a key and checks the right on its API. A root key without the right on any API is refused before the
 * key is looked up.
 * @throws ApiError as `authenticate`; INSUFFICIENT_PERMISSIONS; NOT_FOUND
 */
export async function authenticateOnKey(
  verifier: Verifier,
  call: HttpCall,
  action: 'create_key' | 'read_key' | 'update_key' | 'delete_key',
  keyId: string,
): Promise<{ actor: Actor; key: KeyRow }> {
  const right: Right = { resource: 'api', action }
  const actor = await authenticate(verifier, call)
  requireOnAny(actor, right)
  const key = await getKey(verifier, actor, keyId)
  requireOn(actor, right, key.apiId)
  return { actor, key }
}
