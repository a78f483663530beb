import { changesOf } from '../../audit/changes.ts'
import { audit } from '../../audit/log.ts'
import { ApiError, badRequest, notFound } from '../../errors.ts'
import { MANY_KEYS_MS } from '../../records/database.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { fieldsOf } from './audit.ts'
import { anyOf, authenticate } from './authorize.ts'
import { disableGranted, shortenGranted } from './granted.ts'
import { asAsked, endsLater, findGranter, requireHeld, requireMayChange, requireNotLater } from './granter.ts'
import type { UpdateRootKeyBody } from './schema.ts'
import { changeRootKey, countOtherOperatorKeys, findRootKey, lockRootKeys } from './store.ts'

const RIGHT = 'root_key.*.update_root_key'

/**
 * Changes a root key of the caller's workspace; what is not sent stays. Effective on the very next request. What makes it do
 * more or last longer is a grant: bounded by what the caller holds, and by its end.
 */
export async function updateRootKey(
  services: Services,
  call: Call,
  body: UpdateRootKeyBody,
): Promise<Record<string, never>> {
  const actor = await authenticate(services, call, anyOf('*', RIGHT))
  const { rootKeyId: id, granted = false, ...fields } = body
  if (granted && fields.enabled !== false) throw badRequest('granted: wants enabled to be false')
  const now = services.clock()
  const mayReachMany = granted || typeof fields.expires === 'number'
  await services.database.write(
    async (tx, touch) => {
      await lockRootKeys(tx, actor.workspaceId, { id, actorId: actor.rootKeyId })
      const rootKey = await findRootKey(tx, actor.workspaceId, id)
      if (rootKey === null) throw notFound(`root key ${id}`)
      requireMayChange(asAsked(actor), actor, rootKey)
      const permissions = [...new Set(fields.permissions ?? rootKey.permissions)]
      const change = {
        name: fields.name === undefined ? rootKey.name : fields.name,
        permissions,
        enabled: fields.enabled ?? rootKey.enabled,
        expiresAt: fields.expires === undefined ? rootKey.expiresAt : fields.expires,
      }
      const isWeaker = !change.enabled || change.expiresAt !== null || !permissions.includes('*')
      if (rootKey.isOperator && isWeaker && (await countOtherOperatorKeys(tx, id)) === 0)
        throw new ApiError(
          'PRECONDITION_FAILED',
          `root key ${id} is the last operator root key: without it nobody could enter`,
        )
      const granter = await findGranter(tx, actor, { right: RIGHT, now })
      requireMayChange(granter, actor, rootKey)
      // Permissions it already has may stay; only what is added must be held by the one who adds it.
      const added = permissions.filter((permission) => !rootKey.permissions.includes(permission))
      requireHeld(granter, added)
      const isGrant =
        added.length > 0 ||
        (change.enabled && !rootKey.enabled) ||
        endsLater(change.expiresAt, rootKey.expiresAt)
      if (isGrant) requireNotLater(granter, change.expiresAt)
      await changeRootKey(tx, id, change, now)
      await audit(tx, actor, [
        {
          event: 'rootKey.update',
          description: `updated root key ${id}: ${Object.keys(fields).join(', ')}`,
          resources: [{ type: 'rootKey', id, ...changesOf(fieldsOf(rootKey), fieldsOf(change)) }],
        },
      ])
      const written = { tx, touch, actor, now }
      if (change.expiresAt !== null && endsLater(rootKey.expiresAt, change.expiresAt))
        await shortenGranted(written, id, change.expiresAt)
      if (granted) await disableGranted(written, granter, id)
      touch(id)
    },
    mayReachMany ? { timeoutMs: MANY_KEYS_MS } : {},
  )
  return {}
}
