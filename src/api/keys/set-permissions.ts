import type { AttachPermissionsBody, LinkedReply } from '../../doors/v1/keys/schema.ts'
import { readReferences } from '../../lib/link-plan.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { authenticate } from '../root-keys/authorize.ts'
import { setLinks } from './links.ts'
import { permissionLinks } from './permission-links.ts'

/** Leaves the key with exactly these permissions. What the root key may do is asked only for what really changes. */
export async function setPermissions(
  services: Services,
  call: Call,
  body: AttachPermissionsBody,
): Promise<LinkedReply> {
  const references = readReferences(body.permissions, 'permissions')
  const actor = await authenticate(services, call)
  const { keyId } = body
  return await services.database.write(async (tx, touch) => {
    const linked = await setLinks(permissionLinks, tx, actor, { keyId, references, now: services.clock() })
    touch(keyId)
    return linked
  })
}
