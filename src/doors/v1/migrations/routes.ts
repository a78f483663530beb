import { discardImports, listImports, retryImports } from '../../../api/migrations/failed-imports.ts'
import { anyOf, authenticate } from '../../../api/root-keys/authorize.ts'
import { PAGE_ITEMS_DEFAULT } from '../../../lib/page.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { get, post } from '../endpoint.ts'
import { EmptyReply } from '../page.ts'
import { checkKeysEndpoint } from './check-keys.ts'
import { createKeysEndpoint } from './create-keys.ts'
import { enqueueKeysEndpoint } from './enqueue-keys.ts'
import {
  CheckKeysBody,
  CheckKeysReply,
  CreateKeysBody,
  CreateKeysReply,
  DiscardImportsBody,
  DiscardImportsReply,
  EnqueueKeysBody,
  ListImportsQuery,
  ListImportsReply,
  RetryImportsBody,
  RetryImportsReply,
} from './schema.ts'

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
    '/v1/migrations.checkKeys',
    {
      input: CheckKeysBody,
      reply: CheckKeysReply,
      summary: 'Check keys before their import; nothing is changed',
    },
    checkKeysEndpoint,
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
  get(
    '/v1/migrations.listImports',
    {
      input: ListImportsQuery,
      reply: ListImportsReply,
      summary: 'List enqueued keys that were given up, and count those that wait',
    },
    async (services, call, { limit = PAGE_ITEMS_DEFAULT, cursor = '' }) => {
      const actor = await authenticate(services, call, CREATE_IN_ALL)
      const { items, ...rest } = await listImports(services, actor, { limit, after: cursor })
      const imports = items.map(({ name, createdAt: enqueuedAt, ...row }) => ({
        ...row,
        ...(name === null ? {} : { name }),
        enqueuedAt,
      }))
      return { imports, ...rest }
    },
  ),
  post(
    '/v1/migrations.retryImports',
    {
      input: RetryImportsBody,
      reply: RetryImportsReply,
      summary: 'Enqueue keys again that were given up',
      errors: ['PRECONDITION_FAILED'],
    },
    async (services, call, { importIds }) => {
      const actor = await authenticate(services, call, CREATE_IN_ALL)
      return { retried: await retryImports(services, actor, importIds) }
    },
  ),
  post(
    '/v1/migrations.discardImports',
    {
      input: DiscardImportsBody,
      reply: DiscardImportsReply,
      summary: 'Remove enqueued keys that were given up',
    },
    async (services, call, { importIds }) => {
      const actor = await authenticate(services, call, CREATE_IN_ALL)
      return { discarded: await discardImports(services, actor, importIds) }
    },
  ),
]

/** The queue is one for all APIs of the workspace. */
const CREATE_IN_ALL = anyOf('*', 'api.*.create_key')
