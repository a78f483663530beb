import { notFound } from '../../errors.ts'
import type { Services } from '../parts.ts'
import { findWorkspace } from '../workspaces/store.ts'
import type { Actor } from './authorize.ts'
import { findRootKey } from './store.ts'

export type RootKeyIdentity = {
  id: string
  name: string | null
  workspaceId: string
  workspaceName: string
  permissions: readonly string[]
  isOperator: boolean
  /** Unix milliseconds; null = never. */
  expiresAt: number | null
}

/**
 * What the caller's own root key is and may do. Needs no permission.
 * @throws ApiError NOT_FOUND when it was deleted meanwhile.
 */
export async function whoamiRootKey(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId, rootKeyId }: Pick<Actor, 'workspaceId' | 'rootKeyId'>,
): Promise<RootKeyIdentity> {
  const [rootKey, workspace] = await Promise.all([
    findRootKey(sql, workspaceId, rootKeyId),
    findWorkspace(sql, workspaceId),
  ])
  if (rootKey === null || workspace === null) throw notFound('root key', rootKeyId)
  const { id, name, permissions, isOperator, expiresAt } = rootKey
  return { id, name, workspaceId, workspaceName: workspace.name, permissions, isOperator, expiresAt }
}
