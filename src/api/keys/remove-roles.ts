import type { RemoveRolesBody } from '../../doors/v1/keys/schema.ts'
import { notFound } from '../../errors.ts'
import { readReferences } from '../../lib/link-plan.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import { removeLinks } from './links.ts'
import { roleLinks } from './role-links.ts'
import { holdKey } from './store.ts'

/** Detaches roles; unknown or unattached ones are passed over. */
export async function removeRoles(
  services: Services,
  call: Call,
  body: RemoveRolesBody,
): Promise<Record<string, never>> {
  const references = readReferences(body.roles, 'roles')
  const actor = await authenticate(services, call, anyOf('*', 'rbac.*.remove_role_from_key'))
  const { keyId } = body
  await services.database.write(async (tx, touch) => {
    if (!(await holdKey(tx, actor.workspaceId, keyId))) throw notFound(`key ${keyId}`)
    await removeLinks(roleLinks, tx, actor, { keyId, references })
    touch(keyId)
  })
  return {}
}
