import { type Endpoint, post } from '../http/endpoint.ts'
import { createApi } from './create-api.ts'
import { CreateApiBody, CreateApiReply } from './schema.ts'

export const apiRoutes: Endpoint[] = [
  post(
    '/v1/apis.createApi',
    { input: CreateApiBody, reply: CreateApiReply, summary: 'Create an API' },
    createApi,
  ),
]
