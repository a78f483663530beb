import { getApiWithKeys } from '../../../api/apis/get-api.ts'
import { requireRecoverable } from '../../../api/keys/create-key.ts'
import { rerollKey } from '../../../api/keys/reroll-key.ts'
import { anyOf, requirePermission } from '../../../api/root-keys/authorize.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import { authenticateOnKey } from './right-on-key.ts'
import type { RerollKeyBody, RerollKeyReply } from './schema.ts'

export async function rerollKeyEndpoint(
  services: DoorServices,
  call: HttpCall,
  { keyId, overlap: overlapMs }: RerollKeyBody,
): Promise<RerollKeyReply> {
  const { actor, key } = await authenticateOnKey(services, call, 'create_key', keyId)
  const api = await getApiWithKeys(services, actor, key.apiId)
  if (key.ciphertext !== null) {
    requirePermission(actor, anyOf('*', 'api.*.encrypt_key', `api.${api.id}.encrypt_key`))
    requireRecoverable(services, api)
  }
  const { id, text, oldExpiresAt } = await rerollKey(services, actor, key, api, { overlapMs })
  return { keyId: id, key: text, oldKeyExpires: oldExpiresAt }
}
