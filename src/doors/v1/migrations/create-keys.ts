import { createKeys } from '../../../api/migrations/create-keys.ts'
import { readImportContext, requireApi, requireNamed } from '../../../api/migrations/imports.ts'
import { anyOf, authenticate, requirePermission } from '../../../api/root-keys/authorize.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import { readImport, requireFewLinks } from './read-import.ts'
import type { CreateKeysBody, CreateKeysReply } from './schema.ts'

/** The order of checks is contract: the right for every key, then the named things, then each key by itself. */
export async function createKeysEndpoint(
  services: DoorServices,
  call: HttpCall,
  body: CreateKeysBody,
): Promise<CreateKeysReply> {
  requireFewLinks(body, '')
  const actor = await authenticate(services, call)
  // For every key before any look-up: a root key without the right must not learn which roles exist.
  for (const { apiId } of body)
    requirePermission(actor, anyOf('*', 'api.*.create_key', `api.${apiId}.create_key`))
  const apiIds = body.map(({ apiId }) => apiId)
  const context = await readImportContext(services.sql, actor.workspaceId, { apiIds, keys: body })
  requireNamed(context, body)
  const imports = body.map((element, index) => ({
    api: requireApi(context, element.apiId),
    key: readImport(element, `${index}`),
  }))
  return { keyIds: await createKeys(services, actor, imports, context) }
}
