import { keyObject } from '../../doors/v1/keys/key-object.ts'
import { ApiError, notFound } from '../../errors.ts'
import { cutPage, PAGE_ITEMS_DEFAULT } from '../../lib/page.ts'
import type { Call } from '../call.ts'
import { findIdentityIds } from '../identities/store.ts'
import { decryptKeys } from '../keys/decryption.ts'
import { countKeys, listKeyRows } from '../keys/store.ts'
import type { Services } from '../parts.ts'
import { type Actor, anyOf, authenticate, requireRight } from '../root-keys/authorize.ts'
import type { ListKeysQuery, ListKeysReply } from './schema.ts'
import { type ApiRow, findApi } from './store.ts'

/** Live keys of an API by id; fewer a page where their meta is long. `total` counts all of them, whatever the filter. */
export async function listKeys(services: Services, call: Call, query: ListKeysQuery): Promise<ListKeysReply> {
  const { apiId, limit = PAGE_ITEMS_DEFAULT, cursor = '', externalId } = query
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
  const { workspaceId } = actor
  const { keyspaceId } = await requireKeyspace(services, actor, apiId)
  if (query.decrypt)
    requireRight(actor, anyOf('*', 'api.*.decrypt_key', `api.${apiId}.decrypt_key`), 'decrypt keys')

  const identityId = externalId === undefined ? null : await findIdentityId(services, actor, externalId)
  if (identityId === undefined) return { keys: [], total: 0 }
  const ownerId = externalId === undefined ? (query.ownerId ?? null) : null
  const [{ rows, isCut }, total] = await Promise.all([
    listKeyRows(services.sql, workspaceId, { keyspaceId, identityId, ownerId }, { limit, cursor }),
    countKeys(services.sql, workspaceId, keyspaceId),
  ])
  const { items, ...page } = cutPage(rows, limit, { isCut })
  const plaintexts = query.decrypt ? await decryptKeys(services, actor, apiId, items) : null
  return { keys: items.map((row) => keyObject(row, plaintexts?.get(row.id))), total, ...page }
}

/**
 * The API and the keyspace its keys live in.
 * @throws ApiError NOT_FOUND, or PRECONDITION_FAILED when it holds no keys.
 */
export async function requireKeyspace(
  services: Services,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  apiId: string,
): Promise<ApiRow & { keyspaceId: string }> {
  const api = await findApi(services.sql, workspaceId, apiId)
  if (api === null) throw notFound(`api ${apiId}`)
  const { keyspaceId } = api
  if (keyspaceId === null) throw new ApiError('PRECONDITION_FAILED', `api ${apiId} has no keyspace`)
  return { ...api, keyspaceId }
}

async function findIdentityId(
  services: Services,
  { workspaceId }: Actor,
  externalId: string,
): Promise<string | undefined> {
  return (await findIdentityIds(services.sql, workspaceId, [externalId])).get(externalId)
}
