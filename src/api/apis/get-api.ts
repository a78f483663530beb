import { ApiError, notFound } from '../../errors.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { type ApiRow, findApi } from './store.ts'

/** A live API. @throws ApiError NOT_FOUND */
export async function getApi(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  id: string,
): Promise<ApiRow> {
  const api = await findApi(sql, workspaceId, id)
  if (api === null) throw notFound(`api ${id}`)
  return api
}

/**
 * A live API with the keyspace that its keys live in.
 * @throws ApiError NOT_FOUND; PRECONDITION_FAILED when it holds no keys.
 */
export async function getApiWithKeys(
  services: Pick<Services, 'sql'>,
  actor: Pick<Actor, 'workspaceId'>,
  id: string,
): Promise<ApiRow & { keyspaceId: string }> {
  const api = await getApi(services, actor, id)
  const { keyspaceId } = api
  if (keyspaceId === null) throw new ApiError('PRECONDITION_FAILED', `api ${id} has no keyspace`)
  return { ...api, keyspaceId }
}
