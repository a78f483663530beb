import { createApi } from '../../../api/apis/create-api.ts'
import { deleteApi } from '../../../api/apis/delete-api.ts'
import { deleteKeys } from '../../../api/apis/delete-keys.ts'
import { getApiSettings } from '../../../api/apis/get-api.ts'
import { listApis } from '../../../api/apis/list-apis.ts'
import type { ApiSettings } from '../../../api/apis/store.ts'
import { updateApi } from '../../../api/apis/update-api.ts'
import { anyOf, authenticate } from '../../../api/root-keys/authorize.ts'
import { badRequest } from '../../../errors.ts'
import { isAddressOrRange } from '../../../lib/address.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { get, post } from '../endpoint.ts'
import { EmptyReply, pageOf } from '../page.ts'
import { listKeysEndpoint } from './list-keys.ts'
import {
  type ApiObject,
  CreateApiBody,
  CreateApiReply,
  DeleteApiBody,
  DeleteKeysBody,
  DeleteKeysReply,
  GetApiQuery,
  GetApiReply,
  ListApisQuery,
  ListApisReply,
  ListKeysQuery,
  ListKeysReply,
  UpdateApiBody,
} from './schema.ts'

/** Schemas and rights of the API endpoints. `api/apis/` does the work. */
export const apiRoutes: Endpoint[] = [
  post(
    '/v1/apis.createApi',
    {
      input: CreateApiBody,
      reply: CreateApiReply,
      summary: 'Create an API',
      errors: ['PRECONDITION_FAILED'],
    },
    async (services, call, { name }) => {
      const actor = await authenticate(services, call, anyOf('*', 'api.*.create_api'))
      return { apiId: await createApi(services, actor, name), name }
    },
  ),
  get(
    '/v1/apis.getApi',
    { input: GetApiQuery, reply: GetApiReply, summary: 'Get an API', errors: ['NOT_FOUND'] },
    async (services, call, { apiId }) => {
      const rights = anyOf('*', 'api.*.read_api', `api.${apiId}.read_api`)
      const actor = await authenticate(services, call, rights)
      const api = await getApiSettings(services, actor, apiId)
      return { workspaceId: api.workspaceId, ...apiObject(api) }
    },
  ),
  get(
    '/v1/apis.listApis',
    { input: ListApisQuery, reply: ListApisReply, summary: 'List APIs' },
    async (services, call, query) => {
      const actor = await authenticate(services, call, anyOf('*', 'api.*.read_api'))
      const { items, ...page } = await listApis(services, actor, pageOf(query))
      return { apis: items.map(apiObject), ...page }
    },
  ),
  post(
    '/v1/apis.updateApi',
    {
      input: UpdateApiBody,
      reply: EmptyReply,
      summary: 'Update an API',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    async (services, call, { apiId, ...settings }) => {
      refuseUnreadable(settings.ipWhitelist ?? [])
      const rights = anyOf('*', 'api.*.update_api', `api.${apiId}.update_api`)
      await updateApi(services, await authenticate(services, call, rights), apiId, settings)
      return {}
    },
  ),
  post(
    '/v1/apis.deleteApi',
    {
      input: DeleteApiBody,
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
  get(
    '/v1/apis.listKeys',
    {
      input: ListKeysQuery,
      reply: ListKeysReply,
      summary: 'List the keys of an API',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    listKeysEndpoint,
  ),
  post(
    '/v1/apis.deleteKeys',
    {
      input: DeleteKeysBody,
      reply: DeleteKeysReply,
      summary: 'Delete all keys of an API',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    async (services, call, { apiId, permanent: isPermanent = false }) => {
      const rights = anyOf('*', 'api.*.delete_key', `api.${apiId}.delete_key`)
      const actor = await authenticate(services, call, rights)
      return { deletedKeys: await deleteKeys(services, actor, apiId, { isPermanent }) }
    },
  ),
]

/** An API with its settings, under the names that apis.updateApi has. Settings without a value are null. */
const apiObject = ({
  id,
  name,
  createdAt,
  keys,
  deleteProtection,
  ipWhitelist,
  storeEncryptedKeys,
  defaultPrefix,
  defaultBytes,
}: ApiSettings): ApiObject => ({
  id,
  name,
  createdAt,
  keys,
  deleteProtection,
  ipWhitelist,
  storeEncryptedKeys,
  defaultPrefix,
  defaultBytes,
})

/** @throws ApiError BAD_REQUEST naming the first entry that is not an address or range. */
function refuseUnreadable(ipWhitelist: readonly string[]): void {
  const index = ipWhitelist.findIndex((entry) => !isAddressOrRange(entry))
  if (index >= 0) throw badRequest(`ipWhitelist.${index}: Expected an IP address or a CIDR range`)
}
