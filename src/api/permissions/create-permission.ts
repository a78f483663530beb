import { audit } from '../../audit/log.ts'
import type { Call } from '../../doors/http/endpoint.ts'
import { ApiError } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import type { Deps } from '../../server/deps.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import type { CreatePermissionBody, CreatePermissionReply } from './schema.ts'
import { insertPermissions } from './store.ts'

/** Makes a permission. Of two with one slug, also at once, the second is a conflict. */
export async function createPermission(
  deps: Deps,
  call: Call,
  body: CreatePermissionBody,
): Promise<CreatePermissionReply> {
  const actor = await authenticate(deps, call, anyOf('*', 'rbac.*.create_permission'))
  const id = newId('perm')
  const { name, slug = name, description = null } = body
  await deps.database.write(async (tx) => {
    const inserted = await insertPermissions(
      tx,
      actor.workspaceId,
      [{ id, name, slug, description }],
      deps.clock(),
    )
    if (inserted.length === 0) throw new ApiError('CONFLICT', `permission ${slug} exists already`)
    await audit(tx, actor, [
      {
        event: 'permission.create',
        description: `created permission ${id}`,
        resources: [{ type: 'permission', id, name, meta: { slug } }],
      },
    ])
  })
  return { permissionId: id }
}
