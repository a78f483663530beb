import { notFound } from '../../errors.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { findPermission, type LinkName, type PermissionRow, textOf } from './store.ts'

/** @throws ApiError NOT_FOUND */
export async function getPermission(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  by: LinkName,
): Promise<PermissionRow> {
  const permission = await findPermission(sql, workspaceId, by)
  if (permission === null) throw notFound('permission', textOf(by))
  return permission
}
