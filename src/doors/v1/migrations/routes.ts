import type { Endpoint } from '../../http/endpoint.ts'
import { post } from '../endpoint.ts'
import { EmptyReply } from '../page.ts'
import { createKeysEndpoint } from './create-keys.ts'
import { enqueueKeysEndpoint } from './enqueue-keys.ts'
import { CreateKeysBody, CreateKeysReply, EnqueueKeysBody } from './schema.ts'

/** Schemas and rights of the migration endpoints. `api/migrations/` does the work. */
export const migrationRoutes: Endpoint[] = [
  post(
    '/v1/migrations.createKeys',
    {
      input: CreateKeysBody,
      reply: CreateKeysReply,
      summary: 'Import existing keys, all or none',
      introduced: '2024-05-08',
      errors: ['NOT_FOUND', 'CONFLICT', 'PRECONDITION_FAILED'],
    },
    createKeysEndpoint,
  ),
  post(
    '/v1/migrations.enqueueKeys',
    {
      input: EnqueueKeysBody,
      reply: EmptyReply,
      summary: 'Enqueue existing keys for import',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
      status: 202,
    },
    enqueueKeysEndpoint,
  ),
]
