import { notFound } from '../../errors.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import { presentRole } from './present.ts'
import type { GetRoleQuery, RoleReply } from './schema.ts'
import { findRole } from './store.ts'

export async function getRole(
  services: Services,
  call: Call,
  { roleId: id }: GetRoleQuery,
): Promise<RoleReply> {
  const actor = await authenticate(services, call, anyOf('*', 'rbac.*.read_role'))
  const role = await findRole(services.sql, actor.workspaceId, id)
  if (role === null) throw notFound(`role ${id}`)
  return presentRole(role)
}
