import type { Call } from '../../doors/http/endpoint.ts'
import { readReferences } from '../../lib/link-plan.ts'
import type { Deps } from '../../server/deps.ts'
import { authenticate } from '../root-keys/authorize.ts'
import { setLinks } from './links.ts'
import { roleLinks } from './role-links.ts'
import type { AttachRolesBody, LinkedReply } from './schema.ts'

/** Leaves the key with exactly these roles. What the root key may do is asked only for what really changes. */
export async function setRoles(deps: Deps, call: Call, body: AttachRolesBody): Promise<LinkedReply> {
  const references = readReferences(body.roles, 'roles')
  const actor = await authenticate(deps, call)
  const { keyId } = body
  return await deps.database.write(async (tx, touch) => {
    const linked = await setLinks(roleLinks, tx, actor, { keyId, references, now: deps.clock() })
    touch(keyId)
    return linked
  })
}
