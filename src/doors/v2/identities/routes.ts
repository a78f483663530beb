import { createIdentity } from '../../../api/identities/create-identity.ts'
import { deleteIdentity } from '../../../api/identities/delete-identity.ts'
import { findIdentities } from '../../../api/identities/find-identities.ts'
import { getIdentity } from '../../../api/identities/get-identity.ts'
import { updateIdentity } from '../../../api/identities/update-identity.ts'
import { anyOf, authenticate, type Right, requireOn, requireOnAny } from '../../../api/root-keys/authorize.ts'
import { notFound } from '../../../errors.ts'
import { readMeta } from '../../../lib/meta.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { create, list, post } from '../endpoint.ts'
import { readLimits } from '../limits.ts'
import { requireShortMeta } from '../meta.ts'
import { Listed, pageOf } from '../page.ts'
import { EmptyReply, Identity } from '../schema.ts'
import { identityObject } from './identity-object.ts'
import {
  CreateIdentityBody,
  CreateIdentityData,
  IdentityBody,
  ListIdentitiesBody,
  UpdateIdentityBody,
} from './schema.ts'

export const identityRoutes: Endpoint[] = [
  create(
    '/v2/identities.createIdentity',
    {
      input: CreateIdentityBody,
      reply: CreateIdentityData,
      summary: 'Create an identity',
      errors: ['CONFLICT', 'PRECONDITION_FAILED'],
    },
    async (services, call, { externalId, meta, ratelimits = [] }, keep) => {
      const actor = await authenticate(services, call, anyOf('*', 'identity.*.create_identity'))
      const limits = readLimits(ratelimits)
      requireShortMeta(meta)
      const identity = { externalId, meta: readMeta(meta), limits }
      const identityId = await createIdentity(services, actor, identity, (tx, identityId) =>
        keep(tx, { identityId }),
      )
      return { identityId }
    },
  ),
  post(
    '/v2/identities.getIdentity',
    { input: IdentityBody, reply: Identity, summary: 'Get an identity', errors: ['NOT_FOUND'] },
    async (services, call, { identity: name }) => {
      const actor = await authenticate(services, call)
      requireOnAny(actor, READ)
      const identity = await getIdentity(services, actor, { idOrExternalId: name })
      if (identity === null) throw notFound('identity', name)
      // The permission names the id, which a request by external id does not have.
      requireOn(actor, READ, identity.id)
      return identityObject(identity)
    },
  ),
  list(
    '/v2/identities.listIdentities',
    { input: ListIdentitiesBody, item: Identity, summary: 'List or search identities' },
    async (services, call, { search = '', ...body }) => {
      const actor = await authenticate(services, call)
      requireOnAny(actor, READ)
      const { items, ...page } = await findIdentities(services, actor, search.trim(), pageOf(body))
      for (const { id } of items) requireOn(actor, READ, id)
      return new Listed(items.map(identityObject), page)
    },
  ),
  post(
    '/v2/identities.updateIdentity',
    { input: UpdateIdentityBody, reply: Identity, summary: 'Update an identity', errors: ['NOT_FOUND'] },
    async (services, call, { identity: name, meta, ratelimits }) => {
      const actor = await authenticate(services, call, anyOf('*', 'identity.*.update_identity'))
      const limits = ratelimits === undefined ? null : readLimits(ratelimits)
      requireShortMeta(meta)
      const change = { meta: readMeta(meta), limits }
      return identityObject(await updateIdentity(services, actor, { idOrExternalId: name }, change))
    },
  ),
  post(
    '/v2/identities.deleteIdentity',
    { input: IdentityBody, reply: EmptyReply, summary: 'Delete an identity', errors: ['NOT_FOUND'] },
    async (services, call, { identity: name }) => {
      const actor = await authenticate(services, call, anyOf('*', 'identity.*.delete_identity'))
      await deleteIdentity(services, actor, { idOrExternalId: name })
      return {}
    },
  ),
]

const READ: Right = { resource: 'identity', action: 'read_identity' }
