import { audit } from '../../audit/log.ts'
import { ApiError } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import type { CreatePermissionBody, CreatePermissionReply } from './schema.ts'
import { insertPermissions } from './store.ts'

/** Makes a permission. Of two with one slug, also at once, the second is a conflict. */
export async function createPermission(
  services: Services,
  call: Call,
  body: CreatePermissionBody,
): Promise<CreatePermissionReply> {
  const actor = await authenticate(services, call, anyOf('*', 'rbac.*.create_permission'))
  const id = newId('perm')
  const { name, slug = name, description = null } = body
  await services.database.write(async (tx) => {
    const inserted = await insertPermissions(
      tx,
      actor.workspaceId,
      [{ id, name, slug, description }],
      services.clock(),
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
