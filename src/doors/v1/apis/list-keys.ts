import { getApiWithKeys } from '../../../api/apis/get-api.ts'
import { listKeys } from '../../../api/apis/list-keys.ts'
import { decryptKeys } from '../../../api/keys/decryption.ts'
import { anyOf, authenticate, requireRight } from '../../../api/root-keys/authorize.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import { keyObject } from '../keys/key-object.ts'
import { pageOf } from '../page.ts'
import type { ListKeysQuery, ListKeysReply } from './schema.ts'

/** The right to decrypt is checked after the API is found. Of two filters, `externalId` wins. */
export async function listKeysEndpoint(
  services: DoorServices,
  call: HttpCall,
  { apiId, externalId, ownerId, decrypt = false, ...query }: ListKeysQuery,
): Promise<ListKeysReply> {
  const actor = await authenticate(
    services,
    call,
    anyOf('*', {
      and: [
        anyOf('api.*.read_key', `api.${apiId}.read_key`),
        anyOf('api.*.read_api', `api.${apiId}.read_api`),
      ],
    }),
  )
  const api = await getApiWithKeys(services, actor, apiId)
  if (decrypt)
    requireRight(actor, anyOf('*', 'api.*.decrypt_key', `api.${apiId}.decrypt_key`), 'decrypt keys')
  const byOwner = ownerId === undefined ? null : { ownerId }
  const wanted = externalId === undefined ? byOwner : { externalId }
  const { items, ...page } = await listKeys(services, actor, api, wanted, pageOf(query))
  const plaintexts = decrypt ? await decryptKeys(services, actor, apiId, items) : null
  return { keys: items.map((row) => keyObject(row, plaintexts?.get(row.id))), ...page }
}
