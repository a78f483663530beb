import { audit } from '../../audit/log.ts'
import { notFound } from '../../errors.ts'
import { SWEEP_WAIT_MS } from '../../sweep/sweeper.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { limitEntry } from './audit.ts'
import { findIdentity, holdIdentity, type IdentityName, removeIdentity, textOf } from './store.ts'

/**
 * Deletes an identity and its limits for good, at the same cost however many keys it has. Its keys stay valid, without an
 * identity.
 * @throws ApiError NOT_FOUND
 */
export async function deleteIdentity(
  services: Pick<Services, 'database' | 'sweeper'>,
  actor: Actor,
  by: IdentityName,
): Promise<void> {
  const deletedId = await services.database.write(async (tx, invalidate) => {
    const id = await holdIdentity(tx, actor.workspaceId, by)
    const identity = id === null ? null : await findIdentity(tx, actor.workspaceId, { id })
    if (id === null || identity === null) throw notFound('identity', textOf(by))
    await removeIdentity(tx, actor.workspaceId, id)
    await audit(tx, actor, [
      {
        event: 'identity.delete',
        description: `deleted identity ${id}`,
        resources: [{ type: 'identity', id, meta: { externalId: identity.externalId } }],
      },
      ...identity.limits.map((limit) => limitEntry(id, { before: limit, after: null })),
    ])
    invalidate(id)
    return id
  })
  await services.sweeper.finishWithin(SWEEP_WAIT_MS, [deletedId])
}
