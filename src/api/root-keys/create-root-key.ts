import { changesOf } from '../../audit/changes.ts'
import { type AuditEntry, audit } from '../../audit/log.ts'
import type { AnySql } from '../../db/connect.ts'
import { notFound } from '../../errors.ts'
import { newId, type WorkspaceId } from '../../lib/ids.ts'
import { makeRootSecret } from '../../verify/secret.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { lockWorkspace } from '../workspaces/store.ts'
import { elsewhere, fieldsOf } from './audit.ts'
import { type Actor, anyOf, authenticate, authenticateOperator, inWorkspace } from './authorize.ts'
import { findGranter, requireHeld, requireNotLater } from './granter.ts'
import type { CreateRootKeyBody, CreateRootKeyReply } from './schema.ts'
import { holdRootKey, insertRootKey } from './store.ts'

const RIGHT = 'root_key.*.create_root_key'

/**
 * Makes a root key that holds no more than the caller does, and ends no later. For the caller's own workspace; an operator
 * can name another, such as one that lost its own.
 */
export async function createRootKey(
  services: Services,
  call: Call,
  body: CreateRootKeyBody,
): Promise<CreateRootKeyReply> {
  const actor =
    body.workspaceId === undefined
      ? await authenticate(services, call, anyOf('*', RIGHT))
      : await authenticateOperator(services, call)
  const permissions = [...new Set(body.permissions)]
  const id = newId('key')
  const { key, start, hash } = makeRootSecret()
  const now = services.clock()
  return await services.database.write(async (tx, touch) => {
    const workspaceId = await workspaceFor(tx, actor, body.workspaceId)
    await holdRootKey(tx, actor.rootKeyId)
    const granter = await findGranter(tx, actor, { right: body.workspaceId === undefined ? RIGHT : '*', now })
    requireHeld(granter, permissions)
    const { name = null, expires: expiresAt = granter.expiresAt } = body
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
    // Whose workspace it is sees it too.
    if (workspaceId !== actor.workspaceId) await audit(tx, elsewhere(actor, workspaceId), [event])
    touch(hash)
    return { rootKeyId: id, rootKey: key, ...(expiresAt === null ? {} : { expires: expiresAt }) }
  })
}

async function workspaceFor(tx: AnySql, actor: Actor, id: string | undefined): Promise<WorkspaceId> {
  if (id === undefined) return actor.workspaceId
  const workspace = await lockWorkspace(tx, id)
  if (workspace === null) throw notFound(`workspace ${id}`)
  return inWorkspace(actor, workspace)
}
