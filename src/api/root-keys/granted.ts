import { changesOf } from '../../audit/changes.ts'
import { type AuditEntry, audit } from '../../audit/log.ts'
import type { AnySql } from '../../db/connect.ts'
import type { Invalidate } from '../../records/database.ts'
import { elsewhere, fieldsOf } from './audit.ts'
import { type Actor, inWorkspace } from './authorize.ts'
import { endsLater, type Granter, requireMayChange } from './granter.ts'
import {
  disableRootKeys,
  endRootKeys,
  type GrantedRow,
  lockGranted,
  type RootKeyChange,
  softDeleteRootKeys,
} from './store.ts'

/**
 * A change of all root keys that descend from one root key: that it created, directly or through others, and, where the
 * change revokes, what it was rerolled into. There may be many thousands: each function makes a few statements for all of
 * them.
 */
type Change = { tx: AnySql; invalidate: Invalidate; actor: Actor; now: number }

/**
 * Ends the root keys that a root key created in its workspace, directly or through others, no later than itself. Root keys
 * of workspaces that an operator created are independent of the operator's end.
 */
export async function shortenGranted(change: Change, id: string, expiresAt: number): Promise<void> {
  const { tx, actor, now } = change
  const rows = (await lockGranted(tx, id, { withSuccessors: false })).filter(
    (row) => row.workspaceId === actor.workspaceId && endsLater(row.expiresAt, expiresAt),
  )
  await endRootKeys(tx, idsOf(rows), { expiresAt, now })
  await record(change, id, rows, { verb: 'update', after: (row) => ({ ...row, expiresAt }) })
}

/**
 * Disables the root keys that descend from a root key, in every workspace.
 * @throws as {@link requireMayChange}.
 */
export async function disableGranted(change: Change, granter: Granter, id: string): Promise<void> {
  const granted = await lockGranted(change.tx, id, { withSuccessors: true })
  for (const row of granted) requireMayChange(granter, change.actor, row)
  const rows = granted.filter(({ enabled }) => enabled)
  await disableRootKeys(change.tx, idsOf(rows), change.now)
  await record(change, id, rows, { verb: 'update', after: (row) => ({ ...row, enabled: false }) })
}

/** As {@link disableGranted}, but deletes them. */
export async function deleteGranted(change: Change, granter: Granter, id: string): Promise<void> {
  const rows = await lockGranted(change.tx, id, { withSuccessors: true })
  for (const row of rows) requireMayChange(granter, change.actor, row)
  await softDeleteRootKeys(change.tx, idsOf(rows), change.now)
  await record(change, id, rows, { verb: 'delete', after: () => null })
}

const idsOf = (rows: readonly GrantedRow[]) => rows.map(({ id }) => id)

/** Writes an audit event in the workspace of each root key. */
async function record(
  { tx, invalidate, actor }: Change,
  id: string,
  rows: readonly GrantedRow[],
  { verb, after }: { verb: 'update' | 'delete'; after: (row: GrantedRow) => RootKeyChange | null },
): Promise<void> {
  for (const [workspaceId, theirs] of Map.groupBy(rows, (row) => row.workspaceId)) {
    const isOwn = workspaceId === actor.workspaceId
    const auditActor = isOwn ? actor : elsewhere(actor, inWorkspace(actor, { id: workspaceId }))
    const entries = theirs.map((row): AuditEntry => {
      const then = after(row)
      return {
        event: `rootKey.${verb}`,
        description: `${verb}d root key ${row.id} with root key ${id}, from which it descends`,
        resources: [
          { type: 'rootKey', id: row.id, ...changesOf(fieldsOf(row), then === null ? null : fieldsOf(then)) },
        ],
      }
    })
    await audit(tx, auditActor, entries)
  }
  invalidate(...idsOf(rows))
}
