import type { AttachRolesBody, LinkedReply } from '../../doors/v1/keys/schema.ts'
import { readReferences } from '../../lib/link-plan.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { authenticate } from '../root-keys/authorize.ts'
import { setLinks } from './links.ts'
import { roleLinks } from './role-links.ts'

/** Leaves the key with exactly these roles. What the root key may do is asked only for what really changes. */
export async function setRoles(services: Services, call: Call, body: AttachRolesBody): Promise<LinkedReply> {
  const references = readReferences(body.roles, 'roles')
  const actor = await authenticate(services, call)
  const { keyId } = body
  return await services.database.write(async (tx, touch) => {
    const linked = await setLinks(roleLinks, tx, actor, { keyId, references, now: services.clock() })
    touch(keyId)
    return linked
  })
}
