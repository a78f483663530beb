import { notFound } from '../../errors.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { authenticate, requireOn } from '../root-keys/authorize.ts'
import { presentIdentity, readIdentityName } from './fields.ts'
import type { GetIdentityQuery, IdentityReply } from './schema.ts'
import { findIdentity } from './store.ts'

/**
 * The permission may name the identity's id, which a caller with its externalId does not say: so it is checked once the
 * identity is looked up. Who lacks it learns neither whether there is one nor its id.
 */
export async function getIdentity(
  services: Services,
  call: Call,
  query: GetIdentityQuery,
): Promise<IdentityReply> {
  const name = readIdentityName(query)
  const actor = await authenticate(services, call)
  const identity = await findIdentity(services.sql, actor.workspaceId, name)
  const id = identity?.id ?? ('id' in name ? name.id : null)
  requireOn(actor, { resource: 'identity', action: 'read_identity' }, id)
  if (identity === null) throw notFound(`identity ${'id' in name ? name.id : name.externalId}`)
  return presentIdentity(identity)
}
