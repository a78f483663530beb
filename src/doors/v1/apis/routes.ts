import { createApi } from '../../../api/apis/create-api.ts'
import { deleteApi } from '../../../api/apis/delete-api.ts'
import { deleteKeys } from '../../../api/apis/delete-keys.ts'
import { getApi } from '../../../api/apis/get-api.ts'
import { listApis } from '../../../api/apis/list-apis.ts'
import { listKeys } from '../../../api/apis/list-keys.ts'
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
} from '../../../api/apis/schema.ts'
import { updateApi } from '../../../api/apis/update-api.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { get, post } from '../endpoint.ts'
import { EmptyReply } from '../page.ts'

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
