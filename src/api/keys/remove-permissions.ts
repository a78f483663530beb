import type { Call } from '../../doors/http/endpoint.ts'
import { notFound } from '../../errors.ts'
import { readReferences } from '../../lib/link-plan.ts'
import type { Deps } from '../../server/deps.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import { removeLinks } from './links.ts'
import { permissionLinks } from './permission-links.ts'
import type { RemovePermissionsBody } from './schema.ts'
import { holdKey } from './store.ts'

/** Detaches permissions; unknown or unattached ones are passed over. */
export async function removePermissions(
  deps: Deps,
  call: Call,
  body: RemovePermissionsBody,
): Promise<Record<string, never>> {
  const references = readReferences(body.permissions, 'permissions')
  const actor = await authenticate(deps, call, anyOf('*', 'rbac.*.remove_permission_from_key'))
  const { keyId } = body
  await deps.database.write(async (tx, touch) => {
    if (!(await holdKey(tx, actor.workspaceId, keyId))) throw notFound(`key ${keyId}`)
    await removeLinks(permissionLinks, tx, actor, { keyId, references })
    touch(keyId)
  })
  return {}
}
