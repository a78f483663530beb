import { type AuditActor, type AuditEntry, audit } from '../audit/log.ts'
import type { AnySql } from '../db/connect.ts'
import { findIdentityIds, insertMissingIdentities } from '../identities/store.ts'
import { newId } from '../lib/ids.ts'

/**
 * Finds or makes the identities of these external ids, inside the caller's transaction. Three statements at most,
 * however many; making one is audited.
 * @returns id by externalId, one for each.
 */
export async function ensureIdentities(
  tx: AnySql,
  actor: AuditActor,
  externalIds: readonly string[],
  now: number,
): Promise<Map<string, string>> {
  const wanted = [...new Set(externalIds)]
  if (wanted.length === 0) return new Map()
  const made = await insertMissingIdentities(
    tx,
    actor.workspaceId,
    wanted.map((externalId) => ({ id: newId('id'), externalId })),
    now,
  )
  await audit(
    tx,
    actor,
    made.map(
      ({ id }): AuditEntry => ({
        event: 'identity.create',
        description: `created identity ${id} for a key`,
        resources: [{ type: 'identity', id }],
      }),
    ),
  )
  return await findIdentityIds(tx, actor.workspaceId, wanted)
}
