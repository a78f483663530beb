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
  /** Holds `*` in the new workspace and nothing elsewhere. */
  rootKey: {
    id: string
    /** The root key itself, which is stored nowhere. */
    secret: string
    /** Unix ms from which it is refused, as the one that made it; null = never. */
    expiresAt: number | null
  }
}

/**
 * Makes a workspace and the first root key of it, which ends with the operator root key that makes it.
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
  return await services.database.write(async (tx, touch) => {
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
    touch(hash)
    return { id: workspaceId, rootKey: { id: rootKeyId, secret, expiresAt } }
  })
}
