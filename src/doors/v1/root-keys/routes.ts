import { createRootKey } from '../../../api/root-keys/create-root-key.ts'
import { deleteRootKey } from '../../../api/root-keys/delete-root-key.ts'
import { listRootKeys } from '../../../api/root-keys/list-root-keys.ts'
import {
  CreateRootKeyBody,
  CreateRootKeyReply,
  DeleteRootKeyBody,
  ListRootKeysQuery,
  ListRootKeysReply,
  UpdateRootKeyBody,
} from '../../../api/root-keys/schema.ts'
import { updateRootKey } from '../../../api/root-keys/update-root-key.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { get, post } from '../endpoint.ts'
import { EmptyReply } from '../page.ts'

export const rootKeyRoutes: Endpoint[] = [
  post(
    '/v1/rootKeys.createRootKey',
    {
      input: CreateRootKeyBody,
      reply: CreateRootKeyReply,
      summary: 'Create a root key',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    createRootKey,
  ),
  get(
    '/v1/rootKeys.listRootKeys',
    { input: ListRootKeysQuery, reply: ListRootKeysReply, summary: 'List root keys' },
    listRootKeys,
  ),
  post(
    '/v1/rootKeys.updateRootKey',
    {
      input: UpdateRootKeyBody,
      reply: EmptyReply,
      summary: 'Update a root key',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    updateRootKey,
  ),
  post(
    '/v1/rootKeys.deleteRootKey',
    {
      input: DeleteRootKeyBody,
      reply: EmptyReply,
      summary: 'Delete a root key',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    deleteRootKey,
  ),
]
