import type { AttachPermissionsBody, LinkedReply } from '../../doors/v1/keys/schema.ts'
import { notFound } from '../../errors.ts'
import { readReferences } from '../../lib/link-plan.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import { addLinks } from './links.ts'
import { permissionLinks } from './permission-links.ts'
import { holdKey } from './store.ts'

/** Attaches permissions beside those the key has; answers with the requested ones. */
export async function addPermissions(
  services: Services,
  call: Call,
  body: AttachPermissionsBody,
): Promise<LinkedReply> {
  const references = readReferences(body.permissions, 'permissions')
  const actor = await authenticate(services, call, anyOf('*', 'rbac.*.add_permission_to_key'))
  const { keyId } = body
  return await services.database.write(async (tx, touch) => {
    if (!(await holdKey(tx, actor.workspaceId, keyId))) throw notFound(`key ${keyId}`)
    const linked = await addLinks(permissionLinks, tx, actor, { keyId, references, now: services.clock() })
    touch(keyId)
    return linked
  })
}
