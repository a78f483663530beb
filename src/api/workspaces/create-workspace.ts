import { audit } from '../../audit/log.ts'
import { newId } from '../../lib/ids.ts'
import { makeRootSecret } from '../../verify/secret.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { findGranter } from '../root-keys/granter.ts'
import { holdRootKey, insertRootKey } from '../root-keys/store.ts'
import { insertWorkspace } from './store.ts'

export type CreatedWorkspace = {
  id: string
  /** Holds `*` in the new workspace and nothing in others. */
  rootKey: {
    id: string
    /** The text of the root key, which is not stored. */
    secret: string
    /** Unix ms, the same end as of the operator root key that creates it; null = never. */
    expiresAt: number | null
  }
}

/**
 * Creates a workspace and its first root key, which ends when the operator root key ends.
 * @param operator From `authenticateOperator`.
 * @throws ApiError as {@link findGranter}; PRECONDITION_FAILED at a bound of the server.
 */
export async function createWorkspace(
  services: Pick<Services, 'database' | 'clock'>,
  operator: Actor,
  name: string,
): Promise<CreatedWorkspace> {
  const workspaceId = newId('ws')
  const rootKeyId = newId('key')
  const { key: secret, start, hash } = makeRootSecret()
  const now = services.clock()
  return await services.database.write(async (tx, invalidate) => {
    await holdRootKey(tx, operator.rootKeyId)
    const { id: grantedBy, expiresAt } = await findGranter(tx, operator, { right: '*', now })
    await insertWorkspace(tx, { id: workspaceId, name, now })
    await insertRootKey(tx, {
      id: rootKeyId,
      hash,
      start,
      name: 'first root key',
      forWorkspaceId: workspaceId,
      permissions: ['*'],
      isOperator: false,
      expiresAt,
      grantedBy,
      now,
    })
    await audit(tx, operator, [
      {
        event: 'workspace.create',
        description: `created workspace ${workspaceId} with root key ${rootKeyId}`,
        resources: [
          { type: 'workspace', id: workspaceId, name },
          { type: 'rootKey', id: rootKeyId },
        ],
      },
    ])
    invalidate(hash)
    return { id: workspaceId, rootKey: { id: rootKeyId, secret, expiresAt } }
  })
}
