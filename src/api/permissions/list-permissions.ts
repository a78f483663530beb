import type { Call } from '../../doors/http/endpoint.ts'
import type { Deps } from '../../server/deps.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import { presentPermission } from './present.ts'
import type { ListPermissionsReply } from './schema.ts'
import { listPermissionRows } from './store.ts'

/** All permissions of the workspace, oldest first; the v1 API knows no pages here. */
export async function listPermissions(deps: Deps, call: Call): Promise<ListPermissionsReply> {
  const actor = await authenticate(deps, call, anyOf('*', 'rbac.*.read_permission'))
  return (await listPermissionRows(deps.sql, actor.workspaceId)).map(presentPermission)
}
