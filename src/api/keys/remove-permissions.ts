import type { RemovePermissionsBody } from '../../doors/v1/keys/schema.ts'
import { notFound } from '../../errors.ts'
import { readReferences } from '../../lib/link-plan.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import { removeLinks } from './links.ts'
import { permissionLinks } from './permission-links.ts'
import { holdKey } from './store.ts'

/** Detaches permissions; unknown or unattached ones are passed over. */
export async function removePermissions(
  services: Services,
  call: Call,
  body: RemovePermissionsBody,
): Promise<Record<string, never>> {
  const references = readReferences(body.permissions, 'permissions')
  const actor = await authenticate(services, call, anyOf('*', 'rbac.*.remove_permission_from_key'))
  const { keyId } = body
  await services.database.write(async (tx, touch) => {
    if (!(await holdKey(tx, actor.workspaceId, keyId))) throw notFound(`key ${keyId}`)
    await removeLinks(permissionLinks, tx, actor, { keyId, references })
    touch(keyId)
  })
  return {}
}
