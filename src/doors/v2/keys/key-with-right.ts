import { getKey } from '../../../api/keys/get-key.ts'
import type { KeyRow } from '../../../api/keys/store.ts'
import { type Actor, authenticate, requireOn } from '../../../api/root-keys/authorize.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'

/**
 * Authenticates, finds a key, and checks the right on its API: a key that does not exist is not found, whatever rights the
 * root key has.
 * @throws ApiError as `authenticate`; NOT_FOUND; INSUFFICIENT_PERMISSIONS
 */
export async function keyWithRight(
  services: DoorServices,
  call: HttpCall,
  action: 'read_key' | 'create_key' | 'update_key' | 'delete_key',
  keyId: string,
): Promise<{ actor: Actor; key: KeyRow }> {
  const actor = await authenticate(services, call)
  const key = await getKey(services, actor, keyId)
  requireOn(actor, { resource: 'api', action }, key.apiId)
  return { actor, key }
}
