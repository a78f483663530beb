import { changesOf } from '../../audit/changes.ts'
import { audit } from '../../audit/log.ts'
import { ApiError, notFound } from '../../errors.ts'
import { MANY_KEYS_MS } from '../../records/database.ts'
import type { Services } from '../parts.ts'
import { fieldsOf } from './audit.ts'
import type { Actor } from './authorize.ts'
import { disableGranted, shortenGranted } from './granted.ts'
import { asAsked, endsLater, findGranter, requireHeld, requireMayChange, requireNotLater } from './granter.ts'
import { changeRootKey, countOtherOperatorKeys, findRootKey, lockRootKeys } from './store.ts'

/** Absent fields stay. */
export type RootKeyEdit = {
  /** Shown to people; null = none. */
  name?: string | null
  /** Duplicates are ignored. */
  permissions?: readonly string[]
  /** False disables the root key. */
  enabled?: boolean
  /** Refused from this time on, Unix ms; null = never. An earlier end also applies to the root keys that it created. */
  expiresAt?: number | null
}

/**
 * Changes a root key of the actor's workspace, effective on the next request. Adding permissions or time is a grant:
 * bounded by the actor's own permissions and end.
 * @param options.right What the actor must still hold when the change is made.
 * @param options.isGrantedToo Also disable the root keys that it created, directly or through others; only with `enabled:
 *   false`.
 * @param options.fieldNames Names of the changed fields in the caller's words, for the audit log.
 * @throws ApiError NOT_FOUND; as {@link findGranter}; INSUFFICIENT_PERMISSIONS for more than the actor may grant or change;
 *   PRECONDITION_FAILED for the last operator root key.
 */
export async function updateRootKey(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  id: string,
  edit: RootKeyEdit,
  {
    right,
    isGrantedToo,
    fieldNames,
  }: { right: string; isGrantedToo: boolean; fieldNames: readonly string[] },
): Promise<void> {
  const now = services.clock()
  const mayReachMany = isGrantedToo || typeof edit.expiresAt === 'number'
  await services.database.write(
    async (tx, invalidate) => {
      await lockRootKeys(tx, actor.workspaceId, { id, actorId: actor.rootKeyId })
      const rootKey = await findRootKey(tx, actor.workspaceId, id)
      if (rootKey === null) throw notFound('root key', id)
      requireMayChange(asAsked(actor), actor, rootKey)
      const permissions = [...new Set(edit.permissions ?? rootKey.permissions)]
      const change = {
        name: edit.name === undefined ? rootKey.name : edit.name,
        permissions,
        enabled: edit.enabled ?? rootKey.enabled,
        expiresAt: edit.expiresAt === undefined ? rootKey.expiresAt : edit.expiresAt,
      }
      const isWeaker = !change.enabled || change.expiresAt !== null || !permissions.includes('*')
      if (rootKey.isOperator && isWeaker && (await countOtherOperatorKeys(tx, id)) === 0)
        throw new ApiError(
          'PRECONDITION_FAILED',
          `root key ${id} is the last operator root key: without it nobody could manage this server`,
        )
      const granter = await findGranter(tx, actor, { right, now })
      requireMayChange(granter, actor, rootKey)
      // The actor must hold added permissions only; existing ones may stay.
      const added = permissions.filter((permission) => !rootKey.permissions.includes(permission))
      requireHeld(granter, added)
      const isGrant =
        added.length > 0 ||
        (change.enabled && !rootKey.enabled) ||
        endsLater(change.expiresAt, rootKey.expiresAt)
      if (isGrant) requireNotLater(granter, change.expiresAt)
      const hash = await changeRootKey(tx, id, change, now)
      await audit(tx, actor, [
        {
          event: 'rootKey.update',
          description: `updated root key ${id}: ${fieldNames.join(', ')}`,
          resources: [{ type: 'rootKey', id, ...changesOf(fieldsOf(rootKey), fieldsOf(change)) }],
        },
      ])
      const written = { tx, invalidate, actor, now }
      if (change.expiresAt !== null && endsLater(rootKey.expiresAt, change.expiresAt))
        await shortenGranted(written, id, change.expiresAt)
      if (isGrantedToo) await disableGranted(written, granter, id)
      invalidate(id, ...(hash === null ? [] : [hash]))
    },
    mayReachMany ? { timeoutMs: MANY_KEYS_MS } : {},
  )
}
