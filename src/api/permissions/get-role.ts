import { notFound } from '../../errors.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import {
  findRole,
  type LinkName,
  type RoleRow,
  type RoleWithPermissions,
  readRoles,
  textOf,
} from './store.ts'

/** @throws ApiError NOT_FOUND */
export async function getRole(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  by: LinkName,
): Promise<RoleRow> {
  const role = await findRole(sql, workspaceId, by)
  if (role === null) throw notFound('role', textOf(by))
  return role
}

/** A role with its permissions. @throws ApiError NOT_FOUND */
export async function getRoleWithPermissions(
  services: Pick<Services, 'sql'>,
  actor: Pick<Actor, 'workspaceId'>,
  by: LinkName,
): Promise<RoleWithPermissions> {
  const { id } = await getRole(services, actor, by)
  const { rows } = await readRoles(services.sql, actor.workspaceId, [id])
  const [role] = rows
  if (role === undefined) throw notFound('role', textOf(by)) // deleted in between
  return role
}
