import { type Endpoint, get, post } from '../http/endpoint.ts'
import { EmptyReply } from '../lib/page.ts'
import { createApi } from './create-api.ts'
import { deleteApi } from './delete-api.ts'
import { deleteKeys } from './delete-keys.ts'
import { getApi } from './get-api.ts'
import { listApis } from './list-apis.ts'
import { listKeys } from './list-keys.ts'
import {
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
import { updateApi } from './update-api.ts'

export const apiRoutes: Endpoint[] = [
  post(
    '/v1/apis.createApi',
    {
      input: CreateApiBody,
      reply: CreateApiReply,
      summary: 'Create an API',
      errors: ['PRECONDITION_FAILED'],
    },
    createApi,
  ),
  get(
    '/v1/apis.getApi',
    { input: GetApiQuery, reply: GetApiReply, summary: 'Get an API', errors: ['NOT_FOUND'] },
    getApi,
  ),
  get('/v1/apis.listApis', { input: ListApisQuery, reply: ListApisReply, summary: 'List APIs' }, listApis),
  post(
    '/v1/apis.updateApi',
    {
      input: UpdateApiBody,
      reply: EmptyReply,
      summary: 'Update an API',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    updateApi,
  ),
  post(
    '/v1/apis.deleteApi',
    {
      input: DeleteApiBody,
      reply: EmptyReply,
      summary: 'Delete an API and its keys',
      errors: ['NOT_FOUND', 'DELETE_PROTECTED'],
    },
    deleteApi,
  ),
  get(
    '/v1/apis.listKeys',
    {
      input: ListKeysQuery,
      reply: ListKeysReply,
      summary: 'List the keys of an API',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    listKeys,
  ),
  post(
    '/v1/apis.deleteKeys',
    {
      input: DeleteKeysBody,
      reply: DeleteKeysReply,
      summary: 'Delete all keys of an API',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    deleteKeys,
  ),
]
