import { notFound } from '../../errors.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import { presentPermission } from './present.ts'
import type { GetPermissionQuery, PermissionReply } from './schema.ts'
import { findPermission } from './store.ts'

export async function getPermission(
  services: Services,
  call: Call,
  { permissionId: id }: GetPermissionQuery,
): Promise<PermissionReply> {
  const actor = await authenticate(services, call, anyOf('*', 'rbac.*.read_permission'))
  const permission = await findPermission(services.sql, actor.workspaceId, id)
  if (permission === null) throw notFound(`permission ${id}`)
  return presentPermission(permission)
}
