import { eraseKey, findKeyToErase } from '../../../api/keys/erase-key.ts'
import { type Actor, anyOf, authenticate, requirePermission } from '../../../api/root-keys/authorize.ts'
import type { Erasure } from '../../../erasure/eraser.ts'
import { notFound } from '../../../errors.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import type { EraseKeyBody } from './schema.ts'

/** What is known of a key is looked up before the right is asked: the right may be on its API alone. */
export async function eraseKeyEndpoint(
  services: DoorServices,
  call: HttpCall,
  { keyId }: EraseKeyBody,
): Promise<Erasure> {
  const actor = await authenticate(services, call)
  const key = await findKeyToErase(services, actor, keyId)
  requireErase(actor, key?.apiId ?? null)
  if (key === null) throw notFound(`key ${keyId}`)
  return await eraseKey(services, actor, key)
}

/** Who may not erase keys of that API learns neither whether there is the key nor which API it is of. */
function requireErase(actor: Actor, apiId: string | null): void {
  if (apiId !== null && actor.permissions.has(`api.${apiId}.erase_key`)) return
  requirePermission(actor, anyOf('*', 'api.*.erase_key'))
}
