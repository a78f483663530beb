import { changesOf } from '../../audit/changes.ts'
import { type AuditEntry, audit } from '../../audit/log.ts'
import type { AnySql } from '../../db/connect.ts'
import { notFound } from '../../errors.ts'
import { newId, type WorkspaceId } from '../../lib/ids.ts'
import { makeRootSecret } from '../../verify/secret.ts'
import type { Services } from '../parts.ts'
import { lockWorkspace } from '../workspaces/store.ts'
import { elsewhere, fieldsOf } from './audit.ts'
import { type Actor, inWorkspace } from './authorize.ts'
import { findGranter, requireHeld, requireNotLater } from './granter.ts'
import { holdRootKey, insertRootKey } from './store.ts'

export type RootKeyWanted = {
  /** Shown to people; null = none. */
  name: string | null
  /** Duplicates are ignored. */
  permissions: readonly string[]
  /** Refused from this time on, Unix ms; null = as late as the root key that creates it. */
  expiresAt: number | null
  /** Another workspace that the root key is for. Operators only; null = the actor's own. */
  forWorkspaceId: string | null
}

export type CreatedRootKey = {
  id: string
  /** The text of the root key, which is not stored. */
  secret: string
  /** Refused from this time on, Unix ms; null = never. */
  expiresAt: number | null
}

/**
 * Creates a root key that holds no more than the actor and ends no later. It is for the actor's own workspace, or, when an
 * operator says so, for another one, such as one that lost its own root key.
 * @param options.right What the actor must still hold when the root key is created.
 * @throws ApiError as {@link findGranter}; INSUFFICIENT_PERMISSIONS for more than the actor may grant; NOT_FOUND for the
 *   workspace; PRECONDITION_FAILED at a bound of the workspace.
 */
export async function createRootKey(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  { name, forWorkspaceId, ...wanted }: RootKeyWanted,
  { right }: { right: string },
): Promise<CreatedRootKey> {
  const permissions = [...new Set(wanted.permissions)]
  const id = newId('key')
  const { key: secret, start, hash } = makeRootSecret()
  const now = services.clock()
  return await services.database.write(async (tx, invalidate) => {
    const workspaceId = await workspaceFor(tx, actor, forWorkspaceId)
    await holdRootKey(tx, actor.rootKeyId)
    const granter = await findGranter(tx, actor, { right, now })
    requireHeld(granter, permissions)
    const expiresAt = wanted.expiresAt ?? granter.expiresAt
    requireNotLater(granter, expiresAt)
    await insertRootKey(tx, {
      ...{ id, hash, start, name, permissions, expiresAt, now },
      forWorkspaceId: workspaceId,
      isOperator: false,
      grantedBy: granter.id,
    })
    const fields = fieldsOf({ name, permissions, enabled: true, expiresAt })
    const event: AuditEntry = {
      event: 'rootKey.create',
      description: `created root key ${id}${workspaceId === actor.workspaceId ? '' : ` for workspace ${workspaceId}`}`,
      resources: [{ type: 'rootKey', id, ...changesOf(null, fields) }],
    }
    await audit(tx, actor, [event])
    // The event is also in the audit log of the workspace that the root key is for.
    if (workspaceId !== actor.workspaceId) await audit(tx, elsewhere(actor, workspaceId), [event])
    invalidate(hash)
    return { id, secret, expiresAt }
  })
}

async function workspaceFor(tx: AnySql, actor: Actor, id: string | null): Promise<WorkspaceId> {
  if (id === null) return actor.workspaceId
  const workspace = await lockWorkspace(tx, id)
  if (workspace === null) throw notFound('workspace', id)
  return inWorkspace(actor, workspace)
}
