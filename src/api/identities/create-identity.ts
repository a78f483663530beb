import { audit } from '../../audit/log.ts'
import { ApiError } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import { readMeta } from '../../lib/meta.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import { limitEntry } from './audit.ts'
import { newLimits, requireDistinctNames } from './fields.ts'
import type { CreateIdentityBody, CreateIdentityReply } from './schema.ts'
import { insertIdentity, insertIdentityLimits } from './store.ts'

/** Makes an identity with its limits. Of two with one externalId, also at once, the second is a conflict. */
export async function createIdentity(
  services: Services,
  call: Call,
  { externalId, meta, ratelimits = [] }: CreateIdentityBody,
): Promise<CreateIdentityReply> {
  const actor = await authenticate(services, call, anyOf('*', 'identity.*.create_identity'))
  requireDistinctNames(ratelimits)
  const metaText = readMeta(meta)
  const id = newId('id')
  const limits = newLimits(ratelimits)
  const now = services.clock()
  await services.database.write(async (tx) => {
    const identity = { id, externalId, meta: metaText, now }
    if (!(await insertIdentity(tx, actor.workspaceId, identity)))
      throw new ApiError('CONFLICT', `identity with externalId ${externalId} exists already`)
    await insertIdentityLimits(tx, actor.workspaceId, id, limits, now)
    await audit(tx, actor, [
      {
        event: 'identity.create',
        description: `created identity ${id}`,
        resources: [{ type: 'identity', id, meta: { externalId } }],
      },
      ...limits.map((limit) => limitEntry(id, { before: null, after: limit })),
    ])
  })
  return { identityId: id }
}
