import { eraseKey, findKeyToErase } from '../../../api/keys/erase-key.ts'
import { type Actor, anyOf, authenticate, requirePermission } from '../../../api/root-keys/authorize.ts'
import type { Erasure } from '../../../erasure/eraser.ts'
import { notFound } from '../../../errors.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import type { EraseKeyBody } from './schema.ts'

/** The key is looked up before the right is checked, as the right may be on its API only. */
export async function eraseKeyEndpoint(
  services: DoorServices,
  call: HttpCall,
  { keyId }: EraseKeyBody,
): Promise<Erasure> {
  const actor = await authenticate(services, call)
  const key = await findKeyToErase(services, actor, keyId)
  requireErase(actor, key?.apiId ?? null)
  if (key === null) throw notFound('key', keyId)
  return await eraseKey(services, actor, key)
}

/** A root key without the right must learn neither whether the key exists nor its API. */
function requireErase(actor: Actor, apiId: string | null): void {
  if (apiId !== null && actor.permissions.has(`api.${apiId}.erase_key`)) return
  requirePermission(actor, anyOf('*', 'api.*.erase_key'))
}
