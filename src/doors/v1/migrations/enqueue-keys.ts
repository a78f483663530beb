import { getApi } from '../../../api/apis/get-api.ts'
import { enqueueKeys } from '../../../api/migrations/enqueue-keys.ts'
import { anyOf, authenticate } from '../../../api/root-keys/authorize.ts'
import { ApiError } from '../../../errors.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import { readImport, requireFewLinks } from './read-import.ts'
import type { EnqueueKeysBody } from './schema.ts'

/** Checks each key by itself before it answers. The queue checks the rest later. */
export async function enqueueKeysEndpoint(
  services: DoorServices,
  call: HttpCall,
  { migrationId, apiId, keys }: EnqueueKeysBody,
): Promise<Record<string, never>> {
  requireFewLinks(keys, 'keys')
  const create = anyOf('api.*.create_key', `api.${apiId}.create_key`)
  const encrypt = anyOf('api.*.encrypt_key', `api.${apiId}.encrypt_key`)
  const hasPlaintext = keys.some(({ plaintext = '' }) => plaintext !== '')
  const rights = anyOf('*', hasPlaintext ? { and: [create, encrypt] } : create)
  const actor = await authenticate(services, call, rights)
  const { keyspaceId } = await getApi(services, actor, apiId)
  if (keyspaceId === null) throw new ApiError('NOT_FOUND', `keyspace of api ${apiId} not found`)
  const imports = keys.map((element, index) => readImport(element, `keys.${index}`))
  await enqueueKeys(services, actor, { migrationId, apiId }, imports)
  return {}
}
