import { notFound } from '../../errors.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { findRole, type RoleRow } from './store.ts'

/** @throws ApiError NOT_FOUND */
export async function getRole(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  id: string,
): Promise<RoleRow> {
  const role = await findRole(sql, workspaceId, id)
  if (role === null) throw notFound('role', id)
  return role
}
