import { audit } from '../../audit/log.ts'
import { requirePermissionBounds, sizeOfSlugs } from '../../db/bounds.ts'
import { alreadyExists } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import { type Keep, keepNothing } from '../idempotency/answers.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { connected, createdForRole, makePermissions } from './role-permissions.ts'
import { holdPermissions, insertRolePermissions, insertRoles, type NewRole } from './store.ts'

/** Permissions of a new role, by slug. */
export type PermissionsOfNewRole = {
  slugs: readonly string[]
  /** Called before missing ones are created, and before it is known whether the role exists; throws to refuse it. */
  mayCreate: () => void
}

/**
 * Creates a role, and those of its permissions that are missing. The second of two calls with one name is refused, also at
 * the same moment.
 * @returns the id of the role.
 * @throws ApiError CONFLICT; PRECONDITION_FAILED at a bound of the workspace or of the role.
 */
export async function createRole(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  { name, description }: Omit<NewRole, 'id'>,
  { slugs, mayCreate }: PermissionsOfNewRole = { slugs: [], mayCreate: () => {} },
  keep: Keep<string> = keepNothing,
): Promise<string> {
  const { workspaceId } = actor
  const id = newId('role')
  const now = services.clock()
  const wanted = [...new Set(slugs)]
  await services.database.write(async (tx) => {
    const found =
      wanted.length === 0 ? [] : await holdPermissions(tx, workspaceId, { ids: [], slugs: wanted })
    const foundSlugs = new Set(found.map(({ slug }) => slug))
    const missing = wanted.filter((slug) => !foundSlugs.has(slug))
    if (missing.length > 0) mayCreate()
    const inserted = await insertRoles(tx, workspaceId, [{ id, name, description }], now)
    if (inserted.length === 0) throw alreadyExists('role', name)
    await requirePermissionBounds(tx, workspaceId, {
      of: 'Role',
      before: sizeOfSlugs([]),
      after: sizeOfSlugs(wanted),
    })
    const { made, others } = await makePermissions(tx, workspaceId, missing, now)
    const links = [...found, ...made, ...others]
    const permissionIds = links.map((permission) => permission.id)
    await insertRolePermissions(tx, workspaceId, { roleId: id, permissionIds, now })
    await audit(tx, actor, [
      { event: 'role.create', description: `created role ${id}`, resources: [{ type: 'role', id, name }] },
      ...made.map(createdForRole),
      ...links.map((permission) => connected(id, permission)),
    ])
    await keep(tx, id)
  })
  return id
}
