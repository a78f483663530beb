import { audit } from '../../audit/log.ts'
import { requirePermissionBounds, sizeOfSlugs } from '../../db/bounds.ts'
import { notFound } from '../../errors.ts'
import {
  idsOf,
  type LinkPlan,
  planLinks,
  type Reference,
  resolveReferences,
  textsBeforeAndAfter,
} from '../../lib/link-plan.ts'
import { roleName } from '../../verify/key-changes.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { connected, createdForRole, disconnected, makePermissions } from './role-permissions.ts'
import {
  deleteRolePermissions,
  holdPermissions,
  holdRole,
  insertRolePermissions,
  listRolePermissions,
  type PermissionRow,
} from './store.ts'

/**
 * Replaces the permissions of a role. Every key with the role has them at its next verification.
 * @param references Permissions by id or slug.
 * @param options.mayChange Called with the planned change before anything is written; throws to refuse it.
 * @returns the role's permissions, in the order of the references, each once.
 * @throws ApiError NOT_FOUND for the role, or for a missing permission that must not be created; PRECONDITION_FAILED at a
 *   bound.
 */
export async function setRolePermissions(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  roleId: string,
  references: readonly Reference[],
  { mayChange }: { mayChange: (plan: Pick<LinkPlan, 'create' | 'detach'>) => void },
): Promise<PermissionRow[]> {
  const { workspaceId } = actor
  const now = services.clock()
  return await services.database.write(async (tx, invalidate) => {
    const role = await holdRole(tx, workspaceId, roleId)
    if (role === null) throw notFound('role', roleId)
    const found = await holdPermissions(tx, workspaceId, {
      ids: references.flatMap((reference) => ('id' in reference ? [reference.id] : [])),
      slugs: references.flatMap((reference) => ('text' in reference ? [reference.text] : [])),
    })
    const attached = await listRolePermissions(tx, workspaceId, roleId)
    const plan = planLinks(references, found.map(candidate), attached.map(candidate))
    const [missing] = plan.missing
    if (missing !== undefined) throw notFound('permission', 'id' in missing ? missing.id : missing.text)
    mayChange(plan)

    const { before, after } = textsBeforeAndAfter(attached.map(candidate), plan)
    await requirePermissionBounds(tx, workspaceId, {
      of: 'Role',
      before: sizeOfSlugs(before),
      after: sizeOfSlugs(after),
    })

    const { made, others } = await makePermissions(tx, workspaceId, plan.create, now)
    const connect = [...plan.attach, ...made, ...others]
    await deleteRolePermissions(tx, workspaceId, { roleId, permissionIds: idsOf(plan.detach) })
    await insertRolePermissions(tx, workspaceId, { roleId, permissionIds: idsOf(connect), now })
    await audit(tx, actor, [
      ...plan.detach.map((link) => disconnected(roleId, link)),
      ...made.map(createdForRole),
      ...connect.map((link) => connected(roleId, link)),
    ])
    invalidate(roleName(workspaceId, role.name))
    const all = [...found, ...made, ...others]
    const byId = new Map(all.map((row) => [row.id, row]))
    return resolveReferences(references, all.map(candidate)).flatMap(({ id }) => byId.get(id) ?? [])
  })
}

const candidate = ({ id, name, slug }: PermissionRow) => ({ id, name, text: slug })
