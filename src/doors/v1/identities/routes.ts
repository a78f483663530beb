import { createIdentity } from '../../../api/identities/create-identity.ts'
import { deleteIdentity } from '../../../api/identities/delete-identity.ts'
import { eraseIdentity } from '../../../api/identities/erase-identity.ts'
import { getIdentity } from '../../../api/identities/get-identity.ts'
import { listIdentities } from '../../../api/identities/list-identities.ts'
import {
  CreateIdentityBody,
  CreateIdentityReply,
  DeleteIdentityBody,
  EraseIdentityBody,
  GetIdentityQuery,
  IdentityReply,
  ListIdentitiesQuery,
  ListIdentitiesReply,
  UpdateIdentityBody,
} from '../../../api/identities/schema.ts'
import { updateIdentity } from '../../../api/identities/update-identity.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { get, post } from '../endpoint.ts'
import { EraseReply } from '../erase-reply.ts'
import { EmptyReply } from '../page.ts'

export const identityRoutes: Endpoint[] = [
  post(
    '/v1/identities.createIdentity',
    {
      input: CreateIdentityBody,
      reply: CreateIdentityReply,
      summary: 'Create an identity',
      errors: ['CONFLICT', 'PRECONDITION_FAILED'],
    },
    createIdentity,
  ),
  get(
    '/v1/identities.getIdentity',
    { input: GetIdentityQuery, reply: IdentityReply, summary: 'Get an identity', errors: ['NOT_FOUND'] },
    getIdentity,
  ),
  get(
    '/v1/identities.listIdentities',
    {
      input: ListIdentitiesQuery,
      reply: ListIdentitiesReply,
      summary: 'List identities',
      introduced: '2024-07-17',
    },
    listIdentities,
  ),
  post(
    '/v1/identities.updateIdentity',
    {
      input: UpdateIdentityBody,
      reply: IdentityReply,
      summary: 'Update an identity',
      introduced: '2024-07-17',
      errors: ['NOT_FOUND', 'CONFLICT'],
    },
    updateIdentity,
  ),
  post(
    '/v1/identities.deleteIdentity',
    { input: DeleteIdentityBody, reply: EmptyReply, summary: 'Delete an identity', errors: ['NOT_FOUND'] },
    deleteIdentity,
  ),
  post(
    '/v1/identities.eraseIdentity',
    {
      input: EraseIdentityBody,
      reply: EraseReply,
      summary: 'Erase a person: identity, keys, and every name of theirs in what is kept',
      errors: ['NOT_FOUND'],
    },
    eraseIdentity,
  ),
]
