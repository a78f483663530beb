import { createKeys } from '../../../api/migrations/create-keys.ts'
import { readImportContext, requireApi, requireNamed } from '../../../api/migrations/imports.ts'
import { anyOf, authenticate, requirePermission } from '../../../api/root-keys/authorize.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import { readImport, requireFewLinks } from './read-import.ts'
import type { CreateKeysBody, CreateKeysReply } from './schema.ts'

/** The order of checks is contract: of every element the right, then what they name, then each element by itself. */
export async function createKeysEndpoint(
  services: DoorServices,
  call: HttpCall,
  body: CreateKeysBody,
): Promise<CreateKeysReply> {
  requireFewLinks(body, '')
  const actor = await authenticate(services, call)
  // Of every element before anything is looked up: who may make no keys does not learn which roles there are.
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
