import { lastUsed } from '../../../api/keys/last-used.ts'
import { findApisOfKeys } from '../../../api/keys/search/store.ts'
import { authenticate, type Right, requireOn, requireOnAny } from '../../../api/root-keys/authorize.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import type { GetLastUsedQuery, GetLastUsedReply } from './schema.ts'

const RIGHT: Right = { resource: 'api', action: 'read_key' }

/** Needs the right to read keys on the API of each key. */
export async function lastUsedEndpoint(
  services: DoorServices,
  call: HttpCall,
  { keyId }: GetLastUsedQuery,
): Promise<GetLastUsedReply> {
  const actor = await authenticate(services, call)
  requireOnAny(actor, RIGHT)
  const asked = [...new Set(keyId)]
  const keys = new Map(
    (await findApisOfKeys(services.sql, actor.workspaceId, asked)).map(({ id, apiId }) => [id, apiId]),
  )
  for (const id of asked) requireOn(actor, RIGHT, keys.get(id) ?? null)
  const times = await lastUsed(services, actor, [...keys.keys()])
  return {
    keys: asked
      .filter((id) => keys.has(id))
      .map((id) => {
        const at = times.get(id)
        return { keyId: id, ...(at !== undefined && { lastUsed: at }) }
      }),
  }
}
