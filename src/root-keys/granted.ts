import { changesOf } from '../audit/changes.ts'
import { audit } from '../audit/log.ts'
import type { AnySql } from '../db/connect.ts'
import type { Touch } from '../db/database.ts'
import { elsewhere, fieldsOf } from './audit.ts'
import { type Actor, inWorkspace } from './authorize.ts'
import { endsLater, type Granter, requireMayChange } from './granter.ts'
import {
  changeRootKey,
  type GrantedRow,
  lockGranted,
  type RootKeyChange,
  softDeleteRootKey,
} from './store.ts'

type Change = { tx: AnySql; touch: Touch; actor: Actor; now: number }

/**
 * After a root key got an earlier end: what it granted in its workspace ends then too, and what that granted. Workspaces
 * that an operator made are on their own.
 */
export async function shortenGranted(change: Change, id: string, expiresAt: number): Promise<void> {
  for (const granted of await lockGranted(change.tx, id))
    if (granted.workspaceId === change.actor.workspaceId && endsLater(granted.expiresAt, expiresAt))
      await changeGranted(change, granted, { expiresAt })
}

/** Disables all that a root key granted, and what that granted, in every workspace. @throws as {@link requireMayChange}. */
export async function disableGranted(change: Change, granter: Granter, id: string): Promise<void> {
  for (const granted of await lockGranted(change.tx, id)) {
    requireMayChange(granter, change.actor, granted)
    if (granted.enabled) await changeGranted(change, granted, { enabled: false })
  }
}

/** Deletes them instead. */
export async function deleteGranted(change: Change, granter: Granter, id: string): Promise<void> {
  const { tx, touch, now } = change
  for (const granted of await lockGranted(tx, id)) {
    requireMayChange(granter, change.actor, granted)
    await softDeleteRootKey(tx, granted.id, now)
    await audit(tx, auditActor(change.actor, granted), [
      {
        event: 'rootKey.delete',
        description: `deleted root key ${granted.id} with root key ${id}, which granted it`,
        resources: [{ type: 'rootKey', id: granted.id, ...changesOf(fieldsOf(granted), null) }],
      },
    ])
    touch(granted.id)
  }
}

async function changeGranted(
  { tx, touch, actor, now }: Change,
  granted: GrantedRow,
  fields: Partial<RootKeyChange>,
): Promise<void> {
  const after = { ...granted, ...fields }
  await changeRootKey(tx, granted.id, after, now)
  await audit(tx, auditActor(actor, granted), [
    {
      event: 'rootKey.update',
      description: `updated root key ${granted.id} with root key ${granted.grantedBy}, which granted it`,
      resources: [{ type: 'rootKey', id: granted.id, ...changesOf(fieldsOf(granted), fieldsOf(after)) }],
    },
  ])
  touch(granted.id)
}

const auditActor = (actor: Actor, { workspaceId }: GrantedRow) =>
  workspaceId === actor.workspaceId ? actor : elsewhere(actor, inWorkspace(actor, { id: workspaceId }))
