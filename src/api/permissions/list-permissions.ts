import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import { presentPermission } from './present.ts'
import type { ListPermissionsReply } from './schema.ts'
import { listPermissionRows } from './store.ts'

/** All permissions of the workspace, oldest first; the v1 API knows no pages here. */
export async function listPermissions(services: Services, call: Call): Promise<ListPermissionsReply> {
  const actor = await authenticate(services, call, anyOf('*', 'rbac.*.read_permission'))
  return (await listPermissionRows(services.sql, actor.workspaceId)).map(presentPermission)
}
