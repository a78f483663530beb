import { cutPage, PAGE_ITEMS_DEFAULT } from '../../lib/page.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import { presentLimits } from './fields.ts'
import type { ListIdentitiesQuery, ListIdentitiesReply } from './schema.ts'
import { countIdentities, listIdentityRows } from './store.ts'

/**
 * Identities of the workspace, oldest first. All are in the environment `default`; the parameter has no effect, and
 * names no permission either, or a permission for one identity's id would list them all.
 */
export async function listIdentities(
  services: Services,
  call: Call,
  { limit = PAGE_ITEMS_DEFAULT, cursor = '' }: ListIdentitiesQuery,
): Promise<ListIdentitiesReply> {
  const actor = await authenticate(
    services,
    call,
    anyOf('*', 'identity.*.read_identity', 'identity.default.read_identity'),
  )
  const [rows, total] = await Promise.all([
    listIdentityRows(services.sql, actor.workspaceId, { limit, cursor }),
    countIdentities(services.sql, actor.workspaceId),
  ])
  const { items, ...page } = cutPage(rows, limit)
  const identities = items.map(({ id, externalId, limits }) => ({
    id,
    externalId,
    ratelimits: presentLimits(limits),
  }))
  return { identities, total, ...page }
}
