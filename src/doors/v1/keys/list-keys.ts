import type { Held } from '../../../api/keys/holders/store.ts'
import { listKeysThatHold } from '../../../api/keys/list-keys.ts'
import { anyOf, authenticate } from '../../../api/root-keys/authorize.ts'
import { badRequest } from '../../../errors.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import { pageOf } from '../page.ts'
import type { ListKeysOfAllApisQuery, ListKeysOfAllApisReply } from './schema.ts'

/** Keys of all APIs need the right on all APIs. */
export async function listKeysOfAllApis(
  services: DoorServices,
  call: HttpCall,
  query: ListKeysOfAllApisQuery,
): Promise<ListKeysOfAllApisReply> {
  const held = readHeld(query)
  const actor = await authenticate(services, call, anyOf('*', 'api.*.read_key'))
  const { items, ...page } = await listKeysThatHold(services, actor, held, pageOf(query))
  const keys = items.map(({ id, start, apiId, name, enabled, expiresAt, createdAt }) => ({
    id,
    start,
    apiId,
    ...(name === null ? {} : { name }),
    enabled,
    ...(expiresAt === null ? {} : { expires: expiresAt }),
    createdAt,
  }))
  return { keys, ...page }
}

/** @throws ApiError BAD_REQUEST unless exactly one is named. */
function readHeld({ identityId, roleId, permissionId }: ListKeysOfAllApisQuery): Held {
  const named: Held[] = []
  if (identityId !== undefined) named.push({ identityId })
  if (roleId !== undefined) named.push({ roleId })
  if (permissionId !== undefined) named.push({ permissionId })
  const [held] = named
  if (held === undefined || named.length > 1)
    throw badRequest('exactly one of identityId, roleId and permissionId is required')
  return held
}
