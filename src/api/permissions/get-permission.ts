import { notFound } from '../../errors.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { findPermission, type PermissionRow } from './store.ts'

/** @throws ApiError NOT_FOUND */
export async function getPermission(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  id: string,
): Promise<PermissionRow> {
  const permission = await findPermission(sql, workspaceId, id)
  if (permission === null) throw notFound('permission', id)
  return permission
}
