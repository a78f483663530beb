import { requireRecoverable } from '../../../api/keys/create-key.ts'
import { decryptKeys } from '../../../api/keys/decryption.ts'
import type { KeyRow } from '../../../api/keys/store.ts'
import { type Actor, requireOn } from '../../../api/root-keys/authorize.ts'
import type { DoorServices } from '../../http/endpoint.ts'

/**
 * Checks that keys of an API may be shown, in the order of the API.
 * @throws ApiError PRECONDITION_FAILED without a vault; INSUFFICIENT_PERMISSIONS; PRECONDITION_FAILED when the API does not
 *   store recoverable keys.
 */
export function requireDecryption(
  services: DoorServices,
  actor: Actor,
  api: { id: string; storeEncryptedKeys: boolean },
): void {
  services.vault.requireOpen()
  requireOn(actor, { resource: 'api', action: 'decrypt_key' }, api.id)
  requireRecoverable(services, api)
}

/** Texts by key id; none of keys that are not recoverable. */
export const plaintextsOf = (
  services: DoorServices,
  actor: Actor,
  apiId: string,
  keys: readonly KeyRow[],
): Promise<ReadonlyMap<string, string>> => decryptKeys(services, actor, apiId, keys)
