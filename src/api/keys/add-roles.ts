import type { AttachRolesBody, LinkedReply } from '../../doors/v1/keys/schema.ts'
import { notFound } from '../../errors.ts'
import { readReferences } from '../../lib/link-plan.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import { addLinks } from './links.ts'
import { roleLinks } from './role-links.ts'
import { holdKey } from './store.ts'

/** Attaches roles beside those the key has; answers with the requested ones. */
export async function addRoles(services: Services, call: Call, body: AttachRolesBody): Promise<LinkedReply> {
  const references = readReferences(body.roles, 'roles')
  const actor = await authenticate(services, call, anyOf('*', 'rbac.*.add_role_to_key'))
  const { keyId } = body
  return await services.database.write(async (tx, touch) => {
    if (!(await holdKey(tx, actor.workspaceId, keyId))) throw notFound(`key ${keyId}`)
    const linked = await addLinks(roleLinks, tx, actor, { keyId, references, now: services.clock() })
    touch(keyId)
    return linked
  })
}
