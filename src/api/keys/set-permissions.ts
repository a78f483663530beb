import type { Call } from '../../doors/http/endpoint.ts'
import { readReferences } from '../../lib/link-plan.ts'
import type { Deps } from '../../server/deps.ts'
import { authenticate } from '../root-keys/authorize.ts'
import { setLinks } from './links.ts'
import { permissionLinks } from './permission-links.ts'
import type { AttachPermissionsBody, LinkedReply } from './schema.ts'

/** Leaves the key with exactly these permissions. What the root key may do is asked only for what really changes. */
export async function setPermissions(
  deps: Deps,
  call: Call,
  body: AttachPermissionsBody,
): Promise<LinkedReply> {
  const references = readReferences(body.permissions, 'permissions')
  const actor = await authenticate(deps, call)
  const { keyId } = body
  return await deps.database.write(async (tx, touch) => {
    const linked = await setLinks(permissionLinks, tx, actor, { keyId, references, now: deps.clock() })
    touch(keyId)
    return linked
  })
}
