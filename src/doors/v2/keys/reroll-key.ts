import { type Static, Type } from '@sinclair/typebox'
import { getApi, requireKeyspace } from '../../../api/apis/get-api.ts'
import type { Keep } from '../../../api/idempotency/answers.ts'
import { requireRecoverable } from '../../../api/keys/create-key.ts'
import { rerollKey } from '../../../api/keys/reroll-key.ts'
import { requireOn } from '../../../api/root-keys/authorize.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import { presentNew } from './create-key.ts'
import { keyWithRight } from './key-with-right.ts'
import { type CreateKeyData, KeyId } from './schema.ts'

export const RerollKeyBody = Type.Object({
  keyId: KeyId,
  expiration: Type.Integer({
    minimum: 0,
    maximum: 4_102_444_800_000,
    description:
      'How long the old key still works, milliseconds, rounded up to a full minute; 0 = it is refused at once. An end that it already has only gets earlier.',
  }),
})

export async function rerollKeyEndpoint(
  services: DoorServices,
  call: HttpCall,
  { keyId, expiration: overlapMs }: Static<typeof RerollKeyBody>,
  keep: Keep<CreateKeyData>,
): Promise<CreateKeyData> {
  const { actor, key } = await keyWithRight(services, call, 'create_key', keyId)
  const found = await getApi(services, actor, key.apiId)
  if (key.ciphertext !== null) {
    requireOn(actor, { resource: 'api', action: 'encrypt_key' }, key.apiId)
    requireRecoverable(services, found)
  }
  const api = requireKeyspace(found)
  return presentNew(
    await rerollKey(services, actor, key, api, { overlapMs }, (tx, made) => keep(tx, presentNew(made))),
  )
}
