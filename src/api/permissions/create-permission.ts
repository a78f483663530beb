import { audit } from '../../audit/log.ts'
import { alreadyExists } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import { type Keep, keepNothing } from '../idempotency/answers.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { insertPermissions, type NewPermission } from './store.ts'

/**
 * Creates a permission. The second of two calls with one slug is refused, also at the same moment.
 * @returns the id of the permission.
 * @throws ApiError CONFLICT; PRECONDITION_FAILED at a bound of the workspace.
 */
export async function createPermission(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  { name, slug, description }: Omit<NewPermission, 'id'>,
  keep: Keep<string> = keepNothing,
): Promise<string> {
  const id = newId('perm')
  await services.database.write(async (tx) => {
    const inserted = await insertPermissions(
      tx,
      actor.workspaceId,
      [{ id, name, slug, description }],
      services.clock(),
    )
    if (inserted.length === 0) throw alreadyExists('permission', slug)
    await audit(tx, actor, [
      {
        event: 'permission.create',
        description: `created permission ${id}`,
        resources: [{ type: 'permission', id, name, meta: { slug } }],
      },
    ])
    await keep(tx, id)
  })
  return id
}
