import { ApiError, notFound } from '../../errors.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { type ApiRow, type ApiSettings, findApi, findApiSettings } from './store.ts'

/** The API, unless it is deleted. @throws ApiError NOT_FOUND */
export async function getApi(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  id: string,
): Promise<ApiRow> {
  const api = await findApi(sql, workspaceId, id)
  if (api === null) throw notFound('api', id)
  return api
}

/** As {@link getApi}, with all settings. @throws ApiError NOT_FOUND */
export async function getApiSettings(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  id: string,
): Promise<ApiSettings> {
  const api = await findApiSettings(sql, workspaceId, id)
  if (api === null) throw notFound('api', id)
  return api
}

/**
 * The API with the keyspace of its keys.
 * @throws ApiError NOT_FOUND; PRECONDITION_FAILED when the API has no keyspace.
 */
export async function getApiWithKeys(
  services: Pick<Services, 'sql'>,
  actor: Pick<Actor, 'workspaceId'>,
  id: string,
): Promise<ApiRow & { keyspaceId: string }> {
  return requireKeyspace(await getApi(services, actor, id))
}

/** @throws ApiError PRECONDITION_FAILED when the API has no keyspace. */
export function requireKeyspace(api: ApiRow): ApiRow & { keyspaceId: string } {
  const { id, keyspaceId } = api
  if (keyspaceId === null) throw new ApiError('PRECONDITION_FAILED', `api ${id} has no keyspace`)
  return { ...api, keyspaceId }
}
