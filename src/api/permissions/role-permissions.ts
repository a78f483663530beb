import type { AuditEntry } from '../../audit/log.ts'
import type { Transaction } from '../../db/connect.ts'
import { newId, type WorkspaceId } from '../../lib/ids.ts'
import { holdPermissions, insertPermissions, type PermissionRow } from './store.ts'

/**
 * Creates permissions with these slugs, which did not exist a moment ago. Of several transactions at once, one creates it and
 * the others use it.
 * @returns those created here, and those that another transaction created meanwhile; none can be deleted before the end of
 *   this transaction.
 */
export async function makePermissions(
  tx: Transaction,
  workspaceId: WorkspaceId,
  slugs: readonly string[],
  now: number,
): Promise<{ made: PermissionRow[]; others: PermissionRow[] }> {
  const made: PermissionRow[] = []
  const others: PermissionRow[] = []
  let missing = slugs
  // One that another transaction created may be deleted again before we hold it: then it is ours to create.
  for (let attempt = 0; missing.length > 0; attempt++) {
    if (attempt === ATTEMPTS_MAX) throw new Error('permissions were deleted as fast as they were made')
    const wanted = missing.map((slug) => ({ id: newId('perm'), name: slug, slug, description: null }))
    const insertedIds = new Set(await insertPermissions(tx, workspaceId, wanted, now))
    const raced = wanted.filter(({ id }) => !insertedIds.has(id)).map(({ slug }) => slug)
    const held = raced.length === 0 ? [] : await holdPermissions(tx, workspaceId, { ids: [], slugs: raced })
    const heldSlugs = new Set(held.map(({ slug }) => slug))
    made.push(...wanted.filter(({ id }) => insertedIds.has(id)))
    others.push(...held)
    missing = raced.filter((slug) => !heldSlugs.has(slug))
  }
  return { made, others }
}

const ATTEMPTS_MAX = 5

type Linked = { id: string; name: string }

export const createdForRole = ({ id, name }: Linked): AuditEntry => ({
  event: 'permission.create',
  description: `created permission ${id} for a role`,
  resources: [{ type: 'permission', id, name }],
})

export const connected = (roleId: string, { id, name }: Linked): AuditEntry => ({
  event: 'authorization.connect_permission_and_role',
  description: `connected permission ${id} and role ${roleId}`,
  resources: [
    { type: 'role', id: roleId },
    { type: 'permission', id, name },
  ],
})

export const disconnected = (roleId: string, { id, name }: Linked): AuditEntry => ({
  event: 'authorization.disconnect_permission_and_role',
  description: `disconnected permission ${id} and role ${roleId}`,
  resources: [
    { type: 'role', id: roleId },
    { type: 'permission', id, name },
  ],
})
