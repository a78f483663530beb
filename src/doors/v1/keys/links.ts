import { addLinks, type LinkKind, type LinkRules, removeLinks, setLinks } from '../../../api/keys/links.ts'
import { permissionLinks } from '../../../api/keys/permission-links.ts'
import { roleLinks } from '../../../api/keys/role-links.ts'
import {
  type Actor,
  anyOf,
  authenticate,
  requirePermission,
  requireRight,
} from '../../../api/root-keys/authorize.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import { type LinkElement, readReferences } from '../references.ts'
import type { LinkedReply } from './schema.ts'

/** v1 treats roles and permissions of a key alike, but for the name of the list and one right. */
export type V1Links = {
  kind: LinkKind
  /** Name of the list in a body. */
  field: 'roles' | 'permissions'
  /** keys.add… needs one of these rights to create what does not exist. */
  createRights: readonly string[]
}

export const ROLES: V1Links = {
  kind: roleLinks,
  field: 'roles',
  // The v1 API checks create_permission here, its documentation says create_role: either is enough.
  createRights: ['rbac.*.create_role', 'rbac.*.create_permission'],
}
export const PERMISSIONS: V1Links = {
  kind: permissionLinks,
  field: 'permissions',
  createRights: ['rbac.*.create_permission'],
}

/** keys.addPermissions and keys.addRoles. Answers with the requested ones, in the order of the request. */
export async function addEndpoint(
  services: DoorServices,
  call: HttpCall,
  { kind, field, createRights }: V1Links,
  { keyId, elements }: LinksBody,
): Promise<LinkedReply> {
  const { noun } = kind
  const references = readReferences(elements, field)
  const actor = await authenticate(services, call, anyOf('*', `rbac.*.add_${noun}_to_key`))
  return await addLinks(
    services,
    actor,
    kind,
    { keyId, references },
    { mayCreate: () => requireRight(actor, anyOf('*', ...createRights), `create a ${noun}`) },
  )
}

/** keys.setPermissions and keys.setRoles. Rights are checked only for real changes. */
export async function setEndpoint(
  services: DoorServices,
  call: HttpCall,
  { kind, field }: V1Links,
  { keyId, elements }: LinksBody,
): Promise<LinkedReply> {
  const references = readReferences(elements, field)
  const actor = await authenticate(services, call)
  return await setLinks(services, actor, kind, { keyId, references }, settingRules(actor, kind))
}

/** keys.removePermissions and keys.removeRoles. */
export async function removeEndpoint(
  services: DoorServices,
  call: HttpCall,
  { kind, field }: V1Links,
  { keyId, elements }: LinksBody,
): Promise<Record<string, never>> {
  const references = readReferences(elements, field)
  const actor = await authenticate(services, call, anyOf('*', `rbac.*.remove_${kind.noun}_from_key`))
  await removeLinks(services, actor, kind, { keyId, references }, { requiresAll: false })
  return {}
}

type LinksBody = { keyId: string; elements: readonly LinkElement[] }

/** Rights for replacing all roles or permissions of a key. */
export const replacingRules = (actor: Actor, { noun }: LinkKind): LinkRules => ({
  mayChange(plan) {
    if (plan === null) return
    if (plan.detach.length > 0)
      requireRight(actor, anyOf('*', `rbac.*.remove_${noun}_from_key`), `remove a ${noun} from a key`)
    // Only a root key that may attach it learns whether it exists.
    if (plan.missing.length + plan.create.length + plan.attach.length > 0)
      requirePermission(actor, anyOf('*', `rbac.*.add_${noun}_to_key`))
  },
  mayCreate: () => requirePermission(actor, anyOf('*', `rbac.*.create_${noun}`)),
})

/**
 * Rights for keys.set…. A root key without rights on this kind gets the same refusal whether or not the key and the named
 * things exist. A call that changes nothing needs no right.
 */
function settingRules(actor: Actor, kind: LinkKind): LinkRules {
  const { noun } = kind
  const { mayChange, mayCreate } = replacingRules(actor, kind)
  return {
    mayChange(plan) {
      const isChange =
        plan === null || [plan.missing, plan.detach, plan.create, plan.attach].some((list) => list.length > 0)
      if (isChange)
        requirePermission(actor, anyOf('*', `rbac.*.add_${noun}_to_key`, `rbac.*.remove_${noun}_from_key`))
      mayChange(plan)
    },
    mayCreate,
  }
}
