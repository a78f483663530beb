import { createApi } from '../../../api/apis/create-api.ts'
import { deleteApi } from '../../../api/apis/delete-api.ts'
import { getApi } from '../../../api/apis/get-api.ts'
import { anyOf, authenticate } from '../../../api/root-keys/authorize.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { create, post } from '../endpoint.ts'
import { EmptyReply } from '../schema.ts'
import { listKeysEndpoint } from './list-keys.ts'
import { ApiBody, CreateApiBody, CreateApiData, GetApiData } from './schema.ts'

export const apiRoutes: Endpoint[] = [
  create(
    '/v2/apis.createApi',
    {
      input: CreateApiBody,
      reply: CreateApiData,
      summary: 'Create an API',
      errors: ['PRECONDITION_FAILED'],
    },
    async (services, call, { name }, keep) => {
      const actor = await authenticate(services, call, anyOf('*', 'api.*.create_api'))
      return { apiId: await createApi(services, actor, name, (tx, apiId) => keep(tx, { apiId })) }
    },
  ),
  post(
    '/v2/apis.getApi',
    { input: ApiBody, reply: GetApiData, summary: 'Get an API', errors: ['NOT_FOUND'] },
    async (services, call, { apiId }) => {
      const rights = anyOf('*', 'api.*.read_api', `api.${apiId}.read_api`)
      const { id, name } = await getApi(services, await authenticate(services, call, rights), apiId)
      return { id, name }
    },
  ),
  post(
    '/v2/apis.deleteApi',
    {
      input: ApiBody,
      reply: EmptyReply,
      summary: 'Delete an API and its keys',
      errors: ['NOT_FOUND', 'DELETE_PROTECTED'],
    },
    async (services, call, { apiId }) => {
      const rights = anyOf('*', 'api.*.delete_api', `api.${apiId}.delete_api`)
      await deleteApi(services, await authenticate(services, call, rights), apiId)
      return {}
    },
  ),
  listKeysEndpoint,
]
