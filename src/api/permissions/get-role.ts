import type { Call } from '../../doors/http/endpoint.ts'
import { notFound } from '../../errors.ts'
import type { Deps } from '../../server/deps.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import { presentRole } from './present.ts'
import type { GetRoleQuery, RoleReply } from './schema.ts'
import { findRole } from './store.ts'

export async function getRole(deps: Deps, call: Call, { roleId: id }: GetRoleQuery): Promise<RoleReply> {
  const actor = await authenticate(deps, call, anyOf('*', 'rbac.*.read_role'))
  const role = await findRole(deps.sql, actor.workspaceId, id)
  if (role === null) throw notFound(`role ${id}`)
  return presentRole(role)
}
