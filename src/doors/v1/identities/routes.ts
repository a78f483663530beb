import { createIdentity } from '../../../api/identities/create-identity.ts'
import { deleteIdentity } from '../../../api/identities/delete-identity.ts'
import { eraseIdentity } from '../../../api/identities/erase-identity.ts'
import { getIdentity, lookAtSharedLimits } from '../../../api/identities/get-identity.ts'
import { listIdentities, searchIdentities } from '../../../api/identities/list-identities.ts'
import { type ExactIdentityName, textOf } from '../../../api/identities/store.ts'
import { updateIdentity } from '../../../api/identities/update-identity.ts'
import {
  type Actor,
  anyOf,
  authenticate,
  type Right,
  requireOn,
  requirePermission,
} from '../../../api/root-keys/authorize.ts'
import { notFound } from '../../../errors.ts'
import { readMeta } from '../../../lib/meta.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { get, post } from '../endpoint.ts'
import { EraseReply } from '../erase-reply.ts'
import { EmptyReply, pageOf } from '../page.ts'
import { presentIdentity, presentLimits, readIdentityName, readLimits } from './fields.ts'
import {
  CreateIdentityBody,
  CreateIdentityReply,
  DeleteIdentityBody,
  EraseIdentityBody,
  GetIdentityQuery,
  GetIdentityReply,
  IdentityReply,
  ListIdentitiesQuery,
  ListIdentitiesReply,
  UpdateIdentityBody,
} from './schema.ts'

/** Schemas and rights of the identity endpoints. `api/identities/` does the work. */
export const identityRoutes: Endpoint[] = [
  post(
    '/v1/identities.createIdentity',
    {
      input: CreateIdentityBody,
      reply: CreateIdentityReply,
      summary: 'Create an identity',
      errors: ['CONFLICT', 'PRECONDITION_FAILED'],
    },
    async (services, call, { externalId, meta, ratelimits = [] }) => {
      const actor = await authenticate(services, call, anyOf('*', 'identity.*.create_identity'))
      const limits = readLimits(ratelimits)
      const identity = { externalId, meta: readMeta(meta), limits }
      return { identityId: await createIdentity(services, actor, identity) }
    },
  ),
  get(
    '/v1/identities.getIdentity',
    { input: GetIdentityQuery, reply: GetIdentityReply, summary: 'Get an identity', errors: ['NOT_FOUND'] },
    async (services, call, query) => {
      const by = readIdentityName(query)
      const actor = await authenticate(services, call)
      const identity = await getIdentity(services, actor, by)
      // The permission names the identity's id, which a request by externalId does not have.
      requireOn(actor, READ, identity?.id ?? ('id' in by ? by.id : null))
      if (identity === null) throw notFound('identity', textOf(by))
      const shown = presentIdentity(identity)
      if (query.counters !== true) return shown
      const windows = await lookAtSharedLimits(services, actor, identity)
      const ratelimits = shown.ratelimits.map((limit, at) => ({
        ...limit,
        ...(windows[at] !== undefined && { remaining: windows[at].remaining, reset: windows[at].resetAtMs }),
      }))
      return { ...shown, ratelimits }
    },
  ),
  get(
    '/v1/identities.listIdentities',
    {
      input: ListIdentitiesQuery,
      reply: ListIdentitiesReply,
      summary: 'List identities',
      introduced: '2024-07-17',
    },
    async (services, call, query) => {
      // The permission of one environment is enough for a list of all; the right on one identity is not.
      const rights = anyOf('*', 'identity.*.read_identity', 'identity.default.read_identity')
      const actor = await authenticate(services, call, rights)
      const { search = '' } = query
      const { items, ...page } =
        search === ''
          ? await listIdentities(services, actor, pageOf(query))
          : await searchIdentities(services, actor, search, pageOf(query))
      const identities = items.map(({ id, externalId, limits }) => ({
        id,
        externalId,
        ratelimits: presentLimits(limits),
      }))
      return { identities, ...page }
    },
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
    async (services, call, body) => {
      const actor = await authenticate(services, call, anyOf('*', 'identity.*.update_identity'))
      const by = readIdentityName(body)
      const limits = body.ratelimits === undefined ? null : readLimits(body.ratelimits)
      const change = { meta: readMeta(body.meta), limits }
      return presentIdentity(await updateIdentity(services, actor, by, change))
    },
  ),
  post(
    '/v1/identities.deleteIdentity',
    { input: DeleteIdentityBody, reply: EmptyReply, summary: 'Delete an identity', errors: ['NOT_FOUND'] },
    async (services, call, { identityId }) => {
      const rights = anyOf('*', 'identity.*.delete_identity', `identity.${identityId}.delete_identity`)
      await deleteIdentity(services, await authenticate(services, call, rights), { id: identityId })
      return {}
    },
  ),
  post(
    '/v1/identities.eraseIdentity',
    {
      input: EraseIdentityBody,
      reply: EraseReply,
      summary: 'Erase a person: the identity, its keys and every trace of both',
      errors: ['NOT_FOUND'],
    },
    async (services, call, body) => {
      const by = readIdentityName(body)
      const actor = await authenticate(services, call)
      const identity = await getIdentity(services, actor, by)
      requireErase(actor, by, identity?.id ?? null)
      return await eraseIdentity(services, actor, by, identity)
    },
  ),
]

const READ: Right = { resource: 'identity', action: 'read_identity' }

/** A root key without the right must learn neither whether the identity exists nor its id. */
function requireErase(actor: Actor, by: ExactIdentityName, foundId: string | null): void {
  const own = `identity.${'id' in by ? by.id : foundId}.erase_identity`
  const isNamed = 'id' in by || actor.permissions.has(own)
  requirePermission(actor, anyOf('*', 'identity.*.erase_identity', ...(isNamed ? [own] : [])))
}
