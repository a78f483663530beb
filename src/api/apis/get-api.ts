import { notFound } from '../../errors.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import type { GetApiQuery, GetApiReply } from './schema.ts'
import { findApi } from './store.ts'

/** Id, workspace and name: settings stay inside. */
export async function getApi(services: Services, call: Call, { apiId }: GetApiQuery): Promise<GetApiReply> {
  const actor = await authenticate(services, call, anyOf('*', 'api.*.read_api', `api.${apiId}.read_api`))
  const api = await findApi(services.sql, actor.workspaceId, apiId)
  if (api === null) throw notFound(`api ${apiId}`)
  return { id: api.id, workspaceId: api.workspaceId, name: api.name }
}
