import { changesOf } from '../audit/changes.ts'
import { audit } from '../audit/log.ts'
import type { Deps } from '../deps.ts'
import { ApiError, notFound } from '../errors.ts'
import type { Call } from '../http/endpoint.ts'
import { anyOf, authenticate } from './authorize.ts'
import { requireHeld } from './create-root-key.ts'
import type { UpdateRootKeyBody } from './schema.ts'
import {
  changeRootKey,
  countOtherOperatorKeys,
  findRootKey,
  lockRootKey,
  type RootKeyChange,
} from './store.ts'

/** Changes a root key of the caller's workspace; what is not sent stays. Effective on the very next request. */
export async function updateRootKey(
  deps: Deps,
  call: Call,
  body: UpdateRootKeyBody,
): Promise<Record<string, never>> {
  const actor = await authenticate(deps, call, anyOf('*', 'root_key.*.update_root_key'))
  const { rootKeyId: id } = body
  await deps.database.write(async (tx, touch) => {
    await lockRootKey(tx, actor.workspaceId, id)
    const rootKey = await findRootKey(tx, actor.workspaceId, id)
    if (rootKey === null) throw notFound(`root key ${id}`)
    const permissions = [...new Set(body.permissions ?? rootKey.permissions)]
    // Permissions it already has may stay; only what is added must be held by the one who adds it.
    requireHeld(
      actor,
      permissions.filter((permission) => !rootKey.permissions.includes(permission)),
    )
    const change = {
      name: body.name === undefined ? rootKey.name : body.name,
      permissions,
      enabled: body.enabled ?? rootKey.enabled,
      expiresAt: body.expires === undefined ? rootKey.expiresAt : body.expires,
    }
    const isWeaker = !change.enabled || change.expiresAt !== null || !permissions.includes('*')
    if (rootKey.isOperator && isWeaker && (await countOtherOperatorKeys(tx, id)) === 0)
      throw new ApiError(
        'PRECONDITION_FAILED',
        `root key ${id} is the last operator root key: without it nobody could enter`,
      )
    await changeRootKey(tx, id, change, deps.clock())
    await audit(tx, actor, [
      {
        event: 'rootKey.update',
        description: `updated root key ${id}: ${Object.keys(body)
          .filter((field) => field !== 'rootKeyId')
          .join(', ')}`,
        resources: [{ type: 'rootKey', id, ...changesOf(fieldsOf(rootKey), fieldsOf(change)) }],
      },
    ])
    touch(id)
  })
  return {}
}

/** Of a root key, what the audit log says. Not its text, nor the beginning of that. */
export const fieldsOf = ({ name, permissions, enabled, expiresAt }: RootKeyChange) => ({
  name,
  permissions,
  enabled,
  expires: expiresAt,
})
