import { audit } from '../../audit/log.ts'
import { newId } from '../../lib/ids.ts'
import { makeRootSecret } from '../../verify/secret.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { authenticateOperator } from '../root-keys/authorize.ts'
import { findGranter } from '../root-keys/granter.ts'
import { holdRootKey, insertRootKey } from '../root-keys/store.ts'
import type { CreateWorkspaceBody, CreateWorkspaceReply } from './schema.ts'
import { insertWorkspace } from './store.ts'

/**
 * Makes a workspace and the first root key of it, which holds `*` there and nothing elsewhere, and ends with the operator
 * root key that makes it.
 */
export async function createWorkspace(
  services: Services,
  call: Call,
  { name }: CreateWorkspaceBody,
): Promise<CreateWorkspaceReply> {
  const actor = await authenticateOperator(services, call)
  const workspaceId = newId('ws')
  const rootKeyId = newId('key')
  const { key, start, hash } = makeRootSecret()
  const now = services.clock()
  return await services.database.write(async (tx, touch) => {
    await holdRootKey(tx, actor.rootKeyId)
    const { id: grantedBy, expiresAt } = await findGranter(tx, actor, { right: '*', now })
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
    await audit(tx, actor, [
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
    return { workspaceId, rootKeyId, rootKey: key, ...(expiresAt === null ? {} : { expires: expiresAt }) }
  })
}
