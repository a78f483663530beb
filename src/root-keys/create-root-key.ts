import { audit } from '../audit/log.ts'
import type { Deps } from '../deps.ts'
import { ApiError } from '../errors.ts'
import type { Call } from '../http/endpoint.ts'
import { newId } from '../lib/ids.ts'
import { makeRootSecret } from '../verify/secret.ts'
import { type Actor, anyOf, authenticate } from './authorize.ts'
import type { CreateRootKeyBody, CreateRootKeyReply } from './schema.ts'
import { insertRootKey } from './store.ts'

/** Makes a root key for the caller's own workspace, holding no more than the caller does. */
export async function createRootKey(
  deps: Deps,
  call: Call,
  body: CreateRootKeyBody,
): Promise<CreateRootKeyReply> {
  const actor = await authenticate(deps, call, anyOf('*', 'root_key.*.create_root_key'))
  const permissions = [...new Set(body.permissions)]
  requireHeld(actor, permissions)
  const id = newId('key')
  const { key, start, hash } = makeRootSecret()
  const now = deps.clock()
  await deps.database.write(async (tx, touch) => {
    await insertRootKey(tx, {
      id,
      hash,
      start,
      name: body.name ?? null,
      forWorkspaceId: actor.workspaceId,
      permissions,
      isOperator: false,
      expiresAt: body.expires ?? null,
      now,
    })
    await audit(tx, actor, [
      {
        event: 'rootKey.create',
        description: `created root key ${id}`,
        resources: [{ type: 'rootKey', id, meta: { permissions } }],
      },
    ])
    touch(hash)
  })
  return { rootKeyId: id, rootKey: key }
}

/** Nobody grants what they do not hold; `*` holds everything. @throws ApiError INSUFFICIENT_PERMISSIONS */
export function requireHeld(actor: Pick<Actor, 'permissions'>, permissions: readonly string[]): void {
  if (actor.permissions.has('*')) return
  const missing = permissions.filter((permission) => !actor.permissions.has(permission))
  if (missing.length > 0)
    throw new ApiError(
      'INSUFFICIENT_PERMISSIONS',
      `cannot grant what this root key does not hold: ${missing.join(', ')}`,
    )
}
