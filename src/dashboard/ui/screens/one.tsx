import { match } from '../match.ts'
import { place } from '../route.ts'
import { Identity } from './identities.tsx'
import { Permission, Role } from './roles.tsx'

/** The screens of one thing, whose id is in the path. Another id is another screen: nothing of the last one stays. */
const idIn = (screen: string) => match(`/dashboard/w/:workspace/${screen}/:id`, place.value.path)?.id ?? ''

export function IdentityScreen() {
  const id = idIn('identities')
  return <Identity key={id} id={id} />
}

export function RoleScreen() {
  const id = idIn('roles')
  return <Role key={id} id={id} />
}

export function PermissionScreen() {
  const id = idIn('permissions')
  return <Permission key={id} id={id} />
}
