import { changesOf } from '../../audit/changes.ts'
import { audit } from '../../audit/log.ts'
import { ApiError, notFound } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import { MANY_KEYS_MS } from '../../records/database.ts'
import { makeRootSecret } from '../../verify/secret.ts'
import type { Services } from '../parts.ts'
import { endSource, insertSuccessor } from '../rerolls/store.ts'
import { endOfSource, requireRerollable } from '../rerolls/succession.ts'
import { fieldsOf } from './audit.ts'
import type { Actor } from './authorize.ts'
import { asAsked, findGranter, requireHeld, requireMayChange, requireNotLater } from './granter.ts'
import { findRootKey, lockRootKeys, moveGranted } from './store.ts'

export type RerolledRootKey = {
  id: string
  /** The text of the new root key, which is not stored. */
  secret: string
  /** When the new root key ends, Unix ms; null = never. */
  expiresAt: number | null
  /** When the old one ends, Unix ms. */
  oldExpiresAt: number
}

/**
 * Makes a root key's successor: a new text with the same name, permissions and end, and an end for the root key itself.
 * What it created counts as created by the successor, so it does not end with it. The successor counts as created by the
 * actor, or as the root key itself when that rerolls itself. Either way it is revoked with the root key's `granted`.
 * @param options.rights What the actor must still hold when the successor is made.
 * @param options.overlapMs How long the root key still works.
 * @throws ApiError NOT_FOUND; as `findGranter`; INSUFFICIENT_PERMISSIONS for a root key that holds more than the actor or
 *   ends later; PRECONDITION_FAILED for an operator root key, one that has expired or has a successor, and at a bound.
 */
export async function rerollRootKey(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  id: string,
  { rights, overlapMs }: { rights: readonly [string, ...string[]]; overlapMs: number },
): Promise<RerolledRootKey> {
  const now = services.clock()
  const successorId = newId('key')
  const { key: secret, start, hash } = makeRootSecret()
  return await services.database.write(
    async (tx, invalidate) => {
      await lockRootKeys(tx, actor.workspaceId, { id, actorId: actor.rootKeyId })
      const rootKey = await findRootKey(tx, actor.workspaceId, id)
      if (rootKey === null) throw notFound('root key', id)
      requireMayChange(asAsked(actor), actor, rootKey)
      if (rootKey.isOperator)
        throw new ApiError(
          'PRECONDITION_FAILED',
          `root key ${id} is an operator root key: start the server with another TOLLGATE_ROOT_KEY, then delete this one`,
        )
      for (const right of rights) {
        const granter = await findGranter(tx, actor, { right, now })
        requireHeld(granter, rootKey.permissions)
        requireNotLater(granter, rootKey.expiresAt)
      }
      await requireRerollable(tx, rootKey, { what: 'root key', now })

      const grantedBy = rootKey.id === actor.rootKeyId ? rootKey.grantedBy : actor.rootKeyId
      await insertSuccessor(tx, id, { id: successorId, hash, start, grantedBy }, now)
      const { expiresAt: oldExpiresAt } = await endSource(tx, id, {
        successorId,
        endsAt: endOfSource(now, overlapMs),
        now,
      })
      await moveGranted(tx, id, successorId)
      await audit(tx, actor, [
        {
          event: 'rootKey.reroll',
          description: `rerolled root key ${id} into root key ${successorId}`,
          resources: [
            {
              type: 'rootKey',
              id,
              ...changesOf({ expires: rootKey.expiresAt }, { expires: oldExpiresAt }),
            },
            { type: 'rootKey', id: successorId, ...changesOf(null, fieldsOf(rootKey)) },
          ],
        },
      ])
      invalidate(id, hash)
      return { id: successorId, secret, expiresAt: rootKey.expiresAt, oldExpiresAt }
    },
    { timeoutMs: MANY_KEYS_MS },
  )
}
