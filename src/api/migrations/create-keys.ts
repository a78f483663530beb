import type { CreateKeysBody, CreateKeysReply } from '../../doors/v1/keys/schema.ts'
import { ApiError, notFound } from '../../errors.ts'
import { listed } from '../../lib/listed.ts'
import type { Call } from '../call.ts'
import { type NewKey, writeNewKeys } from '../keys/new-keys.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate, requirePermission } from '../root-keys/authorize.ts'
import { missingOf, readImport, readImportContext, requireFewLinks, resolveImport } from './imports.ts'

/** Imports keys: all of them in one transaction, or none. The order of checks is contract. */
export async function createKeys(
  services: Services,
  call: Call,
  body: CreateKeysBody,
): Promise<CreateKeysReply> {
  requireFewLinks(body, '')
  const actor = await authenticate(services, call)
  const { workspaceId } = actor
  // Of every element before anything is looked up: who may make no keys does not learn which roles there are.
  for (const { apiId } of body)
    requirePermission(actor, anyOf('*', 'api.*.create_key', `api.${apiId}.create_key`))
  const context = await readImportContext(services.sql, workspaceId, {
    apiIds: body.map(({ apiId }) => apiId),
    keys: body,
  })
  refuse(
    'roles',
    missingOf(
      body.flatMap(({ roles = [] }) => roles),
      context.roles,
    ),
  )
  refuse(
    'permissions',
    missingOf(
      body.flatMap(({ permissions = [] }) => permissions),
      context.permissions,
    ),
  )

  const keys: NewKey[] = []
  const plaintexts: { keyId: string; plaintext: string }[] = []
  for (const [index, element] of body.entries()) {
    const { apiId } = element
    const api = context.apis.get(apiId)
    if (api === undefined) throw notFound(`api ${apiId}`)
    const { keyspaceId } = api
    if (keyspaceId === null) throw new ApiError('PRECONDITION_FAILED', `api ${apiId} has no keyspace`)
    const { key, plaintext } = readImport(element, `${index}`)
    keys.push(resolveImport(key, { id: apiId, keyspaceId }, context))
    if (plaintext !== null) plaintexts.push({ keyId: key.id, plaintext })
  }
  if (keys.length === 0) return { keyIds: [] }

  const sealed = plaintexts.length === 0 ? [] : await services.vault.seal(workspaceId, plaintexts)
  const now = services.clock()
  await services.database.write((tx, touch) => writeNewKeys(tx, actor, keys, { sealed, touch, now }))
  return { keyIds: keys.map(({ id }) => id) }
}

/** @throws ApiError PRECONDITION_FAILED naming what is missing. */
function refuse(kind: string, missing: readonly string[]): void {
  if (missing.length > 0) throw new ApiError('PRECONDITION_FAILED', `${kind} not found: ${listed(missing)}`)
}
