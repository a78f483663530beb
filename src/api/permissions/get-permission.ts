import type { Call } from '../../doors/http/endpoint.ts'
import { notFound } from '../../errors.ts'
import type { Deps } from '../../server/deps.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import { presentPermission } from './present.ts'
import type { GetPermissionQuery, PermissionReply } from './schema.ts'
import { findPermission } from './store.ts'

export async function getPermission(
  deps: Deps,
  call: Call,
  { permissionId: id }: GetPermissionQuery,
): Promise<PermissionReply> {
  const actor = await authenticate(deps, call, anyOf('*', 'rbac.*.read_permission'))
  const permission = await findPermission(deps.sql, actor.workspaceId, id)
  if (permission === null) throw notFound(`permission ${id}`)
  return presentPermission(permission)
}
