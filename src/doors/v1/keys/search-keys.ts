import { getApiWithKeys } from '../../../api/apis/get-api.ts'
import { searchKeys } from '../../../api/keys/search-keys.ts'
import { anyOf, authenticate } from '../../../api/root-keys/authorize.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import { pageOf } from '../page.ts'
import { keyObject } from './key-object.ts'
import type { SearchKeysQuery, SearchKeysReply } from './schema.ts'

export async function searchKeysEndpoint(
  services: DoorServices,
  call: HttpCall,
  { apiId, search, state, used, ...query }: SearchKeysQuery,
): Promise<SearchKeysReply> {
  const ofOne = apiId === undefined ? [] : [`api.${apiId}.read_key`]
  const actor = await authenticate(services, call, anyOf('*', 'api.*.read_key', ...ofOne))
  const keyspaceId = apiId === undefined ? null : (await getApiWithKeys(services, actor, apiId)).keyspaceId
  const { items, ...found } = await searchKeys(
    services,
    actor,
    { keyspaceId, text: search ?? null, state: state ?? null, used: used ?? null },
    pageOf(query),
  )
  return { keys: items.map((row) => keyObject(row)), ...found }
}
